"""Backends that cannot work here, and say so more or less well."""

from typing import ClassVar

from interposer.backend import Backend


class Unavailable(Backend):
    id: ClassVar = "Unavailable"

    @classmethod
    def unavailable(cls):
        return "the package 'acme' is not installed: pip install acme"


class OddlyUnavailable(Backend):
    id: ClassVar = "OddlyUnavailable"

    @classmethod
    def unavailable(cls):
        return False


class RaisesWhenAsked(Backend):
    id: ClassVar = "RaisesWhenAsked"

    @classmethod
    def unavailable(cls):
        raise OSError("no such device")
