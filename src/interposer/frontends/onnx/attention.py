"""ONNX converters for attention and the operators that accompany it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from interposer.core.errors import ParseError
from interposer.core.schema import Op
from interposer.frontends.onnx.node import Node
from interposer.frontends.onnx.onnx_converters import operator
from interposer.frontends.onnx.tensors import data_type
from interposer.frontends.reshaping import final_reshape_like, reshaped
from interposer.ir.graph import Value
from interposer.ops.activation import Activation, ActivationFunction
from interposer.ops.attention import Attention, AttentionScores, RotaryEmbedding
from interposer.ops.convolution import DepthwiseConvolution2d
from interposer.ops.linear_attention import LinearAttention
from interposer.ops.quantization import Cast
from interposer.ops.rearrange import Concat, Pad, Slice, StridedSlice, Transpose

__all__ = ["UPDATE_RULES", "convolved_with_state"]

_SCORES: Final = (
    AttentionScores.SCALED,
    AttentionScores.CAPPED,
    AttentionScores.MASKED,
    AttentionScores.PROBABILITIES,
)


UPDATE_RULES: Final = {
    "linear": (False, False),
    "gated": (True, False),
    "delta": (False, True),
    "gated_delta": (True, True),
}
"""For each update rule: whether the operands decay and beta are present."""


@operator("Attention", since=23)
def attention(node: Node) -> Sequence[Value]:
    """Convert Attention; the softmax is computed in 32 bits or more unless softmax_precision says otherwise."""
    precision = node.integer("softmax_precision", 0)
    has_flat_heads = node.info(0).rank == 3
    op = Attention(
        scale=node.number("scale") if node.has_attribute("scale") else None,
        is_causal=node.flag("is_causal"),
        softcap=node.number("softcap", 0.0),
        q_num_heads=node.integer("q_num_heads") if has_flat_heads else 0,
        kv_num_heads=node.integer("kv_num_heads") if has_flat_heads else 0,
        left_window_size=node.integer("left_window_size", -1),
        right_window_size=node.integer("right_window_size", -1),
        present=node.wants(1) or node.wants(2),
        scores=_scores(node) if node.wants(3) else AttentionScores.NONE,
        softmax_precision=data_type(precision) if precision else None,
    )
    optional_operands = (node.optional(i) for i in (4, 5, 6))
    return node.results(op, node.value(0), node.value(1), node.value(2), _mask(node), *optional_operands)


def _scores(node: Node) -> AttentionScores:
    mode = node.integer("qk_matmul_output_mode", 0)
    if not 0 <= mode < len(_SCORES):
        raise ParseError(f"qk_matmul_output_mode is {mode}; expected 0 to {len(_SCORES) - 1}")
    return _SCORES[mode]


def _mask(node: Node) -> Value | None:
    """Return the attention mask (operand 3), or None if it is absent.

    An integer mask is converted to float, as it is added to the scores like a float mask.
    """
    mask = node.optional(3)
    if mask is not None and mask.known.dtype.is_integer:
        return node.step(Cast(node.info(0).dtype), mask)
    return mask


@operator("RotaryEmbedding", since=23)
def rotary_embedding(node: Node) -> Value:
    """Convert RotaryEmbedding; the attribute num_heads is only used if the input has no axis of heads."""
    op = RotaryEmbedding(
        interleaved=node.flag("interleaved"),
        num_heads=node.integer("num_heads") if node.info(0).rank == 3 else 0,
        rotary_embedding_dim=node.integer("rotary_embedding_dim", 0),
    )
    return node.result(op, node.value(0), node.value(1), node.value(2), node.optional(3))


@operator("LinearAttention", since=27)
def linear_attention(node: Node) -> Sequence[Value]:
    """Convert LinearAttention; the update rule must agree with whether the operands decay and beta are present."""
    rule = node.text("update_rule", "gated_delta")
    if rule not in UPDATE_RULES:
        raise ParseError(f"its update_rule is {rule!r}; expected {', '.join(UPDATE_RULES)}")
    if (node.has(4), node.has(5)) != UPDATE_RULES[rule]:
        raise ParseError(f"its update_rule is {rule!r}, which does not go with the operands decay and beta that it has")
    op = LinearAttention(node.integer("q_num_heads"), node.integer("kv_num_heads"), node.number("scale", 0.0) or None)
    return node.results(op, *(node.value(i) for i in range(3)), *(node.optional(i) for i in (3, 4, 5)))


@operator("CausalConvWithState", since=27)
def causal_convolution(node: Node) -> Sequence[Value]:
    """Convert the causal convolution: a depthwise convolution of the past state followed by the new steps.

    The last steps of the input are the second result, the state for the next call.
    """
    return convolved_with_state(node, node.value(0), node.optional(3), 1)


def convolved_with_state(node: Node, x: Value, past: Value | None, dilation: int) -> Sequence[Value]:
    """Return the causal convolution of a tensor (batch, channels, steps), and the last steps of the input.

    The weights are operand 1, and the bias is operand 2. `past` has the steps before, which are zeros by default.
    """
    weights, activation = node.value(1), node.text("activation", "none")
    if activation not in {"none", "silu", "swish"}:
        raise ParseError(f"its activation is {activation!r}; expected none, silu or swish")
    channels, size = weights.known.shape[0], node.known(weights.known.shape[2], "kernel's size")
    num_past_steps = (size - 1) * dilation
    past_and_new = (
        node.step(Concat(2), past, x) if past is not None else node.step(Pad(((0, 0), (0, 0), (num_past_steps, 0))), x)
    )
    image = reshaped(node, past_and_new, [past_and_new.known.shape[0], channels, 1, past_and_new.known.shape[2]], 2)
    kernels = node.step(Transpose((1, 2, 3, 0)), reshaped(node, weights, [channels, 1, 1, size]))
    convolved = node.step(DepthwiseConvolution2d(dilation_x=dilation), image, kernels, node.optional(2))
    if activation == "none":
        activated = final_reshape_like(node, convolved, x)
    else:
        swish = Activation(ActivationFunction.SWISH, 1.0)
        activated = node.result(swish, final_reshape_like(node, convolved, x))
    return [activated, node.step(_last(num_past_steps), past_and_new)]


def _last(count: int) -> Op:
    """Return a slice operator that takes the last `count` elements along the third of three axes."""
    if count == 0:
        return Slice((0, 0, 0), (-1, -1, 0))
    return StridedSlice((0, 0, -count), (0, 0, 0), (1, 1, 1), begin_mask=0b011, end_mask=0b111)
