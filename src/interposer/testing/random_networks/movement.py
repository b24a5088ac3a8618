"""Growers of operators that move elements: reshapes, transposes, slices, concatenations, padding and gathers."""

from __future__ import annotations

import math

from interposer.core.types import Array, DataLayout, DataType, TensorInfo
from interposer.ir.graph import Value
from interposer.ops import (
    BatchToSpaceNd,
    BroadcastTo,
    ChannelShuffle,
    Concat,
    DepthToSpace,
    DepthToSpaceMode,
    Gather,
    GatherElements,
    GatherNd,
    Pad,
    PaddingMode,
    Permute,
    Reshape,
    ReverseSequence,
    ReverseV2,
    Shape,
    Slice,
    SpaceToBatchNd,
    SpaceToDepth,
    Splitter,
    Stack,
    StridedSlice,
    Tile,
    Transpose,
)
from interposer.testing.random_networks.growers import grower
from interposer.testing.random_networks.growth import Growth, Skipped
from interposer.testing.random_networks.random_windows import as_rank, layout_for

__all__: list[str] = []


def _axis(growth: Growth, value: Value) -> int:
    """Return a random axis, counted from the front."""
    if value.known.rank == 0:
        raise Skipped
    return growth.draw.below(value.known.rank)


def _signed(growth: Growth, axis: int, rank: int) -> int:
    """Return the axis counted from the front or, at random, from the end."""
    return axis - rank if growth.draw.chance(1, 3) else axis


def _factored(growth: Growth, count: int) -> tuple[int, ...]:
    """Draw a shape with this number of elements."""
    sizes: list[int] = []
    for _ in range(growth.draw.integer(0, 3)):
        divisors = [size for size in range(1, min(count, 64) + 1) if count % size == 0]
        sizes.append(growth.draw.one_of(divisors) if divisors else 0)
        count //= max(1, sizes[-1])
    sizes.insert(growth.draw.integer(0, len(sizes)), count)
    return tuple(sizes)


@grower(8, Reshape)
def _reshape(growth: Growth, value: Value) -> None:
    draw, variant = growth.draw, growth.draw.below(6)
    shape: tuple[int, ...] = tuple(value.known.shape)
    if variant == 0 and value.known.num_elements:
        target_shape: tuple[int, ...] = (-1,)
    elif variant == 1 and shape and value.known.num_elements:
        target_shape = (shape[0], -1)
    elif variant == 2 and len(shape) < 6:
        axis = draw.integer(0, len(shape))
        target_shape = (*shape[:axis], 1, *shape[axis:])
    elif variant == 3:
        target_shape = tuple(size for size in shape if size != 1)
    else:
        target_shape = _factored(growth, math.prod(shape))
    growth.add(Reshape(target_shape), value)


@grower(8, Transpose, Permute)
def _transpose(growth: Growth, value: Value) -> None:
    draw, rank = growth.draw, value.known.rank
    usual_orders = {4: ((0, 2, 3, 1), (0, 3, 1, 2), (0, 2, 1, 3)), 3: ((0, 2, 1), (1, 0, 2)), 2: ((1, 0),)}
    order = draw.one_of(usual_orders[rank]) if rank in usual_orders and draw.chance(2, 3) else draw.order(rank)
    op_class = growth.choice((Transpose, Transpose, Transpose, Permute), lambda op: op)
    growth.add(op_class(order), value)


@grower(6, Slice)
def _slice(growth: Growth, value: Value) -> None:
    draw, shape = growth.draw, value.known.shape
    begin, size = [], []
    for dim in shape:
        count = dim if draw.chance(1, 2) else draw.integer(min(1, dim), dim)
        begin.append(draw.integer(0, dim - count))
        size.append(-1 if begin[-1] + count == dim and draw.chance(1, 2) else count)
    growth.add(Slice(tuple(begin), tuple(size)), value)


@grower(6, StridedSlice)
def _strided_slice(growth: Growth, value: Value) -> None:
    """Add a slice with positive or negative steps, which may drop axes, add axes, or skip axes by an ellipsis."""
    draw, shape = growth.draw, value.known.shape
    if not shape or 0 in shape:
        raise Skipped
    ranges = [_range(growth, dim) for dim in shape[: draw.integer(1, len(shape))]]
    masks = {"begin_mask": 0, "end_mask": 0, "shrink_axis_mask": 0, "new_axis_mask": 0, "ellipsis_mask": 0}
    for axis in range(len(ranges)):
        mask = draw.weighted((*masks, ""), (2, 2, 1, 0, 0, 8))
        if mask == "shrink_axis_mask" or mask in ("begin_mask", "end_mask"):
            masks[mask] |= 1 << axis
    if draw.chance(1, 6) and len(shape) < 6:
        masks["new_axis_mask"] = 1 << len(ranges)
        ranges.append((0, 1, 1))
    elif draw.chance(1, 6):
        ranges.append((0, 0, 1))
        masks["ellipsis_mask"] = 1 << len(ranges) - 1
    begin, end, stride = zip(*ranges, strict=True)
    growth.add(StridedSlice(begin, end, stride, **masks), value)


def _range(growth: Growth, dim: int) -> tuple[int, int, int]:
    draw = growth.draw
    lowest, highest = sorted((draw.below(dim), draw.below(dim)))
    step = draw.weighted((1, 2, 3, 7), (4, 3, 1, 1))
    begin, end, stride = (lowest, highest + 1, step) if draw.chance(2, 3) else (highest, lowest - 1, -step)
    if stride < 0 and end < 0:
        end -= dim
    elif draw.chance(1, 4):
        begin, end = begin - dim, end - dim if 0 < end < dim else end
    return begin, end, stride


def pooled_quantization(growth: Growth, values: list[Value]) -> TensorInfo:
    """Return the info, apart from the shape, for the concatenation of these values.

    It is that of the first value; in half of the cases, a quantized result gets a new quantization that fits all
    values.
    """
    info = values[0].known
    quantization = info.quantization
    if quantization is None or info.dtype.bits > 16:
        return info
    if growth.draw.chance(1, 2):
        reach = max(growth.reach(value) for value in values)
        return info.with_quantization(growth.quantization(info.dtype, reach))
    return info


@grower(9, Concat, Stack)
def _concat(growth: Growth, value: Value) -> None:
    """Add a concatenation of the value with others that have the same sizes along all other axes.

    If there are none, the value is concatenated with itself or with a constant.
    """
    draw, info = growth.draw, value.known
    axis = _axis(growth, value)
    if _per_axis(info):
        raise Skipped
    joinable = [value for value in growth.values if _joins(value.known, info, axis)]
    operands = [draw.one_of(joinable) for _ in range(draw.weighted((1, 2, 3), (5, 2, 1)))]
    if info.dtype.is_float and draw.chance(1, 4):
        shape = list(info.shape)
        shape[axis] = draw.size(9)
        operands.append(growth.weights(shape, growth.reach(value), info.dtype))
    operands.insert(draw.integer(0, len(operands)), value)
    if growth.choice((Concat, Concat, Concat, Stack), lambda op: op) is Concat:
        op: Concat | Stack = Concat(_signed(growth, axis, info.rank))
    else:
        operands = [operand for operand in operands if operand.known.shape == info.shape]
        op = Stack(_signed(growth, axis, info.rank + 1))
    [inferred_info] = op.infer_infos(*(operand.known for operand in operands))
    assert inferred_info is not None
    outputs = pooled_quantization(growth, operands).with_constant(None).with_shape(inferred_info.shape)
    growth.add(op, *operands, outputs=outputs)


def _per_axis(info: TensorInfo) -> bool:
    return info.quantization is not None and info.quantization.per_axis


def _joins(candidate: TensorInfo, info: TensorInfo, axis: int) -> bool:
    if candidate.dtype is not info.dtype or candidate.rank != info.rank or candidate.is_quantized != info.is_quantized:
        return False
    is_same = all(a == b for index, (a, b) in enumerate(zip(candidate.shape, info.shape, strict=True)) if index != axis)
    return is_same and not _per_axis(candidate)


@grower(6, Splitter)
def _split(growth: Growth, value: Value) -> None:
    draw = growth.draw
    axis = _axis(growth, value)
    size_left, sizes = value.known.shape[axis], list[int]()
    while size_left and len(sizes) < 3:
        sizes.append(draw.integer(1, size_left))
        size_left -= sizes[-1]
    if size_left or not sizes or draw.chance(1, 24):
        sizes.append(size_left)
    growth.add(Splitter(_signed(growth, axis, value.known.rank), tuple(sizes)), value)


@grower(7, Pad)
def _pad(growth: Growth, value: Value) -> None:
    draw, shape = growth.draw, value.known.shape
    if not shape:
        raise Skipped
    mode = draw.weighted(tuple(PaddingMode), (6, 2, 1, 2, 1))
    paddings = [(0, 0)] * len(shape)
    for axis in draw.order(len(shape))[: draw.integer(1, 3)]:
        limit = {PaddingMode.REFLECT: shape[axis] - 1, PaddingMode.SYMMETRIC: shape[axis],
                 PaddingMode.WRAP: shape[axis], PaddingMode.EDGE: 3 if shape[axis] else 0}.get(mode, 3)  # fmt: skip
        amount, other_amount = (draw.integer(0, max(0, min(limit, 3))) for _ in range(2))
        paddings[axis] = draw.one_of(((0, amount), (amount, 0), (amount, other_amount)))
    fill = draw.one_of((0.0, 0.0, 1.0, -2.5))
    growth.add(Pad(tuple(paddings), fill, mode), value)


@grower(4, Tile, BroadcastTo)
def _repeat(growth: Growth, value: Value) -> None:
    draw, shape = growth.draw, tuple(value.known.shape)
    if growth.choice((Tile, BroadcastTo), lambda op: op) is Tile:
        growth.add(Tile(tuple(draw.weighted((1, 2, 3), (5, 3, 1)) for _ in shape)), value)
        return
    broadcast_shape = tuple(draw.size(9) if size == 1 else size for size in shape)
    if len(shape) < 5 and draw.chance(1, 2):
        broadcast_shape = (draw.size(4), *broadcast_shape)
    growth.add(BroadcastTo(broadcast_shape), value)


@grower(3, ReverseV2, ReverseSequence)
def _reverse(growth: Growth, value: Value) -> None:
    draw, rank = growth.draw, value.known.rank
    if rank >= 2 and 0 not in value.known.shape and draw.chance(1, 3):
        time, batch = draw.order(rank)[:2]
        lengths = draw.integers((value.known.shape[batch],), 1, max(1, value.known.shape[time]))
        growth.add(ReverseSequence(time, batch), value, growth.constant(lengths))
        return
    axes = draw.order(rank)[: draw.integer(1, max(1, rank))]
    growth.add(ReverseV2(tuple(_signed(growth, axis, rank) for axis in axes)), value)


# --- picks by indices -------------------------------------------------------------------------------------------------


def _indices(growth: Growth, shape: tuple[int, ...], size: int, lowest: int | None = None) -> Value:
    """Return int32 or int64 indices into an axis of this size, as a constant or an input of the given shape.

    The indices are at least `lowest`; None means 0, or sometimes ``-size``, which counts from the end.
    """
    draw = growth.draw
    lower_bound = (-size if draw.chance(1, 3) else 0) if lowest is None else lowest
    array: Array = draw.integers(shape, lower_bound, size - 1)
    dtype = draw.one_of((DataType.INT32, DataType.INT64))
    array = array.astype(dtype.numpy)
    if draw.chance(1, 4):
        return growth.fed(array, TensorInfo(shape, dtype))
    return growth.constant(array)


@grower(6, Gather, GatherElements, GatherNd)
def _gather(growth: Growth, value: Value) -> None:
    draw, shape = growth.draw, tuple(value.known.shape)
    if not shape or 0 in shape:
        raise Skipped
    op_class = growth.choice((Gather, Gather, GatherElements, GatherNd), lambda op: op)
    axis = _axis(growth, value)
    if op_class is Gather:
        index_shape = growth.shape(draw.weighted((0, 1, 2), (2, 4, 1)), 17, 64)
        growth.add(Gather(_signed(growth, axis, len(shape))), value, _indices(growth, index_shape, shape[axis]))
    elif op_class is GatherElements:
        index_shape = tuple(
            draw.size(17) if other_axis == axis else draw.integer(1, size) for other_axis, size in enumerate(shape)
        )
        growth.add(GatherElements(axis), value, _indices(growth, index_shape, shape[axis]))
    else:
        depth = draw.integer(1, min(2, len(shape)))
        shortest_dim = min(shape[:depth])
        growth.add(GatherNd(), value, _indices(growth, (draw.size(9), depth), shortest_dim, 0))


# --- blocks of images -------------------------------------------------------------------------------------------------


@grower(5, DepthToSpace, SpaceToDepth, BatchToSpaceNd, SpaceToBatchNd, ChannelShuffle)
def _blocks(growth: Growth, value: Value) -> None:
    draw = growth.draw
    x = as_rank(growth, value, 4)
    layout = layout_for(growth)
    h, w, c = layout.axes()
    shape = x.known.shape
    op_classes = (DepthToSpace, SpaceToDepth, BatchToSpaceNd, SpaceToBatchNd, ChannelShuffle)
    op_class = growth.choice(op_classes, lambda op: op)
    if op_class is ChannelShuffle:
        axis = _axis(growth, x)
        groups = [count for count in range(1, shape[axis] + 1) if shape[axis] % count == 0]
        if not groups:
            raise Skipped
        growth.add(ChannelShuffle(draw.one_of(groups), axis), x)
    elif op_class is DepthToSpace:
        sizes = [size for size in (1, 2, 3, 4) if shape[c] % size**2 == 0]
        growth.add(DepthToSpace(draw.one_of(sizes[-2:]), layout, draw.one_of(tuple(DepthToSpaceMode))), x)
    elif op_class is SpaceToDepth:
        sizes = [size for size in (1, 2, 3, 4) if shape[h] % size == 0 == shape[w] % size]
        growth.add(SpaceToDepth(draw.one_of(sizes[-2:]), layout), x)
    elif op_class is SpaceToBatchNd:
        _to_batch(growth, x, layout)
    else:
        blocks = [(a, b) for a in (1, 2, 3) for b in (1, 2, 3) if shape[0] % (a * b) == 0]
        growth.add(BatchToSpaceNd(draw.one_of(blocks), ((0, 0), (0, 0)), layout), x)


def _to_batch(growth: Growth, x: Value, layout: DataLayout) -> None:
    draw = growth.draw
    h, w, _ = layout.axes()
    blocks = (draw.integer(1, 3), draw.integer(1, 3))
    missing_sizes = [-x.known.shape[axis] % block for axis, block in zip((h, w), blocks, strict=True)]
    paddings = [(0, count) if draw.chance(1, 2) else (count, 0) for count in missing_sizes]
    batched = growth.add(SpaceToBatchNd(blocks, tuple(paddings), layout), x)
    if draw.chance(1, 2):
        growth.add(BatchToSpaceNd(blocks, tuple(paddings), layout), batched)


@grower(1, Shape)
def _shape(growth: Growth, value: Value) -> None:
    growth.add(Shape(growth.draw.one_of((DataType.INT32, DataType.INT64))), value, reach=16.0, positive=True)
