"""Growers of matrix products: fully connected layers, batched products, and Einsum."""

from __future__ import annotations

import math

from interposer.core.types import TensorInfo
from interposer.ir.graph import Value
from interposer.ops import Activation, Addition, BatchMatMul, Einsum, FullyConnected, Reshape
from interposer.testing.random_networks.elementwise import activated
from interposer.testing.random_networks.growers import grower
from interposer.testing.random_networks.growth import Growth, Skipped
from interposer.testing.random_networks.random_windows import as_rank

__all__ = ["columns", "matrices"]

_FLOAT = ("float",)


def columns(growth: Growth, rows: int, depth: int) -> int:
    """Return a random number of columns for a matrix product, often 1.

    Raise `Skipped` if there is no room for a product. The result has `rows` rows, and each of its elements sums `depth`
    products. Both limit the number of columns, so that the network does not become too large or too slow.
    """
    limit = min(
        growth.room // max(1, rows), growth.operations_left // max(1, 2 * rows * depth), growth.room // max(1, depth)
    )
    if limit < 1 or depth == 0:
        raise Skipped
    return 1 if growth.draw.chance(1, 8) else growth.draw.size(min(limit, 65))


@grower(10, FullyConnected, kinds=_FLOAT)
def _fully_connected(growth: Growth, value: Value) -> None:
    draw, x = growth.draw, growth.real(value)
    shape = x.known.shape
    if not shape:
        raise Skipped
    keep_dims, transposes_weights = draw.chance(1, 2), draw.chance(1, 2)
    depth = shape[-1] if keep_dims or draw.chance(1, 2) else math.prod(shape[1:])
    if depth == 0:
        raise Skipped
    units = columns(growth, math.prod(shape) // depth, depth)
    reach, output_reach = growth.reach(x), draw.one_of((1.0, 2.0, 4.0))
    weights = growth.weights(
        (units, depth) if transposes_weights else (depth, units),
        1.5 * output_reach / (reach * math.sqrt(depth)),
        x.known.dtype,
    )
    bias = growth.weights((units,), 1.0, x.known.dtype) if draw.chance(2, 3) else None
    product = growth.add(FullyConnected(transposes_weights, keep_dims), x, weights, bias, reach=output_reach)
    if draw.chance(1, 2):
        activated(growth, product)


def matrices(growth: Growth, value: Value) -> tuple[BatchMatMul, tuple[int, ...], int]:
    """Draw a matrix product whose first operand is `value`, without adding it to the network.

    Returns the operator, the shape of the second operand, and the number of products in each sum.

    Raises:
        Skipped: the value is a scalar or has no elements, or the product would be too large.
    """
    draw, shape = growth.draw, value.known.shape
    if not shape:
        raise Skipped
    transpose_x, transpose_y = draw.chance(1, 4) and len(shape) > 1, draw.chance(1, 3)
    depth = shape[-2] if transpose_x else shape[-1]
    rows = math.prod(shape) // max(1, depth)
    if depth == 0:
        raise Skipped
    if draw.chance(1, 10):
        return BatchMatMul(transpose_x=transpose_x), (depth,), depth
    column_count = columns(growth, rows, depth)
    matrix_shape = (column_count, depth) if transpose_y else (depth, column_count)
    batch = tuple(shape[:-2]) if draw.chance(1, 2) else ()
    batch = tuple(size if draw.chance(2, 3) else 1 for size in batch)
    return BatchMatMul(transpose_x=transpose_x, transpose_y=transpose_y), (*batch, *matrix_shape), depth


@grower(12, BatchMatMul, kinds=_FLOAT)
def _product(growth: Growth, value: Value) -> None:
    draw, x = growth.draw, growth.real(value)
    if draw.chance(1, 4):
        _product_of_values(growth, x)
        return
    op, shape, depth = matrices(growth, x)
    output_reach = draw.one_of((1.0, 2.0, 4.0))
    matrix = growth.weights(shape, 1.5 * output_reach / (growth.reach(x) * math.sqrt(depth)), x.known.dtype)
    if draw.chance(1, 6) and not op.transpose_x and not op.transpose_y and len(shape) > 1:
        product = _product_from_the_left(growth, x, output_reach)
    else:
        product = growth.add(op, x, matrix, reach=output_reach)
    if draw.chance(1, 4) and product.known.rank:
        bias = growth.weights(product.known.shape[-1:], 1.0, x.known.dtype)
        product = growth.add(
            Addition(), *((product, bias) if draw.chance(1, 2) else (bias, product)), reach=output_reach + 1
        )
    if draw.chance(1, 3):
        activated(growth, product)


def _product_from_the_left(growth: Growth, x: Value, target: float) -> Value:
    """Add a BatchMatMul with a constant matrix as the first operand and `x` as the second one; return the product.

    `target` is the magnitude that the elements of the product should have, from which that of the weights is chosen.
    """
    if x.known.rank < 2:
        raise Skipped
    depth = x.known.shape[-2]
    rows = columns(growth, x.known.num_elements // max(1, depth), depth)
    left_matrix = growth.weights((rows, depth), 1.5 * target / (growth.reach(x) * math.sqrt(depth)), x.known.dtype)
    return growth.add(BatchMatMul(), left_matrix, x, reach=target)


def _product_of_values(growth: Growth, x: Value) -> None:
    """Add a BatchMatMul of two values that depend on inputs, with one of them transposed.

    The other factor is a value with the same last two dimensions, or `x` itself if there is none.
    """
    if x.known.rank < 2 or x.known.num_elements == 0:
        raise Skipped
    info = x.known
    second = growth.another(lambda y: y.known.dtype is info.dtype and y.known.shape[-2:] == info.shape[-2:]
                            and y.known.rank >= 2)  # fmt: skip
    op = BatchMatMul(transpose_y=True) if growth.draw.chance(1, 2) else BatchMatMul(transpose_x=True)
    growth.add(op, x, second or x, reach=growth.reach(x) * growth.reach(second or x) * math.sqrt(info.shape[-1]))


_EQUATIONS = {
    1: ("i,ij->j", "i,j->ij", "i,i->", "i,i->i"),
    2: ("ij,jk->ik", "ij,kj->ki", "ij,j->i", "ij,ij->", "ij,i->ji", "...i,ij->...j", "ij,jk->k"),
    3: ("bij,bjk->bik", "bij,jk->bik", "bij,bkj->bki", "bij,bij->b", "...ij,jk->...ik", "bij,j->ib"),
    4: ("bhqd,bhkd->bhqk", "bhqd,hdk->bqk", "bhwc,c->bhw", "bhwc,cd->bdhw", "...hw,wk->...hk"),
}
"""Equations by the rank of the first operand."""


@grower(5, Einsum, kinds=_FLOAT)
def _einsum(growth: Growth, value: Value) -> None:
    draw = growth.draw
    x = growth.real(value if 1 <= value.known.rank <= 4 else as_rank(growth, value, draw.integer(2, 3)))
    equation = draw.one_of(_EQUATIONS[x.known.rank])
    operand_letters, _ = equation.replace("...", "").split("->")
    first_letters, second_letters = operand_letters.split(",")
    num_leading = x.known.rank - len(first_letters)
    sizes = dict(zip(first_letters, x.known.shape[num_leading:], strict=True))
    shape = tuple(sizes.setdefault(letter, min(draw.size(33), max(1, growth.room // 512))) for letter in second_letters)
    depth = math.prod(sizes[letter] for letter in sizes if letter not in equation.split("->")[1])
    if depth == 0:
        raise Skipped
    second_operand = growth.weights(shape, 2.0 / (growth.reach(x) * math.sqrt(depth)), x.known.dtype)
    growth.add(Einsum(equation), x, second_operand, reach=2.0)


@grower(2, FullyConnected, Reshape, kinds=_FLOAT)
def _head(growth: Growth, value: Value) -> None:
    """Add a fully connected layer on flattened samples, as at the end of a classifier."""
    x = growth.real(value)
    if x.known.rank < 2 or x.known.num_elements == 0:
        raise Skipped
    batch = x.known.shape[0]
    depth = x.known.num_elements // batch
    units = columns(growth, batch, depth)
    flattened = growth.add(Reshape((batch, depth)), x)
    weights = growth.weights((depth, units), 3.0 / (growth.reach(x) * math.sqrt(depth)), x.known.dtype)
    bias = growth.input(TensorInfo((units,), x.known.dtype), 1.0) if growth.draw.chance(1, 6) else None
    scores = growth.add(FullyConnected(), flattened, weights, bias, reach=2.0)
    growth.add(Activation(), scores, reach=1.0, positive=True)
