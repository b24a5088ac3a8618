"""Rewrites that decompose normalizations into arithmetic, for formats that have no operators for them.

The arithmetic is that of the operators, in float32 for narrower floats. Quantized layers are left as they are.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Final, TypeAlias

import numpy as np

from interposer.core.types import DataType, TensorShape
from interposer.ir.graph import Layer, Value
from interposer.ops import (
    Addition,
    Cast,
    Division,
    ElementwiseUnary,
    GroupNormalization,
    InstanceNormalization,
    LayerNormalization,
    Mean,
    MeanVarianceNormalization,
    Multiplication,
    Reshape,
    RmsNormalization,
    Subtraction,
    UnaryOperation,
)
from interposer.ops.axes import normal_axes, normal_axis
from interposer.ops.normalization import channel_axis
from interposer.rewriting.pattern import New, Replacement, constant, rewrite

__all__ = [
    "NORMALIZATIONS",
    "decompose_layer_normalization",
    "decompose_mean_variance_normalization",
    "decompose_rms_normalization",
]

Source: TypeAlias = Value | New


@rewrite(LayerNormalization)
def decompose_layer_normalization(op: LayerNormalization, layer: Layer) -> Replacement:
    """Replace LayerNormalization by the arithmetic of its axes."""
    return _in_float(layer, lambda x, dtype: _standardized(x, _axes_from(op.axis, layer), op.eps, dtype), (1, 2))


@rewrite(RmsNormalization)
def decompose_rms_normalization(op: RmsNormalization, layer: Layer) -> Replacement:
    """Replace RmsNormalization by a multiplication by the inverse root of the mean square."""

    def normalized(x: Source, dtype: DataType) -> New:
        return New(Multiplication(), [x, _inverse_root(_mean_square(x, _axes_from(op.axis, layer)), op.eps, dtype)])

    return _in_float(layer, normalized, (1,))


@rewrite(InstanceNormalization)
def decompose_instance_normalization(op: InstanceNormalization, layer: Layer) -> Replacement:
    """Replace InstanceNormalization by the arithmetic of all axes except batch and channels."""
    rank = layer.output.known.rank
    channels = channel_axis(op.data_layout, rank)
    axes = [axis for axis in range(1, rank) if axis != channels]
    return _in_float(layer, lambda x, dtype: _standardized(x, axes, op.eps, dtype), (1, 2), channels)


@rewrite(GroupNormalization)
def decompose_group_normalization(op: GroupNormalization, layer: Layer) -> Replacement:
    """Replace GroupNormalization with the channels first, in which each group is standardized as a row."""
    shape = layer.output.known.shape
    if op.data_layout.channels_last or not shape.is_concrete or not shape.num_elements:
        return None

    def normalized(x: Source, dtype: DataType) -> New:
        groups = (shape[0], op.num_groups, math.prod(shape[1:]) // op.num_groups)
        rows = _standardized(New(Reshape(groups), [x]), [2], op.eps, dtype)
        return New(Reshape(tuple(shape)), [rows])

    return _in_float(layer, normalized, (1, 2), 1)


@rewrite(MeanVarianceNormalization)
def decompose_mean_variance_normalization(op: MeanVarianceNormalization, layer: Layer) -> Replacement:
    """Replace MeanVarianceNormalization, whose epsilon is added to the deviation."""
    axes = normal_axes(op.axis, layer.output.known.rank)

    def normalized(x: Source, dtype: DataType) -> New:
        centered = _centered(x, axes)
        deviation = New(ElementwiseUnary(UnaryOperation.SQRT), [_mean_square(centered, axes)])
        return New(Division(), [centered, New(Addition(), [deviation, _number(op.eps, dtype)])])

    return _in_float(layer, normalized) if axes else None


# --- arithmetic -------------------------------------------------------------------------------------------------------


def _in_float(
    layer: Layer,
    normalized: Callable[[Source, DataType], New],
    factors: Sequence[int] = (),
    channels: int | None = None,
) -> Replacement:
    """Return a replacement: what `normalized` gives for the layer's input, multiplied by a scale, plus a bias.

    `factors` has the indices of the operands that are the scale and the bias; either may be missing. `channels` is the
    axis along which these operands lie; None if they broadcast as they are. The result is None for a quantized layer,
    and for operands along channels whose shape is unknown.
    """
    x, info = layer.values[0], layer.output.known
    operands = [layer.inputs[index] if index < len(layer.inputs) else None for index in factors]
    is_quantized = any(value.known.is_quantized for value in layer.values)
    are_known = channels is None or all(operand is None or operand.known.is_concrete for operand in operands)
    if not info.dtype.is_float or is_quantized or not are_known:
        return None
    dtype = DataType.FLOAT32 if info.dtype.bits < 32 else info.dtype
    result = normalized(x if x.known.dtype is dtype else New(Cast(dtype), [x]), dtype)
    for op, operand in zip((Multiplication(), Addition()), operands, strict=False):
        if operand is not None:
            result = New(op, [result, _factor(operand, dtype, channels, info.rank)])
    return result if dtype is info.dtype else New(Cast(info.dtype), [result])


def _factor(operand: Value, dtype: DataType, axis: int | None, rank: int) -> Source:
    """Return an operand as the type `dtype`; with an axis, its elements lie along this one of `rank` axes."""
    info = operand.known
    shape = info.shape if axis is None else TensorShape(info.num_elements if at == axis else 1 for at in range(rank))
    if operand.is_constant:
        return constant(np.asarray(operand.constant).astype(dtype.numpy).reshape(shape), name=f"{operand.name}/factor")
    cast = operand if info.dtype is dtype else New(Cast(dtype), [operand])
    return cast if shape == info.shape else New(Reshape(tuple(shape)), [cast])


def _axes_from(axis: int, layer: Layer) -> Sequence[int]:
    rank = layer.output.known.rank
    return range(normal_axis(axis, rank), rank)


def _standardized(x: Source, axes: Sequence[int], eps: float, dtype: DataType) -> New:
    """Return (x - mean) / sqrt(variance + eps), with mean and variance over `axes`."""
    centered = _centered(x, axes)
    return New(Multiplication(), [centered, _inverse_root(_mean_square(centered, axes), eps, dtype)])


def _centered(x: Source, axes: Sequence[int]) -> New:
    return New(Subtraction(), [x, _mean(x, axes)])


def _mean_square(x: Source, axes: Sequence[int]) -> Source:
    return _mean(New(Multiplication(), [x, x]), axes)


def _mean(x: Source, axes: Sequence[int]) -> Source:
    return New(Mean(axis=tuple(axes), keep_dims=True), [x]) if axes else x


def _inverse_root(x: Source, eps: float, dtype: DataType) -> New:
    return New(ElementwiseUnary(UnaryOperation.RSQRT), [New(Addition(), [x, _number(eps, dtype)])])


def _number(number: float, dtype: DataType) -> New:
    return constant(np.array(number, dtype.numpy))


NORMALIZATIONS: Final = (
    decompose_layer_normalization,
    decompose_rms_normalization,
    decompose_instance_normalization,
    decompose_group_normalization,
    decompose_mean_variance_normalization,
)
"""The rewrites of all normalizations; that of GroupNormalization needs the channels first."""
