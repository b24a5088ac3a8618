"""Converters for upsampling and sampling of images."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple

import numpy as np

from interposer.core.types import Array, DataType
from interposer.frontends.elementwise import FLOOR
from interposer.frontends.torch.call import Call
from interposer.frontends.torch.elementwise import limited
from interposer.frontends.torch.pooling import along_axis
from interposer.frontends.torch.registry import aten
from interposer.frontends.torch.sizes import number_of
from interposer.ir.graph import Value
from interposer.kernels.resize import nearest_pixels
from interposer.ops.grid import GridPadding, GridSample, GridSampleMode
from interposer.ops.resize import Resize, ResizeMethod

__all__: list[str] = []


class _Axis(NamedTuple):
    """An axis that is resized from `size` to `target` elements; a result pixel covers `step` input pixels."""

    number: int
    size: int
    target: int
    step: float


def _axes(c: Call, x: Value, scales: Sequence[float | None], align_corners: bool = False) -> list[_Axis]:
    """Return the axes of a resize; a scale of None stands for the quotient of the sizes."""
    shape, known_sizes = c.shape(x), getattr(c.importer, "known", {})
    output_sizes = [number_of(size, known_sizes) for size in c.example.shape]
    if None in output_sizes:
        c.open_shape("the sizes of its result are not known")
    axes = []
    for number, scale in enumerate(scales, 2):
        size, output_size = shape[number], int(output_sizes[number])
        if align_corners:
            step = (size - 1) / (output_size - 1) if output_size > 1 else 0.0
        else:
            step = 1 / scale if scale else size / output_size
        axes.append(_Axis(number, size, output_size, step))
    return axes


def _scales(c: Call, args: Sequence[Any], axes: int) -> list[float | None]:
    """Return the scales of an overload: a list ("vec"), or one operand for each axis, after the other operands."""
    if str(c.node.target).endswith(".vec"):
        factors = args[-1]
        return list(factors) if factors else [None] * axes
    return list(args[-axes:]) if len(args) >= axes else [None] * axes


def _numbers(c: Call) -> int:
    return int(c.example.dim()) - 2


@aten("upsample_nearest1d", "upsample_nearest2d", "upsample_nearest3d", "upsample_nearest1d.vec",
      "upsample_nearest2d.vec", "upsample_nearest3d.vec")  # fmt: skip
def nearest(c: Call, x: Value, sizes: Any, *scales: Any) -> Value:
    """Convert nearest upsampling, which rounds positions down."""
    return _nearest(c, x, _axes(c, x, _scales(c, scales, _numbers(c))), 0.0)


@aten("_upsample_nearest_exact1d", "_upsample_nearest_exact2d", "_upsample_nearest_exact3d",
      "_upsample_nearest_exact1d.vec", "_upsample_nearest_exact2d.vec", "_upsample_nearest_exact3d.vec")  # fmt: skip
def nearest_exact(c: Call, x: Value, sizes: Any, *scales: Any) -> Value:
    """Convert nearest upsampling that takes the input pixel at the center of each result pixel."""
    return _nearest(c, x, _axes(c, x, _scales(c, scales, _numbers(c))), 0.5)


def _nearest(c: Call, x: Value, axes: Sequence[_Axis], offset: float) -> Value:
    places = [_nearest_places(axis, offset) for axis in axes]
    if x.known.rank == 4:
        op = Resize(axes[1].target, axes[0].target, ResizeMethod.NEAREST_NEIGHBOR, half_pixel_centers=offset > 0)
        pixels_of_op = [nearest_pixels(op, axis.size, axis.target) for axis in axes]
        if all(map(np.array_equal, pixels_of_op, places)):
            return c.step(op, x)
    for axis, indices in zip(axes, places, strict=True):
        x = c.gather(x, indices, axis.number)
    return x


def _nearest_places(axis: _Axis, offset: float) -> Array:
    """Return the input pixel of each result pixel; positions are computed in float32, as PyTorch does."""
    positions = (np.arange(axis.target, dtype=np.float32) + np.float32(offset)) * np.float32(axis.step)
    places: Array = np.clip(np.floor(positions), 0, axis.size - 1).astype(np.int64)
    return places


@aten("upsample_linear1d", "upsample_bilinear2d", "upsample_trilinear3d", "upsample_linear1d.vec",
      "upsample_bilinear2d.vec", "upsample_trilinear3d.vec")  # fmt: skip
def linear(c: Call, x: Value, sizes: Any, align_corners: bool, *scales: Any) -> Value:
    """Convert linear upsampling along one to three axes."""
    axes = _axes(c, x, _scales(c, scales, _numbers(c)), align_corners)
    if x.known.rank == 4 and x.known.dtype.is_float and _has_exact_steps(axes, align_corners):
        op = Resize(
            axes[1].target, axes[0].target, ResizeMethod.BILINEAR,
            align_corners=align_corners, half_pixel_centers=not align_corners,
        )  # fmt: skip
        return c.step(op, x)
    return _mixed(c, x, axes, lambda axis: _linear_matrix(axis, align_corners))


def _has_exact_steps(axes: Sequence[_Axis], align_corners: bool) -> bool:
    return align_corners or all(abs(axis.step - axis.size / axis.target) < 1e-9 for axis in axes)


@aten("upsample_bicubic2d", "upsample_bicubic2d.vec")
def bicubic(c: Call, x: Value, sizes: Any, align_corners: bool, *scales: Any) -> Value:
    """Convert bicubic upsampling."""
    axes = _axes(c, x, _scales(c, scales, 2), align_corners)
    return _mixed(c, x, axes, lambda axis: _cubic_matrix(axis, align_corners))


@aten("_upsample_bilinear2d_aa", "_upsample_bicubic2d_aa", "_upsample_bilinear2d_aa.vec", "_upsample_bicubic2d_aa.vec")
def smoothed(c: Call, x: Value, sizes: Any, align_corners: bool, *scales: Any) -> Value:
    """Convert upsampling with antialiasing, whose filters widen when an image is reduced."""
    axes = _axes(c, x, _scales(c, scales, 2), align_corners)
    is_cubic = "bicubic" in str(c.node.target)
    return _mixed(c, x, axes, lambda axis: _smooth_matrix(axis, is_cubic))


def _mixed(c: Call, x: Value, axes: Sequence[_Axis], matrix: Callable[[_Axis], Array]) -> Value:
    """Multiply x with a matrix along each axis; integers are computed in float32 and rounded."""
    dtype = x.known.dtype
    resized = x if dtype.is_float else c.cast(x, DataType.FLOAT32)
    for axis in axes[::-1]:
        if (axis.size, axis.step) != (axis.target, 1.0):
            resized = along_axis(c, resized, axis.number, matrix(axis))
    if dtype.is_float:
        return resized
    limits = np.iinfo(dtype.numpy)
    rounded = c.step(FLOOR, c.plus(resized, 0.5))
    return c.cast(limited(c, rounded, float(limits.min), float(limits.max)), dtype)


def _positions(axis: _Axis, align_corners: bool) -> Array:
    """Return the position of each result pixel in the input, in pixels."""
    pixels = np.arange(axis.target, dtype=np.float64)
    return pixels * axis.step if align_corners else (pixels + 0.5) * axis.step - 0.5


def _spread(axis: _Axis, first: Array, weights: Array) -> Array:
    """Return the matrix of weights [target, taps] of the pixels from `first` on; the outermost pixels repeat."""
    matrix = np.zeros((axis.target, axis.size))
    columns = np.clip(first[:, None] + np.arange(weights.shape[1]), 0, axis.size - 1)
    np.add.at(matrix, (np.arange(axis.target)[:, None], columns), weights)
    return matrix


def _linear_matrix(axis: _Axis, align_corners: bool) -> Array:
    positions = np.maximum(_positions(axis, align_corners), 0)
    left_pixels = np.minimum(np.floor(positions), axis.size - 1)
    right_weights = (positions - left_pixels)[:, None]
    return _spread(axis, left_pixels.astype(np.int64), np.concatenate([1 - right_weights, right_weights], 1))


def _cubic_matrix(axis: _Axis, align_corners: bool) -> Array:
    positions = _positions(axis, align_corners)
    left_pixels = np.floor(positions)
    distances = np.abs((positions - left_pixels)[:, None] - np.arange(-1, 3))
    return _spread(axis, left_pixels.astype(np.int64) - 1, _cubic(distances, -0.75))


_CUBIC_OF_SMOOTHING: Final = -0.5


def _cubic(distance: Array, a: float) -> Array:
    """Return the weights of Keys' cubic convolution; `a` is the coefficient of the kernel."""
    near_weights = ((a + 2) * distance - (a + 3)) * distance**2 + 1
    far_weights = ((distance - 5) * distance + 8) * distance * a - 4 * a
    return np.where(distance <= 1, near_weights, np.where(distance < 2, far_weights, 0))


def _smooth_matrix(axis: _Axis, is_cubic: bool) -> Array:
    """Return the weights of a filter that is as wide as a result pixel, if that is wider than an input pixel."""
    stretch = max(1.0, axis.step)
    support = (2 if is_cubic else 1) * stretch
    centers = (np.arange(axis.target) + 0.5) * axis.step
    matrix = np.zeros((axis.target, axis.size))
    for row, center in enumerate(centers):
        start, end = max(int(center - support + 0.5), 0), min(int(center + support + 0.5), axis.size)
        distances = np.abs((np.arange(start, end) - center + 0.5) / stretch)
        weights = _cubic(distances, _CUBIC_OF_SMOOTHING) if is_cubic else np.maximum(1 - distances, 0)
        matrix[row, start:end] = weights / (weights.sum() or 1)
    return matrix


# --- grids ------------------------------------------------------------------------------------------------------------

_MODES: Final = (GridSampleMode.LINEAR, GridSampleMode.NEAREST, GridSampleMode.CUBIC)
_PADDINGS: Final = (GridPadding.ZEROS, GridPadding.BORDER, GridPadding.REFLECTION)


@aten("grid_sampler_2d", "grid_sampler_3d", "grid_sampler")
def grid_sampler(c: Call, x: Value, grid: Value, mode: int, padding: int, align_corners: bool) -> Value:
    """Convert grid_sampler."""
    op = GridSample(_MODES[mode], _PADDINGS[padding], bool(align_corners))
    return c.step(op, x, c.cast(grid, x.known.dtype))
