"""TensorFlow converters for operators that select elements; some result sizes depend on the data."""

from __future__ import annotations

import numpy as np

from interposer.core.errors import ParseError
from interposer.core.types import DataType
from interposer.frontends.elementwise import EQUAL
from interposer.frontends.reshaping import reshaped
from interposer.frontends.tensorflow.node import Node
from interposer.frontends.tensorflow.tensorflow_converters import operator
from interposer.ir.graph import Value
from interposer.ops.choice import TopK
from interposer.ops.dynamic import DynamicTopK
from interposer.ops.elementwise import Where
from interposer.ops.embedding import OneHot
from interposer.ops.gather import Gather
from interposer.ops.matrices import MatrixDiag, MatrixSetDiag, Trilu
from interposer.ops.rearrange import StridedSlice, Transpose
from interposer.ops.reshape import Reshape
from interposer.ops.selection import NonZero, Unique

__all__: list[str] = []


@operator("MatrixDiag", "MatrixDiagV2", "MatrixDiagV3")
def matrix_diagonal(node: Node) -> Value:
    """Convert MatrixDiag: the rows become the main diagonals of square matrices."""
    if node.num_inputs > 1:
        _check_main(node, 1)
        if any(node.integer_of(index, title) != -1 for index, title in ((2, "num_rows"), (3, "num_cols"))):
            node.unsupported("its matrices have a size of their own")
        if node.number_of(4, "padding_value") != 0:
            node.unsupported("its padding_value is not 0")
    return node.result(MatrixDiag(), node.value(0))


@operator("MatrixSetDiag", "MatrixSetDiagV2", "MatrixSetDiagV3")
def set_diagonal(node: Node) -> Value:
    """Convert MatrixSetDiag: replace the main diagonals of matrices."""
    if node.num_inputs > 2:
        _check_main(node, 2)
    return node.result(MatrixSetDiag(), node.value(0), node.value(1))


@operator("MatrixDiagPart", "MatrixDiagPartV2", "MatrixDiagPartV3")
def diagonal(node: Node) -> Value:
    """Convert MatrixDiagPart: the main diagonals of matrices."""
    if node.num_inputs > 1:
        _check_main(node, 1)
    x = node.value(0)
    if x.known.rank < 2:
        raise ParseError(f"its input has the shape {x.known.shape}; expected matrices")
    rows, columns = (node.known(size, "matrices' size") for size in x.known.shape[-2:])
    flat_x = reshaped(node, x, [*x.known.shape[:-2], rows * columns], x.known.rank - 2)
    return node.result(Gather(-1), flat_x, node.constant(np.arange(min(rows, columns)) * (columns + 1)))


def _check_main(node: Node, index: int) -> None:
    """Refuse operators on other diagonals than the main one."""
    if any(node.integers_of(index, "k")):
        node.unsupported(f"k is {list(node.integers_of(index, 'k'))}; only the main diagonal is supported")


@operator("Where")
def where(node: Node) -> Value:
    """Convert Where: the indices of nonzero elements, one row each."""
    x = node.value(0)
    if x.known.shape != ():
        return node.result(Transpose((1, 0)), node.step(NonZero(), x))
    rows = node.step(NonZero(), node.step(Reshape((1,)), x))  # the position of a scalar has no indices
    return node.result(Transpose((1, 0)), node.step(StridedSlice((0,), (0,), (1,)), rows))


@operator("Unique", outputs=("y", "idx"))
def unique(node: Node) -> list[Value]:
    """Convert Unique: unique elements in the order of their first occurrence, and where each element is in them."""
    values, _, inverse, _ = _unique(node)
    return [values, inverse]


@operator("UniqueWithCounts", outputs=("y", "idx", "count"))
def unique_with_counts(node: Node) -> list[Value]:
    """Convert UniqueWithCounts, which counts each unique element too."""
    values, _, inverse, counts = _unique(node)
    return [values, inverse, counts]


def _unique(node: Node) -> list[Value]:
    op = Unique(sorted=False, index_dtype=node.dtype("out_idx", DataType.INT32))
    return node.results(op, node.value(0))


@operator("TopKV2", outputs=("values", "indices"))
def top_k(node: Node) -> list[Value]:
    """Convert TopKV2; k is an operand."""
    dtype = node.dtype("index_type", DataType.INT32)
    if node.is_unknown(node.value(1)):
        return node.results(DynamicTopK(index_dtype=dtype), node.value(0), reshaped(node, node.value(1), [1]))
    return node.results(TopK(node.integer_of(1, "k"), index_dtype=dtype), node.value(0))


@operator("TopK", outputs=("values", "indices"))
def top_k_by_attribute(node: Node) -> list[Value]:
    """Convert TopK, with k as an attribute."""
    return node.results(TopK(node.integer("k"), index_dtype=DataType.INT32), node.value(0))


@operator("OneHot")
def one_hot(node: Node) -> Value:
    """Convert OneHot; negative indices select nothing."""
    on_value, off_value = node.value(2), node.value(3)
    depth, axis, dtype = node.integer_of(1, "depth"), node.integer("axis", -1), on_value.known.dtype
    if not 0 <= depth < 1 << 24:
        raise ParseError(f"its depth is {depth}")
    if on_value.constant is not None and off_value.constant is not None and dtype is not DataType.STRING:
        high, low = float(on_value.constant.reshape(-1)[0]), float(off_value.constant.reshape(-1)[0])
        return node.result(OneHot(depth, axis, high, low, dtype), node.value(0))
    one_hot_ones = node.step(OneHot(depth, axis), node.value(0))
    return node.result(Where(), node.step(EQUAL, one_hot_ones, node.scalar_like(1, one_hot_ones)), on_value, off_value)


@operator("MatrixBandPart")
def band(node: Node) -> Value:
    """Convert MatrixBandPart: keep diagonals below and above the main one; -1 keeps all."""
    x, num_below, num_above = node.value(0), node.integer_of(1, "num_lower"), node.integer_of(2, "num_upper")
    for error in () if x.known.rank >= 2 else [f"its input has the shape {x.known.shape}; expected matrices"]:
        raise ParseError(error)
    if num_below >= 0:
        x = node.step(Trilu(-num_below, upper=True), x)
    return x if num_above < 0 else node.step(Trilu(num_above, upper=False), x)
