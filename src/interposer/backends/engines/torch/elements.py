"""Elementwise functions and softmax."""

from __future__ import annotations

from functools import cache
from typing import Any, Final

from interposer.backends.engines.engine import RefusedError
from interposer.backends.engines.torch.package import functional, torch
from interposer.backends.engines.torch.table import ANY, FLOATS, NUMBERS, Function, in_float32, kind_of, makes
from interposer.core.types import DataType, TensorInfo
from interposer.ir.graph import Layer
from interposer.ops import (
    Activation,
    ActivationFunction,
    Addition,
    BinaryOperation,
    Cast,
    Comparison,
    ComparisonOperation,
    ConvertBf16ToFp32,
    ConvertFp16ToFp32,
    ConvertFp32ToBf16,
    ConvertFp32ToFp16,
    Division,
    ElementwiseBinary,
    ElementwiseUnary,
    Floor,
    LogicalBinary,
    LogicalBinaryOperation,
    LogSoftmax,
    Maximum,
    Minimum,
    Multiplication,
    Prelu,
    Softmax,
    Subtraction,
    UnaryOperation,
    Where,
)

__all__: list[str] = []

_A: Final = ActivationFunction
_ACTIVATIONS: Final[dict[ActivationFunction, Any]] = {
    _A.SIGMOID: lambda x, a, b: torch.sigmoid(x),
    _A.TANH: lambda x, a, b: a * torch.tanh(b * x),
    _A.LINEAR: lambda x, a, b: a * x + b,
    _A.RELU: lambda x, a, b: torch.relu(x),
    _A.BOUNDED_RELU: lambda x, a, b: torch.clamp(x, b, a),
    _A.SOFT_RELU: lambda x, a, b: functional.softplus(x),
    _A.LEAKY_RELU: lambda x, a, b: functional.leaky_relu(x, a),
    _A.ABS: lambda x, a, b: torch.abs(x),
    _A.SQRT: lambda x, a, b: torch.sqrt(x),
    _A.SQUARE: lambda x, a, b: torch.square(x),
    _A.ELU: lambda x, a, b: functional.elu(x, a),
    _A.HARD_SWISH: lambda x, a, b: functional.hardswish(x),
    _A.GELU: lambda x, a, b: functional.gelu(x),
    _A.GELU_TANH: lambda x, a, b: functional.gelu(x, approximate="tanh"),
    _A.SELU: lambda x, a, b: b * torch.where(x > 0, x, a * torch.expm1(x)),
    _A.CELU: lambda x, a, b: functional.celu(x, a),
    _A.SOFTSIGN: lambda x, a, b: functional.softsign(x),
    _A.HARD_SIGMOID: lambda x, a, b: torch.clamp(a * x + b, 0, 1),
    _A.SWISH: lambda x, a, b: x * torch.sigmoid(a * x),
    _A.MISH: lambda x, a, b: functional.mish(x),
    _A.THRESHOLDED_RELU: lambda x, a, b: functional.threshold(x, a, 0),
    _A.SHRINK: lambda x, a, b: torch.where(x > a, x - b, torch.where(x < -a, x + b, torch.zeros_like(x))),
}
_B: Final = BinaryOperation
_U: Final = UnaryOperation
_UNARY_OF_INTEGERS: Final = {_U.ABS, _U.NEG, _U.SQUARE}


@cache
def _of_floats() -> dict[BinaryOperation, Any]:
    return {_B.DIV: torch.div, _B.POWER: torch.pow, _B.ATAN2: torch.atan2}


@cache
def _of_numbers() -> dict[BinaryOperation, Any]:
    return {
        _B.ADD: torch.add,
        _B.SUB: torch.sub,
        _B.MUL: torch.mul,
        _B.MAXIMUM: torch.maximum,
        _B.MINIMUM: torch.minimum,
        _B.SQ_DIFF: lambda a, b: torch.square(a - b),
    }


@cache
def _of_integers() -> dict[BinaryOperation, Any]:
    return {
        _B.BITWISE_AND: torch.bitwise_and,
        _B.BITWISE_OR: torch.bitwise_or,
        _B.BITWISE_XOR: torch.bitwise_xor,
    }


@cache
def _unary() -> dict[UnaryOperation, Any]:
    return {
        _U.ABS: torch.abs,
        _U.EXP: torch.exp,
        _U.SQRT: torch.sqrt,
        _U.RSQRT: torch.rsqrt,
        _U.NEG: torch.neg,
        _U.LOG: torch.log,
        _U.SIN: torch.sin,
        _U.CEIL: torch.ceil,
        _U.COS: torch.cos,
        _U.TAN: torch.tan,
        _U.FLOOR: torch.floor,
        _U.ROUND: torch.round,
        _U.SIGN: lambda x: torch.where(torch.isnan(x), x, torch.sign(x)),
        _U.RECIPROCAL: torch.reciprocal,
        _U.SQUARE: torch.square,
        _U.ERF: torch.erf,
        _U.ASIN: torch.asin,
        _U.ACOS: torch.acos,
        _U.ATAN: torch.atan,
        _U.SINH: torch.sinh,
        _U.COSH: torch.cosh,
        _U.ASINH: torch.asinh,
        _U.ACOSH: torch.acosh,
        _U.ATANH: torch.atanh,
        _U.IS_NAN: torch.isnan,
        _U.IS_INF: torch.isinf,
        _U.IS_POSITIVE_INF: torch.isposinf,
        _U.IS_NEGATIVE_INF: torch.isneginf,
    }


@cache
def _comparisons() -> dict[ComparisonOperation, Any]:
    return {
        ComparisonOperation.EQUAL: torch.eq,
        ComparisonOperation.NOT_EQUAL: torch.ne,
        ComparisonOperation.GREATER: torch.gt,
        ComparisonOperation.GREATER_OR_EQUAL: torch.ge,
        ComparisonOperation.LESS: torch.lt,
        ComparisonOperation.LESS_OR_EQUAL: torch.le,
    }


@cache
def _logical() -> dict[LogicalBinaryOperation, Any]:
    return {
        LogicalBinaryOperation.LOGICAL_AND: torch.logical_and,
        LogicalBinaryOperation.LOGICAL_OR: torch.logical_or,
        LogicalBinaryOperation.LOGICAL_XOR: torch.logical_xor,
    }


@makes(Activation)
def activation(op: Activation, layer: Layer) -> Function:
    """Return the torch activation function."""
    function, a, b = _ACTIVATIONS[op.function], op.a, op.b
    return lambda x: function(x, a, b)


@makes(Softmax)
def softmax(op: Softmax, layer: Layer) -> Function:
    """Return the torch softmax, with the scores multiplied by beta if it is not 1."""
    if _is_wide(layer.output_infos[0]):
        raise RefusedError("torch does not compute exponentials from lookup tables as TFLite does")
    if op.beta == 1:
        return lambda x: torch.softmax(x, op.axis)
    return in_float32(lambda x: torch.softmax(x * op.beta, op.axis), kind_of(layer.values[0]))


@makes(LogSoftmax)
def log_softmax(op: LogSoftmax, layer: Layer) -> Function:
    """Return the torch log-softmax."""
    if op.beta == 1:
        return lambda x: torch.log_softmax(x, op.axis)
    return in_float32(lambda x: torch.log_softmax(x * op.beta, op.axis), kind_of(layer.values[0]))


@makes(ElementwiseBinary, Addition, Subtraction, Multiplication, Division, Maximum, Minimum, types=NUMBERS)
def binary(op: ElementwiseBinary, layer: Layer) -> Function:
    """Return the torch function of two broadcast operands of the same type."""
    first, second = map(kind_of, layer.values)
    if first is not second:
        raise RefusedError(f"its operands are {first} and {second}; takes two of one type")
    functions = _of_numbers() | (_of_floats() if first in FLOATS else _of_integers())
    return _function_for(functions, op.operation, first)


@makes(ElementwiseUnary, types=NUMBERS)
def unary(op: ElementwiseUnary, layer: Layer) -> Function:
    """Return the torch function of one operand."""
    dtype = kind_of(layer.values[0])
    if op.operation in (_U.EXP, _U.LOG) and _is_wide(layer.output_infos[0]):
        raise RefusedError("torch does not interpolate in lookup tables as TFLite does")
    functions = _unary() if dtype in FLOATS else {name: _unary()[name] for name in _UNARY_OF_INTEGERS}
    return _function_for(functions, op.operation, dtype)


def _is_wide(info: TensorInfo) -> bool:
    return info.is_quantized and info.dtype is DataType.INT16


def _function_for(functions: dict[Any, Any], operation: Any, dtype: DataType) -> Function:
    if operation not in functions:
        raise RefusedError(f"there is no torch function for {operation.name} of {dtype}")
    return _as_is(functions[operation])


def _as_is(function: Any) -> Function:
    typed_function: Function = function
    return typed_function


@makes(Floor)
def floor(op: Floor, layer: Layer) -> Function:
    """Return torch's floor."""
    return _as_is(torch.floor)


@makes(Comparison, types=ANY)
def comparison(op: Comparison, layer: Layer) -> Function:
    """Return torch's comparison."""
    return _as_is(_comparisons()[op.operation])


@makes(LogicalBinary, types=ANY)
def logical(op: LogicalBinary, layer: Layer) -> Function:
    """Return torch's logical function."""
    return _as_is(_logical()[op.operation])


@makes(Where, types=ANY)
def where(op: Where, layer: Layer) -> Function:
    """Return torch's selection by a condition."""
    if layer.values[1].known.dtype not in ANY:
        raise RefusedError(f"torch chooses no {layer.values[1].known.dtype}")
    return _as_is(torch.where)


@makes(Prelu)
def prelu(op: Prelu, layer: Layer) -> Function:
    """Return a PReLU with broadcast slopes."""
    return lambda x, alpha: torch.where(x > 0, x, alpha * x)


@makes(ConvertFp16ToFp32, ConvertBf16ToFp32)
def to_float32(op: ConvertFp16ToFp32 | ConvertBf16ToFp32, layer: Layer) -> Function:
    """Return a function that converts to float32."""
    return lambda x: x.to(torch.float32)


@makes(ConvertFp32ToFp16)
def to_float16(op: ConvertFp32ToFp16, layer: Layer) -> Function:
    """Return a function that converts to float16."""
    return lambda x: x.to(torch.float16)


@makes(ConvertFp32ToBf16)
def to_bfloat16(op: ConvertFp32ToBf16, layer: Layer) -> Function:
    """Return a function that converts to bfloat16."""
    return lambda x: x.to(torch.bfloat16)


@makes(Cast, types=ANY)
def cast(op: Cast, layer: Layer) -> Function:
    """Return torch's cast; raise `RefusedError` for a float that is cast to an integer, as out-of-range results differ.

    The operand must not be quantized, and torch must have both types.
    """
    source, target = layer.values[0].known.dtype, op.dtype
    if layer.values[0].known.is_quantized:
        raise RefusedError("a cast takes stored integers")
    if target not in ANY or (source in FLOATS and target not in FLOATS | {DataType.BOOL}):
        raise RefusedError(f"torch does not cast {source} to {target} as the reference does")
    kind = getattr(torch, str(target))
    return lambda x: x.to(kind)
