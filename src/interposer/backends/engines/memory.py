"""Arrays for packages that share memory only where they may write to it, and how much memory parts need."""

from __future__ import annotations

import numpy as np

from interposer.backend import SubgraphView
from interposer.core.types import Array
from interposer.ir.graph import Layer, Value

__all__ = ["bytes_of", "largest_moment", "shareable"]


def shareable(array: Array) -> Array:
    """Return the array itself, or another one on its memory that may be written to: for engines that only read it."""
    return array if array.flags.writeable else np.asarray(_Writeable(array))


class _Writeable:
    """Memory of an array that is read-only, as if it were not."""

    def __init__(self, array: Array) -> None:
        self.array = array
        place = array.__array_interface__
        self.__array_interface__ = place | {"data": (place["data"][0], False)}


def bytes_of(value: Value) -> int:
    """Return the bytes of a tensor; 0 where its shape is not known."""
    info = value.known
    return int(info.num_bytes) if info.is_tensor and info.is_concrete else 0


def largest_moment(view: SubgraphView) -> int:
    """The bytes of what the layers of a part give, as much as is there at the same time when they run in order."""
    last: dict[Value, Layer | None] = {value: layer for layer in view for value in layer.values}
    last |= dict.fromkeys(view.outputs)  # they stay
    alive = most = 0
    for layer in view:
        alive += sum(map(bytes_of, layer.outputs))
        most = max(most, alive)
        values = {value for value in layer.values if value.producer in view and not value.is_constant}
        alive -= sum(bytes_of(value) for value in values if last[value] is layer)
        alive -= sum(bytes_of(value) for value in layer.outputs if value not in last)  # nobody reads them
    return most
