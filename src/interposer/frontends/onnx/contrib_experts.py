"""ONNX converters for ONNX Runtime's mixture of experts."""

from __future__ import annotations

import math
from typing import Final, NamedTuple

from interposer.core.errors import ParseError
from interposer.core.types import DataType, differ
from interposer.frontends.elementwise import RELU
from interposer.frontends.onnx.contrib_weights import bit_points, block_size_of, unpacked_bits
from interposer.frontends.onnx.node import Node
from interposer.frontends.onnx.onnx_converters import operator
from interposer.frontends.onnx.operator_names import MICROSOFT
from interposer.frontends.reshaping import final_reshape_like, reshaped
from interposer.ir.graph import Value
from interposer.ops.activation import Activation, ActivationFunction, Softmax
from interposer.ops.choice import TopK
from interposer.ops.elementwise import Addition, Division, Multiplication
from interposer.ops.embedding import OneHot
from interposer.ops.gather import GatherElements
from interposer.ops.matmul import BatchMatMul
from interposer.ops.quantization import BlockDequantize
from interposer.ops.rearrange import Splitter, Transpose
from interposer.ops.reduction import Reduce

__all__ = ["activated", "checked_tokens", "experts_layer", "mixed", "routed_shares"]

_ACTIVATIONS: Final = {
    "relu": RELU,
    "gelu": Activation(ActivationFunction.GELU_TANH),
    "silu": Activation(ActivationFunction.SWISH, 1.0),
    "identity": None,
}


@operator("MoE", domain=MICROSOFT)
def mixture_of_experts(node: Node) -> Value:
    """Convert MoE: the sum of the results of the k experts with the largest router_probs, weighted by them.

    All experts are computed for all tokens. The operands are input, router_probs, and weights and biases of the first
    and the second layer of the experts.
    """
    if node.has(6) or node.has(7):
        node.unsupported("its experts have a third layer (fc3); fuse it with the first one")
    if node.flag("use_sparse_mixer"):
        node.unsupported("it chooses experts by a sparse mixer")
    tokens, router = checked_tokens(node)
    hidden = experts_layer(node, tokens, node.value(2), node.optional(3))
    expert_outputs = experts_layer(node, activated(node, hidden), node.value(4), node.optional(5))
    return mixed(node, expert_outputs, _shares(node, router))


def checked_tokens(node: Node) -> tuple[Value, Value]:
    """Return the tokens of the input, (1, tokens, width), and router_probs; raise `ParseError` for other ranks."""
    x, router = node.value(0), node.value(1)
    if x.known.rank not in (2, 3) or router.known.rank != 2:
        raise ParseError(f"its input has shape {x.known.shape} and its router_probs {router.known.shape}")
    return reshaped(node, x, [1, -1, x.known.shape[-1]]), router


def experts_layer(node: Node, x: Value, weights: Value, bias: Value | None) -> Value:
    """Return the products of tokens with the weights of each expert, (experts, tokens, width), plus the bias."""
    if weights.known.rank != 3 or differ(weights.known.shape[2], x.known.shape[2]):
        raise ParseError(f"weights have shape {weights.known.shape}; expected (experts, width, {x.known.shape[2]})")
    product = node.step(BatchMatMul(transpose_y=True), x, weights)
    if bias is None:
        return product
    experts, width = weights.known.shape[:2]
    return node.step(Addition(), product, reshaped(node, bias, [experts, 1, width]))


def mixed(node: Node, expert_outputs: Value, shares: Value) -> Value:
    """Return the sum of the results of all experts, each times its share, (tokens, experts), in the input's shape."""
    share_of_expert = reshaped(node, node.step(Transpose((1, 0)), shares), [shares.known.shape[1], -1, 1])
    total = node.step(Reduce((0,)), node.step(Multiplication(), expert_outputs, share_of_expert))
    return final_reshape_like(node, total, node.value(0))


def activated(node: Node, x: Value) -> Value:
    """Return the values after the attribute activation_type."""
    name = node.text("activation_type", "relu")
    if name == "swiglu":
        return _swiglu(node, x)
    if name not in _ACTIVATIONS:
        raise ParseError(f"its activation_type is {name!r}; expected {', '.join(_ACTIVATIONS)} or swiglu")
    op = _ACTIVATIONS[name]
    return x if op is None else node.step(op, x)


def _swiglu(node: Node, x: Value) -> Value:
    """Return g * sigmoid(alpha * g) * (l + beta), where g and l are pairs of neighbours, limited in magnitude."""
    if node.integer("swiglu_fusion", 0) != 1:
        node.unsupported("its gates are not next to what they gate (swiglu_fusion is not 1)")
    experts, tokens, width = x.known.shape
    halves = node.steps(Splitter(3, (1, 1)), reshaped(node, x, [experts, tokens, width // 2, 2]))
    gate, linear = (reshaped(node, half, [experts, tokens, width // 2]) for half in halves)
    limit = node.number("swiglu_limit", math.inf)
    if limit < math.inf:
        gate = node.step(Activation(ActivationFunction.BOUNDED_RELU, limit, -math.inf), gate)
        linear = node.step(Activation(ActivationFunction.BOUNDED_RELU, limit, -limit), linear)
    swish = node.step(Activation(ActivationFunction.SWISH, node.number("activation_alpha", 1.0)), gate)
    beta = node.scalar_like(node.number("activation_beta", 0.0), linear)
    return node.step(Multiplication(), swish, node.step(Addition(), linear, beta))


def _shares(node: Node, router: Value) -> Value:
    """Return the share of each expert in the result of each token, (tokens, experts); 0 for those not chosen."""
    num_experts = node.known(router.known.shape[1], "number of experts")
    shares = node.step(Softmax(), router)
    top_k = TopK(node.integer("k", 1))
    chosen_shares, indices = node.steps(top_k, shares)
    if node.flag("normalize_routing_weights"):
        chosen_shares = node.step(Division(), chosen_shares, node.step(Reduce((1,), keep_dims=True), chosen_shares))
    return _spread(node, chosen_shares, indices, num_experts)


def routed_shares(node: Node, router: Value, weights: Value | None) -> Value:
    """Return the share of each expert, (tokens, experts), as QMoE computes it: the softmax of the largest numbers.

    If there are `weights`, (tokens, experts), those of the chosen experts are their shares.
    """
    num_experts, top_k = node.known(router.known.shape[1], "number of experts"), TopK(node.integer("k", 1))
    chosen_logits, indices = node.steps(top_k, router)
    if weights is None:
        return _spread(node, node.step(Softmax(), chosen_logits), indices, num_experts)
    chosen_shares = node.step(GatherElements(1), weights, indices)
    if node.flag("normalize_routing_weights"):
        chosen_shares = node.step(Division(), chosen_shares, node.step(Reduce((1,), keep_dims=True), chosen_shares))
    return _spread(node, chosen_shares, indices, num_experts)


def _spread(node: Node, shares: Value, indices: Value, num_experts: int) -> Value:
    """Return numbers for the chosen experts, (tokens, k), as (tokens, experts), with 0 for the others."""
    one_hot = node.step(OneHot(num_experts, dtype=shares.known.dtype), indices)
    tokens, k = shares.known.shape
    shares_by_choice = node.step(Multiplication(), one_hot, reshaped(node, shares, [tokens, k, 1]))
    return node.step(Reduce((1,)), shares_by_choice)


# --- experts with quantized weights -----------------------------------------------------------------------------------


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
    packed_weights, scales, width = node.value(layer.weights), node.value(layer.scales), node.known(columns, "width")
    block_size = block_size_of(node) if node.integer("block_size", 0) else width
    shape = packed_weights.known.shape
    if len(shape) != 3 or differ(shape[2] * 8, width * bits) or width % block_size:
        raise ParseError(f"weights have shape {shape}; expected rows of {width} integers of {bits} bits")
    experts, rows, blocks_per_row = (
        node.known(shape[0], "number of experts"),
        node.known(shape[1], "width"),
        width // block_size,
    )
    if differ(scales.known.num_elements, experts * rows * blocks_per_row):
        raise ParseError(f"scales have shape {scales.known.shape}; expected [{experts}, {rows}, {blocks_per_row}]")
    quantized = unpacked_bits(node, reshaped(node, packed_weights, [experts * rows, width * bits // 8]), bits)
    row_scales = reshaped(node, scales, [experts * rows, blocks_per_row])
    zero_points = _zero_points(node, layer, bits, (experts, rows, blocks_per_row))
    if zero_points.known.dtype is not quantized.known.dtype:
        quantized, zero_points = (node.cast(tensor, DataType.UINT8) for tensor in (quantized, zero_points))
    floats = node.step(BlockDequantize(block_size, 1, scales.known.dtype), quantized, row_scales, zero_points)
    return reshaped(node, floats, [experts, rows, width])


def _zero_points(node: Node, layer: _Layer, bits: int, shape: tuple[int, int, int]) -> Value:
    """Return the zero points, (experts * rows, counts); by default the middle of the range of the integers."""
    experts, rows, blocks_per_row = shape
    if blocks_per_row > 1 or node.integer("block_size", 0):
        return bit_points(node, layer.points, bits, experts * rows, blocks_per_row)
    return reshaped(node, bit_points(node, layer.points, bits, experts, rows), [experts * rows, 1])
