"""ONNX converter for ONNX Runtime's mixture of experts whose weights are integers of 2, 4 or 8 bits."""

from __future__ import annotations

from typing import Final, NamedTuple

from interposer.core.errors import ParseError
from interposer.core.types import DataType, differ
from interposer.frontends.onnx.contrib_experts import activated, checked_tokens, experts_layer, mixed, routed_shares
from interposer.frontends.onnx.contrib_weights import bit_points, block_size_of, unpacked_bits
from interposer.frontends.onnx.node import Node
from interposer.frontends.onnx.onnx_converters import operator
from interposer.frontends.onnx.operator_names import MICROSOFT
from interposer.frontends.onnx.quantization import as_type
from interposer.frontends.reshaping import reshaped
from interposer.ir.graph import Value
from interposer.ops.quantization import BlockDequantize

__all__: list[str] = []


class _Layer(NamedTuple):
    """The indices of a layer's operands, and the name of the attribute with the number of bits of its weights."""

    weights: int
    scales: int
    bias: int
    points: int
    bits: str


_FIRST: Final = _Layer(2, 3, 4, 11, "fc1_expert_weight_bits")
_SECOND: Final = _Layer(5, 6, 7, 12, "fc2_expert_weight_bits")


@operator("QMoE", domain=MICROSOFT)
def quantized_mixture_of_experts(node: Node) -> Value:
    """Convert QMoE: as MoE, with weights that are dequantized, by row or by blocks of a row.

    The shares of the experts are the softmax of the largest router_probs, or come from router_weights. The input stays
    float at all values of accuracy_level, which asks for the least accuracy.
    """
    quant_type = node.text("quant_type", "int")
    if quant_type != "int":
        node.unsupported(f"its quant_type is {quant_type!r}; 'int' is supported")
    if any(node.has(index) for index in (8, 9, 10, 13)):
        node.unsupported("its experts have a third layer (fc3); fuse it with the first one")
    if node.integer("weights_prepacked", 0) > 0:
        node.unsupported("its weights are packed for a GPU (weights_prepacked)")
    tokens, router = checked_tokens(node)
    weights = _weights(node, _FIRST, tokens.known.shape[2])
    hidden = activated(node, experts_layer(node, tokens, weights, node.optional(_FIRST.bias)))
    weights = _weights(node, _SECOND, hidden.known.shape[2])
    expert_outputs = experts_layer(node, hidden, weights, node.optional(_SECOND.bias))
    return mixed(node, expert_outputs, routed_shares(node, router, node.optional(14)))


def _weights(node: Node, layer: _Layer, columns: int) -> Value:
    """Return the weights of a layer of all experts as floats, (experts, rows, columns)."""
    bits = node.integer(layer.bits, 0) or node.integer("expert_weight_bits", 4)
    if bits not in (2, 4, 8):
        raise ParseError(f"its weights have {bits} bits; expected 2, 4 or 8")
    packed, scales, width = node.value(layer.weights), node.value(layer.scales), node.known(columns, "width")
    block_size = block_size_of(node) if node.integer("block_size", 0) else width
    shape = packed.known.shape
    if len(shape) != 3 or differ(shape[2] * 8, width * bits) or width % block_size:
        raise ParseError(f"weights have shape {shape}; expected rows of {width} integers of {bits} bits")
    experts, rows, blocks_per_row = (
        node.known(shape[0], "number of experts"),
        node.known(shape[1], "width"),
        width // block_size,
    )
    if differ(scales.known.num_elements, experts * rows * blocks_per_row):
        raise ParseError(f"scales have shape {scales.known.shape}; expected [{experts}, {rows}, {blocks_per_row}]")
    quantized = unpacked_bits(node, reshaped(node, packed, [experts * rows, width * bits // 8]), bits)
    row_scales = reshaped(node, scales, [experts * rows, blocks_per_row])
    zero_points = _zero_points(node, layer, bits, (experts, rows, blocks_per_row))
    if zero_points.known.dtype is not quantized.known.dtype:
        quantized, zero_points = (as_type(node, tensor, DataType.UINT8) for tensor in (quantized, zero_points))
    floats = node.step(BlockDequantize(block_size, 1, scales.known.dtype), quantized, row_scales, zero_points)
    return reshaped(node, floats, [experts, rows, width])


def _zero_points(node: Node, layer: _Layer, bits: int, shape: tuple[int, int, int]) -> Value:
    """Return the zero points, (experts * rows, counts); by default the middle of the range of the integers."""
    experts, rows, blocks_per_row = shape
    if blocks_per_row > 1 or node.integer("block_size", 0):
        return bit_points(node, layer.points, bits, experts * rows, blocks_per_row)
    return reshaped(node, bit_points(node, layer.points, bits, experts, rows), [experts * rows, 1])
