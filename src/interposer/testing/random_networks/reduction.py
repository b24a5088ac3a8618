"""Growers of reductions, ArgMinMax, TopK, CumSum and CumProd."""

from __future__ import annotations

from interposer.core.types import DataType
from interposer.ir.graph import Value
from interposer.ops import (
    Activation,
    ActivationFunction,
    ArgMinMax,
    ArgMinMaxFunction,
    CumProd,
    CumSum,
    Mean,
    Reduce,
    ReduceOperation,
    TopK,
)
from interposer.testing.random_networks.growers import grower
from interposer.testing.random_networks.growth import Growth, Skipped

__all__ = ["axes"]

_FLOAT = ("float",)
_R = ReduceOperation
_LARGER = {_R.SUM, _R.L1, _R.SUM_SQUARE}


def axes(growth: Growth, rank: int) -> tuple[int, ...]:
    """Draw some axes, counted from either end; an empty tuple stands for all axes."""
    draw = growth.draw
    if rank == 0 or draw.chance(1, 8):
        return ()
    count = draw.weighted((1, 2, 3), (5, 3, 1))
    drawn_axes = draw.order(rank)[:count]
    return tuple(axis - rank if draw.chance(1, 3) else axis for axis in drawn_axes)


@grower(10, Mean, Reduce, kinds=_FLOAT)
def _reduction(growth: Growth, value: Value) -> None:
    draw, x = growth.draw, value
    reduced_axes, keep_dims = axes(growth, x.known.rank), draw.chance(1, 2)
    if x.known.dtype is DataType.BOOL:
        growth.add(Reduce(reduced_axes, keep_dims, draw.one_of((_R.ALL, _R.ANY))), x, reach=1.0)
        return
    x = growth.real(x) if x.known.is_quantized else x
    if growth.choice((Mean, Reduce), lambda op: op) is Mean:
        growth.add(Mean(reduced_axes, keep_dims), x)
        return
    operation = draw.one_of([operation for operation in _R if operation not in (_R.ALL, _R.ANY)])
    if operation is _R.LOG_SUM and x not in growth.positive:
        x = growth.add(Activation(ActivationFunction.SOFT_RELU), growth.real(x), positive=True)
    if operation is _R.PROD and growth.reach(x) > 2 and x.known.dtype.is_float:
        x = growth.add(Activation(ActivationFunction.BOUNDED_RELU, 1.5, -1.5), x, reach=1.5)
    reach = growth.reach(x) * 4 if operation in _LARGER else growth.reach(x)
    growth.add(
        Reduce(reduced_axes, keep_dims, operation), x, reach=reach, positive=operation in (_R.L1, _R.L2, _R.SUM_SQUARE)
    )


def _axis(growth: Growth, value: Value) -> int:
    if 0 in value.known.shape:
        raise Skipped
    return growth.axis(value)


@grower(4, ArgMinMax)
def _index_of_an_extreme(growth: Growth, value: Value) -> None:
    draw = growth.draw
    x = growth.real(value) if value.known.dtype is DataType.BOOL else value
    op = ArgMinMax(
        draw.one_of(tuple(ArgMinMaxFunction)), _axis(growth, x), draw.chance(1, 2),
        draw.one_of((DataType.INT32, DataType.INT64)), draw.chance(1, 4),
    )  # fmt: skip
    growth.add(op, x, reach=float(max(x.known.shape)), positive=True)


@grower(4, TopK)
def _largest(growth: Growth, value: Value) -> None:
    draw = growth.draw
    x = growth.real(value) if value.known.dtype is DataType.BOOL else value
    axis = _axis(growth, x)
    k = draw.size(x.known.shape[axis])
    growth.add(TopK(k, axis, draw.chance(1, 2), draw.one_of((DataType.INT32, DataType.INT64))), x)


@grower(4, CumSum, CumProd, kinds=_FLOAT)
def _running(growth: Growth, value: Value) -> None:
    draw = growth.draw
    x = value if value.known.dtype.is_integer and not value.known.is_quantized else growth.real(value)
    axis, exclusive, reverse = _axis(growth, x), draw.chance(1, 3), draw.chance(1, 3)
    if growth.choice((CumSum, CumSum, CumProd), lambda op: op) is CumSum:
        growth.add(CumSum(axis, exclusive, reverse), x, reach=growth.reach(x) * 4)
        return
    if x.known.dtype.is_float:
        x = growth.add(Activation(ActivationFunction.BOUNDED_RELU, 1.25, -1.25), x, reach=1.25)
    growth.add(CumProd(axis, exclusive, reverse), x, reach=4.0)
