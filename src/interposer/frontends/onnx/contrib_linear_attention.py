"""ONNX converters for ONNX Runtime's linear attention, its gates, and the convolution before it."""

from __future__ import annotations

from collections.abc import Sequence

from interposer.core.errors import ParseError
from interposer.core.types import DataType
from interposer.frontends.elementwise import SIGMOID, SOFTPLUS
from interposer.frontends.onnx.attention import UPDATE_RULES, convolved_with_state
from interposer.frontends.onnx.node import Node
from interposer.frontends.onnx.onnx_converters import operator
from interposer.frontends.onnx.operator_names import MICROSOFT
from interposer.frontends.onnx.shaping import product
from interposer.frontends.reshaping import final_reshape, reshaped
from interposer.ir.graph import Value
from interposer.ops.elementwise import Addition, Multiplication
from interposer.ops.linear_attention import LinearAttention
from interposer.ops.quantization import Cast
from interposer.ops.rearrange import Tile, Transpose

__all__: list[str] = []


@operator("LinearAttention", domain=MICROSOFT)
def contrib_linear_attention(node: Node) -> Sequence[Value]:
    """Convert LinearAttention; its update rule says whether decay and beta are used."""
    if node.integer("state_window", 0):
        node.unsupported("it returns several states (state_window); use 0 for the last one")
    rule = node.text("update_rule", "gated_delta")
    if rule not in UPDATE_RULES:
        raise ParseError(f"its update_rule is {rule!r}; expected {', '.join(UPDATE_RULES)}")
    gates = [node.value(index) if is_used else None for index, is_used in zip((4, 5), UPDATE_RULES[rule], strict=True)]
    heads, groups = node.integer("q_num_heads"), node.integer("kv_num_heads")
    query = node.value(0)
    if 0 < heads < groups:
        query, heads = _repeated(node, query, heads, groups), groups
    op = LinearAttention(heads, groups, node.number("scale", 0.0) or None)
    return node.results(op, query, node.value(1), node.value(2), node.optional(3), *gates)


def _repeated(node: Node, query: Value, heads: int, groups: int) -> Value:
    """Return a query (batch, steps, heads * size) with its heads repeated for all heads of key and value."""
    if query.known.rank != 3 or query.known.shape[2] % heads or groups % heads:
        raise ParseError(f"its query has shape {query.known.shape} for {heads} heads, which serve {groups} of the key")
    batch, steps, width = query.known.shape
    heads_apart = reshaped(node, query, [batch, steps, heads, 1, width // heads], 2)
    return reshaped(
        node, node.step(Tile((1, 1, 1, groups // heads, 1)), heads_apart), [batch, steps, groups * width // heads], 2
    )


@operator("CausalConvWithState", domain=MICROSOFT)
def contrib_causal_convolution(node: Node) -> Sequence[Value]:
    """Convert CausalConvWithState, a depthwise convolution of the past state followed by the new steps."""
    for name, supported_value in {"state_window": 0, "ndim": 1}.items():
        if node.integer(name, supported_value) != supported_value:
            node.unsupported(f"its {name} is {node.integer(name)}; {supported_value} is supported")
    if not node.flag("channels_last"):
        return convolved_with_state(node, node.value(0), node.optional(3), node.integer("dilation", 1))
    x, past = node.value(0), node.optional(3)
    output, state = convolved_with_state(
        node, _channels_first(node, x), past and _channels_first(node, past), node.integer("dilation", 1)
    )
    trailing_shape = x.known.shape[2:]
    return [_channels_last(node, output, trailing_shape), _channels_last(node, state, trailing_shape)]


def _channels_first(node: Node, x: Value) -> Value:
    """Return a tensor (batch, steps, ...) as (batch, channels, steps)."""
    flat_x = reshaped(node, x, [*x.known.shape[:2], product(x.known.shape[2:])], 2) if x.known.rank != 3 else x
    return node.step(Transpose((0, 2, 1)), flat_x)


def _channels_last(node: Node, x: Value, trailing_shape: Sequence[int]) -> Value:
    steps_first = node.step(Transpose((0, 2, 1)), x)
    return (
        steps_first
        if len(trailing_shape) == 1
        else final_reshape(node, steps_first, [*steps_first.known.shape[:2], *trailing_shape], 2)
    )


@operator("LinearAttentionGate", domain=MICROSOFT)
def linear_attention_gate(node: Node) -> Sequence[Value]:
    """Convert LinearAttentionGate: decay_scale * log(1 + exp(a + dt_bias)) in float32, and the sigmoid of b."""
    if node.wants(1) and not node.has(3):
        raise ParseError("it returns beta, but has no operand b")
    biased = node.step(Addition(), _in_float32(node, node.value(0)), node.value(1))
    softplus = node.step(SOFTPLUS, biased)
    decay = node.step(Multiplication(), softplus, node.value(2))
    dtype = node.info(0).dtype
    outputs = [decay if dtype is DataType.FLOAT32 else node.step(Cast(dtype), decay)]
    if node.has(3):
        outputs.append(node.result(SIGMOID, node.value(3)))
    return outputs


def _in_float32(node: Node, x: Value) -> Value:
    return x if x.known.dtype is DataType.FLOAT32 else node.step(Cast(DataType.FLOAT32), x)
