"""Converters for reductions, statistics, counts, sorting and cumulative functions."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from interposer.core.types import DataType
from interposer.frontends.elementwise import (
    ABS,
    EQUAL,
    EXP,
    FLOOR_DIV,
    GREATER,
    GREATER_OR_EQUAL,
    IS_INF,
    IS_NAN,
    LESS,
    LESS_OR_EQUAL,
    LOG,
    MAXIMUM,
    MINIMUM,
    NOT_EQUAL,
    POWER,
    SQ_DIFF,
    SQRT,
)
from interposer.frontends.torch.call import Call, Number
from interposer.frontends.torch.registry import aten
from interposer.ir.graph import Value
from interposer.ops.choice import TopK
from interposer.ops.dynamic import DynamicBroadcastTo, DynamicTopK
from interposer.ops.gather import GatherElements
from interposer.ops.reduction import ArgMinMax, ArgMinMaxFunction, Mean, Reduce, ReduceOperation
from interposer.ops.scatter import ScatterElements, ScatterFunction
from interposer.ops.sequence import CumProd, CumSum

__all__ = ["reduced"]

Dims = Sequence[int] | int | None


def reduced(c: Call, operation: ReduceOperation, x: Value, dims: Dims, keepdim: bool = False) -> Value:
    """Reduce axes of a value; None or no axes stand for all."""
    rank = x.known.rank
    axes = c.axes(dims, rank)
    if not rank:
        return _of_scalar(c, operation, x)
    return c.step(Reduce(axes, keepdim, operation), x)


def _of_scalar(c: Call, operation: ReduceOperation, x: Value) -> Value:
    return c.reshape(c.step(Reduce((0,), False, operation), c.reshape(x, [1])), [])


@aten("sum.dim_IntList", "sum")
def sum_(c: Call, x: Value, dims: Dims = None, keepdim: bool = False) -> Value:
    """Convert sum, which is computed in the type of its result."""
    return reduced(c, ReduceOperation.SUM, c.cast(x, c.dtype), dims, keepdim)


@aten("prod", "prod.dim_int")
def prod(c: Call, x: Value, dims: Dims = None, keepdim: bool = False) -> Value:
    """Convert prod."""
    return reduced(c, ReduceOperation.PROD, c.cast(x, c.dtype), dims, keepdim)


@aten("mean", "mean.dim")
def mean(c: Call, x: Value, dims: Dims = None, keepdim: bool = False) -> Value:
    """Convert mean."""
    x = c.cast(x, c.dtype)
    return c.step(Mean(c.axes(dims, x.known.rank), keepdim), x) if x.known.rank else x


@aten("amax", "amin", "max", "min")
def extreme(c: Call, x: Value, dims: Dims = None, keepdim: bool = False) -> Value:
    """Convert amax, amin, and max and min of all elements; NaN prevails."""
    name = str(c.node.target)
    operation = ReduceOperation.MAX if "max" in name else ReduceOperation.MIN
    return reduced(c, operation, x, dims, keepdim)


@aten("any", "any.dim", "any.dims", "all", "all.dim", "all.dims", "_is_all_true", "_is_any_true")
def logical(c: Call, x: Value, dims: Dims = None, keepdim: bool = False) -> Value:
    """Convert any and all; numbers are True unless they are 0."""
    operation = ReduceOperation.ANY if "any" in str(c.node.target) else ReduceOperation.ALL
    truth = c.cast(x, DataType.BOOL)
    if dims == []:
        return c.cast(truth, c.dtype)
    return c.cast(reduced(c, operation, truth, dims, keepdim), c.dtype)


_NORMS: Final = {1.0: ReduceOperation.L1, 2.0: ReduceOperation.L2}


@aten("linalg_vector_norm")
def vector_norm(c: Call, x: Value, order: Number = 2, dims: Dims = None, keepdim: bool = False) -> Value:
    """Convert the vector norm of any order."""
    x = c.cast(x, c.dtype)
    simple_operation = _NORMS.get(float(order))
    if simple_operation is not None:
        return reduced(c, simple_operation, x, dims, keepdim)
    size = c.step(ABS, x)
    if order in (math.inf, -math.inf):
        return reduced(c, ReduceOperation.MAX if order > 0 else ReduceOperation.MIN, size, dims, keepdim)
    if order == 0:
        is_nonzero = c.cast(c.binary(NOT_EQUAL, x, 0), c.dtype)
        return reduced(c, ReduceOperation.SUM, is_nonzero, dims, keepdim)
    powers = c.binary(POWER, size, float(order))
    return c.binary(POWER, reduced(c, ReduceOperation.SUM, powers, dims, keepdim), 1 / order)


def _deviation(c: Call, x: Value, dims: Dims, correction: float, keepdim: bool) -> Value:
    """Return the variance: the sum of squared differences from the mean, divided by the count less a correction."""
    if not x.known.rank:
        x, dims, keepdim = c.reshape(x, [1]), [0], False
    shape = c.shape(x)
    axes = c.axes(dims, len(shape))
    count = math.prod(shape[axis] for axis in axes)
    center = c.step(Mean(axes, True), x)
    squares = c.step(Reduce(axes, keepdim, ReduceOperation.SUM), c.binary(SQ_DIFF, x, center))
    return c.over(squares, c.scalar(max(0.0, count - correction), x.known.dtype))


def _correction(unbiased: Any, correction: Any) -> float:
    if correction is not None:
        return float(correction)
    return 1.0 if unbiased is None or unbiased else 0.0


@aten("var.correction", "var", "var.dim", "std.correction", "std", "std.dim")
def variance(c: Call, x: Value, *args: Any, correction: Number | None = None, keepdim: bool = False) -> Value:
    """Convert var and std."""
    dims, unbiased, keep = _statistics_arguments(c, args, keepdim)
    spread = _deviation(c, c.cast(x, c.dtype), dims, _correction(unbiased, correction), keep)
    return c.step(SQRT, spread) if "aten.std" in str(c.node.target) else spread


def _statistics_arguments(c: Call, args: Sequence[Any], keepdim: bool) -> tuple[Dims, Any, bool]:
    """Return axes, whether the result is unbiased, and keepdim, from the positional arguments of an overload."""
    overload = str(c.node.target).rpartition(".")[2]
    if overload == "default":
        return None, args[0] if args else True, False
    if overload == "dim":
        padded = [*args, *[True, False][len(args) - 1 :]]
        return padded[0], padded[1], bool(padded[2])
    return args[0] if args else None, None, keepdim


@aten("var_mean.correction", "std_mean.correction", "var_mean", "var_mean.dim", "std_mean", "std_mean.dim")
def variance_and_mean(
    c: Call, x: Value, *args: Any, correction: Number | None = None, keepdim: bool = False
) -> list[Value]:
    """Convert var_mean and std_mean."""
    dims, unbiased, keeps_dims = _statistics_arguments(c, args, keepdim)
    x = c.cast(x, c.dtype)
    spread = _deviation(c, x, dims, _correction(unbiased, correction), keeps_dims)
    spread = c.step(SQRT, spread) if "aten.std" in str(c.node.target) else spread
    center = c.step(Mean(c.axes(dims, x.known.rank), keeps_dims), x) if x.known.rank else x
    return [spread, center]


# --- indices ----------------------------------------------------------------------------------------------------------


@aten("argmax", "argmin")
def arg_extreme(c: Call, x: Value, dim: int | None = None, keepdim: bool = False) -> Value:
    """Convert argmax and argmin; of equal elements, the first one counts, and NaN prevails."""
    function = ArgMinMaxFunction.MAX if "argmax" in str(c.node.target) else ArgMinMaxFunction.MIN
    if x.known.rank == 0:
        return c.constant(np.zeros((), np.int64))
    if dim is not None:
        return c.step(ArgMinMax(function, c.axis(dim, x.known.rank), keepdim, DataType.INT64), _numeric(c, x))
    rank = x.known.rank
    flat_index = c.step(ArgMinMax(function, 0, False, DataType.INT64), c.reshape(_numeric(c, x), [-1]))
    return c.reshape(flat_index, [1] * rank) if keepdim else flat_index


def _numeric(c: Call, x: Value) -> Value:
    """Return a tensor of bools as integers, since operators that order elements take numbers only."""
    return c.cast(x, DataType.UINT8) if x.known.dtype is DataType.BOOL else x


@aten("max.dim", "min.dim")
def extreme_with_index(c: Call, x: Value, dim: int, keepdim: bool = False) -> list[Value]:
    """Convert max and min along an axis, with the indices."""
    is_max = "aten.max" in str(c.node.target)
    if x.known.rank == 0:
        return [x, c.constant(np.zeros((), np.int64))]
    axis = c.axis(dim, x.known.rank)
    values = c.step(Reduce((axis,), keepdim, ReduceOperation.MAX if is_max else ReduceOperation.MIN), x)
    function = ArgMinMaxFunction.MAX if is_max else ArgMinMaxFunction.MIN
    return [values, c.step(ArgMinMax(function, axis, keepdim, DataType.INT64), _numeric(c, x))]


@aten("topk")
def topk(c: Call, x: Value, k: Any, dim: int = -1, largest: bool = True, ordered: bool = True) -> list[Value]:
    """Convert topk; the results are always sorted."""
    if isinstance(k, Value):
        op = DynamicTopK(c.axis(dim, x.known.rank), largest, DataType.INT64)
        values, indices = c.steps(op, _numeric(c, x), c.reshape(k, [1]))
        return [c.cast(values, x.known.dtype), indices]
    return _ordered(c, x, k, dim, largest)


def _ordered(c: Call, x: Value, k: int | None, dim: int, largest: bool) -> list[Value]:
    """Return the k largest or smallest elements along an axis and their indices; None stands for all."""
    if x.known.rank == 0:
        return [x, c.constant(np.zeros((), np.int64))]
    axis = c.axis(dim, x.known.rank)
    count = c.size(x, axis) if k is None else k
    values, indices = c.steps(TopK(count, axis, largest, DataType.INT64), _numeric(c, x))
    return [c.cast(values, x.known.dtype), indices]


@aten("sort", "sort.stable")
def sort(c: Call, x: Value, dim: Any = -1, descending: Any = False, *more: Any, stable: Any = None) -> list[Value]:
    """Convert sort, which is always stable here."""
    return _ordered(c, x, None, dim, bool(descending))


@aten("argsort", "argsort.stable")
def argsort(c: Call, x: Value, dim: int = -1, descending: bool = False, stable: bool = True) -> Value:
    """Convert argsort, which is always stable here."""
    return _ordered(c, x, None, dim, bool(descending))[1]


@aten("kthvalue")
def kthvalue(c: Call, x: Value, k: int, dim: int = -1, keepdim: bool = False) -> list[Value]:
    """Convert kthvalue: the k-th smallest element and its index."""
    if x.known.rank == 0:
        return [x, c.constant(np.zeros((), np.int64))]
    axis = c.axis(dim, x.known.rank)
    results = [c.cut(part, axis, k - 1, 1) for part in _ordered(c, x, k, dim, False)]
    return results if keepdim else [c.squeezed(part, axis) for part in results]


@aten("median.dim", "median")
def median(c: Call, x: Value, dim: int | None = None, keepdim: bool = False) -> Any:
    """Convert median: the lower one of two middle elements; NaN prevails."""
    if dim is None:
        flat_x = c.reshape(x, [math.prod(c.shape(x))])
        return _median(c, flat_x, 0, False)[0]
    if not x.known.rank:
        return [x, c.constant(np.zeros((), np.int64))]
    return _median(c, x, c.axis(dim, x.known.rank), keepdim)


def _median(c: Call, x: Value, axis: int, keepdim: bool) -> list[Value]:
    """Return the medians along an axis and their indices; where there is a NaN, these are NaN and its index."""
    values, indices = kthvalue(c, x, (c.size(x, axis) + 1) // 2, axis, keepdim)
    if not x.known.dtype.is_float:
        return [values, indices]
    is_nan = c.step(IS_NAN, x)
    has_nan = c.step(Reduce((axis,), keepdim, ReduceOperation.ANY), is_nan)
    first_nan = c.step(ArgMinMax(ArgMinMaxFunction.MAX, axis, keepdim, DataType.INT64), c.cast(is_nan, DataType.UINT8))
    return [c.where(has_nan, math.nan, values), c.where(has_nan, first_nan, indices)]


@aten("nanmedian.dim", "nanmedian")
def nanmedian(c: Call, x: Value, dim: int | None = None, keepdim: bool = False) -> Any:
    """Convert nanmedian: the median of the elements that are not NaN, or NaN if there are none."""
    if not x.known.dtype.is_float:
        return median(c, x, dim, keepdim)
    if dim is None:
        return _nanmedian(c, c.reshape(x, [math.prod(c.shape(x))]), 0, False)[0]
    if not x.known.rank:
        return [x, c.constant(np.zeros((), np.int64))]
    return _nanmedian(c, x, c.axis(dim, x.known.rank), keepdim)


def _nanmedian(c: Call, x: Value, axis: int, keepdim: bool) -> list[Value]:
    """Return the medians along an axis and their indices; NaN elements are sorted to the end as infinities."""
    if not c.size(x, axis):
        c.unsupported("the median of an empty axis is not supported")
    is_nan = c.step(IS_NAN, x)
    ordered = _ordered(c, c.where(is_nan, math.inf, x), None, axis, False)
    count = c.step(Reduce((axis,), True, ReduceOperation.SUM), c.cast(c.negated(is_nan), DataType.INT64))
    middle = c.binary(MAXIMUM, c.binary(FLOOR_DIV, c.minus(count, 1), 2), 0)
    values, indices = (c.step(GatherElements(axis), part, middle) for part in ordered)
    values = c.where(c.binary(EQUAL, count, 0), math.nan, values)
    return [values, indices] if keepdim else [c.squeezed(part, axis) for part in (values, indices)]


@aten("mode")
def mode(c: Call, x: Value, dim: int = -1, keepdim: bool = False) -> list[Value]:
    """Convert mode: the most frequent element along an axis, of several ones the smallest, and its last index."""
    if not x.known.rank:
        return [x, c.constant(np.zeros((), np.int64))]
    rank, axis = x.known.rank, c.axis(dim, x.known.rank)
    count = c.size(x, axis)
    if count**2 > _MOST_PAIRS:
        c.unsupported(f"the mode of {count} elements is not supported, as each pair of them is compared")
    ordered_x, indices = _ordered(c, x, None, axis, False)
    rows = [c.swapped(part, axis, rank - 1) for part in (ordered_x, indices)]
    is_equal = c.binary(EQUAL, c.unsqueezed(rows[0], rank), c.unsqueezed(rows[0], rank - 1))
    counts = c.step(Reduce((rank,), False, ReduceOperation.SUM), c.cast(is_equal, DataType.INT64))
    first_of_longest = c.step(ArgMinMax(ArgMinMaxFunction.MAX, rank - 1, True, DataType.INT64), counts)
    frequency = c.step(Reduce((rank - 1,), True, ReduceOperation.MAX), counts)
    last_of_longest = c.minus(c.plus(first_of_longest, frequency), 1)
    mode_columns = [
        c.step(GatherElements(rank - 1), part, place)
        for part, place in zip(rows, (first_of_longest, last_of_longest), strict=True)
    ]
    results = [c.swapped(part, axis, rank - 1) for part in mode_columns]
    return results if keepdim else [c.squeezed(part, axis) for part in results]


_MOST_PAIRS: Final = 1 << 24


# --- cumulative functions ---------------------------------------------------------------------------------------------


@aten("cumsum")
def cumsum(c: Call, x: Value, dim: int) -> Value:
    """Convert cumsum, which is computed in the type of its result."""
    return _accumulated(c, x, dim, CumSum)


@aten("cumprod")
def cumprod(c: Call, x: Value, dim: int) -> Value:
    """Convert cumprod."""
    return _accumulated(c, x, dim, CumProd)


def _accumulated(c: Call, x: Value, dim: int, operator: type[CumSum] | type[CumProd]) -> Value:
    x = c.cast(x, c.dtype)
    return c.step(operator(c.axis(dim, x.known.rank)), x) if x.known.rank else x


@aten("logcumsumexp")
def logcumsumexp(c: Call, x: Value, dim: int) -> Value:
    """Convert logcumsumexp, in float64, relative to the maximum along the axis."""
    if not x.known.rank:
        return x
    axis = c.axis(dim, x.known.rank)
    float64_x = c.cast(x, DataType.FLOAT64)
    maximum = c.step(Reduce((axis,), True, ReduceOperation.MAX), float64_x)
    maximum = c.where(c.step(IS_INF, maximum), c.scalar(0, DataType.FLOAT64), maximum)
    sums = c.step(CumSum(axis), c.step(EXP, c.minus(float64_x, maximum)))
    return c.cast(c.plus(c.step(LOG, sums), maximum), c.dtype)


@aten("cummax", "cummin")
def cumulative_extreme(c: Call, x: Value, dim: int) -> list[Value]:
    """Convert cummax and cummin by doubling steps; of equal elements the last one counts."""
    is_max = "cummax" in str(c.node.target)
    if not x.known.rank:
        return [x, c.constant(np.zeros((), np.int64))]
    axis = c.axis(dim, x.known.rank)
    size = c.size(x, axis)
    values = x if x.known.dtype is not DataType.BOOL else c.cast(x, DataType.UINT8)
    positions = np.broadcast_to(
        np.arange(size).reshape([-1 if i == axis else 1 for i in range(x.known.rank)]), c.shape(x)
    )
    indices = c.constant(np.ascontiguousarray(positions))
    step = 1
    compare = GREATER if is_max else LESS
    while step < size:
        shifted_pair = [_shifted(c, tensor, axis, step, size) for tensor in (values, indices)]
        is_better = c.binary(compare, shifted_pair[0], values)
        if x.known.dtype.is_float:
            nan = c.step(IS_NAN, shifted_pair[0])
            is_better = c.either(is_better, c.both(nan, c.negated(c.step(IS_NAN, values))))
        values, indices = c.where(is_better, shifted_pair[0], values), c.where(is_better, shifted_pair[1], indices)
        step *= 2
    return [c.cast(values, x.known.dtype), indices]


def _shifted(c: Call, x: Value, axis: int, step: int, size: int) -> Value:
    """Return x shifted by `step` along an axis; the first elements stay as they are."""
    return c.joined([c.cut(x, axis, 0, step), c.cut(x, axis, 0, size - step)], axis)


@aten("gather")
def gather(c: Call, x: Value, dim: int, index: Value, sparse_grad: bool = False) -> Value:
    """Convert gather: elements at indices along an axis; the index may be smaller along other axes."""
    index = c.cast(index, DataType.INT64)
    if x.known.rank == 0 or index.known.rank == 0:
        ranked_operands = [c.reshape(operand, [1]) if operand.known.rank == 0 else operand for operand in (x, index)]
        return c.reshape(c.step(GatherElements(0), *ranked_operands), list(c.shape(index)))
    axis = c.axis(dim, x.known.rank)
    for other_axis in range(x.known.rank):
        size = index.known.shape[other_axis]
        if other_axis != axis and size != x.known.shape[other_axis]:
            x = c.cut(x, other_axis, 0, c.size(index, other_axis))
    return c.step(GatherElements(axis), x, index)


# --- counting ---------------------------------------------------------------------------------------------------------


@aten("histc")
def histc(c: Call, x: Value, bins: int = 100, low: Number = 0, high: Number = 0) -> Value:
    """Convert histc: the number of elements in each of some bins of equal width; others are not counted."""
    zeros = c.constant(np.zeros(bins, c.dtype.numpy))
    if 0 in x.known.shape:
        return zeros
    line = c.reshape(x, [-1])
    edges = (c.scalar(low, line.known.dtype), c.scalar(high, line.known.dtype))
    start, end = edges if low != high else _extremes(c, line)
    is_inside = c.both(
        c.binary(GREATER_OR_EQUAL, line, start),
        c.binary(LESS_OR_EQUAL, line, end),
    )
    ratio = c.over(c.times(c.minus(line, start), bins), c.minus(end, start))
    bin_indices = c.cast(c.where(is_inside, ratio, 0), DataType.INT64)
    bin_indices = c.binary(MINIMUM, bin_indices, bins - 1)  # the last bin includes its end
    return _counted(c, zeros, bin_indices, c.cast(is_inside, c.dtype))


def _extremes(c: Call, line: Value) -> tuple[Value, Value]:
    """Return the smallest and the largest element; if they are equal, 1 less and 1 more."""
    low, high = (c.step(Reduce((0,), False, kind), line) for kind in (ReduceOperation.MIN, ReduceOperation.MAX))
    margin = c.cast(c.binary(EQUAL, low, high), line.known.dtype)
    return c.minus(low, margin), c.plus(high, margin)


@aten("bincount")
def bincount(c: Call, x: Value, weights: Value | None = None, minlength: int = 0) -> Value:
    """Convert bincount: how often each integer occurs, or the sum of its weights; negative ones are an error."""
    bin_indices = c.cast(x, DataType.INT64)
    largest = c.step(Reduce((0,), False, ReduceOperation.MAX), c.joined([bin_indices, _line(c, minlength - 1)], 0))
    size = c.plus(largest, 1)
    zeros = c.step(DynamicBroadcastTo(), c.scalar(0, c.dtype), c.size_vector([size]))
    ones = c.plus(c.times(bin_indices, 0), 1)
    is_negative = c.binary(LESS, bin_indices, 0)
    return _counted(
        c, zeros, c.where(is_negative, size, bin_indices), c.cast(ones if weights is None else weights, c.dtype)
    )


def _line(c: Call, number: int) -> Value:
    return c.constant(np.array([number], np.int64))


def _counted(c: Call, zeros: Value, bin_indices: Value, counts: Value) -> Value:
    return c.step(ScatterElements(0, ScatterFunction.ADD), zeros, bin_indices, counts)
