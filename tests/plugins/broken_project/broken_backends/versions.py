"""Backends for other versions of the interface."""

from typing import ClassVar

from interposer.backend import API_VERSION, Backend

MAJOR, MINOR = API_VERSION


class TooNew(Backend):
    id: ClassVar = "TooNew"
    api_version: ClassVar = (MAJOR, MINOR + 1)


class NextMajor(Backend):
    id: ClassVar = "NextMajor"
    api_version: ClassVar = (MAJOR + 1, 0)


class OddVersion(Backend):
    id: ClassVar = "OddVersion"
    api_version: ClassVar = "1.0"
