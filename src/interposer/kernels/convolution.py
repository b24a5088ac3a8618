"""Convolution kernels: strided views give the windows of the image; BLAS or shifted products sum over them."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator
from typing import Final

import numpy as np

from interposer.core.types import Array, DataType
from interposer.kernels.accumulation import (
    Plan,
    Scaling,
    centered,
    constant_plan,
    integer_sums,
    plan,
    shifted,
    summable_types,
)
from interposer.kernels.layout import to_nhwc
from interposer.kernels.places import places, visible
from interposer.kernels.reference import kernel
from interposer.kernels.table import KernelInfo
from interposer.ops.convolution import (
    Convolution2d,
    DepthwiseConvolution2d,
    IntegerConvolution2d,
    TransposeConvolution2d,
)
from interposer.ops.window import Window

__all__: list[str] = []

BLOCK: Final = 1 << 18
"""The number of elements that are processed at a time, so that they fit in the cache."""

Windows = tuple[Window, Window]
Taps = tuple[slice, slice]
WithWeights = Convolution2d | DepthwiseConvolution2d | TransposeConvolution2d


def _slide(image: Array, windows: Windows, out: Array, compute: Callable[[Array, Taps], Array]) -> None:
    """Fill `out` (N, OH, OW, O) block by block with the results of `compute` on the windows of an image (N, H, W, I).

    `compute` receives the cells of the windows of a block, (n, h, w, kh, kw, I), and the ranges of weight rows and
    columns that these cells belong to. All other weights only cover padding.
    """
    (row_positions, row_taps), (column_positions, column_taps) = (
        visible(windows[i], image.shape[i + 1], out.shape[i + 1]) for i in (0, 1)
    )
    cells = places(image, row_positions, column_positions)
    for block in _blocks(out.shape, max(row_positions.size * column_positions.size * image.shape[3], out.shape[3])):
        out[block] = compute(cells[block], (row_taps, column_taps))


def _blocks(shape: tuple[int, ...], position_size: int) -> Iterator[tuple[slice, slice]]:
    """Yield slices of images and of rows of an output of this shape, (N, OH, OW, O), for blocks that fit in the cache.

    `position_size` is the number of elements that are processed for each window position.
    """
    images, height, width, _ = shape
    row_size = max(1, width * position_size)
    block_rows = max(1, min(height, BLOCK // row_size))
    block_images = max(1, BLOCK // (row_size * max(1, height)))
    for image, row in itertools.product(range(0, images, block_images), range(0, height, block_rows)):
        yield slice(image, image + block_images), slice(row, row + block_rows)


def _correlate(cells: Array, weights: Array, groups: int) -> Array:
    """Sum the products of windows (N, H, W, KH, KW, I) and weights (O, KH, KW, I / groups), by matrix products.

    The sums are (N, H, W, O).
    """
    n, height, width, *window, c = cells.shape
    grouped_cells = np.moveaxis(cells.reshape(n, height, width, *window, groups, c // groups), 5, 0)
    size = math.prod(weights.shape[1:])
    filters = weights.reshape(groups, weights.shape[0] // groups, size)
    sums = grouped_cells.reshape(groups, n * height * width, size) @ filters.swapaxes(1, 2)
    return np.moveaxis(sums, 0, 1).reshape(n, height, width, weights.shape[0])


def _correlate_channels(cells: Array, weights: Array) -> Array:
    """Sum products of windows (N, H, W, KH, KW, C) and weights (KH, KW, C) for each channel, to (N, H, W, C)."""
    sums = np.zeros(cells.shape[:3] + cells.shape[5:], cells.dtype)
    product = np.empty_like(sums)
    for i, j in np.ndindex(weights.shape[:2]):
        np.multiply(cells[:, :, :, i, j], weights[i, j], out=product)
        sums += product
    return sums


def _with_nans(sums: Array, weights: Array, taps: Taps) -> Array:
    """Set channels to NaN if they have an infinite or NaN weight that only covers padding, since 0 * inf is NaN.

    Weights are (O, KH, KW, I) or (KH, KW, C). `taps` are the ranges of weight rows and columns that were used for the
    sums. The sums are modified and returned.
    """
    uses_all_weights = all(tap == slice(0, size) for tap, size in zip(taps, weights.shape[-3:-1], strict=True))
    if uses_all_weights or not np.issubdtype(weights.dtype, np.floating):
        return sums
    unused_not_finite = ~np.isfinite(weights)
    unused_not_finite[..., *taps, :] = False
    sums[..., unused_not_finite.any(axis=(1, 2, 3) if weights.ndim == 4 else (0, 1))] = np.nan
    return sums


def _spread(x: Array, weights: Array, windows: Windows, groups: int, shape: tuple[int, ...]) -> Array:
    """Add each cell of `x` (N, H, W, I), times the weights, to its positions in a new image of this shape.

    The weights are (O / groups, KH, KW, I), and the image is (N, OH, OW, O).
    """
    _, height, width, c = x.shape
    sums = np.zeros(shape, x.dtype)
    grouped_input = np.moveaxis(x.reshape(*x.shape[:3], groups, c // groups), 3, 0)
    filters = np.moveaxis(weights.reshape(*weights.shape[:3], groups, c // groups), 0, -1)
    for i, j in np.ndindex(weights.shape[1:3]):
        rows, target_rows = _connected_slices(windows[0], i, height, shape[1])
        columns, target_columns = _connected_slices(windows[1], j, width, shape[2])
        target_cells = sums[:, target_rows, target_columns]
        cells = grouped_input[:, :, rows, columns].reshape(groups, math.prod(target_cells.shape[:3]), c // groups)
        target_cells += np.moveaxis(cells @ filters[i, j], 0, 1).reshape(target_cells.shape)
    return sums


def _connected_slices(window: Window, tap: int, size: int, target_size: int) -> tuple[slice, slice]:
    """Return the inputs and the outputs of a transposed convolution that one weight connects along one axis, as slices.

    `tap` is the index of the weight along the axis. `size` is the number of inputs, `target_size` that of outputs.
    """
    shift = tap * window.dilation - window.pad_before
    first_input = max(0, -(shift // window.stride))
    input_end = min(size, -((shift - target_size) // window.stride))
    if input_end <= first_input:
        return slice(0, 0), slice(0, 0)
    first_output = first_input * window.stride + shift
    return slice(first_input, input_end), slice(
        first_output, first_output + (input_end - first_input - 1) * window.stride + 1, window.stride
    )


@kernel(Convolution2d, when=summable_types)
def convolution(
    op: Convolution2d, x: Array, weights: Array, bias: Array | None, *,
    info: KernelInfo, out: Array, prepared: Plan | None,
) -> None:  # fmt: skip
    """Compute `Convolution2d`: one matrix product per block of windows.

    `prepared` holds the weights and the epilogue if weights and bias are constants, else None.
    """
    w, epilogue = prepared or _plan(op, info, weights, bias)
    image, target = _image(op, x, info, w), to_nhwc(out, op.data_layout)
    windows = op.windows(*w.shape[1:3])

    def compute(cells: Array, taps: Taps) -> Array:
        return epilogue(_with_nans(_correlate(cells, w[:, *taps], op.groups), w, taps))

    _slide(image, windows, target, compute)


@kernel(IntegerConvolution2d, quantized=False)
def integer_convolution(
    op: IntegerConvolution2d, x: Array, weights: Array, input_zero_point: Array | None,
    weights_zero_point: Array | None, *, out: Array,
) -> None:  # fmt: skip
    """Compute `IntegerConvolution2d` in float64, which represents sums of products of 9-bit integers exactly."""
    zero_point = None if input_zero_point is None else input_zero_point.reshape(())
    image, target = to_nhwc(shifted(x, zero_point), op.data_layout), to_nhwc(out, op.data_layout)
    w = to_nhwc(shifted(weights, weights_zero_point), op.data_layout)

    def compute(cells: Array, taps: Taps) -> Array:
        return integer_sums(_correlate(cells, np.ascontiguousarray(w[:, *taps]), op.groups))

    _slide(image, op.windows(*w.shape[1:3]), target, compute)


@kernel(DepthwiseConvolution2d, when=summable_types)
def depthwise_convolution(
    op: DepthwiseConvolution2d, x: Array, weights: Array, bias: Array | None, *,
    info: KernelInfo, out: Array, prepared: Plan | None,
) -> None:  # fmt: skip
    """Compute `DepthwiseConvolution2d`; each channel of the image is repeated once for each of its filters.

    `prepared` holds the weights and the epilogue if weights and bias are constants, else None.
    """
    (w,), epilogue = prepared or _plan(op, info, weights, bias)
    image, target = _image(op, x, info, w), to_nhwc(out, op.data_layout)
    filters_per_channel = target.shape[3] // image.shape[3]
    image = np.repeat(image, filters_per_channel, axis=3) if filters_per_channel > 1 else image

    def compute(cells: Array, taps: Taps) -> Array:
        return epilogue(_with_nans(_correlate_channels(cells, w[taps]), w, taps))

    _slide(image, op.windows(*w.shape[:2]), target, compute)


@kernel(TransposeConvolution2d, when=summable_types)
def transpose_convolution(
    op: TransposeConvolution2d, x: Array, weights: Array, bias: Array | None, *,
    info: KernelInfo, out: Array, prepared: Plan | None,
) -> None:  # fmt: skip
    """Compute `TransposeConvolution2d`: add the products of the input with each window element to the output.

    `prepared` holds the weights and the epilogue if weights and bias are constants, else None.
    """
    w, epilogue = prepared or _plan(op, info, weights, bias)
    image, target = _image(op, x, info, w), to_nhwc(out, op.data_layout)
    target[...] = epilogue(_spread(image, w, op.windows(*w.shape[1:3]), op.groups, target.shape))


def _image(op: WithWeights, x: Array, info: KernelInfo, weights: Array) -> Array:
    """Return the input as (N, H, W, C), minus its zero point, in the type of the plan's weights."""
    return to_nhwc(centered(x, info.input, weights.dtype), op.data_layout)


def _plan(op: WithWeights, info: KernelInfo, weights: Array, bias: Array | None) -> Plan:
    """Return the plan with weights stored as (O, KH, KW, I), or as (1, KH, KW, C) for a depthwise convolution."""
    axis = 3 if isinstance(op, DepthwiseConvolution2d) else 0
    has_uint8_weights = info.at(1).dtype is DataType.UINT8
    scaling = Scaling.FIXED_POINT_OF_SINGLES if has_uint8_weights else Scaling.FIXED_POINT
    repeats = op.groups if isinstance(op, TransposeConvolution2d) else 1
    computed_plan = plan(info, weights, bias, axis, scaling.of(op.requantization), repeats)
    return (
        computed_plan
        if axis
        else computed_plan._replace(weights=np.ascontiguousarray(to_nhwc(computed_plan.weights, op.data_layout)))
    )


for _kernel in (convolution, depthwise_convolution, transpose_convolution):
    kernel.prepare(_kernel)(constant_plan(_plan))
