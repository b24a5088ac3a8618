"""Arm NN writers for normalizations."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from interposer.core.schema import Op
from interposer.core.types import DataLayout, DataType, TensorInfo
from interposer.formats.armnn.schema import LAYOUTS, NORMALIZATION_CHANNELS, NORMALIZATION_METHODS
from interposer.ops.axes import normal_axis
from interposer.ops.normalization import (
    BatchNormalization,
    InstanceNormalization,
    L2Normalization,
    LayerNormalization,
    MeanVarianceNormalization,
    Normalization,
    NormalizationAlgorithmChannel,
    RmsNormalization,
    channel_axis,
)
from interposer.writers.armnn.armnn_layer_writers import writer
from interposer.writers.armnn.draft import Draft
from interposer.writers.armnn.sheet import Tensor
from interposer.writers.armnn.types import dimensions
from interposer.writers.refusals import refuse

__all__: list[str] = []

_NCHW, _NHWC = LAYOUTS.index("NCHW"), LAYOUTS.index("NHWC")


def _as_image(
    draft: Draft, kind: str, axis: int, descriptor: dict[str, Any], *, keeps_batch: bool = False, **fields: Any
) -> Tensor:
    """Write a layer on images for a tensor whose channels are on an axis; it is reshaped unless it is an image.

    With `keeps_batch`, axis 0 is the batch, whose samples are normalized independently.
    """
    x = draft.operand(0)
    shape = dimensions(x.info)
    is_last_axis = axis == len(shape) - 1
    if len(shape) == 4 and axis in (1, 3):
        layout = _NHWC if is_last_axis else _NCHW
        return draft.final(kind, x, descriptor=descriptor | {"dataLayout": layout}, **fields)
    image = _image_shape(shape, axis, keeps_batch)
    layout = _NHWC if image[3] == shape[axis] and is_last_axis else _NCHW
    info = TensorInfo(image, draft.result.dtype, draft.result.quantization)
    image_result = draft.node(
        kind, draft.reshape(x, image), giving=info, descriptor=descriptor | {"dataLayout": layout}, **fields
    )
    return draft.reshape(image_result, (), final=True)


def _image_shape(shape: Sequence[int], axis: int, keeps_batch: bool) -> tuple[int, ...]:
    """Return the shape of an image with the same elements in the same order, whose channels are those of an axis."""
    if axis == len(shape) - 1:
        batch = shape[0] if keeps_batch and axis else 1
        return (batch, math.prod(shape[:axis]) // batch if batch else 0, 1, shape[axis])
    outer_size, inner_size = math.prod(shape[:axis]), math.prod(shape[axis + 1 :])
    return (outer_size, shape[axis], inner_size, 1)


@writer(BatchNormalization)
def batch_normalization(draft: Draft, op: BatchNormalization) -> Tensor:
    """Write BatchNormalization, whose statistics must be constants."""
    names = ("mean", "variance", "beta", "gamma")
    constants = {name: draft.stored(draft.operand(number), name) for number, name in enumerate(names, 1)}
    axis = channel_axis(op.data_layout, draft.info(0).rank)
    return _as_image(draft, "BatchNormalization", axis, {"eps": op.eps}, constants=constants)


@writer(InstanceNormalization)
def instance_normalization(draft: Draft, op: InstanceNormalization) -> Tensor:
    """Write InstanceNormalization; gamma and beta of each channel are a multiplication and an addition."""
    gamma, beta = draft.optional(1), draft.optional(2)
    axis = channel_axis(op.data_layout, draft.info(0).rank)
    numbers = [_number(tensor, default) for tensor, default in ((gamma, 1.0), (beta, 0.0))]
    if None not in numbers:
        fields = {"gamma": numbers[0], "beta": numbers[1], "eps": op.eps}
        return _as_image(draft, "InstanceNormalization", axis, fields, keeps_batch=True)
    if draft.is_quantized:
        refuse("each channel has its own gamma or beta, and the tensors are quantized")
    fields = {"gamma": 1.0, "beta": 0.0, "eps": op.eps}
    x = _normalized(draft, axis, fields)
    shape = [size if at == axis else 1 for at, size in enumerate(dimensions(draft.info(0)))]
    scaled = x if gamma is None else draft.node("Multiplication", x, _channels(draft, gamma, shape), giving=x.info)
    if beta is None:
        return draft.final("Multiplication", x, _channels(draft, gamma, shape)) if gamma else refuse("it has no gamma")
    return draft.final("Addition", scaled, _channels(draft, beta, shape))


def _normalized(draft: Draft, axis: int, fields: dict[str, Any]) -> Tensor:
    """Return the normalized input, as an intermediate result with the shape of the input."""
    x = draft.operand(0)
    shape = dimensions(x.info)
    if len(shape) == 4 and axis in (1, 3):
        layout = {"dataLayout": _NHWC if axis == 3 else _NCHW}
        return draft.node("InstanceNormalization", x, giving=draft.result, descriptor=fields | layout)
    image = _image_shape(shape, axis, keeps_batch=True)
    layout = {"dataLayout": _NHWC if axis == len(shape) - 1 else _NCHW}
    info = TensorInfo(image, draft.result.dtype)
    normalized = draft.node("InstanceNormalization", draft.reshape(x, image), giving=info, descriptor=fields | layout)
    return draft.reshape(normalized, shape)


def _channels(draft: Draft, tensor: Tensor | None, shape: Sequence[int]) -> Tensor:
    assert tensor is not None
    size = math.prod(dimensions(tensor.info))
    return draft.reshape(tensor, shape if size > 1 else [1] * len(shape))


def _number(tensor: Tensor | None, default: float) -> float | None:
    """Return the only number in a tensor, `default` if the tensor is absent, and None if it has several."""
    if tensor is None:
        return default
    if tensor.array is None or tensor.array.size == 0 or np.unique(tensor.array).size != 1:
        return None
    return float(np.float32(tensor.array.ravel()[0]))


@writer(L2Normalization)
def l2_normalization(draft: Draft, op: L2Normalization) -> Tensor:
    """Write L2Normalization along any axis."""
    axis = op.normalized_axis(draft.info(0).rank)
    return _as_image(draft, "L2Normalization", axis, {"eps": op.eps})


@writer(Normalization)
def normalization(draft: Draft, op: Normalization) -> Tensor:
    """Write a local response normalization; a window within one channel needs the layout NCHW in old releases."""
    x = draft.operand(0)
    if not op.norm_size % 2:
        refuse(f"its window has {op.norm_size} elements; Arm NN's have an odd number")
    fields = {
        "normChannelType": NORMALIZATION_CHANNELS.index(op.channel_type.name),
        "normMethodType": NORMALIZATION_METHODS.index(op.method_type.name),
        "normSize": op.norm_size,
        "alpha": op.alpha,
        "beta": op.beta,
        "k": op.k,
    }
    if op.channel_type is NormalizationAlgorithmChannel.ACROSS:
        rank = draft.info(0).rank
        axis = channel_axis(op.data_layout, rank) if op.axis is None else normal_axis(op.axis, rank)
        return _as_image(draft, "Normalization", axis, fields)
    if op.data_layout is DataLayout.NCHW:
        return draft.final("Normalization", x, descriptor=fields | {"dataLayout": _NCHW})
    channels_first = draft.transpose(x, (0, 3, 1, 2))
    info = TensorInfo(channels_first.shape, draft.result.dtype, draft.result.quantization)
    normalized = draft.node("Normalization", channels_first, giving=info, descriptor=fields | {"dataLayout": _NCHW})
    return draft.transpose(normalized, (0, 2, 3, 1), final=True)


@writer(LayerNormalization, RmsNormalization, MeanVarianceNormalization)
def normalization_over_axes(draft: Draft, op: Op) -> Tensor:
    """Write a normalization over axes as Mean, Subtraction, Multiplication and others, which only float32 can be.

    The rewrites of the format have replaced those that can be written.
    """
    if draft.result.dtype is not DataType.FLOAT32:
        refuse(f"Arm NN has no layer for it, and its steps would be rounded to {draft.result.dtype}")
    return refuse("it has no axes, which means all axes for Arm NN")
