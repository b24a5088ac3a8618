"""ONNX writer for Softmax of 8-bit quantized values: a table of exponentials, and the reciprocal of their sum.

All numbers are fixed-point ones, 32-bit integers in tensors of 64 bits; "Q12" has 12 integer bits and 19 fractional
ones.
"""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from interposer.core.types import DataType, TensorInfo, integer_range
from interposer.ops.activation import Softmax
from interposer.writers.onnx.draft import Draft
from interposer.writers.onnx.fixedpoint import Factor, factor_of, single
from interposer.writers.onnx.onnx_layer_writers import writer
from interposer.writers.onnx.tensor import Tensor
from interposer.writers.refusals import refuse

__all__: list[str] = []

Ints = NDArray[np.int64]
_ONE: Final = 2**31 - 1
_UNIT: Final = 1 << 31
_POSITIVE: Final = 1 << 62
_TOTAL_BITS: Final = 12
_INPUT_BITS: Final = 5


def _code(real: float, integer_bits: int = 0) -> int:
    return round(float(real) * 2.0 ** (31 - integer_bits))


# --- the table --------------------------------------------------------------------------------------------------------


def _product(a: Ints, b: Ints | int) -> Ints:
    """Return the product of fixed-point numbers in Q0, in which 2**31 stands for 1; ties are rounded up."""
    ints: Ints = np.minimum((a * b + (1 << 30)) >> 31, _ONE)
    return ints


def _divided(x: Ints, exponent: int) -> Ints:
    """Return the integers x / 2**exponent, rounded to the nearest integer, ties away from zero."""
    half = (1 << exponent) >> 1
    return (x + half - ((x < 0) & (exponent > 0))) >> exponent


def _exp_near_eighth(x: Ints) -> Ints:
    """Return exp(x) for -1/4 <= x < 0 in Q0 (2**31 stands for 1), by the Taylor series around -1/8 up to degree 4."""
    x = x + _code(1 / 8)
    square = _product(x, x)
    fourth = _divided(_product(square, square), 2)
    third = _product(_product(square, x) + fourth, _code(1 / 3))
    scale = _code(np.exp(-1 / 8))
    return scale + _product(x + _divided(third + square, 1), scale)


def _exp_of_negative(x: Ints) -> Ints:
    """Return exp(x) in Q0 (2**31 stands for 1) for x <= 0 in Q5 (2**26 stands for 1).

    It is a series for the remainder modulo 1/4, times a factor for every bit above it.
    """
    quarter = _code(0.25, _INPUT_BITS)
    quarter_part = (x & (quarter - 1)) - quarter
    exponential = _exp_near_eighth(np.clip(quarter_part << _INPUT_BITS, -_UNIT, _ONE))
    above = quarter_part - x
    for exponent in range(-2, _INPUT_BITS):
        bit = 1 << (31 - _INPUT_BITS + exponent)
        exponential = np.where(above & bit, _product(exponential, _code(np.exp(-(2.0**exponent)))), exponential)
    return np.where(x == 0, _ONE, exponential)


def _times(x: Ints, factor: Factor) -> Ints:
    shifted = (x << np.maximum(factor.shift, 0)).astype(np.int32).astype(np.int64)
    scaled = (shifted * factor.multiplier + (1 << 30)) >> 31
    return _divided(scaled, int(np.maximum(-factor.shift, 0)))


def _exponentials(info: TensorInfo, beta: float) -> Ints:
    """Return exp(-d * scale * beta) in Q0 (2**31 stands for 1) for the differences d from 0 to 255 of quantized values.

    `info` gives the scale.
    """
    factor = factor_of(min(beta * info.scale * 2**26, 2.0**31 - 1))
    least_difference = -int(31 * 2**26 // 2 ** int(factor.shift))
    difference = -np.arange(256, dtype=np.int64)
    return np.where(difference >= least_difference, _exp_of_negative(_times(difference, factor)), 0)


# --- the nodes --------------------------------------------------------------------------------------------------------


class _Rows:
    """Writes fixed-point arithmetic for a quantized softmax: each method adds nodes and returns their result."""

    def __init__(self, draft: Draft) -> None:
        self._draft = draft

    def add(self, a: Tensor, b: Tensor | int) -> Tensor:
        return self._draft.node("Add", a, self._one(b))

    def minus(self, a: Tensor | int, b: Tensor | int) -> Tensor:
        return self._draft.node("Sub", self._one(a), self._one(b))

    def divided(self, a: Tensor, b: Tensor | int) -> Tensor:
        """Return a / b truncated to an integer; both must be non-negative."""
        return self._draft.node("Div", a, self._one(b))

    def product(self, a: Tensor, b: Tensor | int) -> Tensor:
        """Return the product of fixed-point numbers in Q0, in which 2**31 stands for 1; ties are rounded up.

        Numbers are made positive before the division, which truncates in ONNX.
        """
        rounded_up = self.add(self._draft.node("Mul", a, self._one(b)), (1 << 30) + _POSITIVE)
        return self.minus(self.divided(rounded_up, _UNIT), _POSITIVE // _UNIT)

    def moved_up(self, x: Tensor, bits: int) -> Tensor:
        """Return x * 2**bits, saturated to the range of int32."""
        return self._draft.clip(self._draft.node("Mul", x, self._one(1 << bits)), -_UNIT, _ONE)

    def power(self, exponent: Tensor) -> Tensor:
        """Return 2**exponent for each exponent, which must be between 0 and 39."""
        table = self._draft.ints([1 << bits for bits in range(40)], "powers")
        return self._draft.node("Gather", table, exponent)

    def leading_zeros(self, x: Tensor) -> Tensor:
        """Return the number of leading zeros of each element of `x` as an integer of 32 bits.

        It equals the number of powers of two that are greater than the element.
        """
        powers = self._draft.ints([1 << bits for bits in range(32)], "powers")
        is_greater = self._draft.node("Less", self._draft.unsqueeze(x, [-1]), powers)
        count = self._draft.cast(is_greater, DataType.INT64)
        return self._draft.reduce("ReduceSum", count, [-1], keep=False)

    def one_over_one_plus(self, x: Tensor) -> Tensor:
        """Return 1 / (1 + x) for 0 <= x < 1 in Q0 (2**31 stands for 1), by three steps of Newton's iteration in Q2."""
        half = self.divided(self.add(x, _UNIT), 2)
        estimate = self.add(self.product(half, _code(-32 / 17, 2)), _code(48 / 17, 2))
        for _ in range(3):
            error = self.minus(_code(1, 2), self.product(half, estimate))
            estimate = self.add(estimate, self.moved_up(self.product(estimate, error), 2))
        return self.moved_up(estimate, 1)

    def _one(self, x: Tensor | int) -> Tensor:
        return self._draft.ints(x) if isinstance(x, int) else x


@writer(Softmax, quantized=True, computes=True)
def quantized_softmax(draft: Draft, op: Softmax) -> Tensor:
    """Write a quantized Softmax in integer arithmetic, with a table of exponentials.

    The layer is refused if its result does not have the fixed quantization that the operator prescribes for it.
    """
    x, output_info = draft.info(0), draft.result
    single(x, DataType.INT8, DataType.UINT8)
    if op.infer(x).quantization != output_info.quantization:
        refuse("ONNX rounds quantized results otherwise")
    if draft.known(x.shape[op.axis], "number of scores") >= 1 << _TOTAL_BITS:
        refuse("it has too many scores to be added up in 32 bits")
    rows = _Rows(draft)
    wide_x = draft.cast(draft.operand(0), DataType.INT64)
    below_maximum = rows.minus(draft.reduce("ReduceMax", wide_x, [op.axis]), wide_x)
    table = _exponentials(x, op.beta)
    exps = draft.node("Gather", draft.ints(table.tolist(), "exponentials"), below_maximum)
    parts = draft.node("Gather", draft.ints(_divided(table, _TOTAL_BITS).tolist(), "parts"), below_maximum)
    sum_of_exps = draft.reduce("ReduceSum", parts, [op.axis])
    zeros = rows.leading_zeros(sum_of_exps)
    mantissa = rows.minus(draft.node("Mul", sum_of_exps, rows.power(zeros)), _UNIT)
    scaled = rows.product(exps, rows.one_over_one_plus(mantissa))
    shift = rows.minus(_TOTAL_BITS + 31 - 8, zeros)
    rounded = rows.divided(rows.add(scaled, rows.power(rows.minus(shift, 1))), rows.power(shift))
    low, high = integer_range(output_info.dtype)
    return draft.cast(draft.clip(rows.add(rounded, low), low, high), output_info.dtype)
