"""ONNX converter for Inverse: small matrices by their adjugates, larger ones by Gauss-Jordan elimination."""

from __future__ import annotations

from typing import Final

import numpy as np

from interposer.core.errors import ParseError
from interposer.core.types import DataType, TensorInfo, differ
from interposer.frontends.elementwise import ABS, EQUAL, GREATER_OR_EQUAL, MUL, SUB
from interposer.frontends.importer import input_of_region
from interposer.frontends.onnx.node import Node
from interposer.frontends.onnx.onnx_converters import operator
from interposer.frontends.onnx.operator_names import MICROSOFT
from interposer.frontends.onnx.proto import onnx_package
from interposer.frontends.onnx.subgraphs import Scope
from interposer.frontends.reshaping import final_reshape_like, reshaped
from interposer.ir.graph import Value
from interposer.ir.network import Network
from interposer.ops.control_flow import Scan
from interposer.ops.elementwise import Division, Where
from interposer.ops.gather import Gather
from interposer.ops.matmul import BatchMatMul
from interposer.ops.matrices import Det
from interposer.ops.rearrange import Concat, Splitter
from interposer.ops.reduction import ArgMinMax, ArgMinMaxFunction

__all__: list[str] = []

_LARGEST_ADJUGATE: Final = 8
"""The largest number of rows for which the adjugate is computed, whose cost grows with the fifth power."""


@operator("Inverse", domain=MICROSOFT)
def inverse(node: Node) -> Value:
    """Convert Inverse of one or several square matrices."""
    x = node.value(0)
    shape, dtype = x.known.shape, x.known.dtype
    if x.known.rank < 2 or differ(*shape[-2:]):
        raise ParseError(f"its input has shape {shape}; expected square matrices")
    size = node.known(shape[-1], "size of the matrices")
    if not size:
        return x
    matrices = node.cast(x, DataType.FLOAT32) if dtype is DataType.FLOAT16 else x
    inverses = _adjugate_over_determinant(node, matrices) if size <= _LARGEST_ADJUGATE else _eliminated(node, matrices)
    return node.cast(inverses, dtype)


def _adjugate_over_determinant(node: Node, matrices: Value) -> Value:
    shape = matrices.known.shape
    identity = node.constant(np.eye(shape[-1], dtype=matrices.known.dtype.numpy))
    adjugate = node.step(BatchMatMul(adjoint_x=True), matrices, identity)
    determinant = reshaped(node, node.step(Det(), matrices), [*shape[:-2], 1, 1])
    return node.step(Division(), adjugate, determinant)


def _eliminated(node: Node, matrices: Value) -> Value:
    """Return the inverses by Gauss-Jordan elimination with row pivoting, a step of a Scan for each column."""
    size = matrices.known.shape[-1]
    stacked = reshaped(node, matrices, [-1, size, size])
    identity = node.constant(np.eye(size, dtype=matrices.known.dtype.numpy))
    identities = node.step(Where(), node.constant(np.array(False)), stacked, identity)
    augmented = node.step(Concat(2), stacked, identities)
    network = Network(node.name)
    scope = Scope(node.importer, onnx_package().GraphProto(), network)
    infos = augmented.known, TensorInfo((), DataType.INT64)
    rows, column = (input_of_region(network.graph, i, info, f"step_{i}") for i, info in enumerate(infos))
    network.add_output_layer(0, _without_column(node.inside(scope), rows, column, size))
    columns = node.constant(np.arange(size))
    [reduced] = node.control(Scan(1, 1, 0), [augmented, columns], [network.graph])
    inverses = node.steps(Splitter(axis=2, sizes=(size, size)), reduced)[1]
    return final_reshape_like(node, inverses, matrices)


def _without_column(node: Node, rows: Value, column: Value, size: int) -> Value:
    """Return the rows (B, N, 2 * N) with 1 on the diagonal and 0 elsewhere in a column, by adding multiples of a row.

    The row, which moves to the diagonal, is the one from there on whose element in the column is the largest.
    """
    numbers = node.constant(np.arange(size))
    is_diagonal = reshaped(node, node.step(EQUAL, numbers, column), [1, size, 1])
    sizes = node.step(ABS, node.step(Gather(2), rows, column))
    candidates = node.step(Where(), node.step(GREATER_OR_EQUAL, numbers, column), sizes, node.scalar_like(-1, sizes))
    pivot = node.step(ArgMinMax(ArgMinMaxFunction.MAX, axis=1, keep_dims=True, dtype=DataType.INT64), candidates)
    pivot_moved = node.step(Where(), node.step(EQUAL, numbers, pivot), column, numbers)
    order = node.step(Where(), node.step(EQUAL, numbers, column), pivot, pivot_moved)
    swapped = node.step(Gather(1, batch_dims=1), rows, order)
    row = reshaped(node, node.step(Gather(1), swapped, column), [-1, 1, 2 * size])
    scaled_row = node.step(Division(), row, reshaped(node, node.step(Gather(2), row, column), [-1, 1, 1]))
    factors = reshaped(node, node.step(Gather(2), swapped, column), [-1, size, 1])
    reduced = node.step(SUB, swapped, node.step(MUL, factors, scaled_row))
    return node.step(Where(), is_diagonal, scaled_row, reduced)
