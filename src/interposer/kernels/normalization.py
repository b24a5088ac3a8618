"""Kernels of the normalization operators.

They compute in float64 and round once, so that no square or sum of float32 numbers overflows if the result is a float32
number.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from interposer.core.schema import Op
from interposer.core.types import FLOATS, Array, DataType, Quantization, TensorInfo
from interposer.kernels.fixedfunctions import inverse_sqrt
from interposer.kernels.fixedpoint import FixedPoint, clamp_to, multiply_by_quantized_multiplier
from interposer.kernels.quantized_arithmetic import offset, one_scale_of_few_bits
from interposer.kernels.real import all_quantized, real, store
from interposer.kernels.reference import kernel
from interposer.kernels.table import KernelInfo
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
    channel_axis,
)

__all__: list[str] = []


def _of_reals(op: Op, info: KernelInfo) -> str | None:
    """Return why an operand is refused, or None: integers without a quantization have no useful mean."""
    for name, tensor in zip(info.names, info.inputs, strict=False):
        if tensor is not None and not tensor.is_quantized and tensor.dtype not in FLOATS:
            return f"{name} is {tensor.dtype}; takes floats and quantized tensors"
    return None


def _wide(x: Array, info: TensorInfo) -> Array:
    """Return the float values of a tensor as float64, which holds the squares and the sums of all float32 numbers."""
    return real(x, info).astype(np.float64, copy=False)


def _or_default(x: Array | None, index: int, info: KernelInfo, default: float) -> Array:
    return np.asarray(default, np.float32) if x is None else real(x, info.at(index))


def _per_channel(values: Array, axis: int, rank: int) -> Array:
    """Reshape one value per channel, or a single value, to broadcast with a tensor of this rank and channel axis."""
    shape = [1] * rank
    shape[axis] = -1
    return np.reshape(values, shape)


def _centered(x: Array, axes: tuple[int, ...]) -> Array:
    """Subtract the mean over some axes, and then the mean of the differences, which is the rounding error of the mean.

    Otherwise the error would remain in nearly equal elements, and the division by a small deviation would magnify it.
    """
    differences = x - x.mean(axis=axes, keepdims=True)
    centered: Array = differences - differences.mean(axis=axes, keepdims=True)
    return centered


def _standardized(x: Array, axes: tuple[int, ...], eps: float) -> Array:
    """Subtract the mean over some axes, and divide by the square root of the variance plus `eps`."""
    if x.size == 0:
        return x
    centered = _centered(x, axes)
    standardized: Array = centered / np.sqrt(np.square(centered).mean(axis=axes, keepdims=True) + eps)
    return standardized


@kernel(BatchNormalization, when=(all_quantized, _of_reals))
def batch_normalization(
    op: BatchNormalization, x: Array, mean: Array, variance: Array, beta: Array, gamma: Array,
    *, info: KernelInfo, out: Array,
) -> None:  # fmt: skip
    """Compute `BatchNormalization` in float64, rounded once."""
    axis = channel_axis(op.data_layout, x.ndim)
    means, variances, betas, gammas = (
        _per_channel(_wide(values, info.at(index)), axis, x.ndim)
        for index, values in enumerate((mean, variance, beta, gamma), start=1)
    )
    store(gammas * ((_wide(x, info.input) - means) / np.sqrt(variances + op.eps)) + betas, info.output, out)


@kernel(InstanceNormalization, when=(all_quantized, _of_reals))
def instance_normalization(
    op: InstanceNormalization, x: Array, gamma: Array | None, beta: Array | None, *, info: KernelInfo, out: Array
) -> None:
    """Compute `InstanceNormalization`: mean and variance over all axes except batch and channels."""
    channels = channel_axis(op.data_layout, x.ndim)
    axes = tuple(axis for axis in range(1, x.ndim) if axis != channels)
    scale = _per_channel(_or_default(gamma, 1, info, 1), channels, x.ndim)
    shift = _per_channel(_or_default(beta, 2, info, 0), channels, x.ndim)
    store(scale * _standardized(_wide(x, info.input), axes, op.eps) + shift, info.output, out)


@kernel(LayerNormalization, when=(all_quantized, _of_reals))
def layer_normalization(
    op: LayerNormalization, x: Array, gamma: Array | None, beta: Array | None, *, info: KernelInfo, out: Array
) -> None:
    """Compute `LayerNormalization`: mean and variance over the last axes."""
    axes = tuple(range(op.axis % x.ndim, x.ndim))
    normalized = _standardized(_wide(x, info.input), axes, op.eps)
    store(_or_default(gamma, 1, info, 1) * normalized + _or_default(beta, 2, info, 0), info.output, out)


@kernel(RmsNormalization, when=(all_quantized, _of_reals))
def rms_normalization(op: RmsNormalization, x: Array, gamma: Array | None, *, info: KernelInfo, out: Array) -> None:
    """Compute `RmsNormalization`: the mean square over the last axes."""
    if x.size == 0:
        return
    axes, values = tuple(range(op.axis % x.ndim, x.ndim)), _wide(x, info.input)
    root = np.sqrt(np.square(values).mean(axis=axes, keepdims=True) + op.eps)
    store(_or_default(gamma, 1, info, 1) * (values / root), info.output, out)


@kernel(GroupNormalization, when=(all_quantized, _of_reals))
def group_normalization(
    op: GroupNormalization, x: Array, gamma: Array | None, beta: Array | None, *, info: KernelInfo, out: Array
) -> None:
    """Compute `GroupNormalization`: as the channels come before the image, the elements of a group are contiguous."""
    channels = channel_axis(op.data_layout, x.ndim)
    values = np.moveaxis(_wide(x, info.input), channels, 1)
    groups = values.reshape(len(x), op.num_groups, -1) if x.size else values
    normalized = np.moveaxis(_standardized(groups, (2,), op.eps).reshape(values.shape), 1, channels)
    scale = _per_channel(_or_default(gamma, 1, info, 1), channels, x.ndim)
    shift = _per_channel(_or_default(beta, 2, info, 0), channels, x.ndim)
    store(scale * normalized + shift, info.output, out)


@kernel(MeanVarianceNormalization, when=(all_quantized, _of_reals))
def mean_variance_normalization(op: MeanVarianceNormalization, x: Array, *, info: KernelInfo, out: Array) -> None:
    """Compute `MeanVarianceNormalization` on float values."""
    if x.size == 0:
        return
    centered = _centered(_wide(x, info.input), op.axis)
    deviation = np.sqrt(np.square(centered).mean(axis=op.axis, keepdims=True))
    store(centered / (deviation + op.eps), info.output, out)


_PRESCRIBED: Final = {DataType.INT8: Quantization(2.0**-7), DataType.UINT8: Quantization(2.0**-7, 128)}


def _prescribed(op: L2Normalization, info: KernelInfo) -> str | None:
    prescribed_quantization = _PRESCRIBED.get(info.output.dtype)
    is_prescribed = prescribed_quantization is not None and prescribed_quantization == info.output.quantization
    return None if is_prescribed else "takes 8-bit results in steps of 1/128"


@kernel(L2Normalization, quantized=True, when=(all_quantized, one_scale_of_few_bits, _prescribed))
def l2_normalization_in_integers(op: L2Normalization, x: Array, *, info: KernelInfo, out: Array) -> None:
    """Compute `L2Normalization` as TFLite's integer kernel does; the scale cancels in the quotient."""
    distances = offset(x, info.input)
    inverse = inverse_sqrt(np.square(distances).sum(axis=op.normalized_axis(x.ndim), keepdims=True))
    if info.input.dtype is DataType.UINT8:
        steps = multiply_by_quantized_multiplier(distances * 128, inverse)
    else:
        steps = multiply_by_quantized_multiplier(distances, FixedPoint(inverse.multiplier, inverse.shift + 7))
    out[...] = clamp_to(steps + info.output.zero_point, info.output.dtype)


@kernel(L2Normalization, when=(all_quantized, _of_reals))
def l2_normalization(op: L2Normalization, x: Array, *, info: KernelInfo, out: Array) -> None:
    """Compute `L2Normalization`; eps is the smallest square of the length, not the smallest length."""
    values = _wide(x, info.input)
    square = np.square(values).sum(axis=op.normalized_axis(x.ndim), keepdims=True)
    store(values / np.sqrt(np.maximum(square, op.eps)), info.output, out)


def _local_brightness(op: Normalization, info: KernelInfo) -> str | None:
    is_supported = op.method_type is NormalizationAlgorithmMethod.LOCAL_BRIGHTNESS
    return None if is_supported else f"{op.method_type.name} is not computed"


@kernel(Normalization, when=(all_quantized, _of_reals, _local_brightness))
def local_response_normalization(op: Normalization, x: Array, *, info: KernelInfo, out: Array) -> None:
    """Compute `Normalization` from the sum of squares in a window, computed one axis after the other."""
    if x.size == 0:
        return
    values = _wide(x, info.input)
    window_sums = np.square(values)
    for axis in op.window_axes(x.ndim):
        window_sums = _window_sum(window_sums, axis, op.norm_size)
    store(values / np.power(op.k + op.alpha * window_sums, op.beta), info.output, out)


def _window_sum(x: Array, axis: int, size: int) -> Array:
    """Return for each element the sum of `size` neighbours along an axis, centered at the element.

    If `size` is even, the element is the first of the two middle ones.
    """
    if size == 0:
        return np.zeros_like(x)
    pad_before = (size - 1) // 2
    padding = [(0, 0)] * x.ndim
    padding[axis] = (pad_before, size - 1 - pad_before)
    windows = np.lib.stride_tricks.sliding_window_view(np.pad(x, padding), size, axis=axis)
    sums: Array = windows.sum(axis=-1)
    return sums
