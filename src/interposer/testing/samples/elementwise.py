"""Samples of elementwise arithmetic, comparison, logic and selection."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import numpy as np

from interposer.core.types import Array, DataType, Quantization, TensorInfo
from interposer.ops import (
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
from interposer.testing.sample import Given, Sample, given, of, samples, weights
from interposer.testing.samples.common import (
    BYTES,
    FLOATS,
    INTEGERS,
    QUANTIZED,
    SMALL_FLOATS,
    f32,
    i8,
    i32,
    like,
    plain,
    quantized,
    retyped,
    typed,
)

__all__: list[str] = []

Bounds = dict[str, Any]

B, U, C = BinaryOperation, UnaryOperation, ComparisonOperation
BOOL, FLOAT32, INT32, INT8 = DataType.BOOL, DataType.FLOAT32, DataType.INT32, DataType.INT8
SHAPE: Final = (2, 3, 4)
BROADCASTS: Final = {
    "row": ((2, 3), (3,)),
    "row-first": ((3,), (2, 3)),
    "table": ((2, 1), (1, 3)),
    "scalar": ((2, 3), ()),
    "scalar-first": ((), (2, 3)),
    "scalars": ((), ()),
    "one": ((1,), (2, 4)),
    "middle": ((2, 3, 4), (3, 1)),
    "both-ways": ((2, 1, 4), (3, 1)),
    "rank-5": ((2, 1, 2, 1, 3), (2, 2, 1)),
    "empty": ((0, 3), (3,)),
    "empty-first": ((1, 3), (0, 1)),
}

# --- two operands -----------------------------------------------------------------------------------------------------

BITWISE: Final = (B.BITWISE_AND, B.BITWISE_OR, B.BITWISE_XOR)
SHIFTS: Final = (B.SHIFT_LEFT, B.SHIFT_RIGHT)
REAL: Final = tuple(operation for operation in B if operation not in (*BITWISE, *SHIFTS))
DIVISIONS: Final = (B.DIV, B.FLOOR_DIV, B.MOD, B.FMOD)
NAMED: Final = (ElementwiseBinary, Addition, Subtraction, Multiplication, Division, Maximum, Minimum)


def _binary(operation: BinaryOperation, operands: list[Given], label: str, output: TensorInfo | None = None) -> Sample:
    op = ElementwiseBinary(operation).canonical()
    title = f"{operation.name.lower()}-{label}" if type(op) is ElementwiseBinary else label
    return Sample(op, operands, [output], title)


def _bounds(operation: BinaryOperation, is_integer: bool) -> tuple[Bounds, Bounds]:
    """Return the ranges of the two random operands of an operation, chosen so that results differ and do not overflow.

    `is_integer` is True for integers.
    """
    if operation in DIVISIONS:
        return {"low": -20, "high": 20} if is_integer else {}, {"low": 1 if is_integer else 0.5, "high": 5}
    if operation is B.POWER:
        return {"low": 0.25, "high": 3}, {"low": 0, "high": 3} if is_integer else {"low": -2, "high": 2}
    if operation in SHIFTS:
        return {"low": -60, "high": 60}, {"low": 0, "high": 6}
    return ({"low": -9, "high": 9},) * 2 if is_integer and operation not in BITWISE else ({}, {})


@samples(*NAMED)
def binary_types() -> Iterator[Sample]:
    """Yield samples of binary arithmetic: every operation in every type for which it is defined."""
    for operation in BinaryOperation:
        floats = (*FLOATS, *SMALL_FLOATS) if operation in REAL else ()
        integers = INTEGERS if operation is not B.ATAN2 else ()
        for dtype in (*floats, *integers):
            first, second = _bounds(operation, dtype.is_integer)
            operands = [plain(SHAPE, dtype, **first), plain(SHAPE, dtype, **second)]
            yield _binary(operation, operands, str(dtype))
        if operation in (*BITWISE, B.MAXIMUM, B.MINIMUM):
            yield _binary(operation, [given(SHAPE, BOOL), given(SHAPE, BOOL)], "bool")


@samples(*NAMED)
def quantized_binary() -> Iterator[Sample]:
    """Yield samples of binary arithmetic: every operation on quantized tensors with three different scales.

    Maximum and Minimum also with equal scales.
    """
    for operation in REAL:
        first, second = _bounds(operation, is_integer=False)
        for dtype, quantization in QUANTIZED.items():
            finer_quantization = Quantization(quantization.scale * 0.75, quantization.zero_point)
            operands = [
                quantized(SHAPE, dtype, quantization, **first),
                quantized(SHAPE, dtype, finer_quantization, **second),
            ]
            coarser_info = TensorInfo(SHAPE, dtype, Quantization(quantization.scale * 4, quantization.zero_point))
            yield _binary(operation, operands, f"quantized-{dtype}", coarser_info)
            if operation in (B.MAXIMUM, B.MINIMUM):
                equal_scales = [quantized(SHAPE, dtype, quantization), quantized(SHAPE, dtype, quantization)]
                yield _binary(operation, equal_scales, f"one-scale-{dtype}", TensorInfo(SHAPE, dtype, quantization))


@samples(*NAMED)
def broadcast_binary() -> Iterator[Sample]:
    """Yield samples of binary arithmetic on shapes that broadcast, in floats, integers and quantized.

    Operations with an operator of their own, such as Addition, get all shapes; the others get one.
    """
    for operation in BinaryOperation:
        has_own_op = ElementwiseBinary(operation).canonical() != ElementwiseBinary(operation)
        for label, (a, b) in BROADCASTS.items() if has_own_op else [("table", BROADCASTS["table"])]:
            yield from _broadcast_samples(operation, label, a, b)


def _broadcast_samples(
    operation: BinaryOperation, label: str, a: tuple[int, ...], b: tuple[int, ...]
) -> Iterator[Sample]:
    shape = np.broadcast_shapes(a, b)
    for dtype in (FLOAT32, INT32):
        if dtype is INT32 and operation is B.ATAN2 or dtype is FLOAT32 and operation not in REAL:
            continue
        first, second = _bounds(operation, dtype.is_integer)
        yield _binary(operation, [plain(a, dtype, **first), plain(b, dtype, **second)], f"{label}-{dtype}")
    for dtype, quantization in BYTES.items() if operation in REAL else ():
        first, second = _bounds(operation, is_integer=False)
        operands = [quantized(a, dtype, **first), quantized(b, dtype, **second)]
        output = TensorInfo(shape, dtype, Quantization(quantization.scale * 2, quantization.zero_point))
        yield _binary(operation, operands, f"{label}-quantized-{dtype}", output)


@samples(*NAMED)
def constant_binary() -> Iterator[Sample]:
    """Yield samples of binary arithmetic in which one of the operands is a constant of the network."""
    for operation in (B.ADD, B.SUB, B.MUL, B.DIV, B.MAXIMUM, B.MINIMUM, B.POWER):
        first, second = _bounds(operation, is_integer=False)
        yield _binary(operation, [plain(SHAPE, **first), weights((4,), **second)], "constant-b")
        yield _binary(operation, [weights((3, 1), **first), plain(SHAPE, **second)], "constant-a")


@samples(*NAMED)
def powers() -> Iterator[Sample]:
    """Yield samples of powers whose exponent has another type than the base."""
    integers, reals = plain(SHAPE, INT32, low=0, high=3), plain(SHAPE, low=0.5, high=2)
    yield _binary(B.POWER, [plain(SHAPE, low=0.5, high=3), integers], "float-to-integer")
    yield _binary(B.POWER, [plain(SHAPE, INT32, low=1, high=5), reals], "integer-to-float")


@samples(*NAMED)
def worked_binary() -> Iterator[Sample]:
    """Yield worked examples of binary arithmetic in which libraries differ.

    These are signs of remainders, truncated quotients, division by zero, and NaN.
    """
    a, b = of([-7, 7, -7, 7, 5], INT32), of([3, 3, -3, -3, 0], INT32)
    for operation, expected in {
        B.DIV: [-2, 2, 2, -2, 0],
        B.FLOOR_DIV: [-3, 2, 2, -3, 0],
        B.MOD: [2, 1, -1, -2, 0],
        B.FMOD: [-1, 1, -1, 1, 0],
    }.items():
        yield _worked(operation, a, b, i32(expected))
    yield _worked(B.FMOD, of([-7.5, 7.5]), of([2, -2]), f32([-1.5, 1.5]), "float")
    yield _worked(B.MOD, of([-7.5, 7.5]), of([2, -2]), f32([0.5, -0.5]), "float")
    yield _worked(B.POWER, of([2, 3, -1, 0, 5], INT32), of([10, 0, -3, -1, -1], INT32), i32([1024, 1, -1, 0, 0]))
    yield _worked(B.SHIFT_RIGHT, of([-9, 9, 1], INT8), of([1, 1, 9], INT8), i8([-5, 4, 0]))
    yield _worked(B.SHIFT_LEFT, of([3, 64, 1], INT8), of([2, 1, 9], INT8), i8([12, -128, 0]))
    nan = of([1, np.nan, np.inf])
    yield _worked(B.MAXIMUM, nan, of([2, 5, 5]), f32([2, np.nan, np.inf]), "nan")
    yield _worked(B.MINIMUM, nan, of([2, 5, 5]), f32([1, np.nan, 5]), "nan")
    yield _worked(B.DIV, of([1, -1, 0]), of([0, 0, 0]), f32([np.inf, -np.inf, np.nan]), "by-zero")
    yield _worked(B.SQ_DIFF, of([1, 2, 3]), of([4, 0, 3]), f32([9, 4, 0]))
    yield _worked(B.ADD, of([127, -128], INT8), of([1, -1], INT8), i8([-128, 127]), "wraps")


def _worked(operation: BinaryOperation, a: Given, b: Given, expected: Array, label: str = "integers") -> Sample:
    sample = _binary(operation, [a, b], f"worked-{label}")
    return Sample(sample.op, sample.inputs, name=sample.name, expected=[expected])


# --- one operand ------------------------------------------------------------------------------------------------------

OF_INTEGERS: Final = (U.ABS, U.NEG, U.SIGN, U.SQUARE, U.CEIL, U.FLOOR, U.ROUND, U.RECIPROCAL, U.BITWISE_NOT)
PREDICATES: Final = (U.IS_NAN, U.IS_INF, U.IS_POSITIVE_INF, U.IS_NEGATIVE_INF)
OF_BOOL: Final = (U.LOGICAL_NOT, U.BITWISE_NOT)
OF_FLOATS: Final = tuple(operation for operation in U if operation not in OF_BOOL)
DOMAINS: Final = {
    U.SQRT: (0.0, 4.0),
    U.RSQRT: (0.25, 4.0),
    U.LOG: (0.1, 4.0),
    U.RECIPROCAL: (0.3, 4.0),
    U.TAN: (-1.2, 1.2),
    U.ASIN: (-1.0, 1.0),
    U.ACOS: (-1.0, 1.0),
    U.ATANH: (-0.9, 0.9),
    U.ACOSH: (1.0, 4.0),
}


def _domain(operation: UnaryOperation) -> Bounds:
    low, high = DOMAINS.get(operation, (-4.0, 4.0))
    return {"low": low, "high": high}


@samples(ElementwiseUnary)
def unary() -> Iterator[Sample]:
    """Yield ElementwiseUnary samples: every operation in every type for which it is defined."""
    for operation in UnaryOperation:
        op, title = ElementwiseUnary(operation), operation.name.lower()
        for dtype in (*FLOATS, *SMALL_FLOATS) if operation in OF_FLOATS else ():
            yield Sample(op, [given(SHAPE, dtype, **_domain(operation))], name=f"{title}-{dtype}")
        for dtype in INTEGERS if operation in OF_INTEGERS else ():
            yield Sample(op, [plain(SHAPE, dtype, low=-11, high=11)], name=f"{title}-{dtype}")
        if operation in OF_BOOL:
            yield Sample(op, [given(SHAPE, BOOL)], name=f"{title}-bool")


@samples(ElementwiseUnary)
def quantized_unary() -> Iterator[Sample]:
    """Yield ElementwiseUnary samples: functions of quantized tensors with another output scale."""
    for operation in (operation for operation in OF_FLOATS if operation not in PREDICATES):
        for dtype, quantization in QUANTIZED.items():
            operand = quantized(SHAPE, dtype, **_domain(operation))
            output = like(operand, SHAPE, Quantization(quantization.scale * 2, quantization.zero_point))
            title = f"{operation.name.lower()}-quantized-{dtype}"
            yield Sample(ElementwiseUnary(operation), [operand], [output], title)


@samples(ElementwiseUnary)
def unary_shapes() -> Iterator[Sample]:
    """Yield ElementwiseUnary samples: a scalar, an empty tensor, and a tensor of high rank."""
    for shape in ((), (0,), (2, 0, 3), (1, 2, 1, 2, 1, 2, 1, 2)):
        yield Sample(ElementwiseUnary(U.NEG), [given(shape)], name=f"shape-{'x'.join(map(str, shape)) or 'scalar'}")


@samples(ElementwiseUnary)
def worked_unary() -> Iterator[Sample]:
    """Yield worked ElementwiseUnary examples with ties of rounding, signs, infinities and NaN."""
    for operation, x, expected in [
        (U.ROUND, [0.5, 1.5, 2.5, -0.5, -1.5, 1.2], [0, 2, 2, 0, -2, 1]),
        (U.FLOOR, [-1.5, 1.2, 2], [-2, 1, 2]),
        (U.CEIL, [-1.5, 1.2, 2], [-1, 2, 2]),
        (U.SIGN, [-3, 0, 0.25, np.nan], [-1, 0, 1, np.nan]),
        (U.SQRT, [4, 0, -1], [2, 0, np.nan]),
        (U.RSQRT, [4, 0, np.inf], [0.5, np.inf, 0]),
        (U.LOG, [1, 0, -1], [0, -np.inf, np.nan]),
        (U.ERF, [0, np.inf, -np.inf], [0, 1, -1]),
    ]:
        title = f"worked-{operation.name.lower()}"
        yield Sample(ElementwiseUnary(operation), [of(x)], name=title, expected=[f32(expected)])
    special_values = of([1, np.nan, np.inf, -np.inf])
    for operation, truth in zip(PREDICATES, ([0, 1, 0, 0], [0, 0, 1, 1], [0, 0, 1, 0], [0, 0, 0, 1]), strict=True):
        title = f"worked-{operation.name.lower()}"
        yield Sample(ElementwiseUnary(operation), [special_values], name=title, expected=[np.array(truth, bool)])
    integers, reciprocals = of([1, -1, 5, 0], INT32), i32([1, -1, 0, 0])
    yield Sample(ElementwiseUnary(U.RECIPROCAL), [integers], name="worked-whole", expected=[reciprocals])


@samples(Floor)
def floor() -> Iterator[Sample]:
    """Yield Floor samples: every type; integers remain unchanged."""
    for dtype in (*FLOATS, *SMALL_FLOATS, *INTEGERS):
        yield Sample(Floor(), [plain(SHAPE, dtype)], name=str(dtype))
    for dtype in QUANTIZED:
        operand = quantized(SHAPE, dtype)
        yield Sample(Floor(), [operand], [operand.info], f"quantized-{dtype}")
    yield Sample(Floor(), [of([-0.5, 0.5, -2, 7.9])], name="worked", expected=[f32([-1, 0, -2, 7])])


# --- comparison, logic and choice -------------------------------------------------------------------------------------


@samples(Comparison)
def comparison() -> Iterator[Sample]:
    """Yield Comparison samples: every comparison in common types, and one in all types; some elements are equal."""
    for operation in ComparisonOperation:
        title = operation.name.lower()
        for dtype in (FLOAT32, DataType.FLOAT16, INT32, DataType.INT64, DataType.UINT8):
            operands = [plain(SHAPE, dtype, low=-2, high=2), plain(SHAPE, dtype, low=-2, high=2)]
            yield Sample(Comparison(operation), operands, name=f"{title}-{dtype}")
        for dtype, quantization in BYTES.items():
            finer_quantization = Quantization(quantization.scale * 0.75, quantization.zero_point)
            yield Sample(
                Comparison(operation), [quantized(SHAPE, dtype), quantized(SHAPE, dtype, finer_quantization)],
                name=f"{title}-quantized-{dtype}",
            )  # fmt: skip
        for label, (a, b) in BROADCASTS.items():
            yield Sample(Comparison(operation), [given(a), given(b)], name=f"{title}-{label}")
    for label, operand in typed(SHAPE, tiny_quantized=False):
        yield Sample(Comparison(C.LESS), [operand, retyped(operand, SHAPE)], name=f"all-types-{label}")


@samples(Comparison)
def worked_comparison() -> Iterator[Sample]:
    """Yield Comparison samples: comparisons of equal and unequal numbers; NaN is not equal to any number."""
    a, b = of([1, 2, 3, np.nan]), of([2, 2, 2, np.nan])
    for operation, truth in {
        C.EQUAL: [0, 1, 0, 0],
        C.NOT_EQUAL: [1, 0, 1, 1],
        C.LESS: [1, 0, 0, 0],
        C.LESS_OR_EQUAL: [1, 1, 0, 0],
        C.GREATER: [0, 0, 1, 0],
        C.GREATER_OR_EQUAL: [0, 1, 1, 0],
    }.items():
        title = f"worked-{operation.name.lower()}"
        yield Sample(Comparison(operation), [a, b], name=title, expected=[np.array(truth, bool)])


@samples(LogicalBinary)
def logic() -> Iterator[Sample]:
    """Yield LogicalBinary samples: the truth tables, and shapes that broadcast."""
    a, b = of([0, 0, 1, 1], BOOL), of([0, 1, 0, 1], BOOL)
    tables = ([0, 0, 0, 1], [0, 1, 1, 1], [0, 1, 1, 0])
    for operation, truth in zip(LogicalBinaryOperation, tables, strict=True):
        op, title = LogicalBinary(operation), operation.name.lower()
        yield Sample(op, [a, b], name=f"worked-{title}", expected=[np.array(truth, bool)])
        for label, (a_shape, b_shape) in BROADCASTS.items():
            yield Sample(op, [given(a_shape, BOOL), given(b_shape, BOOL)], name=f"{title}-{label}")


@samples(Where)
def where() -> Iterator[Sample]:
    """Yield Where samples: every type, conditions that broadcast, and quantized tensors with different scales."""
    condition = given(SHAPE, BOOL)
    for label, operand in typed(SHAPE, tiny_quantized=False):
        yield Sample(Where(), [condition, operand, retyped(operand, SHAPE)], [like(operand, SHAPE)], label)
    for dtype, quantization in QUANTIZED.items():
        coarser_quantization = Quantization(quantization.scale * 2, quantization.zero_point)
        operands = [quantized(SHAPE, dtype), quantized(SHAPE, dtype, coarser_quantization)]
        yield Sample(
            Where(), [condition, *operands], [TensorInfo(SHAPE, dtype, coarser_quantization)], f"two-scales-{dtype}"
        )
    for label, (a, b) in BROADCASTS.items():
        yield Sample(Where(), [given(a, BOOL), given(b), given(b)], name=f"condition-{label}")
        yield Sample(Where(), [given(b, BOOL), given(a), given(b)], name=f"values-{label}")
    worked = [of([1, 0], BOOL), of([[1, 2], [3, 4]]), of([9])]
    yield Sample(Where(), worked, name="worked", expected=[f32([[1, 9], [3, 9]])])


@samples(Prelu)
def prelu() -> Iterator[Sample]:
    """Yield Prelu samples: every type, with one slope for each channel or for all elements."""
    for dtype in (*FLOATS, *SMALL_FLOATS, *INTEGERS):
        yield Sample(Prelu(), [plain(SHAPE, dtype), plain((4,), dtype, low=0, high=3)], name=str(dtype))
    for dtype, quantization in QUANTIZED.items():
        output = TensorInfo(SHAPE, dtype, Quantization(quantization.scale * 2, quantization.zero_point))
        for label, shape in (("channels", (4,)), ("all", SHAPE)):
            slope = quantized(shape, dtype, low=-1, high=1)
            yield Sample(Prelu(), [quantized(SHAPE, dtype), slope], [output], f"{label}-quantized-{dtype}")
    for label, (a, b) in BROADCASTS.items():
        yield Sample(Prelu(), [given(a), weights(b)], name=label)
    expected = [f32([[-1, 2], [3, -1]])]
    yield Sample(Prelu(), [of([[-2, 2], [3, -4]]), of([0.5, 0.25])], name="worked", expected=expected)
