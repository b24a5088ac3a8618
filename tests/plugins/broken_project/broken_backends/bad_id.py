"""Cannot be imported either, as its id is refused where the class is made."""

from typing import ClassVar

from interposer.backend import Backend


class BadId(Backend):
    id: ClassVar = "Bad Id"
