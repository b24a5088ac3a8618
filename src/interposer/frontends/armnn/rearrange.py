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
    values = node.values()
    origins = _vectors(node, node.descriptor["viewOrigins"], len(values))
    shapes = [node.shape(value) for value in values]
    axes = [axis for axis in range(len(shapes[0])) if any(origin[axis] for origin in origins)]
    if len(axes) > 1:
        node.fail(f"its inputs are placed along the axes {axes}; only one axis is supported")
    axis = axes[0] if axes else node.descriptor["concatAxis"]
    order = sorted(range(len(values)), key=lambda number: origins[number][axis] if axes else 0)
    if axes:
        _check_gapless(node, [(origins[number][axis], shapes[number][axis]) for number in order])
    return node.results(Concat(axis), *(values[number] for number in order))


def _vectors(node: Node, records: Sequence[Record] | None, count: int) -> list[list[int]]:
    """Return vectors of the descriptor, one for each of `count` views, each as long as the views have dimensions."""
    vectors = [[] if record["data"] is None else record["data"].tolist() for record in records or ()]
    if len(vectors) != count:
        node.fail(f"it has {len(vectors)} views for {count} tensors")
    ranks = {len(numbers) for numbers in vectors}
    if not count or ranks != {node.tensor(0).known.rank}:
        node.fail(f"its views have {sorted(ranks)} dimensions; expected {node.tensor(0).known.rank}")
    return vectors


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
    x, record = node.tensor(0), node.descriptor["origins"]
    if record is None:
        node.fail("it has no origins")
    origins = _vectors(node, record["viewOrigins"], len(node.infos))
    sizes = _vectors(node, node.descriptor["viewSizes"], len(node.infos))
    axis = _divided_axis(node.shape(x), origins, sizes)
    if axis is not None:
        return node.results(Splitter(axis, tuple(size[axis] for size in sizes)), x)
    views = zip(origins, sizes, node.infos, strict=True)
    slices = [
        node.step(Slice(tuple(begin), tuple(size)), x, quantization=info.quantization) for begin, size, info in views
    ]
    return [node.given(value, slot) for slot, value in enumerate(slices)]


def _divided_axis(
    shape: tuple[int, ...], origins: Sequence[Sequence[int]], sizes: Sequence[Sequence[int]]
) -> int | None:
    """Return the axis that the views divide from start to end, in order; None if there is none."""
    for axis in range(len(shape)):
        ends = np.cumsum([size[axis] for size in sizes]).tolist()
        begins = [[begin if at == axis else 0 for at in range(len(shape))] for begin in [0, *ends[:-1]]]
        is_whole = all(size[at] == shape[at] for size in sizes for at in range(len(shape)) if at != axis)
        if is_whole and ends[-1] == shape[axis] and list(map(list, origins)) == begins:
            return axis
    return None


@layer("Stack")
def stack(node: Node) -> list[Value]:
    """Convert Stack."""
    values = [node.value(number) for number in range(node.descriptor["numInputs"])]
    return node.results(Stack(node.descriptor["axis"]), *values)


@layer("Pad")
def pad(node: Node) -> list[Value]:
    """Convert Pad, whose value is a quantized one for quantized tensors."""
    x, padding_value = node.tensor(0), float(node.descriptor["padValue"])
    q = x.known.quantization
    if q is not None:
        low, high = integer_range(x.known.dtype)
        padding_value = float((min(max(np.rint(padding_value), low), high) - q.zero_point) * q.scale)
    mode = node.member("paddingMode", PADDING_MODES, PaddingMode)
    return node.results(Pad(node.pairs("padList"), padding_value, mode), x)


@layer("Permute")
def permute(node: Node) -> list[Value]:
    """Convert Permute: axis i of the input becomes axis ``dimMappings[i]``."""
    return node.results(Permute(node.integers("dimMappings")), node.tensor(0))


@layer("Transpose")
def transpose(node: Node) -> list[Value]:
    """Convert Transpose: axis i of the result is axis ``dimMappings[i]`` of the input."""
    return node.results(Transpose(node.integers("dimMappings")), node.tensor(0))


@layer("Tile")
def tile(node: Node) -> list[Value]:
    """Convert Tile."""
    return node.results(Tile(node.integers("m_Multiples")), node.tensor(0))


@layer("ReverseV2")
def reverse(node: Node) -> list[Value]:
    """Convert ReverseV2, whose axes are an input; they must be a constant."""
    axes = node.value(1).constant
    if axes is None or axes.dtype.kind != "i":
        node.fail("its axes (input 1) are computed while running; only constant integers are supported")
    return node.results(ReverseV2(tuple(axes.ravel().tolist())), node.tensor(0))
