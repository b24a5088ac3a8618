"""TFLite writers for convolutions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from interposer.core.types import DataType, Quantization, TensorInfo
from interposer.ops.convolution import Convolution2d, DepthwiseConvolution2d, TransposeConvolution2d
from interposer.ops.convolution3d import Convolution3d
from interposer.ops.window import Window
from interposer.writers.refusals import refuse
from interposer.writers.tflite.draft import Draft
from interposer.writers.tflite.sheet import Tensor
from interposer.writers.tflite.tflite_layer_writers import writer
from interposer.writers.tflite.tflite_window_options import SAME, VALID, Sliding, options, padded, sliding

__all__ = ["bias_of", "bias_options", "check_weights"]


def bias_of(draft: Draft, x: Tensor, weights: Tensor, channels: int) -> Tensor:
    """Return the bias operand, with the scale of input times weights if it is quantized.

    An absent bias becomes `channels` zeros, as kernels of convolutions need one.
    """
    bias = draft.optional(2)
    q = _sums(x.info, weights.info)
    if bias is None:
        return draft.constant(np.zeros(draft.known(channels, "number of channels")), _bias_type(x.info), "bias", q)
    if q is None:
        return bias
    return Tensor(bias.name, bias.info.with_quantization(q), bias.array) if not bias.info.is_quantized else bias


def bias_options(draft: Draft, x: Tensor, bias: Tensor | None) -> dict[str, Any]:
    """Return the option for the type of the bias, if the data is int16 and the bias int32; else no options.

    TFLite rounds the results differently for int32 and int64 biases.
    """
    if bias is None or x.dtype is not DataType.INT16 or bias.dtype is DataType.INT64:
        return {}
    return {"quantized_bias_type": bias.dtype}


def _sums(x: TensorInfo, weights: TensorInfo) -> Quantization | None:
    if x.quantization is None or weights.quantization is None:
        return None
    scales = [x.scale * scale for scale in weights.quantization.scales]
    return Quantization(scales, 0, 0 if weights.quantization.per_axis else None)


def _bias_type(x: TensorInfo) -> DataType:
    if not x.is_quantized:
        return x.dtype
    return DataType.INT64 if x.dtype is DataType.INT16 else DataType.INT32


def check_weights(x: Tensor, weights: Tensor) -> None:
    """Refuse quantized weights that TFLite cannot combine with input `x`.

    They must be uint8 exactly if the input is, and per-channel weights must have zero points of 0.
    """
    q = weights.info.quantization
    if q is not None and q.per_axis and any(q.zero_points):
        refuse("its weights have several scales and zero points that are not 0")
    if q is not None and (x.dtype is DataType.UINT8) != (weights.dtype is DataType.UINT8):
        refuse(f"its input is quantized {x.dtype} and its weights {weights.dtype}, which TFLite does not mix")


def _check_zero_point(weights: Tensor) -> None:
    """Refuse int8 weights with a zero point that is not 0, which the kernels of convolutions do not subtract."""
    q = weights.info.quantization
    if q is not None and weights.dtype is DataType.INT8 and any(q.zero_points):
        refuse(f"its weights are int8 with the zero point {q.zero_point}; TFLite's convolutions take 0 only")


def _slides(x: Tensor, result_info: TensorInfo, windows: Sequence[Window]) -> Sliding:
    spatial_end = 1 + len(windows)
    return sliding(windows, x.shape[1:spatial_end], result_info.shape[1:spatial_end])


@writer(Convolution2d, also_quantized=True)
def convolution(draft: Draft, op: Convolution2d) -> Tensor:
    """Write Convolution2d; the groups follow from the channels, and one group per channel is DEPTHWISE_CONV_2D."""
    x, weights = draft.operand(0), draft.operand(1)
    if op.groups > 1 and weights.shape[3] == 1 and weights.array is not None and not _has_scales(weights):
        return _convolved(draft, op, "DEPTHWISE_CONV_2D", x, draft.transpose(weights, (3, 1, 2, 0)))
    if op.groups > 1 and x.info.is_quantized:
        refuse("it has groups, which TFLite only knows of float values")
    check_weights(x, weights)
    return _convolved(draft, op, "CONV_2D", x, weights)


def _has_scales(weights: Tensor) -> bool:
    return weights.info.quantization is not None and not weights.info.quantization.per_axis


@writer(DepthwiseConvolution2d, also_quantized=True)
def depthwise_convolution(draft: Draft, op: DepthwiseConvolution2d) -> Tensor:
    """Write DepthwiseConvolution2d as DEPTHWISE_CONV_2D."""
    return _convolved(draft, op, "DEPTHWISE_CONV_2D", draft.operand(0), draft.operand(1))


def _convolved(
    draft: Draft, op: Convolution2d | DepthwiseConvolution2d, kind: str, x: Tensor, weights: Tensor
) -> Tensor:
    check_weights(x, weights)
    _check_zero_point(weights)
    depthwise = kind == "DEPTHWISE_CONV_2D"
    windows = op.windows(*(draft.known(size, "size of the window") for size in weights.shape[1:3]))
    padding, bias = _slides(x, draft.result, windows), bias_of(draft, x, weights, weights.shape[3 if depthwise else 0])
    fields = options(windows, padding) | bias_options(draft, x, bias)
    if depthwise and "quantized_bias_type" in fields:
        refuse("its bias has 32 bits, and DEPTHWISE_CONV_2D takes one of 64 with data of 16")
    if depthwise:
        fields["depth_multiplier"] = _multiplier(draft, x, weights)
    return draft.final(kind, padded(draft, x, padding), weights, bias, **fields)


def _multiplier(draft: Draft, x: Tensor, weights: Tensor) -> int:
    channels, outputs = (draft.known(tensor.shape[3], "number of channels") for tensor in (x, weights))
    return outputs // max(1, channels)


@writer(Convolution3d)
def convolution_3d(draft: Draft, op: Convolution3d) -> Tensor:
    """Write Convolution3d; weights have the depth first and the output channels last."""
    if op.groups > 1:
        refuse("it has groups, which TFLite only knows of images")
    x, weights = draft.operand(0), draft.operand(1)
    windows = op.windows(*(draft.known(size, "size of the window") for size in weights.shape[:3]))
    padding, bias = _slides(x, draft.result, windows), bias_of(draft, x, weights, weights.shape[4])
    return draft.final("CONV_3D", padded(draft, x, padding), weights, bias, **options(windows, padding))


@writer(TransposeConvolution2d, also_quantized=True)
def transpose_convolution(draft: Draft, op: TransposeConvolution2d) -> Tensor:
    """Write TransposeConvolution2d; the padding is that of the equivalent forward convolution.

    Excess output is cropped at the end.
    """
    x, weights, info = draft.operand(0), draft.operand(1), draft.result
    if op.groups > 1 or op.dilation_x > 1 or op.dilation_y > 1:
        refuse("it has groups or dilations, which TRANSPOSE_CONV has not")
    check_weights(x, weights)
    _check_zero_point(weights)
    sizes = draft.concrete(x)[1:3]
    if not info.is_concrete:
        refuse(f"its result has the shape {info.shape}; its dimensions must be known")
    if 0 in info.shape:
        refuse("its result has no elements")
    windows = op.windows(*(draft.known(size, "size of the window") for size in weights.shape[1:3]))
    axes = list(zip(windows, sizes, info.shape[1:3], strict=True))
    if all(_is_same(*axis) for axis in axes):
        return _spread(draft, x, weights, info, windows, SAME)
    uncropped = [max(_natural(window, size), window.pad_before + output_size) for window, size, output_size in axes]
    if any(size >= _natural(*axis[:2]) + axis[0].stride for size, axis in zip(uncropped, axes, strict=True)):
        refuse("its result is larger than TRANSPOSE_CONV makes it")
    uncropped_result = _spread(
        draft, x, weights, info.with_shape((info.shape[0], *uncropped, info.shape[3])), windows, VALID
    )
    if uncropped == list(info.shape[1:3]):
        return uncropped_result
    begin, size = (
        draft.ints([0, *(window.pad_before for window in windows), 0], "begin"),
        draft.ints(info.shape, "size"),
    )
    return draft.final("SLICE", uncropped_result, begin, size)


def _natural(window: Window, size: int) -> int:
    """Return the result's size along an axis for an input of `size`, before padding is removed from the result."""
    return (size - 1) * window.stride + window.size


def _is_same(window: Window, size: int, output_size: int) -> bool:
    """Return True if a transposed convolution can be written with the padding scheme SAME along an axis.

    SAME for an image of `output_size`, the result's size, must give the window's pads and the input's size `size`.
    """
    pads = window.same_pads(output_size)
    return pads is not None and pads[0] == window.pad_before and -(-output_size // window.stride) == size


def _spread(
    draft: Draft, x: Tensor, weights: Tensor, info: TensorInfo, windows: Sequence[Window], padding: int
) -> Tensor:
    bias = bias_of(draft, x, weights, weights.shape[0]) if draft.optional(2) else None
    fields = options(windows, Sliding(padding, ()), dilations=False) | bias_options(draft, x, bias)
    return draft.node("TRANSPOSE_CONV", draft.ints(info.shape, "shape"), weights, x, bias, giving=info, **fields)
