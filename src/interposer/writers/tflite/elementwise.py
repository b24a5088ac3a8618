"""TFLite writers for elementwise arithmetic, comparison, logic and selection."""

from __future__ import annotations

import math
from typing import Final

import numpy as np

from interposer.core.types import DataType, TensorInfo
from interposer.ops.elementwise import (
    Addition,
    BinaryOperation,
    Comparison,
    ComparisonOperation,
    Division,
    ElementwiseBinary,
    ElementwiseUnary,
    Floor,
    LogicalBinary,
    LogicalBinaryOperation,
    Maximum,
    Minimum,
    Multiplication,
    Prelu,
    Subtraction,
    UnaryOperation,
    Where,
)
from interposer.ops.fused import Fused
from interposer.writers.refusals import refuse
from interposer.writers.tflite.draft import Draft
from interposer.writers.tflite.sheet import Tensor
from interposer.writers.tflite.tflite_layer_writers import writer

__all__: list[str] = []

B, U = BinaryOperation, UnaryOperation
_BINARY: Final = {
    B.ADD: "ADD",
    B.SUB: "SUB",
    B.MUL: "MUL",
    B.DIV: "DIV",
    B.MAXIMUM: "MAXIMUM",
    B.MINIMUM: "MINIMUM",
    B.SQ_DIFF: "SQUARED_DIFFERENCE",
    B.POWER: "POW",
    B.FLOOR_DIV: "FLOOR_DIV",
    B.MOD: "FLOOR_MOD",
    B.ATAN2: "ATAN2",
    B.BITWISE_XOR: "BITWISE_XOR",
    B.SHIFT_RIGHT: "RIGHT_SHIFT",
}
_OF_CODES: Final = frozenset({"MAXIMUM", "MINIMUM"})
_DIVIDING: Final = frozenset({"DIV", "FLOOR_DIV", "FLOOR_MOD"})
_WITH_SCALES: Final = frozenset({"ADD", "SUB"})
_UNARY: Final = {
    U.ABS: "ABS",
    U.EXP: "EXP",
    U.SQRT: "SQRT",
    U.RSQRT: "RSQRT",
    U.NEG: "NEG",
    U.LOGICAL_NOT: "LOGICAL_NOT",
    U.LOG: "LOG",
    U.SIN: "SIN",
    U.CEIL: "CEIL",
    U.COS: "COS",
    U.FLOOR: "FLOOR",
    U.ROUND: "ROUND",
    U.SIGN: "SIGN",
    U.SQUARE: "SQUARE",
}
_COMPARED: Final = {
    ComparisonOperation.EQUAL: "EQUAL",
    ComparisonOperation.NOT_EQUAL: "NOT_EQUAL",
    ComparisonOperation.GREATER: "GREATER",
    ComparisonOperation.GREATER_OR_EQUAL: "GREATER_EQUAL",
    ComparisonOperation.LESS: "LESS",
    ComparisonOperation.LESS_OR_EQUAL: "LESS_EQUAL",
}


@writer(ElementwiseBinary, Addition, Subtraction, Multiplication, Division, Maximum, Minimum, also_quantized=True)
def binary(draft: Draft, op: ElementwiseBinary) -> Tensor:
    """Write ElementwiseBinary as one operator if TFLite has it, else as several operators."""
    kind = _BINARY.get(op.operation)
    a, b = draft.tensors()
    if kind is None:
        return _made_binary(draft, op.operation, a, b)
    if kind == "POW" and a.dtype is not b.dtype:
        b = draft.cast(b, a.dtype) if not draft.is_quantized and not b.dtype.is_float else refuse(_TYPES)
    if kind in _OF_CODES and len({a.info.quantization, b.info.quantization, draft.result.quantization}) > 1:
        refuse("the scales of its operands and result differ")
    if kind in _DIVIDING and a.dtype.is_integer and not draft.is_quantized and not _never(b, 0):
        refuse("it may divide integers by 0, which TFLite refuses while running")
    if kind == "POW" and a.dtype.is_integer and not _never(b, -1):
        refuse("its exponents may be negative integers, which TFLite refuses while running")
    if kind == "ATAN2":
        a, b = (draft.broadcast(operand, draft.result.shape) for operand in (a, b))
    if kind in _WITH_SCALES and draft.result.dtype is DataType.INT16 and draft.is_quantized:
        return draft.final(kind, a, b, pot_scale_int16=False)
    return draft.final(kind, a, b)


_TYPES: Final = "its operands are of different types"


def _never(x: Tensor, number: int) -> bool:
    """Return True if all elements of the constant `x` are nonzero (for `number` 0), or greater than `number`."""
    return x.array is not None and bool(np.all(x.array != 0 if number == 0 else x.array > number))


def _made_binary(draft: Draft, operation: BinaryOperation, a: Tensor, b: Tensor) -> Tensor:
    if draft.is_quantized:
        refuse(f"TFLite has no operator for {operation.name}")
    if operation in (B.BITWISE_AND, B.BITWISE_OR) and a.dtype is DataType.BOOL:
        return draft.final("LOGICAL_AND" if operation is B.BITWISE_AND else "LOGICAL_OR", a, b)
    return refuse(f"TFLite has no operator for {operation.name}")


@writer(ElementwiseUnary, also_quantized=True)
def unary(draft: Draft, op: ElementwiseUnary) -> Tensor:
    """Write ElementwiseUnary as one operator if TFLite has it, else as several operators."""
    x, kind = draft.operand(0), _UNARY.get(op.operation)
    if kind is not None:
        return draft.final(kind, x)
    if draft.is_quantized:
        refuse(f"TFLite has no operator for {op.operation.name}")
    return _made_unary(draft, op.operation, x)


def _made_unary(draft: Draft, operation: UnaryOperation, x: Tensor) -> Tensor:
    info = draft.result
    if operation is U.RECIPROCAL and x.dtype.is_float:
        return draft.final("DIV", draft.like(1, x), x)
    if operation is U.ERF and x.dtype.is_float:
        return _erf(draft, x)
    if operation is U.TAN:
        return draft.final("DIV", *(draft.node(kind, x, giving=info) for kind in ("SIN", "COS")))
    if operation is U.IS_NAN and x.dtype.is_float:
        return draft.final("NOT_EQUAL", x, x)
    if operation is U.ATAN and x.dtype.is_float:
        return draft.final("ATAN2", x, draft.broadcast(draft.like(1, x), x.shape))
    if operation is U.BITWISE_NOT and x.dtype is DataType.BOOL:
        return draft.final("LOGICAL_NOT", x)
    if operation is U.BITWISE_NOT:
        ones = -1 if str(x.dtype).startswith("int") else (1 << x.dtype.bits) - 1
        return draft.final("BITWISE_XOR", x, draft.like(ones, x))
    bounds = {U.IS_POSITIVE_INF: [("EQUAL", float("inf"))], U.IS_NEGATIVE_INF: [("EQUAL", float("-inf"))]}
    if operation in bounds and x.dtype.is_float:
        [(kind, bound)] = bounds[operation]
        return draft.final(kind, x, draft.like(bound, x))
    if operation is U.IS_INF and x.dtype.is_float:
        return draft.final("EQUAL", draft.node("ABS", x, giving=x.info), draft.like(float("inf"), x))
    return refuse(f"TFLite has no operator for {operation.name}")


def _erf(draft: Draft, x: Tensor) -> Tensor:
    """Return erf(x), computed from ``2 * GELU(y) = y * (1 + erf(y / sqrt(2)))``, as TFLite has no operator for it.

    The right side is divided by y unless y is 0. Inputs are clamped to [-4, 4], beyond which erf is 1 in float32.
    """
    info, flags = x.info, TensorInfo(x.shape, DataType.BOOL)
    bounded = draft.node(
        "MINIMUM", draft.node("MAXIMUM", x, draft.like(-4, x), giving=info), draft.like(4, x), giving=info
    )
    y = draft.node("MUL", bounded, draft.like(math.sqrt(2), x), giving=info)
    doubled = draft.node("MUL", draft.node("GELU", y, giving=info, approximate=False), draft.like(2, x), giving=info)
    is_zero = draft.node("EQUAL", y, draft.like(0, x), giving=flags)
    divisor = draft.node("SELECT_V2", is_zero, draft.like(1, x), y, giving=info)
    return draft.node("DIV", draft.node("SUB", doubled, y, giving=info), divisor, giving=info)


@writer(Floor)
def floor(draft: Draft, op: Floor) -> Tensor:
    """Write Floor as FLOOR; the floor of integers is the identity."""
    if draft.result.dtype.is_integer:
        return draft.reshape_to(draft.operand(0), draft.result)
    return draft.final("FLOOR", draft.operand(0))


@writer(Comparison, also_quantized=True)
def comparison(draft: Draft, op: Comparison) -> Tensor:
    """Write Comparison as the operator of the same name."""
    return draft.final(_COMPARED[op.operation], *draft.tensors())


@writer(LogicalBinary)
def logical(draft: Draft, op: LogicalBinary) -> Tensor:
    """Write LogicalBinary; XOR is NOT_EQUAL."""
    a, b = draft.tensors()
    if op.operation is LogicalBinaryOperation.LOGICAL_XOR:
        return draft.final("NOT_EQUAL", a, b)
    return draft.final(op.operation.name, a, b)


@writer(Fused)
def fused(draft: Draft, op: Fused) -> list[Tensor]:
    """Write Fused as a sequence of operators."""
    a, b, multiplier, addend = draft.tensors()
    sum_of_inputs = draft.node("ADD", a, b, giving=draft.result)
    result = draft.node(
        "ADD", draft.node("MUL", sum_of_inputs, multiplier, giving=draft.result), addend, giving=draft.result
    )
    return [sum_of_inputs, result][-op.num_outputs :]


@writer(Where, moves=True)
def where(draft: Draft, op: Where) -> Tensor:
    """Write Where as SELECT_V2."""
    return draft.final("SELECT_V2", *draft.tensors())


@writer(Prelu, also_quantized=True)
def prelu(draft: Draft, op: Prelu) -> Tensor:
    """Write Prelu as PRELU, whose result has the input's shape."""
    x, alpha = draft.tensors()
    if x.shape != draft.result.shape:
        if draft.is_quantized:
            refuse("its result is larger than its input")
        return _made_prelu(draft, x, alpha)
    return draft.final("PRELU", x, alpha)


def _made_prelu(draft: Draft, x: Tensor, alpha: Tensor) -> Tensor:
    is_positive = draft.node("GREATER_EQUAL", x, draft.like(0, x), giving=TensorInfo(x.shape, "bool"))
    return draft.final("SELECT_V2", is_positive, x, draft.node("MUL", x, alpha, giving=draft.result))
