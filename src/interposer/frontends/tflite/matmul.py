"""TFLite converters for matrix products."""

from __future__ import annotations

from interposer.core.types import DataType, differ
from interposer.frontends.tflite.blockwise import is_blockwise
from interposer.frontends.tflite.hybrid import float_weights, is_hybrid, rounded
from interposer.frontends.tflite.node import Node
from interposer.frontends.tflite.tflite_converters import operator
from interposer.ir.graph import Value
from interposer.ops.matmul import BatchMatMul, FullyConnected, IntegerMatMul
from interposer.ops.quantization import Cast
from interposer.ops.rearrange import Transpose
from interposer.ops.reshape import Reshape

__all__: list[str] = []


@operator("FULLY_CONNECTED", options=True)
def fully_connected(node: Node) -> Value:
    """Convert FULLY_CONNECTED; each row of the weights belongs to one output."""
    if node.options["weights_format"]:
        node.fail(f"weights in format {node.options['weights_format']} are not supported; only the plain format is")
    x, bias = _rows(node), node.optional(2)
    if bias is not None and bias.known.rank != 1:
        bias = node.step(Reshape((-1,)), bias)
    op = FullyConnected(transpose_weight_matrix=True, keep_dims=node.options["keep_num_dims"])
    weights = float_weights(node, 1, x, rank=2, fold=False)
    return node.result(op, x, weights, bias, activation=node.options["fused_activation_function"])


def _rows(node: Node) -> Value:
    """Return the activations of FULLY_CONNECTED, each row rounded to 8 bits if the weights are quantized.

    A row has as many elements as a row of the weights. With weights that have a scale for every block, LiteRT always
    quantizes rows asymmetrically.
    """
    x, weights = node.value(0), node.value(1, rank=2)
    if not is_hybrid(x, weights):
        return x
    if not node.options["keep_num_dims"] and (not x.known.rank or differ(x.known.shape[-1], weights.known.shape[1])):
        x = node.step(Reshape((-1, weights.known.shape[1])), x)
    asymmetric = node.options["asymmetric_quantize_inputs"] or is_blockwise(weights)
    return rounded(node, x, (-1,), asymmetric=asymmetric)


@operator("BATCH_MATMUL", options=True)
def batch_matmul(node: Node) -> Value:
    """Convert BATCH_MATMUL; the adjoint options mean transposition, as there are no complex numbers.

    Products of int8 with a result of int32 ignore scales and zero points, as in LiteRT.
    """
    a, b = node.value(0), node.value(1)
    if node.output_info.dtype is DataType.INT32 and a.known.dtype is DataType.INT8:
        return node.result(
            IntegerMatMul(), *(_matrix(node, matrix, option) for matrix, option in ((a, "adj_x"), (b, "adj_y")))
        )
    if is_hybrid(a, b):
        axis = -2 if node.options["adj_x"] else -1
        a = rounded(node, a, (axis,), asymmetric=node.options["asymmetric_quantize_inputs"])
    return node.result(BatchMatMul(node.options["adj_x"], node.options["adj_y"]), a, node.like(1, a, fold=False))


def _matrix(node: Node, matrix: Value, option: str) -> Value:
    """Return an operand of BATCH_MATMUL without its scale, and with its last two axes swapped if the option is set."""
    if matrix.known.is_quantized:
        matrix = node.step(Cast(matrix.known.dtype), matrix)
    if not node.options[option]:
        return matrix
    rank = matrix.known.rank
    if rank < 2:
        node.fail(f"an operand has shape {matrix.known.shape}; expected at least rank 2")
    return node.step(Transpose((*range(rank - 2), rank - 1, rank - 2)), matrix)
