"""Element-wise operators with broadcasting: arithmetic, comparison, logic and selection."""

from __future__ import annotations

from collections.abc import Iterator
from enum import Enum
from typing import ClassVar, Final

from interposer.core.schema import Op, attribute, op, operand, result
from interposer.core.traits import ResultQuantization, Role, Trait
from interposer.core.types import DataType, TensorInfo, TensorShape
from interposer.ops.axes import broadcast_shapes
from interposer.ops.quantization import Requantization, requantization

__all__ = [
    "Addition",
    "BinaryOperation",
    "Comparison",
    "ComparisonOperation",
    "Division",
    "ElementwiseBinary",
    "ElementwiseUnary",
    "Floor",
    "LogicalBinary",
    "LogicalBinaryOperation",
    "Maximum",
    "Minimum",
    "Multiplication",
    "Prelu",
    "Subtraction",
    "UnaryOperation",
    "Where",
]


class BinaryOperation(Enum):
    """The operation that `ElementwiseBinary` applies to a and b."""

    __hash__ = object.__hash__  # members are unique; that of `Enum` hashes the name in Python

    ADD = "add"
    DIV = "div"
    MAXIMUM = "maximum"
    MINIMUM = "minimum"
    MUL = "mul"
    SUB = "sub"
    SQ_DIFF = "sq_diff"
    POWER = "power"
    FLOOR_DIV = "floor_div"
    MOD = "mod"
    FMOD = "fmod"
    ATAN2 = "atan2"
    BITWISE_AND = "bitwise_and"
    BITWISE_OR = "bitwise_or"
    BITWISE_XOR = "bitwise_xor"
    SHIFT_LEFT = "shift_left"
    SHIFT_RIGHT = "shift_right"


class UnaryOperation(Enum):
    """The operation that `ElementwiseUnary` applies to its input."""

    ABS = "abs"
    EXP = "exp"
    SQRT = "sqrt"
    RSQRT = "rsqrt"
    NEG = "neg"
    LOGICAL_NOT = "logical_not"
    LOG = "log"
    SIN = "sin"
    CEIL = "ceil"
    COS = "cos"
    TAN = "tan"
    FLOOR = "floor"
    ROUND = "round"
    SIGN = "sign"
    RECIPROCAL = "reciprocal"
    SQUARE = "square"
    ERF = "erf"
    ASIN = "asin"
    ACOS = "acos"
    ATAN = "atan"
    SINH = "sinh"
    COSH = "cosh"
    ASINH = "asinh"
    ACOSH = "acosh"
    ATANH = "atanh"
    IS_NAN = "is_nan"
    IS_INF = "is_inf"
    IS_POSITIVE_INF = "is_positive_inf"
    IS_NEGATIVE_INF = "is_negative_inf"
    BITWISE_NOT = "bitwise_not"


class ComparisonOperation(Enum):
    """How `Comparison` compares a with b."""

    EQUAL = "equal"
    GREATER = "greater"
    GREATER_OR_EQUAL = "greater_or_equal"
    LESS = "less"
    LESS_OR_EQUAL = "less_or_equal"
    NOT_EQUAL = "not_equal"


class LogicalBinaryOperation(Enum):
    """How `LogicalBinary` combines a and b."""

    LOGICAL_AND = "logical_and"
    LOGICAL_OR = "logical_or"
    LOGICAL_XOR = "logical_xor"


_PREDICATES: Final = frozenset(
    {
        UnaryOperation.LOGICAL_NOT,
        UnaryOperation.IS_NAN,
        UnaryOperation.IS_INF,
        UnaryOperation.IS_POSITIVE_INF,
        UnaryOperation.IS_NEGATIVE_INF,
    }
)
_CHOOSING: Final = frozenset({BinaryOperation.MAXIMUM, BinaryOperation.MINIMUM})
_SUMS_AND_PRODUCTS: Final = frozenset({BinaryOperation.ADD, BinaryOperation.SUB, BinaryOperation.MUL})
_COMMUTATIVE: Final = _CHOOSING | {
    BinaryOperation.ADD, BinaryOperation.MUL, BinaryOperation.SQ_DIFF, BinaryOperation.BITWISE_AND,
    BinaryOperation.BITWISE_OR, BinaryOperation.BITWISE_XOR,
}  # fmt: skip
_JUMPS: Final = frozenset({BinaryOperation.FLOOR_DIV, BinaryOperation.MOD, BinaryOperation.FMOD})
_ROUNDINGS: Final = frozenset({UnaryOperation.CEIL, UnaryOperation.FLOOR, UnaryOperation.ROUND, UnaryOperation.SIGN})


def _binary_traits(operation: BinaryOperation) -> Trait:
    traits = Trait.POINTWISE
    if operation in _COMMUTATIVE:
        traits |= Trait.COMMUTATIVE
    if operation in _CHOOSING:
        traits |= Trait.CHOOSES
    return traits | Trait.DISCONTINUOUS if operation in _JUMPS else traits


_BINARY_TRAITS: Final = {operation: _binary_traits(operation) for operation in BinaryOperation}
_UNARY_TRAITS: Final = {
    operation: Trait.POINTWISE | (Trait.DISCONTINUOUS if operation in _ROUNDINGS else Trait.NONE)
    for operation in UnaryOperation
}


def _broadcast(*shapes: TensorShape) -> TensorShape:
    broadcast = broadcast_shapes(*shapes)
    assert broadcast is not None, "check() comes first"
    return broadcast


def _broadcast_problems(**infos: TensorInfo) -> Iterator[str]:
    if broadcast_shapes(*(info.shape for info in infos.values())) is None:
        shapes = " and ".join(f"{name} {info.shape}" for name, info in infos.items())
        yield f"the shapes do not broadcast: {shapes}; from the last axis on, dimensions must agree or be 1"


def _type_problems(a: TensorInfo, b: TensorInfo) -> Iterator[str]:
    if a.dtype is not b.dtype:
        yield f"b is {b.dtype}; expected {a.dtype}, the type of a"


@op
class ElementwiseBinary(Op):
    """Apply an operation to two tensors, element by element.

    ========================= ==========================================================================
    ADD SUB MUL               a + b, a - b, a * b; integers wrap around
    DIV                       a / b; integers truncate towards zero
    FLOOR_DIV                 the quotient rounded down
    MOD                       the remainder with the sign of b
    FMOD                      the remainder with the sign of a
    MAXIMUM MINIMUM           the greater, the smaller; NaN if either is NaN
    SQ_DIFF                   (a - b)**2
    POWER                     a**b, of a's type; b may have another type; integers truncate towards zero
    ATAN2                     the angle of the point (b, a)
    BITWISE_AND _OR _XOR      on integers and bool
    SHIFT_LEFT SHIFT_RIGHT    by b bits, arithmetic to the right; shifting by the width or more gives 0 or -1
    ========================= ==========================================================================

    For integers, the quotient and the remainder of a division by zero are 0, and so is zero to a negative power.

    Shapes:
        a, b: any that broadcast as in NumPy
        output: the common shape

    Example:
        >>> compute(ElementwiseBinary(operation=BinaryOperation.FLOOR_DIV), [7, -7], [2, 2]).tolist()
        [3, -4]
        >>> compute(ElementwiseBinary(operation=BinaryOperation.MOD), [7, -7], [3, 3]).tolist()
        [1, 2]
        >>> compute(ElementwiseBinary(operation=BinaryOperation.FMOD), [7, -7], [3, 3]).tolist()
        [1, -1]
        >>> compute(ElementwiseBinary(operation=BinaryOperation.SQ_DIFF), [[1.0], [5.0]], [2.0, 3.0]).tolist()
        [[1.0, 4.0], [9.0, 4.0]]

    Source:
        ONNX Add-14, Sub-14, Mul-14, Div-14, Max-13, Min-13, Pow-15, Mod-13, BitShift-11, BitwiseAnd-18 and its kin;
        TFLite ADD, SUB, MUL, DIV, MAXIMUM, MINIMUM, SQUARED_DIFFERENCE, POW, FLOOR_DIV, FLOOR_MOD, ATAN2,
        BITWISE_XOR, RIGHT_SHIFT; NNAPI ADD, SUB, MUL, DIV, MAXIMUM, MINIMUM, POW; Arm NN ElementwiseBinaryDescriptor.
    """

    in_place: ClassVar = ("a", "b")
    a = operand()
    b = operand()
    output = result(dtype_of="a")

    operation: BinaryOperation = attribute(default=BinaryOperation.ADD, doc="The operation.")
    requantization: Requantization = requantization()

    @property
    def traits(self) -> Trait:
        return _BINARY_TRAITS[self.operation]

    def result_quantization(self, dtype: DataType) -> ResultQuantization | str:
        if self.operation in _CHOOSING:
            return ResultQuantization.SAME
        if self.operation in _SUMS_AND_PRODUCTS:
            return ResultQuantization.OBSERVED
        return f"{self.operation.name} loses too much precision in integers"

    def canonical(self) -> Op:
        """Return the equivalent operator with its own class, such as `Addition` for ADD, else the operator itself."""
        op_class = _NAMED.get(self.operation)
        return self if op_class is None or isinstance(self, op_class) else op_class(requantization=self.requantization)

    def check(self, a: TensorInfo, b: TensorInfo) -> Iterator[str]:
        if self.operation is not BinaryOperation.POWER:
            yield from _type_problems(a, b)
        yield from _broadcast_problems(a=a, b=b)

    def infer(self, a: TensorInfo, b: TensorInfo) -> TensorInfo:
        return a.with_shape(_broadcast(a.shape, b.shape))


@op
class Addition(ElementwiseBinary):
    """Add two tensors.

    Shapes:
        a, b: any that broadcast as in NumPy
        output: the common shape

    Example:
        >>> compute(Addition(), [[1, 2], [3, 4]], [10, 20]).tolist()
        [[11, 22], [13, 24]]
        >>> quantization = {"a": Quantization(0.5), "b": Quantization(0.5), "output": Quantization(1.0, 100)}
        >>> compute(Addition(), np.uint8([2, 255]), np.uint8([4, 255]), quantization=quantization).tolist()
        [103, 255]

    Source:
        ONNX Add-14; TFLite ADD; NNAPI ADD; Arm NN AdditionLayer.
    """

    operation: BinaryOperation = attribute(
        default=BinaryOperation.ADD, choices=[BinaryOperation.ADD], doc="Always ADD."
    )


@op
class Subtraction(ElementwiseBinary):
    """Subtract b from a.

    Shapes:
        a, b: any that broadcast as in NumPy
        output: the common shape

    Example:
        >>> compute(Subtraction(), [[5], [7]], [1, 2, 3]).tolist()
        [[4, 3, 2], [6, 5, 4]]

    Source:
        ONNX Sub-14; TFLite SUB; NNAPI SUB; Arm NN SubtractionLayer.
    """

    operation: BinaryOperation = attribute(
        default=BinaryOperation.SUB, choices=[BinaryOperation.SUB], doc="Always SUB."
    )


@op
class Multiplication(ElementwiseBinary):
    """Multiply two tensors, element by element.

    Shapes:
        a, b: any that broadcast as in NumPy
        output: the common shape

    Example:
        >>> compute(Multiplication(), [1.5, 2.0], 4.0).tolist()
        [6.0, 8.0]
        >>> compute(Multiplication(), np.uint8([100, 200]), np.uint8([2])).tolist()
        [200, 144]

    Source:
        ONNX Mul-14; TFLite MUL; NNAPI MUL; Arm NN MultiplicationLayer.
    """

    operation: BinaryOperation = attribute(
        default=BinaryOperation.MUL, choices=[BinaryOperation.MUL], doc="Always MUL."
    )


@op
class Division(ElementwiseBinary):
    """Divide a by b; integers truncate towards zero, and give 0 where b is 0.

    Shapes:
        a, b: any that broadcast as in NumPy
        output: the common shape

    Example:
        >>> compute(Division(), [7.0, -7.0, 1.0], [2.0, 2.0, 0.0]).tolist()
        [3.5, -3.5, inf]
        >>> compute(Division(), [7, -7, 1], [2, 2, 0]).tolist()
        [3, -3, 0]

    Source:
        ONNX Div-14; TFLite DIV; NNAPI DIV; Arm NN DivisionLayer.
    """

    operation: BinaryOperation = attribute(
        default=BinaryOperation.DIV, choices=[BinaryOperation.DIV], doc="Always DIV."
    )


@op
class Maximum(ElementwiseBinary):
    """The greater of two elements; NaN if either is NaN.

    Shapes:
        a, b: any that broadcast as in NumPy
        output: the common shape

    Example:
        >>> compute(Maximum(), [[1, 5], [7, 2]], [4, 4]).tolist()
        [[4, 5], [7, 4]]
        >>> compute(Maximum(), [1.0, np.nan], 2.0).tolist()
        [2.0, nan]

    Source:
        ONNX Max-13; TFLite MAXIMUM; NNAPI MAXIMUM; Arm NN MaximumLayer.
    """

    operation: BinaryOperation = attribute(
        default=BinaryOperation.MAXIMUM, choices=[BinaryOperation.MAXIMUM], doc="Always MAXIMUM."
    )


@op
class Minimum(ElementwiseBinary):
    """The smaller of two elements; NaN if either is NaN.

    Shapes:
        a, b: any that broadcast as in NumPy
        output: the common shape

    Example:
        >>> compute(Minimum(), [[1, 5], [7, 2]], [4, 4]).tolist()
        [[1, 4], [4, 2]]
        >>> compute(Minimum(), [1.0, np.nan], 2.0).tolist()
        [1.0, nan]

    Source:
        ONNX Min-13; TFLite MINIMUM; NNAPI MINIMUM; Arm NN MinimumLayer.
    """

    operation: BinaryOperation = attribute(
        default=BinaryOperation.MINIMUM, choices=[BinaryOperation.MINIMUM], doc="Always MINIMUM."
    )


_NAMED: Final[dict[BinaryOperation, type[ElementwiseBinary]]] = {
    BinaryOperation.ADD: Addition,
    BinaryOperation.SUB: Subtraction,
    BinaryOperation.MUL: Multiplication,
    BinaryOperation.DIV: Division,
    BinaryOperation.MAXIMUM: Maximum,
    BinaryOperation.MINIMUM: Minimum,
}


@op
class ElementwiseUnary(Op):
    """Apply an operation to every element of a tensor.

    ROUND takes halves to the nearest even number; SIGN of NaN is NaN. An integer has no reciprocal: RECIPROCAL of an
    integer truncates towards zero and is 0 for 0.

    Shapes:
        input, output: any, the same; bool for LOGICAL_NOT and the IS_... predicates

    Example:
        >>> compute(ElementwiseUnary(operation=UnaryOperation.ROUND), [0.5, 1.5, -2.6]).tolist()
        [0.0, 2.0, -3.0]
        >>> compute(ElementwiseUnary(operation=UnaryOperation.RSQRT), [4.0, 0.25]).tolist()
        [0.5, 2.0]
        >>> compute(ElementwiseUnary(operation=UnaryOperation.IS_NAN), [1.0, np.nan]).tolist()
        [False, True]

    Source:
        ONNX Abs-13, Exp-13, Sqrt-13, Neg-13, Not-1, Log-13, Sin-22, Ceil-13, Floor-13, Round-22, Sign-13,
        Reciprocal-13, Erf-13, IsNaN-20, IsInf-20, BitwiseNot-18 and the trigonometric ones; TFLite ABS, EXP, SQRT,
        RSQRT, NEG, LOGICAL_NOT, LOG, SIN, COS, CEIL, FLOOR, ROUND, SIGN, SQUARE; NNAPI ABS, EXP, SQRT, RSQRT, NEG,
        LOGICAL_NOT, LOG, SIN; Arm NN ElementwiseUnaryDescriptor.
    """

    in_place: ClassVar = ("input",)
    input = operand()
    output = result()

    operation: UnaryOperation = attribute(default=UnaryOperation.ABS, doc="The operation.")

    @property
    def traits(self) -> Trait:
        return _UNARY_TRAITS[self.operation]

    def result_quantization(self, dtype: DataType) -> ResultQuantization | str:
        if self.operation in (UnaryOperation.ABS, UnaryOperation.NEG):
            return ResultQuantization.OBSERVED
        return f"{self.operation.name} loses too much precision in integers"

    def check(self, input: TensorInfo) -> Iterator[str]:
        if self.operation is UnaryOperation.LOGICAL_NOT and input.dtype is not DataType.BOOL:
            yield f"input is {input.dtype}; expected bool for LOGICAL_NOT"

    def infer(self, input: TensorInfo) -> TensorInfo:
        dtype = DataType.BOOL if self.operation in _PREDICATES else input.dtype
        return input.with_constant(None).with_dtype(dtype)


@op(traits=Trait.POINTWISE | Trait.DISCONTINUOUS)
class Floor(Op):
    """Round every element down to an integer.

    Shapes:
        input, output: any, the same

    Example:
        >>> compute(Floor(), [1.7, -1.2, 3.0]).tolist()
        [1.0, -2.0, 3.0]

    Source:
        ONNX Floor-13; TFLite FLOOR; NNAPI FLOOR; Arm NN FloorLayer.
    """

    in_place: ClassVar = ("input",)
    input = operand()
    output = result(like="input")


@op
class Comparison(Op):
    """Compare two tensors, element by element; quantized tensors by their dequantized values.

    Shapes:
        a, b: any that broadcast as in NumPy
        output: the common shape, bool

    Example:
        >>> compute(Comparison(operation=ComparisonOperation.GREATER), [[1, 5], [3, 2]], [2, 2]).tolist()
        [[False, True], [True, False]]
        >>> quantization = {"a": Quantization(0.5), "b": Quantization(1.0, 128)}
        >>> compute(Comparison(), np.uint8([2, 4]), np.uint8([129, 129]), quantization=quantization).tolist()
        [True, False]

    Source:
        ONNX Equal-19, Greater-13, GreaterOrEqual-16, Less-13, LessOrEqual-16; TFLite and NNAPI EQUAL, NOT_EQUAL,
        GREATER, GREATER_EQUAL, LESS, LESS_EQUAL; Arm NN ComparisonDescriptor.
    """

    a = operand()
    b = operand(same_dtype_as="a")
    output = result(dtypes=[DataType.BOOL])

    operation: ComparisonOperation = attribute(default=ComparisonOperation.EQUAL, doc="The comparison.")

    @property
    def traits(self) -> Trait:
        is_symmetric = self.operation in (ComparisonOperation.EQUAL, ComparisonOperation.NOT_EQUAL)
        return Trait.POINTWISE | (Trait.COMMUTATIVE if is_symmetric else Trait.NONE)

    def result_quantization(self, dtype: DataType) -> ResultQuantization | str:
        return "equal numbers may become different ones in integers"

    def check(self, a: TensorInfo, b: TensorInfo) -> Iterator[str]:
        yield from _broadcast_problems(a=a, b=b)

    def infer(self, a: TensorInfo, b: TensorInfo) -> TensorInfo:
        return TensorInfo(_broadcast(a.shape, b.shape), DataType.BOOL)


@op(traits=Trait.POINTWISE | Trait.COMMUTATIVE)
class LogicalBinary(Op):
    """Combine two boolean tensors, element by element.

    Shapes:
        a, b: any that broadcast as in NumPy, bool
        output: the common shape, bool

    Example:
        >>> xor = LogicalBinary(operation=LogicalBinaryOperation.LOGICAL_XOR)
        >>> compute(xor, [True, True, False], [True, False, False]).tolist()
        [False, True, False]

    Source:
        ONNX And-7, Or-7, Xor-7; TFLite and NNAPI LOGICAL_AND, LOGICAL_OR; Arm NN LogicalBinaryDescriptor.
    """

    in_place: ClassVar = ("a", "b")
    a = operand(dtypes=[DataType.BOOL])
    b = operand(dtypes=[DataType.BOOL])
    output = result(dtypes=[DataType.BOOL])

    operation: LogicalBinaryOperation = attribute(
        default=LogicalBinaryOperation.LOGICAL_AND, doc="The logical operation."
    )

    def check(self, a: TensorInfo, b: TensorInfo) -> Iterator[str]:
        yield from _broadcast_problems(a=a, b=b)

    def infer(self, a: TensorInfo, b: TensorInfo) -> TensorInfo:
        return TensorInfo(_broadcast(a.shape, b.shape), DataType.BOOL)


@op(traits=Trait.MOVES | Trait.POINTWISE)
class Where(Op):
    """Select the element of a where the condition is true, of b where it is false.

    Shapes:
        condition, a, b: any that broadcast as in NumPy
        output: the common shape

    Example:
        >>> compute(Where(), [True, False, True], [1, 2, 3], [10, 20, 30]).tolist()
        [1, 20, 3]
        >>> compute(Where(), [[True], [False]], [1, 2], 0).tolist()
        [[1, 2], [0, 0]]

    Source:
        ONNX Where-16; TFLite SELECT_V2, SELECT; NNAPI SELECT.
    """

    condition = operand(role=Role.CONDITION, dtypes=[DataType.BOOL])
    a = operand()
    b = operand(same_dtype_as="a")
    output = result(dtype_of="a")

    def check(self, condition: TensorInfo, a: TensorInfo, b: TensorInfo) -> Iterator[str]:
        yield from _broadcast_problems(condition=condition, a=a, b=b)

    def infer(self, condition: TensorInfo, a: TensorInfo, b: TensorInfo) -> TensorInfo:
        return a.with_shape(_broadcast(condition.shape, a.shape, b.shape))


@op(traits=Trait.POINTWISE, quantized=ResultQuantization.OBSERVED)
class Prelu(Op):
    """Parametric ReLU, whose slope is a tensor: x where x >= 0, else alpha * x.

    Shapes:
        input, alpha: any that broadcast as in NumPy
        output: the common shape

    Example:
        >>> compute(Prelu(), [[-2.0, -2.0], [3.0, -4.0]], [0.5, 0.25]).tolist()
        [[-1.0, -0.5], [3.0, -1.0]]

    Source:
        ONNX PRelu-16; TFLite PRELU; NNAPI PRELU; Arm NN PreluLayer.
    """

    in_place: ClassVar = ("input",)
    input = operand()
    alpha = operand(same_dtype_as="input")
    output = result(dtype_of="input")

    def check(self, input: TensorInfo, alpha: TensorInfo) -> Iterator[str]:
        yield from _broadcast_problems(input=input, alpha=alpha)

    def infer(self, input: TensorInfo, alpha: TensorInfo) -> TensorInfo:
        return input.with_shape(_broadcast(input.shape, alpha.shape))
