"""Arrays for packages that share memory only where they may write to it."""

from __future__ import annotations

import numpy as np

from interposer.types import Array

__all__ = ["shareable"]


def shareable(array: Array) -> Array:
    """The array itself, or another one on its memory that may be written to: for engines that only read it."""
    return array if array.flags.writeable else np.asarray(_Writeable(array))


class _Writeable:
    """Memory of an array that is read-only, as if it were not."""

    def __init__(self, array: Array) -> None:
        self.array = array
        place = array.__array_interface__
        self.__array_interface__ = place | {"data": (place["data"][0], False)}
