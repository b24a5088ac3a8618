"""Arm NN writers for elementwise operators."""

from __future__ import annotations

from typing import Final, TypeAlias

from interposer.core.types import DataType, TensorInfo
from interposer.formats.armnn.schema import ACTIVATIONS, BINARY, COMPARISONS, LOGICAL, UNARY
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
)
from interposer.ops.fused import Fused
from interposer.writers.armnn.armnn_layer_writers import writer
from interposer.writers.armnn.draft import Draft
from interposer.writers.armnn.sheet import Tensor
from interposer.writers.armnn.types import dimensions
from interposer.writers.refusals import refuse

__all__: list[str] = []

B: TypeAlias = BinaryOperation
U: TypeAlias = UnaryOperation
_KINDS: Final = {
    B.ADD: "Addition",
    B.SUB: "Subtraction",
    B.MUL: "Multiplication",
    B.DIV: "Division",
    B.MAXIMUM: "Maximum",
    B.MINIMUM: "Minimum",
}
_NEW_SINCE: Final = "23.05"
_POWER_SINCE: Final = "23.08"
_UNARY_SINCE: Final = {"LOG": "21.08", "SIN": "21.08", "CEIL": "23.05"}
_SQRT: Final = ACTIVATIONS.index("SQRT")


@writer(ElementwiseBinary, Addition, Subtraction, Multiplication, Division, Maximum, Minimum)
def binary(draft: Draft, op: ElementwiseBinary) -> Tensor:
    """Write a binary operator; the operand with fewer axes is reshaped, as old releases do not broadcast it."""
    a, b = draft.operand(0), draft.operand(1)
    if op.operation in _KINDS and not draft.release.prefers(_NEW_SINCE):
        return draft.binary(_KINDS[op.operation], a, b)
    if op.operation is B.SQ_DIFF and not draft.is_quantized and not draft.release.prefers(_POWER_SINCE):
        difference = draft.binary("Subtraction", a, b, giving=draft.result)
        return draft.final("Multiplication", difference, difference)
    if op.operation is B.POWER and _is_square(b) and not draft.is_quantized:
        first, _ = draft.aligned(a, b)
        return draft.final("Multiplication", first, first)
    return _elementwise_binary(draft, op, a, b)


def _is_square(exponent: Tensor) -> bool:
    return exponent.array is not None and exponent.array.size == 1 and float(exponent.array.ravel()[0]) == 2.0


def _elementwise_binary(draft: Draft, op: ElementwiseBinary, a: Tensor, b: Tensor) -> Tensor:
    if op.operation.name not in BINARY:
        refuse(f"Arm NN has no elementwise operation {op.operation.name}")
    if a.dtype is not b.dtype:
        refuse(f"its operands are {a.dtype} and {b.dtype}; Arm NN needs the same type")
    if op.operation in {B.POWER, B.SQ_DIFF}:
        draft.need(_POWER_SINCE, f"the elementwise operation {op.operation.name}")
    first, second = draft.aligned(a, b)
    return draft.final("ElementwiseBinary", first, second, descriptor={"operation": BINARY.index(op.operation.name)})


@writer(Prelu)
def prelu(draft: Draft, op: Prelu) -> Tensor:
    """Write Prelu."""
    return draft.binary("Prelu", draft.operand(0), draft.operand(1))


@writer(Floor)
def floor(draft: Draft, op: Floor) -> Tensor:
    """Write Floor."""
    return draft.final("Floor", draft.operand(0))


@writer(Fused)
def fused(draft: Draft, op: Fused) -> list[Tensor]:
    """Write Fused as Addition, Multiplication and Addition, which is exact for float32 tensors."""
    if draft.result.dtype is not DataType.FLOAT32:
        refuse("Arm NN would round the sum and the product, which this layer does not")
    total = draft.binary("Addition", draft.operand(0), draft.operand(1), giving=draft.result)
    product = draft.binary("Multiplication", total, draft.operand(2), giving=draft.result)
    first, second = draft.aligned(product, draft.operand(3))
    sums = draft.nodes("Addition", first, second, giving=[draft.results[-1]], name=draft.layer.name)
    return [total, *sums] if len(draft.results) == 2 else sums


# --- one operand ------------------------------------------------------------------------------------------------------


@writer(ElementwiseUnary)
def unary(draft: Draft, op: ElementwiseUnary) -> Tensor:
    """Write a unary operator; the reader of 20.08 only knows those that have a layer or an activation of their own."""
    x, operation = draft.operand(0), op.operation
    if operation is U.FLOOR:
        return draft.final("Floor", x)
    if not draft.release.prefers("20.11"):
        old = _old_unary(draft, x, operation)
        if old is not None:
            return old
    if operation in {U.SQUARE, U.RECIPROCAL, U.SIGN}:
        return _composed(draft, x, operation)
    if operation.name not in UNARY:
        refuse(f"Arm NN has no elementwise operation {operation.name}")
    if operation.name in _UNARY_SINCE:
        draft.need(_UNARY_SINCE[operation.name], f"the elementwise operation {operation.name}")
    return draft.final("ElementwiseUnary", x, descriptor={"operation": UNARY.index(operation.name)})


def _composed(draft: Draft, x: Tensor, operation: U) -> Tensor:
    if draft.is_quantized or not x.dtype.is_float:
        refuse(f"Arm NN has no elementwise operation {operation.name} of {x.dtype}")
    if operation is U.SQUARE:
        return draft.final("Multiplication", x, x)
    if operation is U.SIGN:
        return _sign(draft, x)
    return draft.final("Division", draft.number(1.0, x), x)


def _sign(draft: Draft, x: Tensor) -> Tensor:
    """Write the sign of floats: x, scaled up and clamped to -1 to 1, divided by its magnitude or by a tiny number.

    The factor lets the smallest subnormal number of the type become a normal one above the tiny number.
    """
    factor, threshold = (2.0**100, 2.0**-60) if x.dtype is DataType.FLOAT32 else (2.0**14, 2.0**-12)
    info = TensorInfo(dimensions(draft.result), x.dtype)
    large = draft.activation(ACTIVATIONS.index("LINEAR"), x, factor, giving=info)
    clamped = draft.activation(ACTIVATIONS.index("BOUNDED_RELU"), large, 1.0, -1.0, giving=info)
    magnitude = draft.activation(ACTIVATIONS.index("ABS"), clamped, giving=info)
    divisor = draft.node("Maximum", magnitude, draft.number(threshold, x, "tiny"), giving=info)
    return draft.final("Division", clamped, divisor)


def _old_unary(draft: Draft, x: Tensor, operation: U) -> Tensor | None:
    """Return the result of a unary operation by layers that release 20.08 reads; None if there are none."""
    if operation is U.ABS:
        return draft.final("Abs", x)
    if operation is U.RSQRT:
        return draft.final("Rsqrt", x)
    if operation is U.LOGICAL_NOT:
        return _compared(draft, x, draft.number(0, x), ComparisonOperation.EQUAL)
    if operation is U.SQRT and x.dtype.is_float:
        return draft.activation(_SQRT, x)
    if operation is U.NEG and not draft.is_quantized:
        return draft.final("Multiplication", x, draft.number(-1, x))
    if operation is U.CEIL and x.dtype.is_float:
        minus_one = draft.number(-1, x)
        floor_of_negative = draft.node(
            "Floor", draft.node("Multiplication", x, minus_one, giving=draft.result), giving=draft.result
        )
        return draft.final("Multiplication", floor_of_negative, minus_one)
    return None


# --- comparison -------------------------------------------------------------------------------------------------------


@writer(Comparison)
def comparison(draft: Draft, op: Comparison) -> Tensor:
    """Write Comparison."""
    return _compared(draft, draft.operand(0), draft.operand(1), op.operation)


def _compared(draft: Draft, a: Tensor, b: Tensor, operation: ComparisonOperation) -> Tensor:
    first, second = draft.aligned(a, b)
    return draft.final("Comparison", first, second, descriptor={"operation": COMPARISONS.index(operation.name)})


@writer(LogicalBinary)
def logical(draft: Draft, op: LogicalBinary) -> Tensor:
    """Write LogicalBinary; an exclusive or is a comparison."""
    a, b = draft.operand(0), draft.operand(1)
    if op.operation is LogicalBinaryOperation.LOGICAL_XOR:
        return _compared(draft, a, b, ComparisonOperation.NOT_EQUAL)
    first, second = draft.aligned(a, b)
    return draft.final("LogicalBinary", first, second, descriptor={"operation": LOGICAL.index(op.operation.name)})
