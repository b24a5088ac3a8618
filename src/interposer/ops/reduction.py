"""Reductions along axes."""

from __future__ import annotations

from collections.abc import Iterator
from enum import Enum

from interposer.core.schema import Op, attribute, op, operand, result
from interposer.core.traits import ResultQuantization, Trait
from interposer.core.types import DataType, TensorInfo, TensorShape
from interposer.ops.axes import axes_problems, normal_axes, quantized_axis_problems
from interposer.ops.quantization import Requantization, requantization

__all__ = ["ArgMinMax", "ArgMinMaxFunction", "Mean", "Reduce", "ReduceOperation"]


class ReduceOperation(Enum):
    """The function by which `Reduce` combines the elements along the reduced axes."""

    SUM = "sum"
    MAX = "max"
    MEAN = "mean"
    MIN = "min"
    PROD = "prod"
    L1 = "l1"
    L2 = "l2"
    LOG_SUM = "log_sum"
    LOG_SUM_EXP = "log_sum_exp"
    SUM_SQUARE = "sum_square"
    ALL = "all"
    ANY = "any"


class ArgMinMaxFunction(Enum):
    """Whether `ArgMinMax` searches for the smallest or the greatest element."""

    MIN = "min"
    MAX = "max"


def reduced_axes(axis: tuple[int, ...], rank: int) -> tuple[int, ...]:
    """Return the axes that are reduced in a tensor of this rank, counted from the front and in increasing order.

    An empty tuple means all axes, and an axis that is listed twice counts once.
    """
    return tuple(sorted(set(normal_axes(axis, rank)))) if axis else tuple(range(rank))


def _reduced_shape(shape: TensorShape, axes: tuple[int, ...], keep_dims: bool) -> TensorShape:
    if keep_dims:
        return TensorShape(1 if axis in axes else dim for axis, dim in enumerate(shape))
    return TensorShape(dim for axis, dim in enumerate(shape) if axis not in axes)


class _Reduction(Op):
    """Base class of the operators that reduce a set of axes, `Mean` and `Reduce`: shape inference and checks."""

    input = operand()
    output = result(dtype_of="input")

    axis: tuple[int, ...]
    keep_dims: bool

    def check(self, input: TensorInfo) -> Iterator[str]:
        errors = [error for axis in self.axis for error in axes_problems([axis], input.rank)]
        yield from errors
        if not errors:
            yield from quantized_axis_problems(input, reduced_axes(self.axis, input.rank), "reduce")

    def infer(self, input: TensorInfo) -> TensorInfo:
        axes = reduced_axes(self.axis, input.rank)
        return input.with_shape(_reduced_shape(input.shape, axes, self.keep_dims))


@op(quantized=ResultQuantization.OBSERVED)
class Mean(_Reduction):
    """The arithmetic mean over axes; an axis that is listed twice counts once.

    Shapes:
        input: any
        output: the input's shape without the reduced axes, or with size 1 instead with ``keep_dims``

    Example:
        >>> compute(Mean(axis=(1,)), [[1.0, 3.0], [10.0, 30.0]]).tolist()
        [2.0, 20.0]
        >>> compute(Mean(keep_dims=True), [[1.0, 3.0], [10.0, 30.0]]).tolist()
        [[11.0]]

    Source:
        ONNX ReduceMean-18, GlobalAveragePool-22; TFLite MEAN; NNAPI MEAN; Arm NN MeanDescriptor.
    """

    axis: tuple[int, ...] = attribute(default=(), doc="The axes that are reduced; empty means all.")
    keep_dims: bool = attribute(default=False, doc="Keep every reduced axis with size 1.")
    requantization: Requantization = requantization()


@op
class Reduce(_Reduction):
    """Reduce the elements along axes; an axis that is listed twice counts once.

    ============= ====================================================================
    SUM PROD      sum and product; integers wrap around
    MEAN          sum / count; integers truncate towards zero
    MAX MIN       the greatest, the smallest
    L1 L2         sum of abs(x), square root of the sum of x**2
    LOG_SUM       log of the sum
    LOG_SUM_EXP   log of the sum of exp(x)
    SUM_SQUARE    sum of x**2
    ALL ANY       logical and, logical or; only for bool
    ============= ====================================================================

    Without any elements, the sums give 0, PROD gives 1, MAX the lowest and MIN the highest value of the type (an
    infinity if the type has one).

    Shapes:
        input: any
        output: the input's shape without the reduced axes, or with size 1 instead with ``keep_dims``

    Example:
        >>> compute(Reduce(operation=ReduceOperation.MAX, axis=(0,)), [[1, 5], [7, 2]]).tolist()
        [7, 5]
        >>> compute(Reduce(operation=ReduceOperation.SUM_SQUARE), [[1, 5], [7, 2]]).tolist()
        79
        >>> compute(Reduce(operation=ReduceOperation.PROD, axis=(-1,), keep_dims=True), [[1, 5], [7, 2]]).tolist()
        [[5], [14]]

    Source:
        ONNX ReduceSum-13, ReduceMax-20, ReduceMean-18, ReduceMin-20, ReduceProd-18, ReduceL1-18, ReduceL2-18,
        ReduceLogSum-18, ReduceLogSumExp-18, ReduceSumSquare-18; TFLite and NNAPI SUM / REDUCE_SUM, REDUCE_MAX,
        REDUCE_MIN, REDUCE_PROD, REDUCE_ALL, REDUCE_ANY; Arm NN ReduceDescriptor.
    """

    axis: tuple[int, ...] = attribute(default=(), doc="The axes that are reduced; empty means all.")
    keep_dims: bool = attribute(default=False, doc="Keep every reduced axis with size 1.")
    operation: ReduceOperation = attribute(default=ReduceOperation.SUM, doc="The reduction.")
    requantization: Requantization = requantization()

    @property
    def traits(self) -> Trait:
        chooses = self.operation in (ReduceOperation.MAX, ReduceOperation.MIN)
        return Trait.CHOOSES if chooses else Trait.NONE

    def result_quantization(self, dtype: DataType) -> ResultQuantization | str:
        if self.operation in (ReduceOperation.MEAN, ReduceOperation.SUM):
            return ResultQuantization.OBSERVED
        if self.operation in (ReduceOperation.MAX, ReduceOperation.MIN):
            return ResultQuantization.SAME
        return f"{self.operation.name} loses too much precision in integers"

    def check(self, input: TensorInfo) -> Iterator[str]:
        if self.operation in (ReduceOperation.ALL, ReduceOperation.ANY) and input.dtype is not DataType.BOOL:
            yield f"input is {input.dtype}; expected bool for {self.operation.name}"
        yield from super().check(input)


@op(traits=Trait.EXACT, quantized=ResultQuantization.NONE)
class ArgMinMax(Op):
    """The index of the smallest or greatest element along an axis.

    Of several equal elements, the first one counts, or the last one with ``select_last_index``.

    Shapes:
        input: any of rank 1 or more
        output: the input's shape without ``axis``, or with size 1 instead with ``keep_dims``

    Example:
        >>> compute(ArgMinMax(function=ArgMinMaxFunction.MAX), [[1, 9, 9], [4, 2, 3]]).tolist()
        [1, 0]
        >>> compute(ArgMinMax(axis=0), [[1, 9, 9], [4, 2, 3]]).tolist()
        [0, 1, 1]

    Source:
        ONNX ArgMax-13, ArgMin-13; TFLite ARG_MAX, ARG_MIN; NNAPI ARGMAX, ARGMIN; Arm NN ArgMinMaxDescriptor.
    """

    input = operand()
    output = result(dtypes=[DataType.INT32, DataType.INT64])

    function: ArgMinMaxFunction = attribute(
        default=ArgMinMaxFunction.MIN, doc="Whether to search for the smallest or the greatest element."
    )
    axis: int = attribute(default=-1, doc="The axis that is searched.")
    keep_dims: bool = attribute(default=False, doc="Keep the axis with size 1.")
    dtype: DataType = attribute(
        default=DataType.INT32, choices=[DataType.INT32, DataType.INT64], doc="The type of the index."
    )
    select_last_index: bool = attribute(
        default=False, doc="Return the index of the last one of several equal elements."
    )

    def check(self, input: TensorInfo) -> Iterator[str]:
        errors = list(axes_problems([self.axis], input.rank))
        yield from errors
        if not errors and input.shape[self.axis] == 0:
            yield f"axis {self.axis} of shape {input.shape} has no elements to choose from"

    def infer(self, input: TensorInfo) -> TensorInfo:
        axes = normal_axes([self.axis], input.rank)
        return TensorInfo(_reduced_shape(input.shape, axes, self.keep_dims), self.dtype)
