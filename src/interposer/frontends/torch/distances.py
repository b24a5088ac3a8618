"""Converters for distances, bags of embeddings and random permutations, and the operators that are refused."""

from __future__ import annotations

import math
from typing import Any, Final

import numpy as np

from interposer.core.types import DataType
from interposer.frontends.elementwise import (
    ABS,
    EQUAL,
    FLOOR,
    GREATER_OR_EQUAL,
    LESS,
    LESS_OR_EQUAL,
    MAXIMUM,
    NOT_EQUAL,
    POWER,
)
from interposer.frontends.torch.call import Call
from interposer.frontends.torch.registry import aten, refused
from interposer.ir.graph import Value
from interposer.ops.choice import TopK
from interposer.ops.gather import Gather
from interposer.ops.randomness import Distribution, RandomFill
from interposer.ops.reduction import Reduce, ReduceOperation
from interposer.ops.scatter import ScatterFunction, ScatterNd

__all__: list[str] = []

_BACKWARD: Final = (
    "_adaptive_avg_pool2d_backward", "avg_pool2d_backward", "convolution_backward", "embedding_dense_backward",
    "max_pool2d_with_indices_backward", "native_group_norm_backward", "native_layer_norm_backward",
)  # fmt: skip

refused("it computes gradients; export the module in inference, under torch.no_grad()", *_BACKWARD)
refused("it writes to an operand; make the program functional with run_decompositions", "atan2.out", "resize_")


refused("call torch.backends.mha.set_fastpath_enabled(False) before", "_transformer_encoder_layer_fwd")
refused("call torch.backends.mha.set_fastpath_enabled(False) before", "_native_multi_head_attention")
refused("it is in training mode; call eval() on the module before the export", "_batch_norm_with_update_functional")


def _norm(c: Call, difference: Value, p: float) -> Value:
    """Return the p-norm over the last axis."""
    size = c.step(ABS, difference)
    if p == 0:
        count = c.cast(c.binary(NOT_EQUAL, size, 0), size.known.dtype)
        return c.step(Reduce((-1,), False, ReduceOperation.SUM), count)
    simple_operation = {1.0: ReduceOperation.L1, 2.0: ReduceOperation.L2, math.inf: ReduceOperation.MAX}.get(float(p))
    if simple_operation is not None:
        return c.step(Reduce((-1,), False, simple_operation), size)
    powers = c.binary(POWER, size, float(p))
    return c.binary(POWER, c.step(Reduce((-1,), False, ReduceOperation.SUM), powers), 1 / p)


@aten("_cdist_forward")
def cdist(c: Call, a: Value, b: Value, p: float, mode: int | None = None) -> Value:
    """Convert cdist: the distances between all rows of two matrices."""
    if 0 in c.shape(a)[-1:]:
        return c.broadcast(c.scalar(0, c.dtype), [int(size) for size in c.example.shape])
    return _norm(c, c.minus(c.unsqueezed(a, a.known.rank - 1), c.unsqueezed(b, b.known.rank - 2)), p)


@aten("dist")
def dist(c: Call, a: Value, b: Value, p: float = 2) -> Value:
    """Convert dist: the norm of the difference of all elements."""
    difference = c.minus(c.cast(a, c.dtype), c.cast(b, c.dtype))
    return _norm(c, c.reshape(difference, [math.prod(c.shape(difference))]), p)


@aten("_pdist_forward")
def pdist(c: Call, x: Value, p: float = 2.0) -> Value:
    """Convert pdist: the distances between all pairs of rows."""
    first_rows, second_rows = np.triu_indices(c.size(x, 0), 1)
    if not len(first_rows):
        return c.constant(np.zeros(0, c.dtype.numpy))
    return _norm(c, c.minus(c.gather(x, first_rows, 0), c.gather(x, second_rows, 0)), p)


@aten("_embedding_bag", "_embedding_bag_forward_only")
def embedding_bag(
    c: Call, weight: Value, indices: Value, offsets: Value, scale_grad: bool = False, mode: int = 0,
    sparse: bool = False, sample_weights: Value | None = None, include_last: bool = False, padding_idx: int = -1,
) -> list[Any]:  # fmt: skip
    """Convert embedding_bag: the sum (mode 0), mean (1) or maximum (2) of the rows of each bag."""
    bags = int(c.example.shape[0])
    rows = c.step(Gather(0), weight, c.cast(indices, DataType.INT64))
    bag_numbers = _bag_of_each(c, c.cast(indices, DataType.INT64), c.cast(offsets, DataType.INT64), bags)
    is_used = None
    if padding_idx >= 0:
        is_used = c.binary(NOT_EQUAL, c.cast(indices, DataType.INT64), padding_idx)
    if sample_weights is not None:
        rows = c.times(rows, c.unsqueezed(sample_weights, 1))
    combined = _summed(c, rows, bag_numbers, is_used, bags, mode)
    return [combined, None, None, None]


def _bag_of_each(c: Call, indices: Value, offsets: Value, bags: int) -> Value:
    """Return the number of the bag of each index: how many offsets are not greater than its place, less 1."""
    places = c.constant(np.arange(c.size(indices, 0))[:, None])
    starts = c.unsqueezed(c.cut(offsets, 0, 0, bags), 0)
    reached = c.binary(GREATER_OR_EQUAL, places, starts)
    return c.minus(c.step(Reduce((1,), False, ReduceOperation.SUM), c.cast(reached, DataType.INT64)), 1)


def _summed(c: Call, rows: Value, numbers: Value, is_used: Value | None, bags: int, mode: int) -> Value:
    """Combine the rows of each bag; `is_used` is False for rows of padding, and empty bags are zeros."""
    width, dtype = c.size(rows, 1), rows.known.dtype
    places = c.unsqueezed(numbers, 1)
    ones = c.broadcast(c.scalar(1, dtype), [c.size(rows, 0)])
    if is_used is not None:
        ones = c.cast(is_used, dtype)
        neutral = c.scalar(-math.inf if mode == 2 else 0, dtype)
        rows = c.where(c.unsqueezed(is_used, 1), rows, neutral)
    start = c.broadcast(c.scalar(-math.inf if mode == 2 else 0, dtype), [bags, width])
    combined = c.step(ScatterNd(ScatterFunction.MAX if mode == 2 else ScatterFunction.ADD), start, places, rows)
    if mode == 0:
        return combined
    zeros = c.broadcast(c.scalar(0, dtype), [bags])
    counts = c.unsqueezed(c.step(ScatterNd(ScatterFunction.ADD), zeros, places, ones), 1)
    if mode == 2:
        return c.where(c.binary(EQUAL, counts, 0), c.scalar(0, dtype), combined)
    return c.over(combined, c.binary(MAXIMUM, counts, 1))


@aten("randperm")
def randperm(c: Call, count: int) -> Value:
    """Convert randperm: the order of random numbers."""
    numbers = c.step(RandomFill(Distribution.UNIFORM), c.size_vector([count]))
    return c.cast(c.steps(TopK(count, 0, False, DataType.INT64), numbers)[1], c.dtype)


@aten("uniform", "normal_functional", "randint_like", "randint_like.low_dtype", "randint", "randint.low")
def random_between(c: Call, *args: Any, **_: Any) -> Value:
    """Convert random numbers of other ranges, which differ from PyTorch's and from run to run."""
    name = str(c.node.target)
    sizes = [int(size) for size in c.example.shape]
    numbers = [operand for operand in args if not isinstance(operand, Value | list)]
    if "randint" not in name:
        kind = Distribution.NORMAL if "normal" in name else Distribution.UNIFORM
        low, high = numbers if len(numbers) == 2 else (0.0, 1.0)
        return c.step(RandomFill(kind, float(low), float(high), dtype=c.dtype), c.size_vector(sizes))
    low, high = numbers if len(numbers) == 2 else (0, numbers[0])
    values = c.step(RandomFill(Distribution.UNIFORM, float(low), float(high)), c.size_vector(sizes))
    return c.cast(c.step(FLOOR, values), c.dtype)


@aten("searchsorted.Tensor", "bucketize.Tensor")
def bucketize(
    c: Call, first: Value, second: Value, *, out_int32: bool = False, right: bool = False, side: str | None = None,
    sorter: Value | None = None,
) -> Value:  # fmt: skip
    """Convert searchsorted and bucketize: how many boundaries are below each value, or not above it."""
    search = "searchsorted" in str(c.node.target)
    boundaries, values = (first, second) if search else (second, first)
    if sorter is not None:
        c.unsupported("it has a sorter")
    dtype = c.promoted(*c.node.args[:2])
    boundaries, values = c.cast(boundaries, dtype), c.cast(values, dtype)
    expanded_values = c.unsqueezed(values, values.known.rank)
    boundaries = c.unsqueezed(boundaries, boundaries.known.rank - 1) if boundaries.known.rank > 1 else boundaries
    includes_equal = right or side == "right"
    compare = LESS_OR_EQUAL if includes_equal else LESS
    is_below = c.cast(c.binary(compare, boundaries, expanded_values), c.dtype)
    return c.step(Reduce((-1,), False, ReduceOperation.SUM), is_below)
