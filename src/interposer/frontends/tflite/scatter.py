"""TFLite converters for operators that write elements to computed positions."""

from __future__ import annotations

from interposer.core.types import DataType, Dim
from interposer.frontends.tflite.node import Node
from interposer.frontends.tflite.reshape import broadcast_by
from interposer.frontends.tflite.tflite_converters import operator
from interposer.ir.graph import Value
from interposer.ops.quantization import Cast
from interposer.ops.reshape import BroadcastTo, Reshape
from interposer.ops.scatter import DynamicUpdateSlice, ScatterFunction, ScatterNd

__all__: list[str] = []


@operator("SCATTER_ND")
def scatter_nd(node: Node) -> Value:
    """Convert SCATTER_ND: add updates to zeros; the shape is the last input. Sums of bool are OR."""
    op, updates = ScatterNd(ScatterFunction.ADD, input_enabled=False), node.value(1)
    if updates.known.dtype is not DataType.BOOL:
        return node.result(op, node.value(2), node.value(0), updates)
    counts = node.step(op, node.value(2), node.value(0), node.step(Cast(DataType.INT32), updates))
    return node.result(Cast(DataType.BOOL), counts)


@operator("DYNAMIC_UPDATE_SLICE")
def dynamic_update_slice(node: Node) -> Value:
    """Convert DYNAMIC_UPDATE_SLICE; the position is an input."""
    return node.result(DynamicUpdateSlice(), node.value(0), node.value(1), node.value(2))


@operator("SPARSE_TO_DENSE")
def sparse_to_dense(node: Node) -> Value:
    """Convert SPARSE_TO_DENSE: write one value, or one for each index, over a default value."""
    indices, updates = node.value(0), node.value(2)
    rank = int(node.info(1).num_elements)
    columns = indices.known.shape[1] if indices.known.rank > 1 else 1
    if indices.known.rank > 2 or columns != rank:
        node.fail(f"the indices have shape {indices.known.shape}; expected a position of {rank} axes in each row")
    rows = node.step(Reshape((-1, rank)), indices)
    count = rows.known.shape[0]
    if updates.known.rank == 0:
        if isinstance(count, Dim):
            node.open_shape("the number of indices is not known")
        updates = node.step(BroadcastTo((count,)), updates)
    return node.result(ScatterNd(), broadcast_by(node, 1, node.value(3)), rows, updates)
