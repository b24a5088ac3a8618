"""Converters for convolutions with one to three spatial axes."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from interposer.core.schema import Op
from interposer.core.types import DataLayout
from interposer.frontends.torch.call import Call
from interposer.frontends.torch.registry import aten
from interposer.frontends.windows import Windows
from interposer.ir.graph import Value
from interposer.ops.convolution import Convolution2d, DepthwiseConvolution2d, TransposeConvolution2d
from interposer.ops.convolution3d import Convolution3d
from interposer.ops.matmul import BatchMatMul
from interposer.ops.rearrange import Pad, Transpose
from interposer.ops.windowed import Col2Im

__all__ = ["batched", "of_axes"]

Sizes = Sequence[int] | int


def of_axes(numbers: Sizes, axes: int) -> tuple[int, ...]:
    """Return one number for each axis; a single one is for all axes."""
    per_axis = [numbers] if isinstance(numbers, int) else list(numbers)
    return tuple(per_axis * axes if len(per_axis) == 1 else per_axis)


@aten("conv1d", "conv2d", "conv3d", "conv1d.padding", "conv2d.padding", "conv3d.padding")
def convolution_of_functional(
    c: Call, x: Value, weight: Value, bias: Value | None = None, stride: Sizes = 1, padding: Any = 0,
    dilation: Sizes = 1, groups: int = 1,
) -> Value:  # fmt: skip
    """Convert convolutions; the padding may be "same" or "valid"."""
    axes = weight.known.rank - 2
    before, after = _pads(padding, c.shape(weight)[2:], of_axes(dilation, axes))
    windows = Windows(c.shape(weight)[2:], of_axes(stride, axes), of_axes(dilation, axes), before, after)
    return batched(c, x, axes, lambda image: [_convolved(c, image, weight, bias, windows, groups)])[0]


def _pads(padding: Any, kernel: Sequence[int], dilations: Sequence[int]) -> tuple[tuple[int, ...], tuple[int, ...]]:
    if isinstance(padding, str):
        total_pads = [(size - 1) * gap if padding == "same" else 0 for size, gap in zip(kernel, dilations, strict=True)]
        return tuple(pad // 2 for pad in total_pads), tuple(pad - pad // 2 for pad in total_pads)
    pads = of_axes(padding, len(kernel))
    return pads, pads


def batched(c: Call, x: Value, axes: int, convert: Callable[[Value], list[Value]]) -> list[Value]:
    """Return the results of an operator on images, which may lack the axis of the batch."""
    if x.known.rank == axes + 2:
        return convert(x)
    return [c.squeezed(image, 0) for image in convert(c.unsqueezed(x, 0))]


@aten("convolution", "_convolution")
def convolution(
    c: Call, x: Value, weight: Value, bias: Value | None, stride: Sizes, padding: Sizes, dilation: Sizes,
    transposed: bool, output_padding: Sizes, groups: int, *_: Any,
) -> Value:  # fmt: skip
    """Convert the general convolution, which may be transposed."""
    axes = weight.known.rank - 2
    pads = of_axes(padding, axes)
    windows = Windows(c.shape(weight)[2:], of_axes(stride, axes), of_axes(dilation, axes), pads, pads)
    if transposed:
        extra_sizes = of_axes(output_padding, axes)
        return batched(c, x, axes, lambda image: [_transposed(c, image, weight, bias, windows, extra_sizes, groups)])[0]
    return batched(c, x, axes, lambda image: [_convolved(c, image, weight, bias, windows, groups)])[0]


@aten("conv_transpose1d", "conv_transpose2d.input", "conv_transpose3d.input")
def transposed_convolution(
    c: Call, x: Value, weight: Value, bias: Value | None = None, stride: Sizes = 1, padding: Sizes = 0,
    output_padding: Sizes = 0, groups: int = 1, dilation: Sizes = 1,
) -> Value:  # fmt: skip
    """Convert transposed convolutions."""
    return convolution(c, x, weight, bias, stride, padding, dilation, True, output_padding, groups)


# --- what they become -------------------------------------------------------------------------------------------------


def _as_image(c: Call, x: Value) -> Value:
    return c.unsqueezed(x, 2) if x.known.rank == 3 else x


def _convolved(c: Call, x: Value, weight: Value, bias: Value | None, windows: Windows, groups: int) -> Value:
    rank = x.known.rank
    of_image = windows.with_height()
    x, weight = _as_image(c, x), _as_image(c, weight)
    op: Op
    if rank == 5:
        op = Convolution3d(**of_image.pads(), **of_image.steps(), groups=groups, data_layout=DataLayout.NCDHW)
        weight = c.step(Transpose((2, 3, 4, 1, 0)), weight)
    elif groups > 1 and x.known.shape[1] == groups and weight.known.shape[1] == 1:
        op = DepthwiseConvolution2d(**of_image.pads(), **of_image.steps())
        weight = c.step(Transpose((1, 2, 3, 0)), weight)
    else:
        op = Convolution2d(**of_image.pads(), **of_image.steps(), groups=groups)
    image = c.step(op, x, weight, bias)
    return c.squeezed(image, 2) if rank == 3 else image


def _transposed(
    c: Call, x: Value, weight: Value, bias: Value | None, windows: Windows, extra: Sequence[int], groups: int
) -> Value:
    if windows.axes == 3:
        return _transposed_volume(c, x, weight, bias, windows, extra, groups)
    rank = x.known.rank
    extra = (0, *extra) if windows.axes == 1 else tuple(extra)
    of_image = windows.with_height()
    x, weight = _as_image(c, x), _as_image(c, weight)
    pads_after = tuple(pad - more for pad, more in zip(of_image.after, extra, strict=True))
    of_image = of_image._replace(after=pads_after)
    weight = c.step(Transpose((1, 0, 2, 3)), weight)
    shape = None
    if min(pads_after) < 0:
        sizes = _sizes(of_image, c.shape(x)[2:])
        shape = (c.size(x, 0), weight.known.shape[0] * groups, *sizes)
        of_image = of_image._replace(after=tuple(max(0, pad) for pad in pads_after))
    op = TransposeConvolution2d(**of_image.pads(), **of_image.steps(), groups=groups, output_shape=shape)
    image = c.step(op, x, weight, bias)
    return c.squeezed(image, 2) if rank == 3 else image


def _sizes(windows: Windows, image: Sequence[int]) -> tuple[int, ...]:
    """Return the spatial sizes of a transposed convolution's result: what the windows cover, less their pads."""
    columns = zip(image, windows.along(), strict=True)
    return tuple(window.covered(size) - window.pad_before - window.pad_after for size, window in columns)


def _transposed_volume(
    c: Call, x: Value, weight: Value, bias: Value | None, windows: Windows, extra: Sequence[int], groups: int
) -> Value:
    """Return a transposed convolution over volumes, as a matrix product followed by Col2Im."""
    batch, channels, *volume = c.shape(x)
    pads_after = tuple(pad - more for pad, more in zip(windows.after, extra, strict=True))
    grouped_x = c.reshape(x, [batch, groups, channels // groups, math.prod(volume)])
    kernels = c.reshape(weight, [groups, channels // groups, math.prod(c.shape(weight)[1:])])
    products = c.step(BatchMatMul(transpose_x=True), kernels, grouped_x)
    columns = c.reshape(products, [batch, groups * math.prod(c.shape(weight)[1:]), math.prod(volume)])
    covered_windows = windows._replace(after=tuple(max(0, pad) for pad in pads_after))
    volumes = c.step(Col2Im(**covered_windows.lists(), image_shape=_sizes(covered_windows, volume)), columns)
    uncovered_sizes = [max(0, -pad) for pad in pads_after]
    if any(uncovered_sizes):
        volumes = c.step(Pad(tuple((0, size) for size in (0, 0, *uncovered_sizes))), volumes)
    return volumes if bias is None else c.plus(volumes, c.reshape(bias, [c.size(bias, 0), 1, 1, 1]))
