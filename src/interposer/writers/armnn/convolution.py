"""Arm NN writers for convolutions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np

from interposer.core.types import Array, DataLayout, DataType, Quantization, TensorInfo
from interposer.formats.armnn.schema import LAYOUTS
from interposer.ops.convolution import Convolution2d, DepthwiseConvolution2d, TransposeConvolution2d
from interposer.ops.convolution3d import Convolution3d
from interposer.writers.armnn.armnn_layer_writers import writer
from interposer.writers.armnn.draft import Draft
from interposer.writers.armnn.sheet import Tensor
from interposer.writers.armnn.views import origins, views
from interposer.writers.refusals import refuse

__all__ = ["bias_of", "with_weights"]

_FIELDS: Final = {
    "pad_left": "padLeft",
    "pad_right": "padRight",
    "pad_top": "padTop",
    "pad_bottom": "padBottom",
    "pad_front": "padFront",
    "pad_back": "padBack",
    "stride_x": "strideX",
    "stride_y": "strideY",
    "stride_z": "strideZ",
    "dilation_x": "dilationX",
    "dilation_y": "dilationY",
    "dilation_z": "dilationZ",
}


def window(op: Any, bias: Tensor | None, *, dilated: bool = True) -> dict[str, Any]:
    """Return the fields of a descriptor for the window of a convolution, and those for its bias and layout."""
    names = {name: field for name, field in _FIELDS.items() if dilated or not name.startswith("dilation")}
    fields = {field: getattr(op, name) for name, field in names.items() if hasattr(op, name)}
    return fields | {"biasEnabled": bias is not None, "dataLayout": LAYOUTS.index(op.data_layout.name)}


def bias_of(draft: Draft, index: int, x: TensorInfo, weights: TensorInfo) -> Tensor | None:
    """Return the bias, operand `index`, or None if it is absent; its scale follows from those of input and weights."""
    bias = draft.optional(index)
    if bias is None or x.quantization is None or weights.quantization is None:
        return bias
    scales = [x.quantization.scale * scale for scale in weights.quantization.scales]
    q = Quantization(scales, 0, 0) if weights.quantization.per_axis else Quantization(scales[0])
    array = bias.array
    if bias.dtype is DataType.INT64 and draft.sheet.exact:
        refuse("its bias is int64, and with one of int32 results may differ by one; write it with exact=False")
    if bias.dtype is DataType.INT64 and array is not None:
        if array.size and max(abs(int(array.min())), abs(int(array.max()))) >= 2**31:
            refuse("its bias has numbers that int32 does not hold, which is the type of Arm NN's biases")
        array = array.astype(np.int32)
    dtype = bias.dtype if array is None else DataType.of(array.dtype)
    return Tensor(TensorInfo(bias.info.shape, dtype, q), array, bias.name)


def with_weights(
    draft: Draft, kind: str, x: Tensor, weights: Tensor, bias: Tensor | None, descriptor: Mapping[str, Any],
    giving: TensorInfo | None = None,
) -> Tensor:  # fmt: skip
    """Add a layer with weights and a bias, which are constants of the layer, or inputs in newer files.

    Without `giving`, its result is that of the layer.
    """
    operands = [weights, *([] if bias is None else [bias])]
    name = draft.layer.name if giving is None else ""
    if draft.sheet.weights_as_inputs and kind != "TransposeConvolution2d":
        return draft.nodes(kind, x, *operands, giving=[giving or draft.result], name=name, descriptor=descriptor)[0]
    constants = {"weights": draft.stored(weights, "weights")}
    constants |= {} if bias is None else {"biases": draft.stored(bias, "bias")}
    return draft.nodes(
        kind, x, giving=[giving or draft.result], name=name, descriptor=descriptor, constants=constants
    )[0]  # fmt: skip


# --- Convolution2d ----------------------------------------------------------------------------------------------------


@writer(Convolution2d)
def convolution(draft: Draft, op: Convolution2d) -> Tensor:
    """Write Convolution2d; groups become a depthwise convolution, or a convolution each."""
    x, weights = draft.operand(0), draft.operand(1)
    bias = bias_of(draft, 2, x.info, weights.info)
    if op.groups == 1:
        return with_weights(draft, "Convolution2d", x, weights, bias, window(op, bias))
    channel = op.data_layout.axes().channels
    if op.groups == x.shape[channel] and weights.array is not None:
        return _as_depthwise(draft, op, weights, bias)
    return _in_groups(draft, op, weights, bias)


def _as_depthwise(draft: Draft, op: Convolution2d, weights: Tensor, bias: Tensor | None) -> Tensor:
    """Write a convolution with one input channel in each group; its outputs are in the order of the groups."""
    assert weights.array is not None
    kernels = weights.array if op.data_layout.channels_last else weights.array.transpose(0, 2, 3, 1)
    depthwise_kernels = np.ascontiguousarray(kernels.transpose(3, 1, 2, 0))
    q = weights.info.quantization
    q = Quantization(q.scales, q.zero_points, 3) if q is not None and q.per_axis else q
    tensor = Tensor(TensorInfo(depthwise_kernels.shape, weights.dtype, q), depthwise_kernels, weights.name)
    return _depthwise(draft, op, tensor, bias)


def _in_groups(draft: Draft, op: Convolution2d, weights: Tensor, bias: Tensor | None) -> Tensor:
    """Write the convolution of each group, between a Splitter and a Concat."""
    x, axis = draft.operand(0), op.data_layout.axes().channels
    kernels = draft.stored(weights, "weights")
    assert kernels.array is not None
    group_inputs = _divided(draft, x, axis, op.groups)
    filters = [_slice_of(kernels, piece, number, op.groups) for number, piece in _pieces(kernels.array, op.groups)]
    biases: Sequence[Tensor | None] = [None] * op.groups
    if bias is not None:
        stored = draft.stored(bias, "bias")
        assert stored.array is not None
        biases = [_slice_of(stored, piece, number, op.groups) for number, piece in _pieces(stored.array, op.groups)]
    shape = [int(size) for size in draft.result.shape]
    shape[axis] //= op.groups
    info = TensorInfo(shape, draft.result.dtype, draft.result.quantization)
    group_results = [
        with_weights(draft, "Convolution2d", *operands, window(op, bias), giving=info)
        for operands in zip(group_inputs, filters, biases, strict=True)
    ]
    return draft.final("Concat", *group_results, descriptor=origins(axis, [tuple(shape)] * op.groups))


def _pieces(array: Array, count: int) -> list[tuple[int, Array]]:
    return [(number, np.ascontiguousarray(piece)) for number, piece in enumerate(np.split(array, count))]


def _slice_of(tensor: Tensor, piece: Array, number: int, count: int) -> Tensor:
    """Return piece `number` of a constant that is divided along its first axis, with its scales."""
    q = tensor.info.quantization
    if q is not None and q.per_axis:
        size = len(q.scales) // count
        indices = slice(number * size, (number + 1) * size)
        q = Quantization(q.scales[indices], q.zero_points[indices], q.axis)
    return Tensor(TensorInfo(piece.shape, tensor.dtype, q), piece, f"{tensor.name}/{number}")


def _divided(draft: Draft, x: Tensor, axis: int, count: int) -> list[Tensor]:
    shape = [int(size) for size in x.shape]
    shape[axis] //= count
    infos = [TensorInfo(shape, x.dtype, x.info.quantization)] * count
    return draft.nodes("Splitter", x, giving=infos, descriptor=views(axis, [tuple(shape)] * count))


# --- DepthwiseConvolution2d -------------------------------------------------------------------------------------------


@writer(DepthwiseConvolution2d)
def depthwise_convolution(draft: Draft, op: DepthwiseConvolution2d) -> Tensor:
    """Write DepthwiseConvolution2d."""
    weights = draft.operand(1)
    return _depthwise(draft, op, weights, bias_of(draft, 2, draft.info(0), weights.info))


def _depthwise(
    draft: Draft, op: Convolution2d | DepthwiseConvolution2d, weights: Tensor, bias: Tensor | None
) -> Tensor:
    """Write a depthwise convolution with weights of the shape [1, H, W, I * M]."""
    x = draft.operand(0)
    if not draft.sheet.weights_layout:
        weights = _multipliers_first(draft.stored(weights, "weights"), int(x.shape[op.data_layout.axes().channels]))
    return with_weights(draft, "DepthwiseConvolution2d", x, weights, bias, window(op, bias))


def _multipliers_first(weights: Tensor, inputs: int) -> Tensor:
    """Return weights [1, H, W, I * M] as [M, I, H, W], with their scales along axis 0, as old releases have them."""
    assert weights.array is not None
    _, height, width, channels = weights.array.shape
    reordered = weights.array.reshape(height, width, inputs, channels // inputs).transpose(3, 2, 0, 1)
    q, array = weights.info.quantization, np.ascontiguousarray(reordered)
    if q is None or not q.per_axis:
        return Tensor(TensorInfo(array.shape, weights.dtype, q), array, weights.name)
    scales = Quantization(q.scales, q.zero_points, 0)
    return Tensor(TensorInfo(array.shape, weights.dtype), array, weights.name, scales)


# --- the others -------------------------------------------------------------------------------------------------------


@writer(TransposeConvolution2d)
def transpose_convolution(draft: Draft, op: TransposeConvolution2d) -> Tensor:
    """Write TransposeConvolution2d.

    Files do not store the shape of the output. The padding at the end determines it, and if the output is larger, more
    weights that are zero.
    """
    if op.groups != 1:
        refuse(f"it has {op.groups} groups; Arm NN's transposed convolutions have one")
    if (op.dilation_x, op.dilation_y) != (1, 1):
        refuse("it is dilated, which Arm NN's transposed convolutions are not")
    x, weights = draft.operand(0), draft.stored(draft.operand(1), "weights")
    if draft.release.target == "20.08" and 1 < int(x.shape[0]) <= int(weights.shape[0]):
        refuse("it has several batches, for which Arm NN 20.08 expects other output channels")
    bias = bias_of(draft, 2, x.info, weights.info)
    height, width, _ = op.data_layout.axes()
    fields = window(op, bias, dilated=False)
    spatial_axes = zip((height, width), (op.stride_y, op.stride_x), ("Top", "Left"), ("Bottom", "Right"), strict=True)
    for axis, stride, start_side, end_side in spatial_axes:
        assert weights.array is not None
        covered_size = (int(x.shape[axis]) - 1) * stride + weights.array.shape[axis] - fields[f"pad{start_side}"]
        num_missing = max(0, int(draft.result.shape[axis]) - covered_size)
        weights = _extended(weights, axis, num_missing)
        fields[f"pad{end_side}"] = covered_size + num_missing - int(draft.result.shape[axis])
    return with_weights(draft, "TransposeConvolution2d", x, weights, bias, fields)


def _extended(weights: Tensor, axis: int, num_missing: int) -> Tensor:
    """Return weights with `num_missing` zeros at the end of an axis."""
    if not num_missing:
        return weights
    assert weights.array is not None
    pads = [(0, num_missing if position == axis else 0) for position in range(weights.array.ndim)]
    q = weights.info.quantization
    array = np.pad(weights.array, pads, constant_values=0 if q is None else q.zero_point)
    return Tensor(TensorInfo(array.shape, weights.dtype, q), array, weights.name)


@writer(Convolution3d)
def convolution_3d(draft: Draft, op: Convolution3d) -> Tensor:
    """Write Convolution3d, whose weights are always inputs."""
    if op.groups != 1:
        refuse(f"it has {op.groups} groups; Arm NN's convolutions of volumes have one")
    if op.data_layout not in (DataLayout.NDHWC, DataLayout.NCDHW):
        refuse(f"its layout is {op.data_layout}")
    x, weights = draft.operand(0), draft.operand(1)
    bias = bias_of(draft, 2, x.info, weights.info)
    operands = [weights, *([] if bias is None else [bias])]
    return draft.final("Convolution3d", x, *operands, descriptor=window(op, bias))
