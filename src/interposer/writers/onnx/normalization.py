"""ONNX writers for normalization."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from interposer.core.types import DataType, TensorInfo
from interposer.ops.axes import normal_axis
from interposer.ops.normalization import (
    BatchNormalization,
    GroupNormalization,
    InstanceNormalization,
    L2Normalization,
    LayerNormalization,
    MeanVarianceNormalization,
    Normalization,
    NormalizationAlgorithmMethod,
    RmsNormalization,
)
from interposer.writers.onnx.draft import Draft
from interposer.writers.onnx.onnx_layer_writers import writer
from interposer.writers.onnx.tensor import Tensor
from interposer.writers.refusals import refuse

__all__: list[str] = []


def _vector(draft: Draft, index: int, default: float) -> Tensor:
    """Return operand `index` as a vector with one element per channel, of which all are `default` if it is absent."""
    factors, x = draft.optional(index), draft.operand(0)
    count = draft.info(0).shape[1]
    if factors is None:
        return draft.constant(np.full(draft.known(count, "number of channels"), default), x.dtype)
    flat_factors = draft.cast(draft.reshape(factors, [-1]), x.dtype)
    if draft.info(index).num_elements == count:
        return flat_factors
    return draft.node("Expand", flat_factors, draft.ints([draft.known(count, "number of channels")]))


@writer(BatchNormalization)
def batch_normalization(draft: Draft, op: BatchNormalization) -> Tensor:
    """Write BatchNormalization; ONNX has another order of operands."""
    x = draft.operand(0)
    mean, variance, beta, gamma = (_vector(draft, index, 0) for index in range(1, 5))
    return draft.node("BatchNormalization", x, gamma, beta, mean, variance, epsilon=op.eps)


@writer(InstanceNormalization)
def instance_normalization(draft: Draft, op: InstanceNormalization) -> Tensor:
    """Write InstanceNormalization; absent factors are ones and absent offsets zeros."""
    x = draft.operand(0)
    gamma, beta = _vector(draft, 1, 1), _vector(draft, 2, 0)
    return draft.node("InstanceNormalization", x, gamma, beta, epsilon=op.eps)


@writer(GroupNormalization)
def group_normalization(draft: Draft, op: GroupNormalization) -> Tensor:
    """Write GroupNormalization; before opset 21, and for rank 2, each group is standardized as a row."""
    x = draft.operand(0)
    gamma, beta = _vector(draft, 1, 1), _vector(draft, 2, 0)
    if draft.opset >= 21 and draft.rank > 2:
        return draft.node("GroupNormalization", x, gamma, beta, num_groups=op.num_groups, **_numbers(x, op.eps))
    shape = list(draft.shape(0))
    if 0 in shape:
        return draft.operand(0)
    rows = _standardized(draft, draft.reshape(x, [shape[0], op.num_groups, -1]), [2], op.eps)
    normalized, channel_shape = draft.reshape(rows, shape), [-1, *[1] * (draft.rank - 2)]
    scaled = draft.node("Mul", normalized, draft.reshape(gamma, channel_shape))
    return draft.node("Add", scaled, draft.reshape(beta, channel_shape))


def _numbers(x: Tensor, eps: float) -> dict[str, Any]:
    """Return the attributes epsilon and stash_type of a normalization of `x`.

    The stash type is set to float64 for a float64 tensor, as ONNX's default is float32 for all types.
    """
    return {"epsilon": eps, "stash_type": DataType.FLOAT64 if x.dtype is DataType.FLOAT64 else None}


def _standardized(draft: Draft, x: Tensor, axes: Sequence[int], eps: float) -> Tensor:
    """Return (x - mean) / sqrt(variance + eps), with mean and variance over `axes`."""
    centered, variance = _centered(draft, x, axes)
    return draft.node("Div", centered, draft.node("Sqrt", draft.node("Add", variance, draft.like(eps, x))))


def _centered(draft: Draft, x: Tensor, axes: Sequence[int]) -> tuple[Tensor, Tensor]:
    centered = draft.node("Sub", x, draft.reduce("ReduceMean", x, axes))
    return centered, draft.reduce("ReduceMean", draft.node("Mul", centered, centered), axes)


@writer(LayerNormalization)
def layer_normalization(draft: Draft, op: LayerNormalization) -> Tensor:
    """Write LayerNormalization as one operator if the factors have the normalized shape, or are absent."""
    x, gamma, beta = draft.operand(0), draft.optional(1), draft.optional(2)
    axis = normal_axis(op.axis, draft.rank)
    if draft.opset >= 17 and _fit(draft, axis, (1, 2)):
        scale = gamma or draft.constant(np.ones(draft.shape(0)[axis:]), x.dtype, "ones")
        return draft.node("LayerNormalization", x, scale, beta, axis=op.axis, **_numbers(x, op.eps))
    return _scaled(draft, _standardized(draft, x, range(axis, draft.rank), op.eps), gamma, beta)


def _fit(draft: Draft, axis: int, operands: Sequence[int]) -> bool:
    """Return True if LayerNormalization can take the operands as they are: they have the shape from `axis` on.

    `operands` are the numbers of the factors and offsets. If the factors are absent, the whole shape must be known.
    """
    normalized = draft.info(0).shape[axis:]
    shapes = [draft.info(index).shape for index in operands if draft.optional(index) is not None]
    has_known_shape = draft.optional(1) is not None or draft.info(0).is_concrete
    return has_known_shape and all(tuple(shape) == normalized for shape in shapes)


def _scaled(draft: Draft, x: Tensor, gamma: Tensor | None, beta: Tensor | None = None) -> Tensor:
    scaled = x if gamma is None else draft.node("Mul", x, draft.cast(gamma, x.dtype))
    return scaled if beta is None else draft.node("Add", scaled, draft.cast(beta, x.dtype))


@writer(RmsNormalization)
def rms_normalization(draft: Draft, op: RmsNormalization) -> Tensor:
    """Write RmsNormalization: as one operator since opset 23, before as several."""
    x, gamma = draft.operand(0), draft.optional(1)
    axis = normal_axis(op.axis, draft.rank)
    if draft.opset >= 23 and _fit(draft, axis, (1,)):
        scale = gamma or draft.constant(np.ones(draft.shape(0)[axis:]), x.dtype, "ones")
        return draft.node("RMSNormalization", x, scale, axis=op.axis, **_numbers(x, op.eps))
    mean = draft.reduce("ReduceMean", draft.node("Mul", x, x), range(axis, draft.rank))
    root = draft.node("Sqrt", draft.node("Add", mean, draft.like(op.eps, x)))
    return _scaled(draft, draft.node("Div", x, root), gamma)


@writer(MeanVarianceNormalization)
def mean_variance_normalization(draft: Draft, op: MeanVarianceNormalization) -> Tensor:
    """Write MeanVarianceNormalization as several operators, as ONNX's operator has a fixed epsilon."""
    x = draft.operand(0)
    if not op.axis:
        return draft.node("Sub", x, x)
    centered, variance = _centered(draft, x, op.axis)
    return draft.node("Div", centered, draft.node("Add", draft.node("Sqrt", variance), draft.like(op.eps, x)))


@writer(L2Normalization)
def l2_normalization(draft: Draft, op: L2Normalization) -> Tensor:
    """Write L2Normalization as several operators, as LpNormalization has no lower bound for the norm."""
    x = draft.operand(0)
    square = draft.reduce("ReduceSumSquare", x, [op.normalized_axis(draft.rank)])
    return draft.node("Div", x, draft.node("Sqrt", draft.node("Max", square, draft.like(op.eps, x))))


@writer(Normalization)
def local_response_normalization(draft: Draft, op: Normalization) -> Tensor:
    """Write Normalization across channels as LRN (alpha is for the mean of squares), else as a mean over windows."""
    if op.method_type is not NormalizationAlgorithmMethod.LOCAL_BRIGHTNESS:
        refuse(f"ONNX has no {op.method_type.name}")
    x, axes = draft.operand(0), op.window_axes(draft.rank)
    if axes == (1,) and is_lrn(op, draft.info(0)):
        return draft.node("LRN", x, size=op.norm_size, alpha=op.alpha * op.norm_size, beta=op.beta, bias=op.k)
    base = draft.like(op.k, x)
    if op.norm_size and 0 not in draft.shape(0):
        sum_of_squares = _window_sum(draft, draft.node("Mul", x, x), axes, op.norm_size)
        base = draft.node("Add", draft.node("Mul", sum_of_squares, draft.like(op.alpha, x)), base)
    return draft.node("Div", x, draft.node("Pow", base, draft.like(op.beta, x)))


def is_lrn(op: Normalization, info: TensorInfo) -> bool:
    """Return True if ONNX's LRN computes a Normalization of a tensor with the info `info`, if channels are first."""
    axes = op.window_axes(info.rank)
    return axes in ((1,), (3,)) and info.rank == 4 and op.norm_size % 2 == 1 and info.dtype is not DataType.FLOAT64


def _window_sum(draft: Draft, x: Tensor, axes: Sequence[int], size: int) -> Tensor:
    """Return for each element the sum over the `size` elements around it along each of `axes`, with zeros outside.

    It is written as AveragePool, times the number of elements in a window.
    """
    shape = draft.shape(0)
    first_axis, last_axis = axes[0], axes[-1]
    rows = int(np.prod(shape[:first_axis]))
    columns = int(np.prod(shape[last_axis + 1 :]))
    flat_image = draft.reshape(x, [rows, 1, *shape[first_axis : last_axis + 1], columns])
    start_pad, end_pad, num_axes = (size - 1) // 2, size - 1 - (size - 1) // 2, len(axes)
    attributes: dict[str, Any] = {
        "kernel_shape": [*[size] * num_axes, 1],
        "pads": [*[start_pad] * num_axes, 0, *[end_pad] * num_axes, 0],
    }
    mean = draft.node("AveragePool", flat_image, **attributes, count_include_pad=1)
    return draft.node("Mul", draft.reshape(mean, shape), draft.like(size**num_axes, x))
