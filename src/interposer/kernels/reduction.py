"""Kernels of the operators that reduce axes."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from interposer.core.types import FLOATS, Array, DataType
from interposer.kernels.elementwise import NUMBERS
from interposer.kernels.fixedpoint import (
    FixedPoint,
    clamp_to,
    multiply_by_quantized_multiplier,
    multiply_wide,
    quantize_multiplier,
    quantized_means,
    round_half_away,
)
from interposer.kernels.quantized_arithmetic import offset, one_scale_of_few_bits, scale32
from interposer.kernels.real import all_quantized, real, store
from interposer.kernels.reference import kernel
from interposer.kernels.table import KernelInfo
from interposer.ops.quantization import Requantization
from interposer.ops.reduction import ArgMinMax, ArgMinMaxFunction, Mean, Reduce, ReduceOperation, reduced_axes

__all__: list[str] = []

Axes: TypeAlias = tuple[int, ...]
Ints: TypeAlias = NDArray[np.int64]
Function: TypeAlias = Callable[[Array, Axes], Array]


def _operation(op: Mean | Reduce) -> ReduceOperation:
    return ReduceOperation.MEAN if isinstance(op, Mean) else op.operation


def _count(shape: tuple[int, ...], axes: Axes) -> int:
    return math.prod(shape[axis] for axis in axes)


# --- floats, integers and truth values: every function leaves a size of 1 for each axis ----------------------------


def _sum(x: Array, axes: Axes) -> Array:
    total: Array = np.sum(x, axis=axes, dtype=x.dtype, keepdims=True)
    return total


def _product(x: Array, axes: Axes) -> Array:
    product: Array = np.prod(x, axis=axes, dtype=x.dtype, keepdims=True)
    return product


def _wide(x: Array) -> Array:
    """Return floats as float64, which holds the squares and the sums of all float32 numbers."""
    return x.astype(np.float64, copy=False)


def _mean(x: Array, axes: Axes) -> Array:
    return np.asarray(_sum(_wide(x), axes) / _count(x.shape, axes))


def _integer_mean(x: Array, axes: Axes) -> Array:
    """Return the mean of integers, the 64-bit sum divided by the count and truncated; 0 without elements."""
    total = _sum(x.astype(np.uint64 if x.dtype.kind == "u" else np.int64), axes)
    count = total.dtype.type(max(1, _count(x.shape, axes)))
    mean: Array = np.sign(total) * (np.abs(total) // count)
    return mean


def _log_sum_exp(x: Array, axes: Axes) -> Array:
    """Compute log(sum(exp(x))) over axes; the largest element is subtracted first, so that no exponential overflows."""
    greatest = _greatest(x, axes)
    greatest = np.where(np.isfinite(greatest), greatest, 0)
    return np.log(_sum(np.exp(x - greatest), axes)) + greatest


def _greatest(x: Array, axes: Axes) -> Array:
    lowest = -np.inf if x.dtype.kind == "f" else np.iinfo(x.dtype).min
    greatest: Array = np.max(x, axis=axes, initial=lowest, keepdims=True)
    return greatest


def _least(x: Array, axes: Axes) -> Array:
    highest = np.inf if x.dtype.kind == "f" else np.iinfo(x.dtype).max
    least: Array = np.min(x, axis=axes, initial=highest, keepdims=True)
    return least


def _all(x: Array, axes: Axes) -> Array:
    return np.asarray(np.all(x, axis=axes, keepdims=True))


def _any(x: Array, axes: Axes) -> Array:
    return np.asarray(np.any(x, axis=axes, keepdims=True))


_COMMON: Final[dict[ReduceOperation, Function]] = {
    ReduceOperation.SUM: _sum,
    ReduceOperation.PROD: _product,
    ReduceOperation.MAX: _greatest,
    ReduceOperation.MIN: _least,
    ReduceOperation.L1: lambda x, axes: _sum(np.abs(x), axes),
    ReduceOperation.SUM_SQUARE: lambda x, axes: _sum(np.square(x), axes),
}
_FLOATS: Final[dict[ReduceOperation, Function]] = {
    **_COMMON,
    ReduceOperation.MEAN: _mean,
    ReduceOperation.SUM: lambda x, axes: _sum(_wide(x), axes),
    ReduceOperation.PROD: lambda x, axes: _product(_wide(x), axes),
    ReduceOperation.L1: lambda x, axes: _sum(np.abs(_wide(x)), axes),
    ReduceOperation.L2: lambda x, axes: np.sqrt(_sum(np.square(_wide(x)), axes)),
    ReduceOperation.SUM_SQUARE: lambda x, axes: _sum(np.square(_wide(x)), axes),
    ReduceOperation.LOG_SUM: lambda x, axes: np.log(_sum(_wide(x), axes)),
    ReduceOperation.LOG_SUM_EXP: _log_sum_exp,
}
_INTEGERS: Final[dict[ReduceOperation, Function]] = {**_COMMON, ReduceOperation.MEAN: _integer_mean}
_BOOLS: Final[dict[ReduceOperation, Function]] = {
    ReduceOperation.ALL: _all,
    ReduceOperation.ANY: _any,
    ReduceOperation.MIN: _all,
    ReduceOperation.MAX: _any,
}


def _functions(dtype: DataType) -> dict[ReduceOperation, Function]:
    if dtype in FLOATS:
        return _FLOATS
    if dtype.is_integer and dtype.bits >= 8:
        return _INTEGERS
    return _BOOLS if dtype is DataType.BOOL else {}


def _computes(op: Mean | Reduce, info: KernelInfo) -> str | None:
    dtype = DataType.FLOAT32 if info.quantized else info.input.dtype
    operation = _operation(op)
    return None if operation in _functions(dtype) else f"{operation.name} of {info.input.dtype} is not defined"


@kernel(Mean, Reduce, quantized=False, when=(all_quantized, _computes))
def reduce(op: Mean | Reduce, x: Array, *, info: KernelInfo, out: Array) -> None:
    """Compute `Mean` or `Reduce` of unquantized tensors.

    Integers wrap around. Sums, products and squares of floats are computed in float64 and rounded once, at the end, so
    that a result that is a float32 number does not overflow on the way.
    """
    reduced = _functions(info.input.dtype)[_operation(op)](real(x, info.input), reduced_axes(op.axis, x.ndim))
    np.copyto(out, reduced.reshape(out.shape), casting="unsafe")


# --- quantized tensors ------------------------------------------------------------------------------------------------


def _scales(info: KernelInfo) -> tuple[float, float]:
    return float(scale32(info.input)), float(scale32(info.output))


def _quantized_mean(x: Ints, axes: Axes, info: KernelInfo) -> Ints:
    """Return the mean of quantized values minus their zero point, rescaled to the output's scale.

    The rescaling multiplier is divided by the count. It is first shifted left as far as possible, so that the division
    loses few bits.
    """
    input_scale, output_scale = _scales(info)
    multiplier, shift = quantize_multiplier(input_scale / output_scale)
    count = _count(x.shape, axes)
    bits = min(count.bit_length() - 1, 31 + int(shift))
    mean_factor = FixedPoint(np.asarray((int(multiplier) << bits) // count), np.asarray(shift - bits))
    return multiply_by_quantized_multiplier(_sum(x, axes), mean_factor)


_FAR: Final = float(2**32)
"""A magnitude that is far out of the range of all quantized types."""


def _quantized_sum(x: Ints, axes: Axes, info: KernelInfo) -> Ints:
    """Return the sum of quantized values minus their zero point, rescaled to the output's scale.

    Like TFLite, compute the sum of int8 and int16 values with their zero points, and the correction for these, in
    float32. That of uint8 values is computed in fixed-point arithmetic, as in TFLite's reference kernel.
    """
    input_scale, output_scale = _scales(info)
    if info.input.dtype is not DataType.UINT8:
        zero_point, count = info.input.zero_point, _count(x.shape, axes)
        total = (_sum(x, axes) + count * zero_point).astype(np.float32)
        with np.errstate(all="ignore"):
            factor = np.float32(input_scale) / np.float32(output_scale)
            rescaled = round_half_away(total * factor + np.float32(-zero_point) * factor * np.float32(count))
        return np.nan_to_num(rescaled, nan=-_FAR).clip(-_FAR, _FAR).astype(np.int64)
    return multiply_by_quantized_multiplier(_sum(x, axes), quantize_multiplier(input_scale / output_scale))


def _quantized_product(x: Ints, axes: Axes, info: KernelInfo) -> Ints:
    """Return the product of quantized values minus their zero point; all partial products are rescaled by one factor.

    Together, the rescalings yield the scale of the result. A partial product that exceeds 32 bits is saturated, whereas
    TFLite's wraps around.
    """
    input_scale, output_scale = _scales(info)
    count = _count(x.shape, axes)
    factor = quantize_multiplier(input_scale / output_scale ** (1 / count))
    rows = np.moveaxis(x, axes, range(len(axes))).reshape(count, -1)
    product = rows[0]
    for row in rows[1:]:
        product = np.clip(multiply_wide(product * row, factor), -(2**31), 2**31 - 1)
    return multiply_wide(product, factor)


_RULES: Final[dict[ReduceOperation, Callable[[Ints, Axes, KernelInfo], Ints]]] = {
    ReduceOperation.MEAN: _quantized_mean,
    ReduceOperation.SUM: _quantized_sum,
    ReduceOperation.PROD: _quantized_product,
}


def _has_rule(op: Mean | Reduce, info: KernelInfo) -> str | None:
    is_empty = _count(info.input.shape, reduced_axes(op.axis, info.input.rank)) == 0
    is_even = op.requantization is Requantization.HALF_TO_EVEN and _operation(op) is ReduceOperation.PROD
    return None if _operation(op) in _RULES and not is_empty and not is_even else "has no rule in integers"


def _is_exact(op: Mean | Reduce, info: KernelInfo) -> str | None:
    is_sum = _operation(op) in (ReduceOperation.MEAN, ReduceOperation.SUM)
    if op.requantization is Requantization.HALF_TO_EVEN and is_sum:
        return None
    return "its results are not rounded half to even"


@kernel(Mean, Reduce, quantized=True, when=(all_quantized, one_scale_of_few_bits, _has_rule, _is_exact))
def reduce_exactly(op: Mean | Reduce, x: Array, *, info: KernelInfo, out: Array) -> None:
    """Compute exact means and sums of quantized values, and round them half to even."""
    axes = reduced_axes(op.axis, x.ndim)
    count = _count(x.shape, axes) if _operation(op) is ReduceOperation.MEAN else 1
    out[...] = quantized_means(_sum(offset(x, info.input), axes), count, info.input, info.output).reshape(out.shape)


@kernel(Mean, Reduce, quantized=True, when=(all_quantized, one_scale_of_few_bits, _has_rule))
def reduce_in_integers(op: Mean | Reduce, x: Array, *, info: KernelInfo, out: Array) -> None:
    """Compute `Mean` or `Reduce` as TFLite's integer kernels do."""
    reduced = _RULES[_operation(op)](offset(x, info.input), reduced_axes(op.axis, x.ndim), info)
    out[...] = clamp_to(reduced + info.output.zero_point, info.output.dtype).reshape(out.shape)


def _chooses(op: Mean | Reduce, info: KernelInfo) -> str | None:
    if _operation(op) not in (ReduceOperation.MAX, ReduceOperation.MIN):
        return f"{_operation(op).name} does not choose an element"
    return None if info.input.quantization == info.output.quantization else "takes tensors of one quantization"


@kernel(Mean, Reduce, quantized=True, when=(all_quantized, _chooses))
def choose_quantized(op: Mean | Reduce, x: Array, *, out: Array) -> None:
    """Compute the maximum or minimum of quantized values directly, if input and output have equal quantizations."""
    out[...] = _COMMON[_operation(op)](x, reduced_axes(op.axis, x.ndim)).reshape(out.shape)


@kernel(Mean, Reduce, quantized=True, when=(all_quantized, _computes))
def reduce_of_reals(op: Mean | Reduce, x: Array, *, info: KernelInfo, out: Array) -> None:
    """Compute `Mean` or `Reduce` on dequantized values in float32, if TFLite has no integer rule."""
    reduced = _FLOATS[_operation(op)](real(x, info.input), reduced_axes(op.axis, x.ndim))
    store(reduced.reshape(out.shape), info.output, out, op.requantization)


# --- places -----------------------------------------------------------------------------------------------------------


@kernel(ArgMinMax, dtypes=NUMBERS | {DataType.BOOL})
def arg_min_max(op: ArgMinMax, x: Array, *, info: KernelInfo) -> Array:
    """Compute `ArgMinMax`; quantized values are compared directly.

    For the last of equal elements, the reversed axis is searched.
    """
    search = np.argmin if op.function is ArgMinMaxFunction.MIN else np.argmax
    values = real(x, info.input) if info.input.dtype in FLOATS else x
    if not op.select_last_index:
        return np.asarray(search(values, axis=op.axis, keepdims=op.keep_dims))
    flipped_index = np.asarray(search(np.flip(values, op.axis), axis=op.axis, keepdims=op.keep_dims))
    return np.asarray(x.shape[op.axis] - 1 - flipped_index)
