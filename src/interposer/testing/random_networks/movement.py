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
    draw, kind = growth.draw, growth.draw.below(6)
    shape: tuple[int, ...] = tuple(value.known.shape)
    if kind == 0 and value.known.num_elements:
        target: tuple[int, ...] = (-1,)
    elif kind == 1 and shape and value.known.num_elements:
        target = (shape[0], -1)
    elif kind == 2 and len(shape) < 6:
        place = draw.integer(0, len(shape))
        target = (*shape[:place], 1, *shape[place:])
    elif kind == 3:
        target = tuple(size for size in shape if size != 1)
    else:
        target = _factored(growth, math.prod(shape))
    growth.add(Reshape(target), value)


@grower(8, Transpose, Permute)
def _transpose(growth: Growth, value: Value) -> None:
    draw, rank = growth.draw, value.known.rank
    usual = {4: ((0, 2, 3, 1), (0, 3, 1, 2), (0, 2, 1, 3)), 3: ((0, 2, 1), (1, 0, 2)), 2: ((1, 0),)}
    order = draw.one_of(usual[rank]) if rank in usual and draw.chance(2, 3) else draw.order(rank)
    kind = growth.choice((Transpose, Transpose, Transpose, Permute), lambda op: op)
    growth.add(kind(order), value)


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
    items = [_item(growth, dim) for dim in shape[: draw.integer(1, len(shape))]]
    masks = {"begin_mask": 0, "end_mask": 0, "shrink_axis_mask": 0, "new_axis_mask": 0, "ellipsis_mask": 0}
    for place in range(len(items)):
        name = draw.weighted((*masks, ""), (2, 2, 1, 0, 0, 8))
        if name == "shrink_axis_mask" or name in ("begin_mask", "end_mask"):
            masks[name] |= 1 << place
    if draw.chance(1, 6) and len(shape) < 6:
        masks["new_axis_mask"] = 1 << len(items)
        items.append((0, 1, 1))
    elif draw.chance(1, 6):
        items.append((0, 0, 1))
        masks["ellipsis_mask"] = 1 << len(items) - 1
    begin, end, stride = zip(*items, strict=True)
    growth.add(StridedSlice(begin, end, stride, **masks), value)


def _item(growth: Growth, dim: int) -> tuple[int, int, int]:
    draw = growth.draw
    first, last = sorted((draw.below(dim), draw.below(dim)))
    step = draw.weighted((1, 2, 3, 7), (4, 3, 1, 1))
    begin, end, stride = (first, last + 1, step) if draw.chance(2, 3) else (last, first - 1, -step)
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
    q = info.quantization
    if q is None or info.dtype.bits > 16:
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
    others = [value for value in growth.values if _joins(value.known, info, axis)]
    chosen = [draw.one_of(others) for _ in range(draw.weighted((1, 2, 3), (5, 2, 1)))]
    if info.dtype.is_float and draw.chance(1, 4):
        shape = list(info.shape)
        shape[axis] = draw.size(9)
        chosen.append(growth.weights(shape, growth.reach(value), info.dtype))
    chosen.insert(draw.integer(0, len(chosen)), value)
    if growth.choice((Concat, Concat, Concat, Stack), lambda op: op) is Concat:
        op: Concat | Stack = Concat(_signed(growth, axis, info.rank))
    else:
        chosen = [item for item in chosen if item.known.shape == info.shape]
        op = Stack(_signed(growth, axis, info.rank + 1))
    [inferred] = op.infer_infos(*(item.known for item in chosen))
    assert inferred is not None
    outputs = pooled_quantization(growth, chosen).with_constant(None).with_shape(inferred.shape)
    growth.add(op, *chosen, outputs=outputs)


def _per_axis(info: TensorInfo) -> bool:
    return info.quantization is not None and info.quantization.per_axis


def _joins(tensor_info: TensorInfo, info: TensorInfo, axis: int) -> bool:
    if (
        tensor_info.dtype is not info.dtype
        or tensor_info.rank != info.rank
        or tensor_info.is_quantized != info.is_quantized
    ):
        return False
    same = all(a == b for place, (a, b) in enumerate(zip(tensor_info.shape, info.shape, strict=True)) if place != axis)
    return same and not _per_axis(tensor_info)


@grower(6, Splitter)
def _split(growth: Growth, value: Value) -> None:
    draw = growth.draw
    axis = _axis(growth, value)
    left, sizes = value.known.shape[axis], list[int]()
    while left and len(sizes) < 3:
        sizes.append(draw.integer(1, left))
        left -= sizes[-1]
    if left or not sizes or draw.chance(1, 24):
        sizes.append(left)
    growth.add(Splitter(_signed(growth, axis, value.known.rank), tuple(sizes)), value)


@grower(7, Pad)
def _pad(growth: Growth, value: Value) -> None:
    draw, shape = growth.draw, value.known.shape
    if not shape:
        raise Skipped
    mode = draw.weighted(tuple(PaddingMode), (6, 2, 1, 2, 1))
    pairs = [(0, 0)] * len(shape)
    for axis in draw.order(len(shape))[: draw.integer(1, 3)]:
        most = {PaddingMode.REFLECT: shape[axis] - 1, PaddingMode.SYMMETRIC: shape[axis], PaddingMode.WRAP: shape[axis],
                PaddingMode.EDGE: 3 if shape[axis] else 0}.get(mode, 3)  # fmt: skip
        some, other = (draw.integer(0, max(0, min(most, 3))) for _ in range(2))
        pairs[axis] = draw.one_of(((0, some), (some, 0), (some, other)))
    number = draw.one_of((0.0, 0.0, 1.0, -2.5))
    growth.add(Pad(tuple(pairs), number, mode), value)


@grower(4, Tile, BroadcastTo)
def _repeat(growth: Growth, value: Value) -> None:
    draw, shape = growth.draw, tuple(value.known.shape)
    if growth.choice((Tile, BroadcastTo), lambda op: op) is Tile:
        growth.add(Tile(tuple(draw.weighted((1, 2, 3), (5, 3, 1)) for _ in shape)), value)
        return
    wider = tuple(draw.size(9) if size == 1 else size for size in shape)
    if len(shape) < 5 and draw.chance(1, 2):
        wider = (draw.size(4), *wider)
    growth.add(BroadcastTo(wider), value)


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


def _indices(growth: Growth, shape: tuple[int, ...], size: int, least: int | None = None) -> Value:
    """Return int32 or int64 indices into an axis of this size, as a constant or an input of the given shape.

    The indices are at least `least`; None means 0, or sometimes ``-size``, which counts from the end.
    """
    draw = growth.draw
    low = (-size if draw.chance(1, 3) else 0) if least is None else least
    array: Array = draw.integers(shape, low, size - 1)
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
    kind = growth.choice((Gather, Gather, GatherElements, GatherNd), lambda op: op)
    axis = _axis(growth, value)
    if kind is Gather:
        picks = growth.shape(draw.weighted((0, 1, 2), (2, 4, 1)), 17, 64)
        growth.add(Gather(_signed(growth, axis, len(shape))), value, _indices(growth, picks, shape[axis]))
    elif kind is GatherElements:
        picks = tuple(draw.size(17) if place == axis else draw.integer(1, size) for place, size in enumerate(shape))
        growth.add(GatherElements(axis), value, _indices(growth, picks, shape[axis]))
    else:
        depth = draw.integer(1, min(2, len(shape)))
        least = min(shape[:depth])
        growth.add(GatherNd(), value, _indices(growth, (draw.size(9), depth), least, 0))


# --- blocks of images -------------------------------------------------------------------------------------------------


@grower(5, DepthToSpace, SpaceToDepth, BatchToSpaceNd, SpaceToBatchNd, ChannelShuffle)
def _blocks(growth: Growth, value: Value) -> None:
    draw = growth.draw
    x = as_rank(growth, value, 4)
    layout = layout_for(growth)
    h, w, c = layout.axes()
    shape = x.known.shape
    kinds = (DepthToSpace, SpaceToDepth, BatchToSpaceNd, SpaceToBatchNd, ChannelShuffle)
    kind = growth.choice(kinds, lambda op: op)
    if kind is ChannelShuffle:
        axis = _axis(growth, x)
        groups = [count for count in range(1, shape[axis] + 1) if shape[axis] % count == 0]
        if not groups:
            raise Skipped
        growth.add(ChannelShuffle(draw.one_of(groups), axis), x)
    elif kind is DepthToSpace:
        sizes = [size for size in (1, 2, 3, 4) if shape[c] % size**2 == 0]
        growth.add(DepthToSpace(draw.one_of(sizes[-2:]), layout, draw.one_of(tuple(DepthToSpaceMode))), x)
    elif kind is SpaceToDepth:
        sizes = [size for size in (1, 2, 3, 4) if shape[h] % size == 0 == shape[w] % size]
        growth.add(SpaceToDepth(draw.one_of(sizes[-2:]), layout), x)
    elif kind is SpaceToBatchNd:
        _to_batch(growth, x, layout)
    else:
        blocks = [(a, b) for a in (1, 2, 3) for b in (1, 2, 3) if shape[0] % (a * b) == 0]
        growth.add(BatchToSpaceNd(draw.one_of(blocks), ((0, 0), (0, 0)), layout), x)


def _to_batch(growth: Growth, x: Value, layout: DataLayout) -> None:
    draw = growth.draw
    h, w, _ = layout.axes()
    blocks = (draw.integer(1, 3), draw.integer(1, 3))
    missing = [-x.known.shape[axis] % block for axis, block in zip((h, w), blocks, strict=True)]
    pads = [(0, count) if draw.chance(1, 2) else (count, 0) for count in missing]
    result = growth.add(SpaceToBatchNd(blocks, tuple(pads), layout), x)
    if draw.chance(1, 2):
        growth.add(BatchToSpaceNd(blocks, tuple(pads), layout), result)


@grower(1, Shape)
def _shape(growth: Growth, value: Value) -> None:
    growth.add(Shape(growth.draw.one_of((DataType.INT32, DataType.INT64))), value, reach=16.0, positive=True)
