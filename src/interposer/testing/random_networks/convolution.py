"""Growers of convolutions: plain, grouped, depthwise and transposed ones, over sequences, images and volumes."""

from __future__ import annotations

import math
from typing import Any

from interposer.core.records import dataclass
from interposer.core.types import DataLayout
from interposer.ir.graph import Value
from interposer.ops import (
    Addition,
    BatchNormalization,
    Convolution2d,
    Convolution3d,
    DepthwiseConvolution2d,
    Reshape,
    TransposeConvolution2d,
)
from interposer.ops.window import Window
from interposer.testing.random_networks.arrays import as_type
from interposer.testing.random_networks.elementwise import activated
from interposer.testing.random_networks.growers import grower
from interposer.testing.random_networks.growth import Growth, Skipped
from interposer.testing.random_networks.random_windows import as_rank, image, layout_for, slid, spread

__all__ = [
    "Filter",
    "convolution_filter",
    "depthwise_filter",
    "finished",
    "pointwise_filter",
    "transpose_filter",
    "volume_filter",
]

_FLOAT = ("float",)


@dataclass(frozen=True)
class Filter:
    """A convolution that was drawn, but whose weights are not created yet.

    `weights` is the shape of the weights, `channels` the number of output channels, and `terms` the number of products
    in each sum.
    """

    op: Any
    weights: tuple[int, ...]
    channels: int
    terms: int


def _attributes(rows: Window, columns: Window) -> dict[str, Any]:
    return {
        "pad_top": rows.pad_before, "pad_bottom": rows.pad_after, "stride_y": rows.stride, "dilation_y": rows.dilation,
        "pad_left": columns.pad_before, "pad_right": columns.pad_after, "stride_x": columns.stride,
        "dilation_x": columns.dilation,
    }  # fmt: skip


def _shaped(layout: DataLayout, batch_or_filters: int, height: int, width: int, channels: int) -> tuple[int, ...]:
    is_last = layout.channels_last
    return (batch_or_filters, height, width, channels) if is_last else (batch_or_filters, channels, height, width)


def _channels(growth: Growth, pixels: int, products: int) -> int:
    """Return a random number of output channels, often 1; raise `Skipped` if the network has no room for another layer.

    `pixels` is the number of pixels of the output, and `products` the number of products in the sum of each element.
    They limit the number of channels, so that the network does not become too large or too slow.
    """
    limit = min(growth.room // max(1, pixels), growth.operations_left // max(1, 2 * pixels * products))
    limit = min(limit, growth.room // max(1, products))
    if limit < 1:
        raise Skipped
    return 1 if growth.draw.chance(1, 4) else growth.draw.size(min(limit, 65))


def pointwise_filter(growth: Growth, x: Value, layout: DataLayout, channels: int | None = None) -> Filter:
    """Draw a convolution of the image `x` with a window of one pixel.

    `channels` is the number of output channels; None draws it.
    """
    h, w, c = layout.axes()
    shape = x.known.shape
    pixels, terms = shape[0] * shape[h] * shape[w], max(1, shape[c])
    channels = _channels(growth, pixels, terms) if channels is None else channels
    return Filter(Convolution2d(data_layout=layout), _shaped(layout, channels, 1, 1, shape[c]), channels, terms)


def convolution_filter(
    growth: Growth, x: Value, layout: DataLayout | None = None, rows: Window | None = None
) -> Filter:
    """Draw a 2D convolution of the image `x`, in one group or several.

    `layout` and `rows`, the window along the height, are drawn if they are None.
    """
    draw, layout = growth.draw, layout or layout_for(growth)
    h, w, c = layout.axes()
    shape = x.known.shape
    rows, columns = rows or slid(draw, shape[h]), slid(draw, shape[w])
    pixels = shape[0] * rows.places(shape[h]) * columns.places(shape[w])
    groups = _groups(growth, shape[c])
    group_channels = shape[c] // groups
    terms = max(1, group_channels * rows.size * columns.size)
    channels = max(1, _channels(growth, pixels, terms) // groups) * groups
    op = Convolution2d(**_attributes(rows, columns), data_layout=layout, groups=groups)
    return Filter(op, _shaped(layout, channels, rows.size, columns.size, group_channels), channels, terms)


def _groups(growth: Growth, channels: int) -> int:
    if channels < 2 or growth.draw.chance(4, 5):
        return 1
    return growth.draw.one_of([count for count in range(2, channels + 1) if channels % count == 0])


def depthwise_filter(growth: Growth, x: Value, layout: DataLayout | None = None) -> Filter:
    """Draw a depthwise convolution of the image `x` with one or several outputs per channel.

    `layout` is drawn if it is None.
    """
    draw, layout = growth.draw, layout or layout_for(growth)
    h, w, c = layout.axes()
    shape = x.known.shape
    if shape[c] == 0:
        raise Skipped
    rows, columns = slid(draw, shape[h]), slid(draw, shape[w])
    multiplier = draw.weighted((1, 2, 3, 5), (10, 3, 2, 1))
    op = DepthwiseConvolution2d(**_attributes(rows, columns), data_layout=layout)
    channels = shape[c] * multiplier
    return Filter(op, (1, rows.size, columns.size, channels), channels, rows.size * columns.size)


def transpose_filter(growth: Growth, x: Value) -> Filter:
    """Draw a transposed convolution of the image `x`, sometimes with a declared output size."""
    draw, layout = growth.draw, layout_for(growth)
    h, w, c = layout.axes()
    shape = x.known.shape
    longest = math.isqrt(growth.room // max(1, shape[0])) + 1
    row_window, column_window = spread(draw, shape[h], longest), spread(draw, shape[w], longest)
    groups = _groups(growth, shape[c])
    height, width = _natural(row_window, shape[h]), _natural(column_window, shape[w])
    pixels = shape[0] * shape[h] * shape[w]
    channels = _channels(growth, shape[0] * height * width, row_window.size * column_window.size * max(1, shape[c]))
    channels = max(1, channels // groups)
    op = TransposeConvolution2d(**_attributes(row_window, column_window), data_layout=layout, groups=groups)
    if draw.chance(1, 6) and shape[0] > 0:
        sizes = (max(1, height - draw.below(row_window.stride)), width + draw.below(column_window.stride))
        op = op.replace(output_shape=_shaped(layout, shape[0], *sizes, channels * groups))
    terms = max(
        1, shape[c] // groups * row_window.size * column_window.size * pixels // max(1, shape[0] * height * width)
    )
    return Filter(
        op, _shaped(layout, channels, row_window.size, column_window.size, shape[c]), channels * groups, terms
    )


def _natural(window: Window, size: int) -> int:
    return (size - 1) * window.stride + window.reach - window.pad_before - window.pad_after


def finished(growth: Growth, x: Value, drawn: Filter, *, plain: bool = False) -> Value:
    """Add the convolution `drawn` to the network with new weights and often a bias; return the last result.

    Unless `plain`, common layers such as an activation may follow it. The operand `x` is a float value.
    """
    draw = growth.draw
    dtype, output_reach = x.known.dtype, draw.one_of((1.0, 2.0, 4.0))
    weights = growth.weights(drawn.weights, output_reach / (growth.reach(x) * math.sqrt(drawn.terms)) * 1.5, dtype)
    bias = growth.weights((drawn.channels,), 1.0, dtype) if draw.chance(2, 3) else None
    convolved = growth.add(drawn.op, x, weights, bias, reach=output_reach)
    return convolved if plain else _followed(growth, convolved, drawn.op.data_layout)


def _followed(growth: Growth, x: Value, layout: DataLayout) -> Value:
    draw = growth.draw
    if draw.chance(1, 6):
        x = _normalized(growth, x, layout)
    if draw.chance(1, 8):
        x = _merged(growth, x)
    if draw.chance(1, 2):
        x = activated(growth, x)
    return x


def _normalized(growth: Growth, value: Value, layout: DataLayout) -> Value:
    channels = value.known.shape[-1 if layout.channels_last else 1]
    draw, dtype = growth.draw, value.known.dtype
    mean, beta, gamma = (growth.weights((channels,), 1.0, dtype) for _ in range(3))
    variance = growth.constant(as_type(draw.uniform((channels,), 0.25, 2.0), dtype))
    return growth.add(BatchNormalization(eps=1e-3, data_layout=layout), value, mean, variance, beta, gamma, reach=4.0)


def _merged(growth: Growth, value: Value) -> Value:
    """Add an Addition of the value and another one, and return the sum.

    The other one is a value of the same shape, as in a residual connection, or else a constant like a bias.
    """
    same_info = growth.another(lambda candidate: candidate.known == value.known)
    addend = same_info or growth.weights(value.known.shape[-1:], 1.0, value.known.dtype)
    operands = (value, addend) if growth.draw.chance(1, 2) else (addend, value)
    return growth.add(Addition(), *operands, reach=growth.reach(value) + growth.reach(addend))


@grower(18, Convolution2d, kinds=_FLOAT)
def _convolution(growth: Growth, value: Value) -> None:
    x = image(growth, value)
    finished(growth, x, convolution_filter(growth, x))


@grower(8, DepthwiseConvolution2d, kinds=_FLOAT)
def _depthwise_convolution(growth: Growth, value: Value) -> None:
    x = image(growth, value)
    finished(growth, x, depthwise_filter(growth, x))


@grower(8, TransposeConvolution2d, kinds=_FLOAT)
def _transpose_convolution(growth: Growth, value: Value) -> None:
    x = image(growth, value)
    finished(growth, x, transpose_filter(growth, x))


@grower(4, Convolution2d, Reshape, kinds=_FLOAT)
def _convolution_of_a_sequence(growth: Growth, value: Value) -> None:
    """Add a 1-D convolution as an image of one row, as importers translate it."""
    x = growth.real(as_rank(growth, value, 3))
    batch, first, second = x.known.shape
    image_shape = (batch, 1, first, second) if growth.layout.channels_last else (batch, first, 1, second)
    x = growth.add(Reshape(image_shape), x)
    drawn_filter = convolution_filter(growth, x, growth.layout, Window(1, 1, 1, 0, 0))
    convolved = finished(growth, x, drawn_filter)
    sizes = list(convolved.known.shape)
    del sizes[1 if growth.layout.channels_last else 2]
    growth.add(Reshape(tuple(sizes)), convolved)


@grower(4, Convolution3d, kinds=_FLOAT)
def _convolution_of_a_volume(growth: Growth, value: Value) -> None:
    drawn_filter, x = volume_filter(growth, image(growth, value, 5))
    _finished_volume(growth, x, drawn_filter)


def volume_filter(growth: Growth, x: Value) -> tuple[Filter, Value]:
    """Draw a 3D convolution of `x`, a value of rank 5; return it with the value that it reads."""
    draw, layout = growth.draw, growth.draw.one_of((DataLayout.NDHWC, DataLayout.NCDHW))
    first_axis = 1 if layout.channels_last else 2
    shape, channels = x.known.shape, x.known.shape[-1 if layout.channels_last else 1]
    sizes = shape[first_axis : first_axis + 3]
    depth, row_window, column_window = windows = [slid(draw, size) for size in sizes]
    voxels = shape[0] * math.prod(window.places(size) for window, size in zip(windows, sizes, strict=True))
    groups = _groups(growth, channels)
    terms = channels // groups * depth.size * row_window.size * column_window.size
    outputs = max(1, _channels(growth, voxels, max(1, terms)) // groups) * groups
    depth_attributes = {
        "pad_front": depth.pad_before,
        "pad_back": depth.pad_after,
        "stride_z": depth.stride,
        "dilation_z": depth.dilation,
    }
    attributes: dict[str, Any] = _attributes(row_window, column_window) | depth_attributes
    op = Convolution3d(**attributes, data_layout=layout, groups=groups)
    return Filter(
        op, (depth.size, row_window.size, column_window.size, channels // groups, outputs), outputs, max(1, terms)
    ), x


def _finished_volume(growth: Growth, x: Value, drawn_filter: Filter) -> None:
    reach, dtype = 3.0 / (growth.reach(x) * math.sqrt(drawn_filter.terms)), x.known.dtype
    bias = growth.weights((drawn_filter.channels,), 1.0, dtype) if growth.draw.chance(1, 2) else None
    convolved = growth.add(drawn_filter.op, x, growth.weights(drawn_filter.weights, reach, dtype), bias, reach=2.0)
    if growth.draw.chance(1, 3):
        activated(growth, convolved)
