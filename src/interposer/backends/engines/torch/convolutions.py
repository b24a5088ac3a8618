"""Convolutions and pooling; channels-last images are channels-first views, computed without rearranging the memory."""

from __future__ import annotations

from typing import Any

from interposer.backends.engines.engine import RefusedError
from interposer.backends.engines.torch.package import functional, torch
from interposer.backends.engines.torch.table import Function, in_float32, kind_of, makes
from interposer.core.types import DataLayout
from interposer.ir.graph import Layer
from interposer.ops import (
    Convolution2d,
    DepthwiseConvolution2d,
    PaddingMethod,
    Pooling2d,
    PoolingAlgorithm,
    Resize,
    ResizeMethod,
    TransposeConvolution2d,
)

__all__: list[str] = []

_FIRST = (0, 3, 1, 2)
_LAST = (0, 2, 3, 1)


def _with_channels_first(layout: DataLayout, function: Function) -> Function:
    """Return a torch function of images of `layout` that permutes its first argument and its result around `function`.

    `function` takes an NCHW image. Its other arguments, such as weights, are passed unchanged.
    """
    if layout is DataLayout.NCHW:
        return function
    return lambda x, *others: function(x.permute(_FIRST), *others).permute(_LAST)


def _padding(row_window: Any, column_window: Any) -> list[int]:
    """Return the padding along height and width in the order of torch's `pad`: left, right, top, bottom.

    `row_window` is the window along the height, and `column_window` the one along the width.
    """
    return [column_window.pad_before, column_window.pad_after, row_window.pad_before, row_window.pad_after]


def _padded(x: Any, pads: list[int], value: float = 0.0) -> Any:
    """Return the image padded with `value`, or the image itself without a copy if all of `pads` are 0.

    `pads` are in the order of torch's `pad`: left, right, top, bottom.
    """
    return functional.pad(x, pads, value=value) if any(pads) else x


def _is_same_on_both_sides(pads: list[int]) -> bool:
    return pads[0] == pads[1] and pads[2] == pads[3]


@makes(Convolution2d)
def convolution(op: Convolution2d, layer: Layer) -> Function:
    """Return the torch convolution; weights have the shape (O, I, H, W), or (O, H, W, I) for channels last."""
    h, w, _ = op.data_layout.axes()
    row_window, column_window = op.windows(*(layer.input_infos[1].shape[axis] for axis in (h, w)))  # type: ignore[union-attr]
    permuted = _permuted(_FIRST if op.data_layout is not DataLayout.NCHW else (0, 1, 2, 3))
    convolve = _convolve(row_window, column_window, op.groups)
    return _with_channels_first(op.data_layout, lambda x, weights, bias: convolve(x, permuted(weights), bias))


def _permuted(order: tuple[int, ...]) -> Function:
    """Return a function that permutes the axes of the weights to torch's order and makes them contiguous."""
    return lambda weights: weights.permute(order).contiguous(memory_format=torch.channels_last)


def _convolve(row_window: Any, column_window: Any, groups: int) -> Function:
    pads = _padding(row_window, column_window)
    is_symmetric = _is_same_on_both_sides(pads)
    options = {
        "stride": (row_window.stride, column_window.stride),
        "dilation": (row_window.dilation, column_window.dilation),
        "padding": (pads[2], pads[0]) if is_symmetric else 0,
        "groups": groups,
    }
    return lambda x, weights, bias: functional.conv2d(x if is_symmetric else _padded(x, pads), weights, bias, **options)


@makes(DepthwiseConvolution2d)
def depthwise_convolution(op: DepthwiseConvolution2d, layer: Layer) -> Function:
    """Return the torch convolution; weights have the shape (1, H, W, I * M)."""
    weights_info = layer.input_infos[1]
    assert weights_info is not None
    row_window, column_window = op.windows(weights_info.shape[1], weights_info.shape[2])
    channels = layer.values[0].known.shape[op.data_layout.axes()[2]]
    convolve = _convolve(row_window, column_window, int(channels))
    permuted = _permuted((3, 0, 1, 2))
    return _with_channels_first(op.data_layout, lambda x, weights, bias: convolve(x, permuted(weights), bias))


@makes(TransposeConvolution2d)
def transpose_convolution(op: TransposeConvolution2d, layer: Layer) -> Function:
    """Return the torch function.

    Its full output is cropped to the output shape, or padded with zeros where it is smaller.
    """
    cropped_ends, zeros_to_append = _crop(op, layer)
    permuted = _permuted((1, 0, 2, 3) if op.data_layout is DataLayout.NCHW else (3, 0, 1, 2))
    options = {
        "stride": (op.stride_y, op.stride_x),
        "dilation": (op.dilation_y, op.dilation_x),
        "groups": op.groups,
    }

    def compute(x: Any, weights: Any, bias: Any) -> Any:
        output = functional.conv_transpose2d(x, permuted(weights), **options)
        output = _padded(output[:, :, op.pad_top : cropped_ends[0], op.pad_left : cropped_ends[1]], zeros_to_append)
        return output if bias is None else output + bias.view(1, -1, 1, 1)

    return _with_channels_first(op.data_layout, in_float32(compute, kind_of(layer.values[0])))


def _crop(op: TransposeConvolution2d, layer: Layer) -> tuple[list[int], list[int]]:
    """Return how to trim the full output of a transposed convolution to the output shape of the layer.

    The first list has the ends of the rows and columns to retain. The second one has the zeros to append, in the order
    of torch's `pad`: left, right, top, bottom.
    """
    (image, weights), out = [value.known.shape for value in layer.values[:2]], layer.output_infos[0].shape
    strides, dilations = (op.stride_y, op.stride_x), (op.dilation_y, op.dilation_x)
    cropped_ends, to_append = [], []
    for axis, crop_before, stride, dilation in zip(
        op.data_layout.axes()[:2], (op.pad_top, op.pad_left), strides, dilations, strict=True
    ):
        full_size = (int(image[axis]) - 1) * stride + (int(weights[axis]) - 1) * dilation + 1
        cropped_ends.append(crop_before + int(out[axis]))
        to_append.append(int(out[axis]) - max(0, min(full_size, cropped_ends[-1]) - crop_before))
    return cropped_ends, [0, to_append[1], 0, to_append[0]]


@makes(Pooling2d)
def pooling(op: Pooling2d, layer: Layer) -> Function:
    """Return the torch function; the image is padded first, so that all windows are complete.

    An average is divided by the number of elements that the padding method counts; see `_counts`.
    """
    h, w, _ = op.data_layout.axes()
    input_shape, output_shape = layer.values[0].known.shape, layer.output_infos[0].shape
    row_window, column_window = op.windows(int(input_shape[h]), int(input_shape[w]))
    pads_after = [
        _excess(window, int(input_shape[axis]), int(output_shape[axis]))
        for window, axis in ((row_window, h), (column_window, w))
    ]
    if min(pads_after) < 0 or 0 in input_shape or 0 in output_shape:
        raise RefusedError("a part of the image is in no window, or the image is empty")
    pads = [column_window.pad_before, pads_after[1], row_window.pad_before, pads_after[0]]
    options = {
        "kernel_size": (row_window.size, column_window.size),
        "stride": (row_window.stride, column_window.stride),
    }
    if op.pool_type is PoolingAlgorithm.MAX:
        dilation = (row_window.dilation, column_window.dilation)
        return _with_channels_first(
            op.data_layout,
            lambda x: functional.max_pool2d(_padded(x, pads, -torch.inf), dilation=dilation, **options),
        )
    if row_window.dilation != 1 or column_window.dilation != 1:
        raise RefusedError("torch has no dilated average pooling")
    counts = _counts(op, (row_window, column_window), (int(input_shape[h]), int(input_shape[w])), pads, options)
    kind = getattr(torch, str(kind_of(layer.values[0])))
    mean = _mean(counts, pads, options, row_window.size * column_window.size, kind)
    if op.pool_type is PoolingAlgorithm.L2:
        norm = in_float32(lambda x: torch.sqrt(mean(torch.square(x))), kind_of(layer.values[0]))
        return _with_channels_first(op.data_layout, norm)
    return _with_channels_first(op.data_layout, mean)


def _excess(window: Any, size: int, count: int) -> int:
    """Return how many elements the last of `count` windows along an axis extends beyond an image of this size."""
    excess: int = (count - 1) * window.stride + (window.size - 1) * window.dilation + 1 - size - window.pad_before
    return excess


def _counts(op: Pooling2d, windows: Any, sizes: tuple[int, int], pads: list[int], options: dict[str, Any]) -> Any:
    """Return how many elements of each window count for its average; None if all elements of all windows do.

    With IGNORE_VALUE, elements of the declared padding count too, otherwise only those of the image.

    Args:
        op: the pooling.
        windows: its windows along height and width.
        sizes: the height and the width of the image.
        pads: the padding in the order of torch's `pad`.
        options: the kernel size and the stride, as arguments of torch's pooling.
    """
    row_window, column_window = windows
    ones = torch.ones(1, 1, *sizes)
    if op.padding_method is PaddingMethod.IGNORE_VALUE:
        declared_pads = [
            column_window.pad_before,
            min(column_window.pad_after, pads[1]),
            row_window.pad_before,
            min(row_window.pad_after, pads[3]),
        ]
        ones = functional.pad(ones, declared_pads, value=1.0)
        pads = [total - declared for total, declared in zip(pads, declared_pads, strict=True)]
    counts = functional.avg_pool2d(functional.pad(ones, pads), divisor_override=1, **options)
    return None if bool((counts == row_window.size * column_window.size).all()) else counts.clamp(min=1)


def _mean(counts: Any, pads: list[int], options: dict[str, Any], area: int, kind: Any) -> Function:
    if counts is None:
        return lambda x: functional.avg_pool2d(_padded(x, pads), **options)
    factors = (area / counts).to(kind)
    return lambda x: functional.avg_pool2d(_padded(x, pads), **options) * factors


@makes(Resize)
def resize(op: Resize, layer: Layer) -> Function:
    """Return the torch function: nearest without pixel centers, or bilinear with aligned corners or pixel centers."""
    size = (op.target_height, op.target_width)
    if op.method is ResizeMethod.NEAREST_NEIGHBOR:
        if op.align_corners or op.half_pixel_centers:
            raise RefusedError("torch supports nearest resizing only without aligned corners or pixel centers")
        return _with_channels_first(op.data_layout, lambda x: functional.interpolate(x, size, mode="nearest"))
    if op.align_corners == op.half_pixel_centers:
        raise RefusedError("torch supports bilinear resizing only with aligned corners or pixel centers")
    options: dict[str, Any] = {"mode": "bilinear", "align_corners": op.align_corners}
    return _with_channels_first(op.data_layout, lambda x: functional.interpolate(x, size, **options))
