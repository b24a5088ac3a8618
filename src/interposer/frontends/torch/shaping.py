"""Converters for operators that change shapes, or move and repeat elements."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from interposer.core.types import Array, DataLayout, DataType, Dim
from interposer.frontends.bits import reinterpreted
from interposer.frontends.elementwise import NOT_EQUAL
from interposer.frontends.torch.call import Call, Operand, Size
from interposer.frontends.torch.registry import aten
from interposer.frontends.torch.sizes import size_of
from interposer.frontends.torch.tensors import data_type
from interposer.ir.graph import Value
from interposer.ops.blocks import ChannelShuffle, DepthToSpace, DepthToSpaceMode
from interposer.ops.dynamic import DynamicSlice
from interposer.ops.gather import Gather
from interposer.ops.matrices import Trilu
from interposer.ops.rearrange import Pad, PaddingMode, ReverseV2, Splitter, Stack, StridedSlice, Tile
from interposer.ops.scatter import ScatterNd
from interposer.ops.sequence import Range

__all__ = ["picked_strided", "sliced"]

_FARTHEST: Final = 2**31 - 1


# --- shapes -----------------------------------------------------------------------------------------------------------


@aten("view", "view_copy", "reshape", "_unsafe_view", "_reshape_alias", open_sizes=True)
def view(c: Call, x: Value, sizes: Sequence[Size], *_: Any) -> Value:
    """Convert view and reshape."""
    return c.reshape(x, _requested(c, sizes))


def _requested(c: Call, sizes: Sequence[Size]) -> list[Size]:
    """Return the requested sizes; a single unnamed unknown size is -1."""
    size_list = list(sizes)
    unknown_axes = [i for i, size in enumerate(size_list) if isinstance(size, Dim) and size.name is None]
    if len(unknown_axes) == 1 and -1 not in [s for s in size_list if not isinstance(s, Dim | Value)]:
        size_list[unknown_axes[0]] = -1
    return size_list


@aten("flatten.using_ints", open_sizes=True)
def flatten(c: Call, x: Value, start: int = 0, end: int = -1) -> Value:
    """Convert flatten: merge the axes from `start` to `end`, which is included."""
    shape = x.known.shape
    if not len(shape):
        return c.reshape(x, [1])
    first_axis, last_axis = start % len(shape), end % len(shape)
    if first_axis == last_axis:
        return x
    merged_size: Any = math.prod(shape[first_axis : last_axis + 1]) if x.known.is_concrete else -1
    return c.reshape(x, [*shape[:first_axis], merged_size, *shape[last_axis + 1 :]])


@aten("expand_as", "view_as", "reshape_as")
def like_other(c: Call, x: Value, other: Value) -> Value:
    """Convert expand_as, view_as and reshape_as."""
    sizes = list(c.shape(other))
    return c.broadcast(x, sizes) if "expand" in str(c.node.target) else c.reshape(x, sizes)


@aten("unflatten.int")
def unflatten(c: Call, x: Value, dim: int, sizes: Sequence[int]) -> Value:
    """Convert unflatten: divide an axis into several ones."""
    return c.reshape(x, [int(size) for size in c.example.shape])


@aten("view.dtype")
def view_as_type(c: Call, x: Value, dtype: Any) -> Value:
    """Convert view to another data type of the same or another width."""
    target_type = data_type(dtype)
    width, target_width, sizes = x.known.dtype.bits, target_type.bits, list(x.known.shape)
    if target_width > width:
        ratio = target_width // width
        return reinterpreted(c, c.reshape(x, [*c.shape(x)[:-1], sizes[-1] // ratio, ratio]), target_type)
    reinterpreted_x = reinterpreted(c, x, target_type)
    return (
        c.reshape(reinterpreted_x, [*c.shape(x)[:-1], sizes[-1] * (width // target_width)])
        if target_width < width
        else reinterpreted_x
    )


@aten("unsqueeze", "unsqueeze_copy", open_sizes=True)
def unsqueeze(c: Call, x: Value, dim: int) -> Value:
    """Convert unsqueeze."""
    return c.unsqueezed(x, dim % (x.known.rank + 1))


@aten(
    "squeeze.dim", "squeeze.dims", "squeeze", "squeeze_copy", "squeeze_copy.dim", "squeeze_copy.dims", open_sizes=True
)
def squeeze(c: Call, x: Value, dims: Sequence[int] | int | None = None) -> Value:
    """Convert squeeze; axes of another size than 1 stay."""
    shape = x.known.shape
    squeezed_axes = c.axes([dims] if isinstance(dims, int) else dims, len(shape)) if dims not in ([],) else ()
    if dims is None:
        squeezed_axes = tuple(range(len(shape)))
    return c.squeezed(x, *(axis for axis in squeezed_axes if not isinstance(shape[axis], Dim) and shape[axis] == 1))


@aten("permute", "permute_copy", open_sizes=True)
def permute(c: Call, x: Value, dims: Sequence[int]) -> Value:
    """Convert permute."""
    return c.transpose(x, [dim % x.known.rank for dim in dims])


@aten("transpose.int", "transpose_copy.int", open_sizes=True)
def transpose(c: Call, x: Value, first: int, second: int) -> Value:
    """Convert transpose of two axes."""
    rank = x.known.rank
    return c.swapped(x, c.axis(first, rank), c.axis(second, rank)) if rank else x


@aten("mT", open_sizes=True)
def transpose_last(c: Call, x: Value) -> Value:
    """Convert mT: swap the last two axes."""
    return c.swapped(x, x.known.rank - 2, x.known.rank - 1)


@aten("t", "numpy_T", "t_copy", open_sizes=True)
def transpose_matrix(c: Call, x: Value) -> Value:
    """Convert t: reverse the axes."""
    return c.transpose(x, list(range(x.known.rank))[::-1])


@aten("expand", "expand_copy", "broadcast_to", open_sizes=True)
def expand(c: Call, x: Value, sizes: Sequence[Size], implicit: bool = False) -> Value:
    """Convert expand; a size of -1 keeps the size of the operand."""
    shape = x.known.shape
    offset = len(sizes) - len(shape)
    listed_sizes = [
        _kept_size(c, x, i - offset) if _is_rest(size) and i >= offset else size for i, size in enumerate(sizes)
    ]
    return c.broadcast(
        c.reshape(x, [1] * offset + list(shape)) if offset and not shape.is_concrete else x, listed_sizes
    )


def _is_rest(size: Size) -> bool:
    return not isinstance(size, Dim | Value) and size == -1


def _kept_size(c: Call, x: Value, axis: int) -> Size:
    size = x.known.shape[axis]
    return c.runtime_size(x, axis) if isinstance(size, Dim) and size.name is None else size


@aten("repeat")
def repeat(c: Call, x: Value, repeats: Sequence[int]) -> Value:
    """Convert repeat; axes are added at the front if there are more repeats than axes."""
    if any(isinstance(repeat_count, Value) for repeat_count in repeats):
        c.unsupported("its repeats are computed from data")
    shape = c.shape(x)
    expanded = c.reshape(x, [1] * (len(repeats) - len(shape)) + list(shape))
    if not repeats or all(count == 1 for count in repeats):
        return expanded
    return c.step(Tile(tuple(repeats)), expanded)


@aten("repeat_interleave.self_int")
def repeat_elements(c: Call, x: Value, repeats: int, dim: int | None = None, *, output_size: Any = None) -> Value:
    """Convert repeat_interleave with the same number of repeats for each element along an axis."""
    if isinstance(repeats, Value):
        c.unsupported("its repeats are computed from data")
    flat_x = c.reshape(x, [-1]) if dim is None else x
    axis = 0 if dim is None else c.axis(dim, x.known.rank)
    shape = list(c.shape(flat_x))
    repeated_x = c.broadcast(c.unsqueezed(flat_x, axis + 1), [*shape[: axis + 1], repeats, *shape[axis + 1 :]])
    return c.reshape(repeated_x, [*shape[:axis], shape[axis] * repeats, *shape[axis + 1 :]])


@aten("diff")
def diff(
    c: Call, x: Value, n: int = 1, dim: int = -1, prepend: Value | None = None, append: Value | None = None
) -> Value:
    """Convert diff: n times the differences of neighbors along an axis."""
    if n == 0:
        return x
    axis = c.axis(dim, x.known.rank)
    x = c.joined([c.cast(part, c.dtype) for part in (prepend, x, append) if part is not None], axis)
    for _ in range(min(n, c.size(x, axis))):
        size = c.size(x, axis)
        later_part, earlier_part = c.cut(x, axis, 1, size - 1), c.cut(x, axis, 0, size - 1)
        is_bool = c.dtype is DataType.BOOL
        x = c.binary(NOT_EQUAL, later_part, earlier_part) if is_bool else c.minus(later_part, earlier_part)
    return x


# --- parts ------------------------------------------------------------------------------------------------------------


@aten("slice.Tensor", "slice_copy.Tensor", open_sizes=True)
def slice_tensor(
    c: Call, x: Value, dim: int = 0, start: Size | None = None, end: Size | None = None, step: Size = 1
) -> Value:
    """Convert slice, whose bounds are limited to the axis."""
    return sliced(c, x, c.axis(dim, x.known.rank), start, end, step)


def sliced(c: Call, x: Value, axis: int, start: Any, end: Any, step: Any = 1) -> Value:
    """Return a slice along an axis with Python's rules; bounds may be known at run time only."""
    if any(isinstance(bound, Value) for bound in (start, end, step)):
        bounds = [_bound(c, 0 if start is None else start), _bound(c, _FARTHEST if end is None else end)]
        return c.step(DynamicSlice((axis,)), x, *bounds, None if step == 1 else _bound(c, step))
    size = x.known.shape[axis]
    if _same_end(c, size, start, end) and step == 1:
        return x
    if any(isinstance(bound, Dim) for bound in (start, end, step)):
        c.open_shape("a bound of its slice is not known")
    if not isinstance(size, Dim):
        begin, stop, stride = slice(start, end, step).indices(size)
        if stride == 1:
            return c.cut(x, axis, begin, max(0, stop - begin))
        return picked_strided(c, x, axis, begin, max(begin, stop), stride)
    return picked_strided(c, x, axis, start or 0, _FARTHEST if end is None else min(end, _FARTHEST), int(step))


def _same_end(c: Call, size: int, start: Size | None, end: Size | None) -> bool:
    """Return True if a slice takes a whole axis of unknown size."""
    begins = start is None or (not isinstance(start, Dim | Value) and start == 0)
    ends = end is None or end is size or (not isinstance(end, Dim | Value) and end >= _FARTHEST)
    return begins and ends and (isinstance(size, Dim) or end is None)


def _bound(c: Call, bound: Size) -> Value:
    limited_bound = bound if isinstance(bound, Value) else max(-_FARTHEST, min(int(bound), _FARTHEST))
    return c.size_vector([limited_bound])


def picked_strided(c: Call, x: Value, axis: int, start: int, end: int, step: int) -> Value:
    """Return every `step`-th element along an axis from `start` to `end`, which is excluded."""
    rank = x.known.rank
    whole_axes_mask = ((1 << rank) - 1) & ~(1 << axis)
    to_end = whole_axes_mask | ((1 << axis) if end >= _FARTHEST else 0)
    picks = [(start, min(end, _FARTHEST), step) if i == axis else (0, 0, 1) for i in range(rank)]
    begin, stop, stride = zip(*picks, strict=True)
    return c.step(StridedSlice(begin, stop, stride, begin_mask=whole_axes_mask, end_mask=to_end), x)


@aten("select.int", "select_copy.int", open_sizes=True)
def select(c: Call, x: Value, dim: int, index: Size) -> Value:
    """Convert select: one index along an axis, which is removed."""
    axis = c.axis(dim, x.known.rank)
    size = x.known.shape[axis]
    if isinstance(index, Value):
        return c.step(Gather(axis), x, c.cast(index, DataType.INT64))
    if isinstance(index, Dim):
        c.open_shape("its index is not known")
    if isinstance(size, Dim):
        return c.gather(x, index, axis)
    return c.squeezed(c.cut(x, axis, index % size, 1), axis)


@aten("unbind.int", "unbind_copy.int")
def unbind(c: Call, x: Value, dim: int = 0) -> list[Value]:
    """Convert unbind."""
    axis = c.axis(dim, x.known.rank)
    return [c.squeezed(part, axis) for part in _split(c, x, [1] * c.size(x, axis), axis)]


@aten("narrow_copy", "narrow")
def narrow(c: Call, x: Value, dim: int, start: int, length: int) -> Value:
    """Convert narrow: a number of elements along an axis."""
    axis = c.axis(dim, x.known.rank)
    return c.cut(x, axis, start % max(1, c.size(x, axis)) if start < 0 else start, length)


@aten("split_with_sizes", "split.Tensor", "split_with_sizes_copy", "split_copy.Tensor", "split.sizes", "chunk",
      "unsafe_split.Tensor", "unsafe_split_with_sizes", "unsafe_chunk", "tensor_split.sections",
      "tensor_split.indices", open_sizes=True)  # fmt: skip
def split(c: Call, x: Value, sizes: Any, dim: int = 0) -> list[Value]:
    """Convert splits; the sizes of the parts are those of the recorded results."""
    axis = c.axis(dim, x.known.rank)
    known_sizes = getattr(c.importer, "known", {})
    lengths = [size_of(part.shape[axis], known_sizes) for part in c.val]
    if any(isinstance(length, Dim) for length in lengths):
        c.open_shape("the sizes of its parts are not known")
    return _split(c, x, lengths, axis)


def _split(c: Call, x: Value, sizes: Sequence[int], axis: int) -> list[Value]:
    if len(sizes) == 1:
        return [x]
    if isinstance(x.known.shape[axis], Dim):
        c.open_shape("the size of the axis that it splits is not known")
    return c.steps(Splitter(axis, tuple(sizes)), x) if sizes else []


@aten("cat", "concat", "concatenate", open_sizes=True)
def cat(c: Call, tensors: Sequence[Value], dim: int = 0) -> Value:
    """Convert cat; empty vectors among tensors of another rank are left out."""
    rank = c.example.dim()
    values = [c.cast(x, c.dtype) for x in tensors if x.known.rank == rank or tuple(x.known.shape) != (0,)]
    return c.joined(values or [c.cast(tensors[0], c.dtype)], c.axis(dim, rank))


@aten("stack", open_sizes=True)
def stack(c: Call, tensors: Sequence[Value], dim: int = 0) -> Value:
    """Convert stack."""
    values = [c.cast(x, c.dtype) for x in tensors]
    return c.step(Stack(dim % (values[0].known.rank + 1)), *values)


@aten("select_scatter")
def select_scatter(c: Call, x: Value, source: Value, dim: int, index: int) -> Value:
    """Convert select_scatter: replace one index along an axis."""
    axis = c.axis(dim, x.known.rank)
    start = index % c.size(x, axis)
    return _replaced(c, x, c.unsqueezed(c.cast(source, c.dtype), axis), axis, start, start + 1, 1)


@aten("slice_scatter")
def slice_scatter(
    c: Call, x: Value, source: Value, dim: int = 0, start: int | None = None, end: int | None = None, step: int = 1
) -> Value:
    """Convert slice_scatter: replace a slice along an axis."""
    axis = c.axis(dim, x.known.rank)
    begin, stop, _ = slice(start, end, step).indices(c.size(x, axis))
    if stop <= begin:
        return x
    return _replaced(c, x, c.cast(source, c.dtype), axis, begin, stop, step)


def _replaced(c: Call, x: Value, part: Value, axis: int, first: int, last: int, step: int) -> Value:
    """Return x with the indices `range(first, last, step)` along an axis replaced by those of `part`, in order."""
    size = c.size(x, axis)
    count = len(range(first, last, step))
    if count == size:
        return part
    shape = [count if i == axis else n for i, n in enumerate(x.known.shape)]
    part = c.broadcast(part, shape)
    if step == 1:
        pieces = [c.cut(x, axis, 0, first), part, c.cut(x, axis, first + count, size - first - count)]
        return c.joined([piece for piece in pieces if piece.known.shape[axis] != 0], axis)
    places = np.arange(size)
    places[first:last:step] = size + np.arange(count)
    return c.gather(c.joined([x, part], axis), places, axis)


# --- orders -----------------------------------------------------------------------------------------------------------


@aten("flip")
def flip(c: Call, x: Value, dims: Sequence[int]) -> Value:
    """Convert flip."""
    if not dims or not x.known.rank:
        return x
    return c.step(ReverseV2(tuple(dim % x.known.rank for dim in dims)), x)


@aten("roll")
def roll(c: Call, x: Value, shifts: Sequence[int] | int, dims: Sequence[int] | int = ()) -> Value:
    """Convert roll; without axes, the flattened tensor is rolled."""
    shifts = [shifts] if isinstance(shifts, int) else shifts
    dims = [dims] if isinstance(dims, int) else dims
    if not x.known.rank:
        return x
    if not dims:
        shape = c.shape(x)
        return c.reshape(_rolled(c, c.reshape(x, [-1]) if math.prod(shape) else x, shifts[0], 0), shape)
    for shift, dim in zip(shifts, dims, strict=True):
        x = _rolled(c, x, shift, c.axis(dim, x.known.rank))
    return x


def _rolled(c: Call, x: Value, shift: int, axis: int) -> Value:
    size = c.size(x, axis)
    first = -shift % size if size else 0
    return c.joined([c.cut(x, axis, first, size - first), c.cut(x, axis, 0, first)], axis) if first else x


@aten("pixel_shuffle")
def pixel_shuffle(c: Call, x: Value, factor: int) -> Value:
    """Convert pixel_shuffle of images with any number of leading axes."""
    shape = c.shape(x)
    if len(shape) == 4 and factor > 1:
        return c.step(DepthToSpace(factor, DataLayout.NCHW, DepthToSpaceMode.CRD), x)
    *leading_sizes, channels, height, width = shape
    image = c.reshape(x, [math.prod(leading_sizes), channels // factor**2, factor, factor, height, width])
    interleaved = c.transpose(image, [0, 1, 4, 2, 5, 3])
    return c.reshape(interleaved, [*leading_sizes, channels // factor**2, height * factor, width * factor])


@aten("pixel_unshuffle")
def pixel_unshuffle(c: Call, x: Value, factor: int) -> Value:
    """Convert pixel_unshuffle."""
    *leading_sizes, channels, height, width = c.shape(x)
    image = c.reshape(x, [math.prod(leading_sizes), channels, height // factor, factor, width // factor, factor])
    separated = c.transpose(image, [0, 1, 3, 5, 2, 4])
    return c.reshape(separated, [*leading_sizes, channels * factor**2, height // factor, width // factor])


@aten("channel_shuffle", "native_channel_shuffle")
def channel_shuffle(c: Call, x: Value, groups: int) -> Value:
    """Convert channel_shuffle."""
    return c.step(ChannelShuffle(groups, 1), x) if groups > 1 else x


@aten("tril", "triu")
def triangle(c: Call, x: Value, diagonal: int = 0) -> Value:
    """Convert tril and triu."""
    return c.step(Trilu(diagonal, "triu" in str(c.node.target)), x)


@aten("diagonal", "diagonal_copy")
def diagonal(c: Call, x: Value, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Value:
    """Convert diagonal: the elements whose two indices differ by an offset, as the last axis."""
    rank, shape = x.known.rank, c.shape(x)
    first_axis, second_axis = dim1 % rank, dim2 % rank
    other_axes = [i for i in range(rank) if i not in (first_axis, second_axis)]
    diagonal_axes_last = c.transpose(x, [*other_axes, first_axis, second_axis])
    diagonal_axes_last = c.reshape(
        diagonal_axes_last, [*(shape[i] for i in other_axes), shape[first_axis] * shape[second_axis]]
    )
    return c.gather(
        diagonal_axes_last, _diagonal_places(shape[first_axis], shape[second_axis], offset), len(other_axes)
    )


def _diagonal_places(rows: int, columns: int, offset: int) -> Array:
    """Return the places of a diagonal in a matrix of this size, whose rows follow each other."""
    count = max(0, min(rows, columns - offset) if offset >= 0 else min(rows + offset, columns))
    start = offset if offset >= 0 else -offset * columns
    return start + np.arange(count) * (columns + 1)


@aten("diagonal_scatter")
def diagonal_scatter(c: Call, x: Value, source: Value, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Value:
    """Convert diagonal_scatter: replace a diagonal."""
    rank, shape = x.known.rank, c.shape(x)
    first_axis, second_axis = dim1 % rank, dim2 % rank
    order = [*(i for i in range(rank) if i not in (first_axis, second_axis)), first_axis, second_axis]
    numbers = np.arange(math.prod(shape)).reshape(shape).transpose(order)
    lead = numbers.shape[:-2]
    rows = numbers.reshape(*lead, shape[first_axis] * shape[second_axis])
    return _put(c, x, rows[..., _diagonal_places(shape[first_axis], shape[second_axis], offset)], source)


def _put(c: Call, x: Value, places: Array, source: Value) -> Value:
    """Return x with the elements at flat places replaced by those of a source of the same shape as the places."""
    if not places.size:
        return x
    flat_x = c.reshape(x, [math.prod(c.shape(x))])
    rows = c.constant(np.ascontiguousarray(places.reshape(-1, 1)))
    written = c.step(ScatterNd(), flat_x, rows, c.reshape(c.cast(source, x.known.dtype), [places.size]))
    return c.reshape(written, list(c.shape(x)))


@aten("as_strided", "as_strided_copy")
def as_strided(c: Call, x: Value, sizes: Sequence[int], strides: Sequence[int], offset: int | None = None) -> Value:
    """Convert as_strided of a tensor that is contiguous in PyTorch, as a gather of elements."""
    node = c.node.args[0]
    value = node.meta["val"]
    if not value.is_contiguous() or (value.storage_offset() and node.op != "placeholder"):
        c.unsupported("its operand is not contiguous")
    return c.gather(c.reshape(x, [math.prod(c.shape(x))]), _strided_places(sizes, strides, offset), 0)


def _strided_places(sizes: Sequence[int], strides: Sequence[int], offset: int | None) -> Array:
    flat_positions: Array = np.array(offset or 0)
    for size, stride in zip(sizes, strides, strict=True):
        flat_positions = flat_positions[..., None] + np.arange(size) * stride
    return flat_positions


@aten("as_strided_scatter")
def as_strided_scatter(
    c: Call, x: Value, source: Value, sizes: Sequence[int], strides: Sequence[int], offset: int | None = None
) -> Value:
    """Convert as_strided_scatter of a tensor that is contiguous in PyTorch."""
    if not c.node.args[0].meta["val"].is_contiguous():
        c.unsupported("its operand is not contiguous")
    return _put(c, x, _strided_places(sizes, strides, offset), source)


@aten("unfold", "unfold_copy")
def unfold(c: Call, x: Value, dim: int, size: int, step: int) -> Value:
    """Convert unfold: windows along an axis, whose elements become the last axis."""
    rank = x.known.rank
    if not rank:
        return c.reshape(x, [1]) if size else c.cut(c.reshape(x, [1]), 0, 0, 0)
    axis = c.axis(dim, rank)
    count = (c.size(x, axis) - size) // step + 1
    places = np.arange(count)[:, None] * step + np.arange(size)
    windows = c.gather(x, places, axis)
    return c.transpose(windows, [*range(axis + 1), *range(axis + 2, rank + 1), axis + 1])


# --- padding ----------------------------------------------------------------------------------------------------------


@aten("constant_pad_nd")
def constant_pad(c: Call, x: Value, pads: Sequence[int], value: Operand = 0) -> Value:
    """Convert constant_pad_nd; negative pads crop."""
    if isinstance(value, Value):
        c.unsupported("its value is computed at run time")
    pads_by_axis = _pairs(pads, x.known.rank)
    for axis, (before, after) in enumerate(pads_by_axis):
        if before < 0 or after < 0:
            size = c.size(x, axis)
            start = max(0, -before)
            x = c.cut(x, axis, start, size - start - max(0, -after))
    positive_pads = tuple((max(0, before), max(0, after)) for before, after in pads_by_axis)
    if not any(map(any, positive_pads)):
        return x
    if isinstance(value, float) and not x.known.dtype.is_float:
        value = int(value)
    return c.step(Pad(positive_pads, float(value)), x)


def _pairs(pads: Sequence[int], rank: int) -> list[tuple[int, int]]:
    """Return pads as pairs for each axis; PyTorch lists them from the last axis on."""
    given_pairs = list(zip(pads[::2], pads[1::2], strict=True))
    return [(0, 0)] * (rank - len(given_pairs)) + given_pairs[::-1]


@aten("pad")
def pad(c: Call, x: Value, pads: Sequence[int], mode: str = "constant", value: Operand | None = None) -> Value:
    """Convert pad in all its modes."""
    if mode == "constant":
        return constant_pad(c, x, pads, 0 if value is None else value)
    return _padded(c, x, pads, _MODES[mode])


_MODES: Final = {"reflect": PaddingMode.REFLECT, "replicate": PaddingMode.EDGE, "circular": PaddingMode.WRAP}


@aten("reflection_pad1d", "reflection_pad2d", "reflection_pad3d", "replication_pad1d", "replication_pad2d",
      "replication_pad3d", "_pad_circular")  # fmt: skip
def pad_by_elements(c: Call, x: Value, pads: Sequence[int]) -> Value:
    """Convert padding by elements of the tensor; negative pads crop."""
    name = str(c.node.target)
    mode = PaddingMode.REFLECT if "reflect" in name else PaddingMode.EDGE if "repl" in name else PaddingMode.WRAP
    return _padded(c, x, pads, mode)


def _padded(c: Call, x: Value, pads: Sequence[int], mode: PaddingMode) -> Value:
    pads_by_axis = _pairs(pads, x.known.rank)
    if all(pad >= 0 for pair in pads_by_axis for pad in pair) and x.known.shape.is_concrete and 0 not in x.known.shape:
        return c.step(Pad(tuple(pads_by_axis), 0.0, mode), x)
    for axis, (before, after) in enumerate(pads_by_axis):
        if before or after:
            x = c.gather(x, _padded_places(mode, c.size(x, axis), before, after), axis)
    return x


def _padded_places(mode: PaddingMode, size: int, before: int, after: int) -> Any:
    places = np.arange(-before, size + after)
    if mode is PaddingMode.EDGE:
        return np.clip(places, 0, size - 1)
    if mode is PaddingMode.WRAP:
        return places % size
    period = max(1, 2 * (size - 1))
    folded = np.abs(places) % period
    return np.minimum(folded, period - folded)


# --- ranges -----------------------------------------------------------------------------------------------------------


@aten("arange.start_step", "arange.start", "arange")
def arange(c: Call, *bounds: Any, **_: Any) -> Value:
    """Convert arange; bounds that are computed at run time give a result of unknown length."""
    start, end, step = {1: (0, *bounds, 1), 2: (*bounds, 1), 3: bounds}[len(bounds)]
    if not any(isinstance(bound, Value) for bound in (start, end, step)):
        return c.constant(_numbers(start, end, step).astype(c.dtype.numpy))
    wide_type = DataType.FLOAT64 if c.dtype.is_float else DataType.INT64
    operands = [c.cast(bound, wide_type) for bound in (start, end, step)]
    return c.cast(c.step(Range(), *operands), c.dtype)


def _numbers(start: Any, end: Any, step: Any) -> Any:
    """Return the numbers from start to end (excluded); each one is start + i * step, without accumulated rounding."""
    if all(isinstance(bound, int) for bound in (start, end, step)):
        return np.arange(start, end, step)
    count = max(0, math.ceil((float(end) - float(start)) / float(step)))
    return float(start) + np.arange(count) * float(step)
