"""Converters of layers that combine, divide, rearrange, reshape and select elements of tensors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from interposer.core.schema import Op
from interposer.core.types import integer_range
from interposer.formats.armnn.schema import PADDING_MODES, SCATTER_FUNCTIONS
from interposer.frontends.armnn.armnn_converters import layer
from interposer.frontends.armnn.node import Node
from interposer.frontends.flatbuffer import Record
from interposer.ir.graph import Value
from interposer.ops.blocks import BatchToSpaceNd, ChannelShuffle, DepthToSpace, SpaceToBatchNd, SpaceToDepth
from interposer.ops.gather import Gather, GatherNd
from interposer.ops.quantization import Dequantize, Quantize
from interposer.ops.rearrange import (
    Concat,
    Pad,
    PaddingMode,
    Permute,
    ReverseV2,
    Slice,
    Splitter,
    Stack,
    StridedSlice,
    Tile,
    Transpose,
)
from interposer.ops.reshape import Fill, Rank, Reshape, Shape
from interposer.ops.scatter import ScatterFunction, ScatterNd

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
    quantization = x.known.quantization
    if quantization is not None:
        low, high = integer_range(x.known.dtype)
        padding_value = float(
            (min(max(np.rint(padding_value), low), high) - quantization.zero_point) * quantization.scale
        )
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


# --- reshape ----------------------------------------------------------------------------------------------------------


@layer("Reshape")
def reshape(node: Node) -> list[Value]:
    """Convert Reshape."""
    return node.results(Reshape(node.integers("targetShape")), node.value(0))


@layer("Rank")
def rank(node: Node) -> list[Value]:
    """Convert Rank."""
    return node.results(Rank(), node.value(0))


@layer("Shape")
def shape(node: Node) -> list[Value]:
    """Convert Shape."""
    return node.results(Shape(node.infos[0].dtype), node.tensor(0))


@layer("Fill")
def fill(node: Node) -> list[Value]:
    """Convert Fill. If its dimensions are not constant, the shape of the output slot, if known, replaces them."""
    dims, info = node.tensor(0), node.infos[0]
    if dims.constant is None and info.is_concrete:
        if dims.known.shape.is_concrete and tuple(dims.known.shape) != (info.rank,):
            node.fail(f"its input has the shape {dims.known.shape}, but its result {info.rank} dimensions")
        dims = node.constant(np.array(info.shape, np.int32))
    return node.results(Fill(float(node.descriptor["value"]), info.dtype), dims)


# --- blocks -----------------------------------------------------------------------------------------------------------


@layer("SpaceToBatchNd")
def space_to_batch(node: Node) -> list[Value]:
    """Convert SpaceToBatchNd."""
    return _rescaled(node, SpaceToBatchNd(node.integers("blockShape"), node.pairs("padList"), node.layout()))


@layer("BatchToSpaceNd")
def batch_to_space(node: Node) -> list[Value]:
    """Convert BatchToSpaceNd."""
    return _rescaled(node, BatchToSpaceNd(node.integers("blockShape"), node.pairs("crops"), node.layout()))


def _rescaled(node: Node, op: Op) -> list[Value]:
    """Add a layer that moves elements, and quantize them again if its output has another scale or zero point."""
    x, info = node.value(0), node.infos[0]
    if not info.is_quantized or info.quantization == x.known.quantization:
        return node.results(op, x)
    moved_x = node.step(op, x, quantization=x.known.quantization)
    return node.results(Quantize(info.dtype), node.step(Dequantize(), moved_x))


@layer("SpaceToDepth")
def space_to_depth(node: Node) -> list[Value]:
    """Convert SpaceToDepth."""
    return node.results(SpaceToDepth(node.descriptor["blockSize"], node.layout()), node.value(0))


@layer("DepthToSpace")
def depth_to_space(node: Node) -> list[Value]:
    """Convert DepthToSpace."""
    return node.results(DepthToSpace(node.descriptor["blockSize"], node.layout()), node.value(0))


@layer("ChannelShuffle")
def channel_shuffle(node: Node) -> list[Value]:
    """Convert ChannelShuffle."""
    return node.results(ChannelShuffle(node.descriptor["numGroups"], node.descriptor["axis"]), node.tensor(0))


# --- slices -----------------------------------------------------------------------------------------------------------


@layer("Slice")
def slice_(node: Node) -> list[Value]:
    """Convert Slice."""
    return node.results(Slice(node.integers("begin"), node.integers("size")), node.tensor(0))


class _Range(NamedTuple):
    """The elements of one axis: from `begin` to before `end`; an end of None lies before the first element."""

    begin: int
    end: int | None
    stride: int


@layer("StridedSlice")
def strided_slice(node: Node) -> list[Value]:
    """Convert StridedSlice.

    Arm NN ignores the masks of the ellipsis and of new axes. Positions outside the tensor are clamped: a begin to an
    existing element, also if it lies after the last one.
    """
    x, fields = node.tensor(0), node.descriptor
    sizes = node.shape(x)
    begin, end, stride = (node.integers(name) for name in ("begin", "end", "stride"))
    if not len(begin) == len(end) == len(stride) == len(sizes):
        counts = f"{len(begin)}, {len(end)} and {len(stride)}"
        node.fail(f"begin, end and stride have {counts} numbers for {len(sizes)} axes")
    if 0 in stride:
        node.fail(f"stride is {stride}; expected other numbers than 0")
    along_axes = zip(begin, end, stride, sizes, strict=True)
    ranges = [
        _range(_Range(*axis_values[:3]), axis_values[3], axis, fields) for axis, axis_values in enumerate(along_axes)
    ]
    return node.results(_op(ranges, fields["shrinkAxisMask"]), x)


def _range(stored_range: _Range, size: int, axis: int, fields: Mapping[str, Any]) -> _Range:
    bit, last_index, stride = 1 << axis, size - 1, stored_range.stride
    begin = stored_range.begin + size if stored_range.begin < 0 else stored_range.begin
    if fields["beginMask"] & bit:
        begin = 0 if stride > 0 else last_index
    begin = max(0, min(begin, last_index))
    if fields["shrinkAxisMask"] & bit:
        return _Range(begin, begin + 1, 1)
    assert stored_range.end is not None
    end = stored_range.end + size if stored_range.end < 0 else stored_range.end
    if fields["endMask"] & bit:
        end = size if stride > 0 else -1
    end = max(0, min(end, size)) if stride > 0 else max(-1, min(end, last_index))
    return _Range(begin, None if end < 0 else end, stride)


def _op(ranges: Sequence[_Range], shrink: int) -> StridedSlice:
    ends = sum(1 << axis for axis, bounds in enumerate(ranges) if bounds.end is None)
    return StridedSlice(
        begin=tuple(bounds.begin for bounds in ranges),
        end=tuple(bounds.end or 0 for bounds in ranges),
        stride=tuple(bounds.stride for bounds in ranges),
        end_mask=ends,
        shrink_axis_mask=shrink & ((1 << len(ranges)) - 1),
    )


# --- gather -----------------------------------------------------------------------------------------------------------


@layer("Gather")
def gather(node: Node) -> list[Value]:
    """Convert Gather."""
    return node.results(Gather(node.descriptor["axis"]), node.tensor(0), node.value(1))


@layer("GatherNd")
def gather_nd(node: Node) -> list[Value]:
    """Convert GatherNd."""
    return node.results(GatherNd(), node.tensor(0), node.tensor(1))


@layer("ScatterNd")
def scatter_nd(node: Node) -> list[Value]:
    """Convert ScatterNd; without an input tensor, the first input is the shape of the result."""
    fields = node.descriptor
    if fields["m_AxisEnabled"]:
        node.fail(f"it scatters along axis {fields['m_Axis']}, which is not supported")
    op = ScatterNd(node.member("m_Function", SCATTER_FUNCTIONS, ScatterFunction), fields["m_InputEnabled"])
    return node.results(op, node.tensor(0), node.tensor(1), node.tensor(2))
