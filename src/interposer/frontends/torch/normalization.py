"""Converters for normalizations."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from interposer.core.types import DataType
from interposer.frontends.elementwise import ADD, MUL, RSQRT, SQ_DIFF, SQUARE
from interposer.frontends.torch.call import Call
from interposer.frontends.torch.registry import aten
from interposer.frontends.torch.tensors import data_type
from interposer.ir.graph import Value
from interposer.ops.normalization import (
    BatchNormalization,
    GroupNormalization,
    InstanceNormalization,
    LayerNormalization,
    RmsNormalization,
)
from interposer.ops.reduction import Mean, Reduce, ReduceOperation

__all__: list[str] = []


@aten("layer_norm", open_sizes=True)
def layer_norm(
    c: Call, x: Value, shape: Sequence[int], weight: Value | None = None, bias: Value | None = None,
    eps: float = 1e-5, *_: Any,
) -> Value:  # fmt: skip
    """Convert layer_norm over the last axes."""
    return c.step(LayerNormalization(x.known.rank - len(shape), float(eps)), x, weight, bias)


@aten("native_layer_norm")
def native_layer_norm(
    c: Call, x: Value, shape: Sequence[int], weight: Value | None, bias: Value | None, eps: float
) -> list[Value]:
    """Convert native_layer_norm, which also returns the mean and the reciprocal of the standard deviation."""
    normalized = c.step(LayerNormalization(x.known.rank - len(shape), float(eps)), x, weight, bias)
    return [normalized, *_statistics(c, x, tuple(range(x.known.rank - len(shape), x.known.rank)), eps)]


def _statistics(c: Call, x: Value, axes: Sequence[int], eps: float) -> list[Value]:
    """Return the mean over axes, and the reciprocal of the standard deviation; unused layers are dropped later."""
    float_x = x if x.known.dtype is DataType.FLOAT64 else c.cast(x, DataType.FLOAT32)
    center = c.step(Mean(tuple(axes), True), float_x)
    spread = c.step(Mean(tuple(axes), True), c.binary(SQ_DIFF, float_x, center))
    values = [center, c.step(RSQRT, c.plus(spread, eps))]
    kinds = [c.dtype if part is None else part.dtype for part in c.val[1:]]
    return [c.cast(value, _type(kind)) for value, kind in zip(values, kinds, strict=True)]


def _type(kind: Any) -> DataType:
    return kind if isinstance(kind, DataType) else data_type(kind)


@aten("rms_norm")
def rms_norm(c: Call, x: Value, shape: Sequence[int], weight: Value | None = None, eps: float | None = None) -> Value:
    """Convert rms_norm; the default eps is the precision of the type."""
    return _rms(c, x, shape, weight, eps)


@aten("_fused_rms_norm")
def fused_rms_norm(c: Call, x: Value, shape: Sequence[int], weight: Value | None, eps: float | None) -> list[Value]:
    """Convert _fused_rms_norm, which also returns the reciprocal of the root mean square."""
    axes = tuple(range(x.known.rank - len(shape), x.known.rank))
    float_x = x if x.known.dtype is DataType.FLOAT64 else c.cast(x, DataType.FLOAT32)
    spread = c.step(Mean(axes, True), c.step(SQUARE, float_x))
    root = c.step(RSQRT, c.plus(spread, _epsilon(x, eps)))
    return [_rms(c, x, shape, weight, eps), root]


def _epsilon(x: Value, eps: float | None) -> float:
    machine_epsilons = {DataType.FLOAT64: 2.0**-52, DataType.FLOAT32: 2.0**-23}
    return machine_epsilons.get(x.known.dtype, 2.0**-23) if eps is None else float(eps)


def _rms(c: Call, x: Value, shape: Sequence[int], weight: Value | None, eps: float | None) -> Value:
    op = RmsNormalization(x.known.rank - len(shape), _epsilon(x, eps))
    if weight is None or weight.known.dtype is x.known.dtype:
        return c.cast(c.step(op, x, weight), c.dtype)
    return c.times(c.cast(c.step(op, x, None), c.dtype), c.cast(weight, c.dtype))


@aten("group_norm")
def group_norm(
    c: Call, x: Value, groups: int, weight: Value | None = None, bias: Value | None = None, eps: float = 1e-5, *_: Any
) -> Value:
    """Convert group_norm."""
    return c.step(GroupNormalization(groups, float(eps)), x, weight, bias)


@aten("native_group_norm")
def native_group_norm(
    c: Call, x: Value, weight: Value | None, bias: Value | None, n: int, channels: int, size: int, groups: int,
    eps: float,
) -> list[Value]:  # fmt: skip
    """Convert native_group_norm, which also returns mean and reciprocal standard deviation of each group."""
    normalized = c.step(GroupNormalization(groups, float(eps)), x, weight, bias)
    grouped_x = c.reshape(x, [n, groups, channels // max(groups, 1) * size])
    return [normalized, *(c.squeezed(part, 2) for part in _statistics(c, grouped_x, (2,), eps))]


@aten("instance_norm")
def instance_norm(
    c: Call, x: Value, weight: Value | None, bias: Value | None, mean: Value | None, variance: Value | None,
    use_input_stats: bool, momentum: float, eps: float, *_: Any,
) -> Value:  # fmt: skip
    """Convert instance_norm with statistics of the input, or with running ones."""
    if not use_input_stats:
        return _normalized(c, x, weight, bias, mean, variance, eps)
    return c.step(InstanceNormalization(float(eps)), x, weight, bias)


@aten("batch_norm")
def batch_norm(
    c: Call, x: Value, weight: Value | None, bias: Value | None, mean: Value | None, variance: Value | None,
    training: bool, momentum: float, eps: float, *_: Any,
) -> Value:  # fmt: skip
    """Convert batch_norm in inference."""
    if training and mean is not None:
        c.unsupported("it is in training mode; call eval() on the module before the export")
    if mean is None or training:
        return _by_batch(c, x, weight, bias, eps)[0]
    return _normalized(c, x, weight, bias, mean, variance, eps)


@aten("_native_batch_norm_legit_no_training")
def batch_norm_of_inference(
    c: Call, x: Value, weight: Value | None, bias: Value | None, mean: Value, variance: Value, momentum: float,
    eps: float,
) -> list[Value]:  # fmt: skip
    """Convert batch normalization in inference, whose saved statistics are empty."""
    empty = c.constant(np.zeros(0, np.float32))
    return [_normalized(c, x, weight, bias, mean, variance, eps), empty, empty]


@aten("_native_batch_norm_legit", "native_batch_norm", "_batch_norm_no_update", "_native_batch_norm_legit_functional")
def native_batch_norm(
    c: Call, x: Value, weight: Value | None, bias: Value | None, mean: Value, variance: Value, *rest: Any
) -> list[Value]:
    """Convert native batch normalization in inference."""
    training, _, eps = rest if len(rest) == 3 else (False, *rest)
    if training:
        c.unsupported("it is in training mode; call eval() on the module before the export")
    empty = c.constant(np.zeros(0, np.float32))
    return [_normalized(c, x, weight, bias, mean, variance, eps), empty, empty]


@aten("_native_batch_norm_legit.no_stats")
def batch_norm_by_batch(
    c: Call, x: Value, weight: Value | None, bias: Value | None, training: bool, momentum: float, eps: float
) -> list[Value]:
    """Convert batch normalization by the statistics of the batch."""
    return _by_batch(c, x, weight, bias, eps)


def _by_batch(c: Call, x: Value, weight: Value | None, bias: Value | None, eps: float) -> list[Value]:
    """Return x normalized by the statistics of each channel over the batch, and these statistics."""
    rank, channels = x.known.rank, c.size(x, 1)
    axes = tuple(i for i in range(rank) if i != 1)
    float_x = x if x.known.dtype is DataType.FLOAT64 else c.cast(x, DataType.FLOAT32)
    center = c.step(Mean(axes, True), float_x)
    variance = c.step(Mean(axes, True), c.binary(SQ_DIFF, float_x, center))
    inverse_deviation = c.step(RSQRT, c.plus(variance, eps))
    normalized = c.times(c.minus(float_x, center), inverse_deviation)
    for operand, operation in ((weight, MUL), (bias, ADD)):
        if operand is not None:
            line = c.reshape(operand, [channels if i == 1 else 1 for i in range(rank)])
            normalized = c.binary(operation, normalized, c.cast(line, float_x.known.dtype))
    return [c.cast(normalized, c.dtype), c.reshape(center, [channels]), c.reshape(inverse_deviation, [channels])]


def _normalized(
    c: Call, x: Value, weight: Value | None, bias: Value | None, mean: Value | None, variance: Value | None, eps: float
) -> Value:
    assert mean is not None
    assert variance is not None
    default_parameters = {"gamma": (weight, 1), "beta": (bias, 0)}
    size = mean.known.shape
    gamma, beta = (
        c.constant(np.full(size, default, x.known.dtype.numpy)) if value is None else c.cast(value, x.known.dtype)
        for value, default in default_parameters.values()
    )
    center, spread = c.cast(mean, x.known.dtype), c.cast(variance, x.known.dtype)
    return c.step(BatchNormalization(float(eps)), x, center, spread, beta, gamma)


@aten("_weight_norm_interface")
def weight_norm_interface(c: Call, v: Value, g: Value, dim: int = 0) -> list[Value]:
    """Convert weight normalization, which also returns the norms."""
    weight, norms = _weight_norm(c, v, g, dim)
    return [weight, norms]


@aten("_weight_norm")
def weight_norm(c: Call, v: Value, g: Value, dim: int = 0) -> Value:
    """Convert weight normalization: v * (g / norm(v)) along all axes but one."""
    return _weight_norm(c, v, g, dim)[0]


def _weight_norm(c: Call, v: Value, g: Value, dim: int) -> tuple[Value, Value]:
    axis = None if dim == -1 else c.axis(dim, v.known.rank)
    axes = tuple(i for i in range(v.known.rank) if i != axis)
    norms = c.step(Reduce(axes, True, ReduceOperation.L2), v)
    return c.times(v, c.over(g, norms)), c.reshape(norms, list(g.known.shape))
