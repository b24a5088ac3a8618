"""Arithmetic on quantized tensors in integers, as TFLite's reference kernels do it, bit for bit.

A rule is a function that takes the quantized values of both operands and returns those of the result, before they are
clamped to the type. TFLite computes some factors in float32 and others in float64. The rules do the same, since the
difference shows in the last bit.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from interposer.core.types import Array, DataType, TensorInfo
from interposer.kernels.fixedfunctions import leading_zeros, reciprocal
from interposer.kernels.fixedpoint import FixedPoint, multiply_by_quantized_multiplier, quantize_multiplier
from interposer.kernels.table import KernelInfo
from interposer.ops.elementwise import BinaryOperation

__all__ = [
    "Rule",
    "compared",
    "integer_rule",
    "offset",
    "one_scale_of_few_bits",
    "per_tensor",
    "prelu",
    "scale32",
]

Ints: TypeAlias = NDArray[np.int64]
Rule: TypeAlias = Callable[[Array, Array, KernelInfo], Array]
_TYPES: Final = frozenset({DataType.INT8, DataType.UINT8, DataType.INT16})


def scale32(info: TensorInfo) -> np.float32:
    """Return the scale of a tensor rounded to float32, the type in which files store it."""
    return np.float32(info.scale)


def offset(x: Array, info: TensorInfo) -> Ints:
    """Return the quantized values minus the zero point, as int64."""
    return x.astype(np.int64) - info.zero_point


def per_tensor(info: KernelInfo) -> bool:
    """Return True if every tensor has one scale and one of the types that TFLite computes in integers."""
    tensors = [tensor for tensor in (*info.inputs, *info.outputs) if tensor is not None and tensor.dtype.is_integer]
    return all(tensor.quantization is not None and not tensor.quantization.per_axis for tensor in tensors) and all(
        tensor.dtype in _TYPES for tensor in tensors
    )


def one_scale_of_few_bits(op: object, info: KernelInfo) -> str | None:
    """Return why the tensors are refused, or None: all integer tensors must have 8 or 16 bits and a single scale."""
    return None if per_tensor(info) else "takes 8- or 16-bit tensors with one scale"


def integer_rule(operation: BinaryOperation, info: KernelInfo) -> Rule | None:
    """Return the function for an operation on tensors of these infos, or None if TFLite has none in integers.

    It is called with the quantized values of both operands and `info`, and its results must be clamped to the type.
    """
    if operation in _CHOICES:
        return _CHOICES[operation] if _one_quantization(info) else None
    if not per_tensor(info):
        return None
    if operation is BinaryOperation.SQ_DIFF and info.input.dtype is DataType.INT16:
        return None
    return _RULES.get(operation)


def _one_quantization(info: KernelInfo) -> bool:
    """Return True if all tensors are of one type and one scale, so that quantized values are ordered like numbers."""
    quantization = info.output.quantization
    is_one = info.at(0).quantization == info.at(1).quantization == quantization and info.at(0).dtype is info.at(1).dtype
    return is_one and quantization is not None and not quantization.per_axis


def _on_common_scale(a: Array, b: Array, info: KernelInfo, left_shift: int, sign: int = 1) -> tuple[Ints, Ints, float]:
    """Rescale both operands to a common scale, and return them and twice the larger of the operands' scales.

    The common scale is that number divided by ``2**left_shift``. The second operand is multiplied by `sign`, 1 or -1.
    """
    scales = [float(scale32(info.at(0))), float(scale32(info.at(1)))]
    doubled_scale = 2 * max(scales)
    factors = [quantize_multiplier(scale / doubled_scale) for scale in scales]
    signed_factor = FixedPoint(factors[1].multiplier * sign, factors[1].shift)
    rescaled_a = multiply_by_quantized_multiplier(offset(a, info.at(0)) << left_shift, factors[0])
    rescaled_b = multiply_by_quantized_multiplier(offset(b, info.at(1)) << left_shift, signed_factor)
    return rescaled_a, rescaled_b, doubled_scale


def _headroom(info: KernelInfo) -> int:
    return 15 if info.input.dtype is DataType.INT16 else 20


def _requantized(values: Array, factor: float | np.floating, info: KernelInfo) -> Ints:
    return multiply_by_quantized_multiplier(values, quantize_multiplier(factor)) + info.output.zero_point


def _add(a: Array, b: Array, info: KernelInfo, sign: int = 1) -> Ints:
    left_shift = _headroom(info)
    rescaled_a, rescaled_b, doubled_scale = _on_common_scale(a, b, info, left_shift, sign)
    return _requantized(rescaled_a + rescaled_b, doubled_scale / (2.0**left_shift * float(scale32(info.output))), info)


def _sub(a: Array, b: Array, info: KernelInfo) -> Ints:
    return _add(a, b, info, sign=-1)


def _mul(a: Array, b: Array, info: KernelInfo) -> Ints:
    factor = scale32(info.at(0)) * scale32(info.at(1)) / scale32(info.output)
    return _requantized(offset(a, info.at(0)) * offset(b, info.at(1)), factor, info)


def _sq_diff(a: Array, b: Array, info: KernelInfo) -> Ints:
    rescaled_a, rescaled_b, doubled_scale = _on_common_scale(a, b, info, left_shift=7)
    return _requantized(
        (rescaled_a - rescaled_b) ** 2, doubled_scale**2 / (2.0**14 * float(scale32(info.output))), info
    )


def _div(a: Array, b: Array, info: KernelInfo) -> Ints:
    """Divide quantized values by multiplying with the reciprocal of the divisor; a quotient by zero is zero.

    A quotient that is too small to represent is also zero. There, TFLite's shift exceeds the number of bits.
    """
    factor = quantize_multiplier(scale32(info.at(0)) / (scale32(info.at(1)) * scale32(info.output)))
    dividend, divisor = np.broadcast_arrays(offset(a, info.at(0)), offset(b, info.at(1)))
    dividend, divisor = dividend * np.sign(divisor), np.maximum(np.abs(divisor), 1)
    reciprocals, exponent = reciprocal(divisor, 31)
    headroom = np.where(dividend < 0, leading_zeros(2 * np.abs(dividend) - 1), leading_zeros(dividend)) - 1
    headroom = np.where(dividend == 0, 31, headroom)
    quotient = multiply_by_quantized_multiplier(dividend, FixedPoint(reciprocals, np.minimum(headroom, 30)))
    shift = factor.shift - exponent - headroom
    return multiply_by_quantized_multiplier(quotient, FixedPoint(factor.multiplier, shift)) + info.output.zero_point


def _maximum(a: Array, b: Array, info: KernelInfo) -> Array:
    return np.maximum(a, b)


def _minimum(a: Array, b: Array, info: KernelInfo) -> Array:
    return np.minimum(a, b)


_CHOICES: Final[dict[BinaryOperation, Rule]] = {BinaryOperation.MAXIMUM: _maximum, BinaryOperation.MINIMUM: _minimum}
_RULES: Final[dict[BinaryOperation, Rule]] = {
    BinaryOperation.ADD: _add,
    BinaryOperation.SUB: _sub,
    BinaryOperation.MUL: _mul,
    BinaryOperation.DIV: _div,
    BinaryOperation.SQ_DIFF: _sq_diff,
}


def compared(x: Array, info: TensorInfo) -> Ints:
    """Return 256 times the float values of a quantized tensor as integers, which order values of different scales."""
    return multiply_by_quantized_multiplier(offset(x, info) << 8, quantize_multiplier(scale32(info)))


def prelu(x: Array, alpha: Array, info: KernelInfo) -> Ints:
    """Compute PRELU on the quantized values of the input `x` and of the slope `alpha`; the results are not clamped."""
    input, slope = info.at(0), info.at(1)
    positive_factor = quantize_multiplier(scale32(input) / scale32(info.output))
    negative_factor = quantize_multiplier(scale32(input) * scale32(slope) / scale32(info.output))
    distances = offset(x, input)
    scaled = np.where(
        distances >= 0,
        multiply_by_quantized_multiplier(distances, positive_factor),
        multiply_by_quantized_multiplier(distances * offset(alpha, slope), negative_factor),
    )
    return scaled + info.output.zero_point
