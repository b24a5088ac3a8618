"""Converters for pooling; images with one spatial axis become images of height 1."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from interposer.core.types import Array, DataType, TensorInfo
from interposer.frontends.elementwise import MOD
from interposer.frontends.torch.call import Call
from interposer.frontends.torch.convolution import batched, of_axes
from interposer.frontends.torch.registry import aten
from interposer.frontends.windows import Windows, lowest
from interposer.ir.graph import Value
from interposer.ops.gather import GatherElements
from interposer.ops.matmul import BatchMatMul
from interposer.ops.pooling import OutputShapeRounding, PaddingMethod, Pooling2d, PoolingAlgorithm
from interposer.ops.pooling3d import Pooling3d
from interposer.ops.rearrange import Pad
from interposer.ops.reduction import ArgMinMax, ArgMinMaxFunction, Mean, Reduce, ReduceOperation
from interposer.ops.windowed import Col2Im, MaxPoolingWithIndices

__all__ = ["along_axis"]

Sizes = Sequence[int] | int


def _windows(axes: int, kernel: Sizes, stride: Sizes, padding: Sizes, dilation: Sizes = 1) -> Windows:
    sizes, pads = of_axes(kernel, axes), of_axes(padding, axes)
    steps = sizes if stride in ([], None) else of_axes(stride, axes)
    return Windows(sizes, steps, of_axes(dilation, axes), pads, pads)


def _rounding(ceil_mode: bool) -> OutputShapeRounding:
    return OutputShapeRounding.CEILING if ceil_mode else OutputShapeRounding.FLOOR


def _nothing(info: TensorInfo) -> float:
    """Return the maximum of a window that contains nothing but padding."""
    return -math.inf if info.dtype.is_float else lowest(info)


def _pooled(c: Call, x: Value, algorithm: PoolingAlgorithm, windows: Windows, ceil_mode: bool) -> Value:
    """Add a pooling layer over images with one to three spatial axes; an average includes the padding."""
    rank = x.known.rank
    if windows.axes == 1:
        windows, x = windows.with_height(), c.unsqueezed(x, 2)
    if algorithm is PoolingAlgorithm.MAX and windows.miss(c.shape(x)[2:]):
        enclosed_windows, ceil_mode = windows.enclosed(c.shape(x)[2:], rounded_up=ceil_mode), False
        pads = tuple(zip(enclosed_windows.before, enclosed_windows.after, strict=True))
        x, windows = c.step(Pad(((0, 0), (0, 0), *pads), _nothing(x.known)), x), windows.unpadded()
    kind = Pooling3d if windows.axes == 3 else Pooling2d
    op = kind(
        algorithm,
        **windows.pooling(),
        output_shape_rounding=_rounding(ceil_mode),
        padding_method=PaddingMethod.IGNORE_VALUE,
    )
    pooled = c.step(op, x)
    return c.squeezed(pooled, 2) if rank == 3 else pooled


# --- maxima -----------------------------------------------------------------------------------------------------------


def _spatial_axes(c: Call) -> int:
    """Return the number of spatial axes that the operator's name ends in, as in ``max_pool2d``."""
    name = str(c.node.target).split(".")[1]
    return next(int(name[i - 1]) for i in range(1, len(name) + 1) if name[i - 1].isdigit())


@aten("max_pool1d", "max_pool2d", "max_pool3d")
def max_pool(
    c: Call, x: Value, kernel: Sizes, stride: Sizes = (), padding: Sizes = 0, dilation: Sizes = 1,
    ceil_mode: bool = False,
) -> Value:  # fmt: skip
    """Convert max_pool."""
    axes = _spatial_axes(c)
    windows = _windows(axes, kernel, list(stride) if not isinstance(stride, int) else stride, padding, dilation)
    return batched(c, x, axes, lambda image: [_pooled(c, image, PoolingAlgorithm.MAX, windows, ceil_mode)])[0]


@aten("max_pool2d_with_indices", "max_pool3d_with_indices", "max_pool1d_with_indices")
def max_pool_with_indices(
    c: Call, x: Value, kernel: Sizes, stride: Sizes = (), padding: Sizes = 0, dilation: Sizes = 1,
    ceil_mode: bool = False,
) -> list[Value]:  # fmt: skip
    """Convert max_pool that also returns the index of each maximum within its channel."""
    axes = _spatial_axes(c)
    windows = _windows(axes, kernel, list(stride) if not isinstance(stride, int) else stride, padding, dilation)
    if not _uses_result(c, 1):
        maxima = batched(c, x, axes, lambda image: [_pooled(c, image, PoolingAlgorithm.MAX, windows, ceil_mode)])
        return [*maxima, *maxima]
    return batched(c, x, axes, lambda image: _with_places(c, image, windows, ceil_mode))


def _uses_result(c: Call, index: int) -> bool:
    """Return True if a node reads result number `index`, or if the results are not read one by one."""
    return any(len(user.args) < 2 or user.args[1] == index for user in c.node.users)


def _with_places(c: Call, x: Value, windows: Windows, ceil_mode: bool) -> list[Value]:
    op = MaxPoolingWithIndices(**windows.lists(), output_shape_rounding=_rounding(ceil_mode))
    values, places = c.steps(op, x)
    from_start = c.constant(np.array(math.prod(c.shape(x)[2:]), np.int64))
    return [values, c.binary(MOD, places, from_start)]


# --- averages ---------------------------------------------------------------------------------------------------------


@aten("avg_pool1d", "avg_pool2d", "avg_pool3d")
def avg_pool(
    c: Call, x: Value, kernel: Sizes, stride: Sizes = (), padding: Sizes = 0, ceil_mode: bool = False,
    count_include_pad: bool = True, divisor: int | None = None,
) -> Value:  # fmt: skip
    """Convert avg_pool: the sum of each window, divided by its size, by its part in the image, or by a number."""
    axes = _spatial_axes(c)
    windows = _windows(axes, kernel, list(stride) if not isinstance(stride, int) else stride, padding)
    return batched(c, x, axes, lambda image: [_average(c, image, windows, ceil_mode, count_include_pad, divisor)])[0]


def _average(
    c: Call, x: Value, windows: Windows, ceil_mode: bool, count_include_pad: bool, divisor: int | None
) -> Value:
    """Return averages of windows over images that are padded by zeros, corrected where the divisor is another one."""
    sizes = c.shape(x)[2:]
    columns = list(zip(sizes, windows.along(), strict=True))
    counts = [w.places_rounded_up(size) if ceil_mode else w.places(size) for size, w in columns]
    extra_pads = [max(0, _end(w, n) - size - w.pad_after) for (size, w), n in zip(columns, counts, strict=True)]
    padded = tuple((w.pad_before, w.pad_after + extra) for (_, w), extra in zip(columns, extra_pads, strict=True))
    padded_x = c.step(Pad(((0, 0), (0, 0), *padded)), x) if any(map(any, padded)) else x
    no_pads = (0,) * windows.axes
    averages = _pooled(c, padded_x, PoolingAlgorithm.AVERAGE, windows._replace(before=no_pads, after=no_pads), False)
    cells_of_window = math.prod(windows.kernel)
    divisors = _divisors(columns, counts, count_include_pad)
    if divisor is None and (divisors == cells_of_window).all():
        return averages
    factor = cells_of_window / (np.full_like(divisors, divisor) if divisor is not None else divisors)
    return c.times(averages, c.constant(factor.astype(x.known.dtype.numpy)))


def _end(window: Any, count: int) -> int:
    """Return where the last window ends, counted from the first element of the image."""
    return int((count - 1) * window.stride - window.pad_before + window.size)


def _divisors(columns: Sequence[tuple[int, Any]], counts: Sequence[int], count_include_pad: bool) -> Array:
    """Return how many elements each window averages: those in the image, and in its padding if that counts."""
    divisors: Array = np.ones((), np.float64)
    for (size, window), count in zip(columns, counts, strict=True):
        starts = np.arange(count) * window.stride - window.pad_before
        ends = np.minimum(starts + window.size, size + window.pad_after)
        if not count_include_pad:
            starts, ends = np.maximum(starts, 0), np.minimum(ends, size)
        divisors = divisors[..., None] * (ends - starts)
    return divisors


# --- adaptive pooling -------------------------------------------------------------------------------------------------


@aten("adaptive_avg_pool1d", "adaptive_avg_pool2d", "adaptive_avg_pool3d", "_adaptive_avg_pool2d",
      "_adaptive_avg_pool3d")  # fmt: skip
def adaptive_avg_pool(c: Call, x: Value, sizes: Sizes) -> Value:
    """Convert adaptive average pooling: averages of windows that divide each axis as evenly as possible."""
    axes = _spatial_axes(c)
    output_sizes = list(c.example.shape[-axes:])
    output_sizes = [int(size) for size in output_sizes]
    first_axis = x.known.rank - axes
    if all(size == 1 for size in output_sizes) and x.known.shape.is_concrete and 0 not in x.known.shape:
        return c.step(Mean(tuple(range(first_axis, x.known.rank)), True), x)
    shape = c.shape(x)
    if all(
        size and output_size and size % output_size == 0
        for size, output_size in zip(shape[first_axis:], output_sizes, strict=True)
    ):
        kernel = tuple(size // output_size for size, output_size in zip(shape[first_axis:], output_sizes, strict=True))
        windows = _windows(axes, kernel, kernel, 0)
        return batched(c, x, axes, lambda image: [_pooled(c, image, PoolingAlgorithm.AVERAGE, windows, False)])[0]
    for axis, output_size in enumerate(output_sizes, first_axis):
        x = along_axis(c, x, axis, _average_matrix(shape[axis], output_size))
    return x


def _bounds(size: int, output_size: int) -> list[tuple[int, int]]:
    return [(i * size // output_size, -(-(i + 1) * size // output_size)) for i in range(output_size)]


def _average_matrix(size: int, output_size: int) -> Array:
    matrix = np.zeros((output_size, size))
    for row, (start, end) in enumerate(_bounds(size, output_size)):
        matrix[row, start:end] = 1 / (end - start)
    return matrix


def along_axis(c: Call, x: Value, axis: int, matrix: Array) -> Value:
    """Multiply a matrix [target, size] with x along an axis."""
    weights = c.constant(matrix.astype(x.known.dtype.numpy))
    rank = x.known.rank
    if axis == rank - 2 and rank > 2:
        return c.step(BatchMatMul(), weights, x)
    axis_last = c.swapped(x, axis, rank - 1)
    return c.swapped(c.step(BatchMatMul(transpose_y=True), axis_last, weights), axis, rank - 1)


@aten("adaptive_max_pool1d", "adaptive_max_pool2d", "adaptive_max_pool3d")
def adaptive_max_pool(c: Call, x: Value, sizes: Sizes) -> list[Value]:
    """Convert adaptive max pooling, with the index of each maximum within its channel."""
    axes = _spatial_axes(c)
    shape = c.shape(x)
    first_axis = len(shape) - axes
    output_sizes = [int(size) for size in c.example.shape[-axes:]]
    grids = [_window_places(shape[first_axis + i], target) for i, target in enumerate(output_sizes)]
    windows = x
    for i, grid in enumerate(grids):
        windows = c.gather(windows, grid, first_axis + 2 * i)
    order = [
        *range(first_axis),
        *(first_axis + 2 * i for i in range(axes)),
        *(first_axis + 2 * i + 1 for i in range(axes)),
    ]
    flat_windows = c.reshape(
        c.transpose(windows, order), [*shape[:first_axis], *output_sizes, math.prod(g.shape[1] for g in grids)]
    )
    values = c.step(Reduce((-1,), False, ReduceOperation.MAX), flat_windows)
    best = c.step(ArgMinMax(ArgMinMaxFunction.MAX, -1, True, DataType.INT64), flat_windows)
    places_in_windows = np.broadcast_to(_flat_places(grids, shape[first_axis:]), flat_windows.known.shape)
    all_places = c.constant(np.ascontiguousarray(places_in_windows))
    places = c.step(GatherElements(flat_windows.known.rank - 1), all_places, best)
    return [values, c.squeezed(places, flat_windows.known.rank - 1)]


def _window_places(size: int, output_size: int) -> Array:
    """Return the indices of each window along an axis; shorter windows repeat their last index."""
    bounds = _bounds(size, output_size)
    longest = max((end - start for start, end in bounds), default=1)
    return np.array([np.minimum(start + np.arange(longest), end - 1) for start, end in bounds]).reshape(
        output_size, longest
    )


def _flat_places(grids: Sequence[Array], sizes: Sequence[int]) -> Array:
    """Return the flat index of each element of each window, as [targets, elements]."""
    axes = len(grids)
    flat_index = np.zeros((1,) * (2 * axes), np.int64)
    for i, grid in enumerate(grids):
        shape = [1] * (2 * axes)
        shape[i], shape[axes + i] = grid.shape
        flat_index = flat_index * sizes[i] + grid.reshape(shape)
    return flat_index.reshape([grid.shape[0] for grid in grids] + [-1])


@aten("col2im")
def col2im(
    c: Call, x: Value, sizes: Sequence[int], kernel: Sizes, dilation: Sizes, padding: Sizes, stride: Sizes
) -> Value:
    """Convert col2im: sum windows back to an image."""
    windows = _windows(2, kernel, stride, padding, dilation)
    op = Col2Im(**windows.lists(), image_shape=tuple(sizes))
    return c.step(op, x) if x.known.rank == 3 else c.squeezed(c.step(op, c.unsqueezed(x, 0)), 0)
