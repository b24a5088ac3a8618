"""TFLite converters for matrix products."""

from __future__ import annotations

from interposer.frontends.tflite.hybrid import float_weights
from interposer.frontends.tflite.node import Node
from interposer.frontends.tflite.tflite_converters import operator
from interposer.ir.graph import Value
from interposer.ops.matmul import BatchMatMul, FullyConnected
from interposer.ops.reshape import Reshape

__all__: list[str] = []


@operator("FULLY_CONNECTED", options=True)
def fully_connected(node: Node) -> list[Value]:
    """Convert FULLY_CONNECTED; each row of the weights belongs to one output."""
    if node.options["weights_format"]:
        node.fail(f"weights in format {node.options['weights_format']} are not supported; only the plain format is")
    x, bias = node.input(0), node.optional(2)
    if bias is not None and bias.known.rank != 1:
        bias = node.add(Reshape((-1,)), bias)
    op = FullyConnected(transpose_weight_matrix=True, keep_dims=node.options["keep_num_dims"])
    weights = float_weights(node, 1, x, rank=2, fold=False)
    return node.result(op, x, weights, bias, activation=node.options["fused_activation_function"])


@operator("BATCH_MATMUL", options=True)
def batch_matmul(node: Node) -> list[Value]:
    """Convert BATCH_MATMUL; the adjoint options mean transposition, as there are no complex numbers."""
    a = node.input(0)
    return node.result(BatchMatMul(node.options["adj_x"], node.options["adj_y"]), a, node.like(1, a, fold=False))
