"""NNAPI converters for matrix products."""

from __future__ import annotations

from interposer.frontends.nnapi.nnapi_converters import operator
from interposer.frontends.nnapi.node import Node
from interposer.ir.graph import Value
from interposer.ops.matmul import BatchMatMul, FullyConnected

__all__: list[str] = []


@operator("FULLY_CONNECTED", inputs=4)
def fully_connected(node: Node) -> list[Value]:
    """Convert FULLY_CONNECTED; each row of the weights belongs to one output, and the input is flattened to rows."""
    op = FullyConnected(transpose_weight_matrix=True)
    return node.results(op, node.value(0), node.value(1, rank=2), node.value(2, rank=1), activation=3)


@operator("BATCH_MATMUL", inputs=4)
def batch_matmul(node: Node) -> list[Value]:
    """Convert BATCH_MATMUL; adjoint means transposition, as there are no complex numbers."""
    op = BatchMatMul(node.flag_of(2, "whether to transpose input 0"), node.flag_of(3, "whether to transpose input 1"))
    return node.results(op, node.value(0), node.value(1))
