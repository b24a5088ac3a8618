"""Sharing of read-only arrays with packages that require writable memory, and memory estimates of subgraphs."""

from __future__ import annotations

import numpy as np

from interposer.backend import SubgraphView
from interposer.core.types import Array
from interposer.ir.graph import Layer, Value

__all__ = ["bytes_of", "largest_moment", "shareable"]


def shareable(array: Array) -> Array:
    """Return the array itself, or a writable array on the same memory; only for engines that do not write to it."""
    return array if array.flags.writeable else np.asarray(_Writeable(array))


class _Writeable:
    """The memory of a read-only array, exposed as writable."""

    def __init__(self, array: Array) -> None:
        self.array = array
        interface = array.__array_interface__
        self.__array_interface__ = interface | {"data": (interface["data"][0], False)}


def bytes_of(value: Value) -> int:
    """Return the size of a tensor in bytes; 0 if its shape is unknown."""
    info = value.known
    return int(info.num_bytes) if info.is_tensor and info.is_concrete else 0


def largest_moment(view: SubgraphView) -> int:
    """Return the peak number of bytes of the results of a subgraph's layers that are alive when they run in order."""
    last_reader: dict[Value, Layer | None] = {value: layer for layer in view for value in layer.values}
    last_reader |= dict.fromkeys(view.outputs)  # outputs stay alive until the end
    live_bytes = peak_bytes = 0
    for layer in view:
        live_bytes += sum(map(bytes_of, layer.outputs))
        peak_bytes = max(peak_bytes, live_bytes)
        values = {value for value in layer.values if value.producer in view and not value.is_constant}
        live_bytes -= sum(bytes_of(value) for value in values if last_reader[value] is layer)
        live_bytes -= sum(
            bytes_of(value) for value in layer.outputs if value not in last_reader
        )  # results without a reader are freed at once
    return peak_bytes
