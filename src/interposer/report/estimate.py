"""What a graph will take to run: bytes that live at the same time, and operations."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from interposer.core.types import Dim, TensorInfo
from interposer.ir.graph import Graph, Layer
from interposer.ops.control import Constant, Input, Output
from interposer.ops.control_flow import ControlFlow, If

__all__ = ["Estimate", "estimate"]


@dataclass(frozen=True, slots=True)
class Estimate:
    """The plan of one run.

    `peak_bytes` counts the tensors that live at once, and padded copies of images; `operations` what operators count.
    """

    peak_bytes: int
    constant_bytes: int
    operations: int


def estimate(graph: Graph) -> Estimate:
    """Compute the plan of a graph without allocating anything; what has an unknown shape counts as nothing.

    Regions count as often as their layer runs them, or once where that is not known; of two branches, the dearer one.
    """
    order = graph.topological()
    constants = [layer.output.known for layer in order if isinstance(layer.op, Constant)]
    inner = {layer: [estimate(region) for region in layer.regions] for layer in order if layer.regions}
    constant_bytes = sum(map(_bytes, constants)) + sum(
        item.constant_bytes for result in inner.values() for item in result
    )
    peaks = {layer: max(item.peak_bytes - item.constant_bytes for item in result) for layer, result in inner.items()}
    counted = sum(operations(layer) for layer in order if layer not in inner)
    counted += sum(_of_regions(layer, (item.operations for item in result)) for layer, result in inner.items())
    return Estimate(constant_bytes + _peak(order, peaks), constant_bytes, counted)


def operations(layer: Layer) -> int:
    """Return the operations of one layer; 0 where a shape is unknown."""
    infos = [value.known for value in (*layer.values, *layer.outputs)]
    if isinstance(layer.op, Input | Output | Constant) or not all(info.is_concrete for info in infos):
        return 0
    return int(layer.op.operations(layer.input_infos, layer.output_infos))


def _of_regions(layer: Layer, counts: Iterable[int]) -> int:
    if isinstance(layer.op, If):
        return max(counts)
    known = layer.op.iterations(layer.op.arguments(layer.input_infos)) if isinstance(layer.op, ControlFlow) else 1
    return sum(counts) * (1 if known is None else known)


def _peak(order: list[Layer], inner: dict[Layer, int]) -> int:
    """`inner` says how many bytes live at once in the regions of a layer, which all are gone when it has run."""
    left = {value: len(value.consumers) for layer in order for value in layer.outputs}
    live = peak = 0
    for layer in order:
        if isinstance(layer.op, Constant):
            continue
        live += sum(_bytes(value.known) for value in layer.outputs)
        peak = max(peak, live + inner.get(layer, 0) + _scratch(layer))
        taken = dict.fromkeys(layer.values)
        for value in dict.fromkeys((*taken, *layer.outputs)):
            left[value] -= value in taken
            if left[value] == 0 and not value.is_constant:
                live -= _bytes(value.known)
    return peak


_PADS: Final = {"H": ("pad_top", "pad_bottom"), "W": ("pad_left", "pad_right"), "D": ("pad_front", "pad_back")}


def _scratch(layer: Layer) -> int:
    """Return the bytes of the padded copy of an image, and of the windows of a row of it; 0 without padding."""
    layout = getattr(layer.op, "data_layout", None)
    pads = {axis: sum(getattr(layer.op, name, 0) for name in names) for axis, names in _PADS.items()}
    if layout is None or not any(pads.values()):
        return 0
    image = (layer.output_infos if "Transpose" in layer.kind else layer.input_infos)[0]
    if image is None or not image.is_concrete or len(image.shape) != len(layout.value):
        return 0
    sizes = [int(size) + pads.get(axis, 0) for axis, size in zip(layout.value, image.shape, strict=True)]
    return math.prod(sizes) * _computed_itemsize(layer, image) + _row(layer)


def _computed_itemsize(layer: Layer, image: TensorInfo) -> int:
    """Return bytes of an element in the padded copy: pooling sums in 64 bits, convolutions in 32 bits or more."""
    pools = getattr(layer.op, "pool_type", None)
    if pools is not None:
        return image.dtype.itemsize if pools.name == "MAX" else 8
    return max(4, image.dtype.itemsize)


def _row(layer: Layer) -> int:
    """Bytes of the windows of one output row, which a convolution as a matrix product copies at least (im2col)."""
    weights = layer.operand("weights") if layer.kind in ("Convolution2d", "Convolution3d") else None
    output = layer.output_infos[0]
    if weights is None or not (weights.known.is_concrete and output.is_concrete):
        return 0
    width = output.shape[layer.op.data_layout.value.index("W")]  # type: ignore[attr-defined]
    return int(width) * math.prod(map(int, weights.known.shape[1:])) * getattr(layer.op, "groups", 1) * 4


def _bytes(info: TensorInfo) -> int:
    return 0 if isinstance(info.num_bytes, Dim) else int(info.num_bytes)
