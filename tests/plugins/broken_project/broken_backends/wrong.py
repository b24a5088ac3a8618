"""Objects that are not the backends that their entry points promise."""

from typing import ClassVar

from interposer.backend import Backend

NOT_CALLABLE = 5


class NoBackend:
    id = "NoBackend"


class WrongId(Backend):
    id: ClassVar = "Other"


class NoId(Backend):
    pass


class RaisesWhenMade(Backend):
    id: ClassVar = "RaisesWhenMade"

    def __init__(self):
        raise OSError("cannot open /dev/accelerator")


class OddCapabilities(Backend):
    id: ClassVar = "OddCapabilities"
    capabilities: ClassVar = {"HasFp16": True}
