"""ONNX converters for ONNX Runtime's mixture of experts."""

from __future__ import annotations

import math
from typing import Final

from interposer.core.errors import ParseError
from interposer.core.types import differ
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
from interposer.ops.rearrange import Splitter, Transpose
from interposer.ops.reduction import Reduce

__all__ = ["activated", "checked_tokens", "experts_layer", "mixed", "routed_shares"]

_ACTIVATIONS: Final = {
    "relu": Activation(ActivationFunction.RELU),
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
    first = experts_layer(node, tokens, node.value(2), node.optional(3))
    results = experts_layer(node, activated(node, first), node.value(4), node.optional(5))
    return mixed(node, results, _shares(node, router))


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


def mixed(node: Node, results: Value, shares: Value) -> Value:
    """Return the sum of the results of all experts, each times its share, (tokens, experts), in the input's shape."""
    by_expert = reshaped(node, node.step(Transpose((1, 0)), shares), [shares.known.shape[1], -1, 1])
    total = node.step(Reduce((0,)), node.step(Multiplication(), results, by_expert))
    return final_reshape_like(node, total, node.value(0))


def activated(node: Node, x: Value) -> Value:
    """Return the values after the attribute activation_type."""
    kind = node.text("activation_type", "relu")
    if kind == "swiglu":
        return _swiglu(node, x)
    if kind not in _ACTIVATIONS:
        raise ParseError(f"its activation_type is {kind!r}; expected {', '.join(_ACTIVATIONS)} or swiglu")
    op = _ACTIVATIONS[kind]
    return x if op is None else node.step(op, x)


def _swiglu(node: Node, x: Value) -> Value:
    """Return g * sigmoid(alpha * g) * (l + beta), where g and l are pairs of neighbours, limited in magnitude."""
    if node.integer("swiglu_fusion", 0) != 1:
        node.unsupported("its gates are not next to what they gate (swiglu_fusion is not 1)")
    experts, tokens, width = x.known.shape
    pair = node.steps(Splitter(3, (1, 1)), reshaped(node, x, [experts, tokens, width // 2, 2]))
    gate, linear = (reshaped(node, part, [experts, tokens, width // 2]) for part in pair)
    limit = node.number("swiglu_limit", math.inf)
    if limit < math.inf:
        gate = node.step(Activation(ActivationFunction.BOUNDED_RELU, limit, -math.inf), gate)
        linear = node.step(Activation(ActivationFunction.BOUNDED_RELU, limit, -limit), linear)
    swish = node.step(Activation(ActivationFunction.SWISH, node.number("activation_alpha", 1.0)), gate)
    beta = node.scalar_like(node.number("activation_beta", 0.0), linear)
    return node.step(Multiplication(), swish, node.step(Addition(), linear, beta))


def _shares(node: Node, router: Value) -> Value:
    """Return the share of each expert in the result of each token, (tokens, experts); 0 for those not chosen."""
    experts = node.known(router.known.shape[1], "number of experts")
    shares = node.step(Softmax(), router)
    top = TopK(node.integer("k", 1))
    values, indices = node.steps(top, shares)
    if node.flag("normalize_routing_weights"):
        values = node.step(Division(), values, node.step(Reduce((1,), keep_dims=True), values))
    return _spread(node, values, indices, experts)


def routed_shares(node: Node, router: Value, weights: Value | None) -> Value:
    """Return the share of each expert, (tokens, experts), as QMoE computes it: the softmax of the largest numbers.

    If there are `weights`, (tokens, experts), those of the chosen experts are their shares.
    """
    experts, top = node.known(router.known.shape[1], "number of experts"), TopK(node.integer("k", 1))
    values, indices = node.steps(top, router)
    if weights is None:
        return _spread(node, node.step(Softmax(), values), indices, experts)
    values = node.step(GatherElements(1), weights, indices)
    if node.flag("normalize_routing_weights"):
        values = node.step(Division(), values, node.step(Reduce((1,), keep_dims=True), values))
    return _spread(node, values, indices, experts)


def _spread(node: Node, values: Value, indices: Value, experts: int) -> Value:
    """Return numbers for the chosen experts, (tokens, k), as (tokens, experts), with 0 for the others."""
    chosen = node.step(OneHot(experts, dtype=values.known.dtype), indices)
    tokens, count = values.known.shape
    weighted = node.step(Multiplication(), chosen, reshaped(node, values, [tokens, count, 1]))
    return node.step(Reduce((1,)), weighted)
