"""Converters of layers that combine, divide and rearrange tensors."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from interposer.core.types import integer_range
from interposer.formats.armnn.schema import PADDING_MODES
from interposer.frontends.armnn.armnn_converters import layer
from interposer.frontends.armnn.node import Node
from interposer.frontends.flatbuffer import Record
from interposer.ir.graph import Value
from interposer.ops.rearrange import (
    Concat,
    Pad,
    PaddingMode,
    Permute,
    ReverseV2,
    Slice,
    Splitter,
    Stack,
    Tile,
    Transpose,
)

__all__: list[str] = []


@layer("Concat", "Merger")
def concat(node: Node) -> list[Value]:
    """Convert Concat; the origins of its views say where each input goes."""
    values = node.inputs()
    origins = _vectors(node, node.descriptor["viewOrigins"], len(values))
    shapes = [node.shape(value) for value in values]
    axes = [axis for axis in range(len(shapes[0])) if any(origin[axis] for origin in origins)]
    if len(axes) > 1:
        node.fail(f"its inputs are placed along the axes {axes}; only one axis is supported")
    axis = axes[0] if axes else node.descriptor["concatAxis"]
    order = sorted(range(len(values)), key=lambda number: origins[number][axis] if axes else 0)
    if axes:
        _check_gapless(node, [(origins[number][axis], shapes[number][axis]) for number in order])
    return node.result(Concat(axis), *(values[number] for number in order))


def _vectors(node: Node, records: Sequence[Record] | None, count: int) -> list[list[int]]:
    """Return vectors of the descriptor, one for each of `count` views, each as long as the views have dimensions."""
    result = [[] if item["data"] is None else item["data"].tolist() for item in records or ()]
    if len(result) != count:
        node.fail(f"it has {len(result)} views for {count} tensors")
    ranks = {len(numbers) for numbers in result}
    if not count or ranks != {node.tensor(0).known.rank}:
        node.fail(f"its views have {sorted(ranks)} dimensions; expected {node.tensor(0).known.rank}")
    return result


def _check_gapless(node: Node, places: Sequence[tuple[int, int]]) -> None:
    """Fail if the views, given by origin and size along an axis, leave gaps or overlap."""
    end = 0
    for origin, size in places:
        if origin != end:
            node.fail(f"one of its views begins at {origin}; expected {end}, where the one before ends")
        end += size


@layer("Splitter")
def splitter(node: Node) -> list[Value]:
    """Convert Splitter; views that do not divide one axis from start to end become slices."""
    x, record = node.tensor(), node.descriptor["origins"]
    if record is None:
        node.fail("it has no origins")
    origins = _vectors(node, record["viewOrigins"], len(node.infos))
    sizes = _vectors(node, node.descriptor["viewSizes"], len(node.infos))
    axis = _divided_axis(node.shape(x), origins, sizes)
    if axis is not None:
        return node.result(Splitter(axis, tuple(size[axis] for size in sizes)), x)
    views = zip(origins, sizes, node.infos, strict=True)
    slices = [node.add(Slice(tuple(begin), tuple(size)), x, like=info) for begin, size, info in views]
    return [node.given(value, slot) for slot, value in enumerate(slices)]


def _divided_axis(
    shape: tuple[int, ...], origins: Sequence[Sequence[int]], sizes: Sequence[Sequence[int]]
) -> int | None:
    """Return the axis that the views divide from start to end, in order; None if there is none."""
    for axis in range(len(shape)):
        ends = np.cumsum([size[axis] for size in sizes]).tolist()
        begins = [[begin if at == axis else 0 for at in range(len(shape))] for begin in [0, *ends[:-1]]]
        whole = all(size[at] == shape[at] for size in sizes for at in range(len(shape)) if at != axis)
        if whole and ends[-1] == shape[axis] and list(map(list, origins)) == begins:
            return axis
    return None


@layer("Stack")
def stack(node: Node) -> list[Value]:
    """Convert Stack."""
    values = [node.input(number) for number in range(node.descriptor["numInputs"])]
    return node.result(Stack(node.descriptor["axis"]), *values)


@layer("Pad")
def pad(node: Node) -> list[Value]:
    """Convert Pad, whose value is a quantized one for quantized tensors."""
    x, value = node.tensor(), float(node.descriptor["padValue"])
    q = x.known.quantization
    if q is not None:
        low, high = integer_range(x.known.dtype)
        value = float((min(max(np.rint(value), low), high) - q.zero_point) * q.scale)
    mode = node.member("paddingMode", PADDING_MODES, PaddingMode)
    return node.result(Pad(node.pairs("padList"), value, mode), x)


@layer("Permute")
def permute(node: Node) -> list[Value]:
    """Convert Permute: axis i of the input becomes axis ``dimMappings[i]``."""
    return node.result(Permute(node.numbers("dimMappings")), node.tensor())


@layer("Transpose")
def transpose(node: Node) -> list[Value]:
    """Convert Transpose: axis i of the result is axis ``dimMappings[i]`` of the input."""
    return node.result(Transpose(node.numbers("dimMappings")), node.tensor())


@layer("Tile")
def tile(node: Node) -> list[Value]:
    """Convert Tile."""
    return node.result(Tile(node.numbers("m_Multiples")), node.tensor())


@layer("ReverseV2")
def reverse(node: Node) -> list[Value]:
    """Convert ReverseV2, whose axes are an input; they must be a constant."""
    axes = node.input(1).constant
    if axes is None or axes.dtype.kind != "i":
        node.fail("its axes (input 1) are computed while running; only constant integers are supported")
    return node.result(ReverseV2(tuple(axes.ravel().tolist())), node.tensor())
