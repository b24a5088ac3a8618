"""`BackendId`: the name of a backend."""

from __future__ import annotations

from typing import Any

from pyarmnn._arguments import STRING
from pyarmnn._proxy import Proxy

__all__ = ["BackendId"]


class BackendId(Proxy):
    """The name of a backend, such as ``CpuRef`` or ``CpuAcc``; ids of equal names are equal.

    Args:
        id: the name.

    Raises:
        TypeError: the name is no text.
    """

    def __init__(self, id: str) -> None:
        self._id = STRING(id, "new_BackendId", 1)

    def Get(self) -> str:
        """Return the name."""
        return str(self._id)

    def IsCpuRef(self) -> bool:
        """Return whether this is the reference backend."""
        return bool(self._id == "CpuRef")

    def __str__(self) -> str:
        return self.Get()

    def __eq__(self, other: Any) -> bool:
        return isinstance(other, BackendId) and self._id == other._id

    def __hash__(self) -> int:
        return hash(self._id)
