"""Kernels of the operators that compute each element independently of the others."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final, TypeAlias

import numpy as np

from interposer.core.types import FLOATS, INTEGERS, Array, DataType, TensorInfo
from interposer.kernels.fixedpoint import clamp_to, quantize
from interposer.kernels.lookup import all_integers, all_pairs, look_up, look_up_pairs
from interposer.kernels.quantized_arithmetic import (
    Rule,
    compared,
    integer_rule,
    one_scale_of_few_bits,
    per_tensor,
    prelu,
    scale32,
)
from interposer.kernels.quantized_functions import absolute, interpolated, rsqrt, sqrt, tabulated
from interposer.kernels.real import all_quantized, precisely, real, store
from interposer.kernels.reference import kernel
from interposer.kernels.table import KernelInfo
from interposer.ops.elementwise import (
    BinaryOperation,
    Comparison,
    ComparisonOperation,
    ElementwiseBinary,
    ElementwiseUnary,
    Floor,
    LogicalBinary,
    LogicalBinaryOperation,
    Prelu,
    UnaryOperation,
    Where,
)
from interposer.ops.quantization import Requantization

__all__ = ["NUMBERS", "erfc"]

Function: TypeAlias = Callable[..., Array]
Functions: TypeAlias = Mapping[str, Mapping[Any, Function]]
NUMBERS: Final = FLOATS | {dtype for dtype in INTEGERS if dtype.bits >= 8}
_LARGE: Final = 2**16
"""The number of elements from which on a table of all pairs of quantized values is faster."""


def compute(function: Function, arrays: tuple[Array, ...], out: Array) -> None:
    """Fill `out` with the result of a function of arrays.

    A NumPy ufunc of arrays of the type of `out` writes to it directly. Other results are converted to its type.
    """
    if isinstance(function, np.ufunc) and arrays[0].dtype == out.dtype:
        function(*arrays, out=out)
    else:
        np.copyto(out, function(*arrays), casting="unsafe")


def by_dtype(functions: Functions, operation: Any, dtype: DataType) -> Function | None:
    """Return the function that `functions` has for an operation on elements of a type, or None.

    `functions` has a table by operation for "float", "integer" (of 8 bits or more) and "bool".
    """
    if dtype in FLOATS:
        return functions["float"].get(operation)
    if dtype.is_integer and dtype.bits >= 8:
        return functions["integer"].get(operation)
    return functions["bool"].get(operation) if dtype is DataType.BOOL else None


# --- two operands -----------------------------------------------------------------------------------------------------


def _truncated_quotient(a: Array, b: Array) -> Array:
    """Divide integers and round towards zero, unlike NumPy, which rounds down."""
    was_rounded_down = (np.mod(a, b) != 0) & ((a < 0) != (b < 0))
    return np.asarray(np.floor_divide(a, b) + was_rounded_down)


def _integer_power(a: Array, b: Array) -> Array:
    """Raise integers to powers; a negative integer exponent gives 0, except for the bases 1 and -1.

    Powers with float exponents are computed in float64 and truncated; those that are not finite become 0.
    """
    if b.dtype.kind == "f":
        power = np.power(a.astype(np.float64), b)
        return np.trunc(np.where(np.isfinite(power), power, 0))
    positive = np.power(a, np.maximum(b, 0).astype(a.dtype))
    sign = np.where(np.mod(b, 2) == 0, 1, a)
    return np.where(b >= 0, positive, np.where(np.abs(a) == 1, sign, 0))


def _power(a: Array, b: Array) -> Array:
    return np.asarray(np.power(a, b.astype(a.dtype)))


def _squared_difference(a: Array, b: Array) -> Array:
    return np.square(np.subtract(a, b))


_ARITHMETIC: Final[dict[BinaryOperation, Function]] = {
    BinaryOperation.ADD: np.add,
    BinaryOperation.SUB: np.subtract,
    BinaryOperation.MUL: np.multiply,
    BinaryOperation.MAXIMUM: np.maximum,
    BinaryOperation.MINIMUM: np.minimum,
    BinaryOperation.SQ_DIFF: _squared_difference,
    BinaryOperation.FLOOR_DIV: np.floor_divide,
    BinaryOperation.MOD: np.mod,
    BinaryOperation.FMOD: np.fmod,
}
_BITWISE: Final[dict[BinaryOperation, Function]] = {
    BinaryOperation.BITWISE_AND: np.bitwise_and,
    BinaryOperation.BITWISE_OR: np.bitwise_or,
    BinaryOperation.BITWISE_XOR: np.bitwise_xor,
}
_BINARY: Final[Functions] = {
    "float": {
        **_ARITHMETIC,
        BinaryOperation.DIV: np.true_divide,
        BinaryOperation.POWER: _power,
        BinaryOperation.ATAN2: np.arctan2,
    },
    "integer": {
        **_ARITHMETIC,
        **_BITWISE,
        BinaryOperation.DIV: _truncated_quotient,
        BinaryOperation.POWER: _integer_power,
        BinaryOperation.SHIFT_LEFT: np.left_shift,
        BinaryOperation.SHIFT_RIGHT: np.right_shift,
    },
    "bool": {**_BITWISE, BinaryOperation.MAXIMUM: np.logical_or, BinaryOperation.MINIMUM: np.logical_and},
}


def _computes_binary(op: ElementwiseBinary, info: KernelInfo) -> str | None:
    function = by_dtype(_BINARY, op.operation, DataType.FLOAT32 if info.quantized else info.input.dtype)
    return None if function else f"{op.operation.name} of {info.input.dtype} is not defined"


@kernel(ElementwiseBinary, quantized=False, when=(all_quantized, _computes_binary))
def binary(op: ElementwiseBinary, a: Array, b: Array, *, info: KernelInfo, out: Array) -> None:
    """Compute `ElementwiseBinary` on unquantized tensors.

    Integers wrap around, and floats of fewer than 32 bits are rounded once, at the end.
    """
    function = by_dtype(_BINARY, op.operation, info.input.dtype)
    assert function is not None, "_computes_binary comes first"
    compute(function, (real(a, info.at(0)), real(b, info.at(1))), out)


def _rule(op: ElementwiseBinary, info: KernelInfo) -> Rule | None:
    """Return the function of pairs of quantized values, or None if they are computed on dequantized values."""
    if op.requantization is Requantization.HALF_TO_EVEN:
        return partial(_rounded_to_even, _BINARY["float"][op.operation]) if per_tensor(info) else None
    return integer_rule(op.operation, info)


def _rounded_to_even(function: Function, a: Array, b: Array, info: KernelInfo) -> Array:
    """Compute a function of quantized values in float32, and round the results half to even."""
    assert info.output.quantization is not None, "the tensors are quantized"
    values = function(real(a, info.at(0)), real(b, info.at(1)))
    return quantize(values, info.output.quantization, info.output.dtype, np.rint)


def _has_integer_rule(op: ElementwiseBinary, info: KernelInfo) -> str | None:
    return None if _rule(op, info) else "has no rule in integers"


def _pair_table(rule: Rule, info: KernelInfo) -> Array | None:
    """Return the results of `rule` for all pairs of 8-bit values, or None for few elements or other types."""
    bit_widths = {tensor.dtype.bits for tensor in (info.at(0), info.at(1), info.output)}
    if bit_widths != {8} or info.output.num_elements < _LARGE:
        return None
    return clamp_to(rule(*all_pairs(info.at(0).dtype, info.at(1).dtype), info), info.output.dtype)


@kernel(ElementwiseBinary, quantized=True, when=(all_quantized, _has_integer_rule))
def binary_in_integers(
    op: ElementwiseBinary, a: Array, b: Array, *, info: KernelInfo, out: Array, prepared: Array | None
) -> None:
    """Compute `ElementwiseBinary` as TFLite's integer kernels do, or as ONNX does with HALF_TO_EVEN.

    For many 8-bit elements, `prepared` is a table of the results of all pairs of quantized values.
    """
    rule = _rule(op, info)
    assert rule is not None, "_has_integer_rule comes first"
    if prepared is not None:
        look_up_pairs(prepared, a, b, out)
    else:
        out[...] = clamp_to(rule(a, b, info), info.output.dtype)


@kernel.prepare(binary_in_integers)
def _binary_table(op: ElementwiseBinary, info: KernelInfo) -> Array | None:
    rule = _rule(op, info)
    return _pair_table(rule, info) if rule else None


@kernel(ElementwiseBinary, quantized=True, when=(all_quantized, _computes_binary))
def binary_of_reals(op: ElementwiseBinary, a: Array, b: Array, *, info: KernelInfo, out: Array) -> None:
    """Compute `ElementwiseBinary` on dequantized values in float32, if TFLite has no integer rule."""
    function = _BINARY["float"][op.operation]
    store(function(real(a, info.at(0)), real(b, info.at(1))), info.output, out, op.requantization)


# --- one operand ------------------------------------------------------------------------------------------------------


def erf(x: Array) -> Array:
    return _by_element(math.erf, x)


def erfc(x: Array) -> Array:
    """Compute 1 - erf(x) without losing digits where the result is small."""
    return _by_element(math.erfc, x)


def _by_element(function: Callable[[float], float], x: Array) -> Array:
    flat = np.fromiter(map(function, x.ravel().tolist()), np.float64, x.size)
    return flat.reshape(x.shape).astype(x.dtype)


def _inverse_sqrt(x: Array) -> Array:
    return np.reciprocal(np.sqrt(x))


def _integer_reciprocal(x: Array) -> Array:
    return np.where(np.abs(x) == 1, x, 0)


def _positive_infinity(x: Array) -> Array:
    return np.equal(x, np.inf)


def _negative_infinity(x: Array) -> Array:
    return np.equal(x, -np.inf)


_SIGNED: Final[dict[UnaryOperation, Function]] = {
    UnaryOperation.ABS: np.abs,
    UnaryOperation.NEG: np.negative,
    UnaryOperation.SIGN: np.sign,
    UnaryOperation.SQUARE: np.square,
}
_UNARY: Final[Functions] = {
    "float": {
        **_SIGNED,
        UnaryOperation.EXP: np.exp,
        UnaryOperation.SQRT: np.sqrt,
        UnaryOperation.RSQRT: _inverse_sqrt,
        UnaryOperation.LOG: np.log,
        UnaryOperation.SIN: np.sin,
        UnaryOperation.COS: np.cos,
        UnaryOperation.TAN: np.tan,
        UnaryOperation.CEIL: np.ceil,
        UnaryOperation.FLOOR: np.floor,
        UnaryOperation.ROUND: np.rint,
        UnaryOperation.RECIPROCAL: np.reciprocal,
        UnaryOperation.ERF: erf,
        UnaryOperation.ASIN: np.arcsin,
        UnaryOperation.ACOS: np.arccos,
        UnaryOperation.ATAN: np.arctan,
        UnaryOperation.SINH: np.sinh,
        UnaryOperation.COSH: np.cosh,
        UnaryOperation.ASINH: np.arcsinh,
        UnaryOperation.ACOSH: np.arccosh,
        UnaryOperation.ATANH: np.arctanh,
        UnaryOperation.IS_NAN: np.isnan,
        UnaryOperation.IS_INF: np.isinf,
        UnaryOperation.IS_POSITIVE_INF: _positive_infinity,
        UnaryOperation.IS_NEGATIVE_INF: _negative_infinity,
    },
    "integer": {
        **_SIGNED,
        UnaryOperation.CEIL: np.positive,
        UnaryOperation.FLOOR: np.positive,
        UnaryOperation.ROUND: np.positive,
        UnaryOperation.RECIPROCAL: _integer_reciprocal,
        UnaryOperation.BITWISE_NOT: np.bitwise_not,
    },
    "bool": {UnaryOperation.LOGICAL_NOT: np.logical_not, UnaryOperation.BITWISE_NOT: np.logical_not},
}


def _operation(op: ElementwiseUnary | Floor) -> UnaryOperation:
    return UnaryOperation.FLOOR if isinstance(op, Floor) else op.operation


def _computes_unary(op: ElementwiseUnary | Floor, info: KernelInfo) -> str | None:
    function = by_dtype(_UNARY, _operation(op), DataType.FLOAT32 if info.quantized else info.input.dtype)
    keeps_quantization = not info.quantized or info.output.is_quantized
    return None if function and keeps_quantization else f"{_operation(op).name} of {info.input.dtype} is not defined"


@kernel(ElementwiseUnary, Floor, quantized=False, when=_computes_unary)
def unary(op: ElementwiseUnary | Floor, x: Array, *, info: KernelInfo, out: Array) -> None:
    """Compute `ElementwiseUnary` or `Floor` on unquantized tensors.

    Integers wrap around, and floats of fewer than 32 bits are rounded once, at the end.
    """
    function = by_dtype(_UNARY, _operation(op), info.input.dtype)
    assert function is not None, "_computes_unary comes first"
    compute(function, (real(x, info.input),), out)


def _bounded_log(output: TensorInfo) -> Function:
    lowest = np.float32(np.iinfo(output.dtype.numpy).min - output.zero_point) * scale32(output)
    return lambda x: np.where(x > 0, precisely(np.log)(np.maximum(x, 0)), lowest)


def _bounded_inverse_sqrt(output: TensorInfo) -> Function:
    highest = np.float32(np.iinfo(output.dtype.numpy).max - output.zero_point) * scale32(output)
    return lambda x: np.where(x > 0, _inverse_sqrt(x), highest)


def _unary_quantized_results(operation: UnaryOperation, x: Array, input: TensorInfo, output: TensorInfo) -> Array:
    """Return results for the quantized values `x`, quantized like `output`, but not clamped to its type.

    They are computed by TFLite's integer rule for the operation, or in float32 if TFLite has no rule.
    """
    is_symmetric_int16 = input.dtype is DataType.INT16 and input.zero_point == output.zero_point == 0
    evaluate = interpolated if is_symmetric_int16 else tabulated
    match operation:
        case UnaryOperation.ABS:
            return absolute(x, input, output)
        case UnaryOperation.SQRT:
            return sqrt(x, input, output)
        case UnaryOperation.RSQRT if not is_symmetric_int16:
            return rsqrt(x, input, output)
        case UnaryOperation.RSQRT:
            return evaluate(_bounded_inverse_sqrt(output), x, input, output)
        case UnaryOperation.LOG:
            return evaluate(_bounded_log(output), x, input, output)
        case UnaryOperation.EXP:
            return evaluate(precisely(np.exp), x, input, output)
    return tabulated(_UNARY["float"][operation], x, input, output)


@kernel(ElementwiseUnary, Floor, quantized=True, when=(all_quantized, _computes_unary, one_scale_of_few_bits))
def unary_by_table(op: ElementwiseUnary | Floor, x: Array, *, out: Array, prepared: Array) -> None:
    """Compute `ElementwiseUnary` on 8- and 16-bit tensors; `prepared` is a table of the results for all values."""
    look_up(prepared, x, out)


@kernel.prepare(unary_by_table)
@np.errstate(all="ignore")
def _unary_table(op: ElementwiseUnary | Floor, info: KernelInfo) -> Array:
    integers = all_integers(info.input.dtype)
    return clamp_to(_unary_quantized_results(_operation(op), integers, info.input, info.output), info.output.dtype)


@kernel(ElementwiseUnary, Floor, quantized=True, when=(all_quantized, _computes_unary))
def unary_of_reals(op: ElementwiseUnary | Floor, x: Array, *, info: KernelInfo, out: Array) -> None:
    """Compute `ElementwiseUnary` on dequantized values, for per-axis scales or more than 16 bits."""
    store(_UNARY["float"][_operation(op)](real(x, info.input)), info.output, out)


# --- comparison, logic and choice -------------------------------------------------------------------------------------

_COMPARE: Final[dict[ComparisonOperation, Function]] = {
    ComparisonOperation.EQUAL: np.equal,
    ComparisonOperation.GREATER: np.greater,
    ComparisonOperation.GREATER_OR_EQUAL: np.greater_equal,
    ComparisonOperation.LESS: np.less,
    ComparisonOperation.LESS_OR_EQUAL: np.less_equal,
    ComparisonOperation.NOT_EQUAL: np.not_equal,
}
_JOIN: Final[dict[LogicalBinaryOperation, Function]] = {
    LogicalBinaryOperation.LOGICAL_AND: np.logical_and,
    LogicalBinaryOperation.LOGICAL_OR: np.logical_or,
    LogicalBinaryOperation.LOGICAL_XOR: np.logical_xor,
}


@kernel(Comparison, quantized=False, when=all_quantized)
def compare(op: Comparison, a: Array, b: Array, *, info: KernelInfo) -> Array:
    """Compute `Comparison` of unquantized tensors; strings are compared character by character."""
    return _COMPARE[op.operation](real(a, info.at(0)), real(b, info.at(1)))


@kernel(Comparison, quantized=True, when=all_quantized)
def compare_quantized(op: Comparison, a: Array, b: Array, *, info: KernelInfo) -> Array:
    """Compute `Comparison` of quantized tensors; 8-bit tensors by TFLite's rule in steps of 1/256.

    Other tensors are compared by their quantized values if their quantizations are equal, else by their float values.
    """
    info_a, info_b = info.at(0), info.at(1)
    if per_tensor(info) and info_a.dtype is not DataType.INT16:
        return _COMPARE[op.operation](compared(a, info_a), compared(b, info_b))
    if info_a.quantization == info_b.quantization:
        return _COMPARE[op.operation](a, b)
    return _COMPARE[op.operation](real(a, info_a), real(b, info_b))


@kernel(LogicalBinary)
def logical(op: LogicalBinary, a: Array, b: Array, *, out: Array) -> None:
    """Compute `LogicalBinary` on booleans."""
    _JOIN[op.operation](a, b, out=out)


@kernel(Where, when=all_quantized)
def where(op: Where, condition: Array, a: Array, b: Array, *, info: KernelInfo, out: Array) -> None:
    """Compute `Where`; elements are copied unchanged, unless the quantizations of inputs and output differ."""
    if info.at(1).quantization == info.at(2).quantization == info.output.quantization:
        np.copyto(out, b)
        np.copyto(out, a, where=condition)
    else:
        store(np.where(condition, real(a, info.at(1)), real(b, info.at(2))), info.output, out)


@kernel(Prelu, dtypes=NUMBERS, quantized=False, when=all_quantized)
def prelu_of_reals(op: Prelu, x: Array, alpha: Array, *, info: KernelInfo) -> Array:
    """Compute `Prelu` on float values: `x` where it is 0 or more, else `x * alpha`."""
    x, alpha = real(x, info.at(0)), real(alpha, info.at(1))
    return np.where(x >= 0, x, x * alpha)


@kernel(Prelu, quantized=True, when=(all_quantized, one_scale_of_few_bits))
def prelu_in_integers(
    op: Prelu, x: Array, alpha: Array, *, info: KernelInfo, out: Array, prepared: Array | None
) -> None:
    """Compute `Prelu` as TFLite's integer kernel does.

    For many 8-bit elements, `prepared` is a table of the results of all pairs of quantized values.
    """
    if prepared is not None:
        look_up_pairs(prepared, x, alpha, out)
    else:
        out[...] = clamp_to(prelu(x, alpha, info), info.output.dtype)


@kernel.prepare(prelu_in_integers)
def _prelu_table(op: Prelu, info: KernelInfo) -> Array | None:
    return _pair_table(prelu, info)


@kernel(Prelu, quantized=True, when=all_quantized)
def prelu_requantized(op: Prelu, x: Array, alpha: Array, *, info: KernelInfo, out: Array) -> None:
    """Compute `Prelu` on dequantized values, for per-axis scales or more than 16 bits."""
    store(prelu_of_reals(op, x, alpha, info=info), info.output, out)
