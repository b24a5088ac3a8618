"""Attention and what belongs to it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from interposer.errors import ParseError
from interposer.frontends.onnx.node import Node
from interposer.frontends.onnx.registry import operator
from interposer.ir.graph import Value
from interposer.ops.attention import Attention, AttentionScores, RotaryEmbedding
from interposer.ops.quantization import Cast

__all__: list[str] = []

_SCORES: Final = (
    AttentionScores.SCALED,
    AttentionScores.CAPPED,
    AttentionScores.MASKED,
    AttentionScores.PROBABILITIES,
)


@operator("Attention", since=23)
def attention(node: Node) -> Sequence[Value]:
    """The softmax is computed with 32 bits or more, whatever precision is asked for."""
    flat = node.info(0).rank == 3
    op = Attention(
        scale=node.number("scale") if node.has_attribute("scale") else None,
        is_causal=node.flag("is_causal"),
        softcap=node.number("softcap", 0.0),
        q_num_heads=node.integer("q_num_heads") if flat else 0,
        kv_num_heads=node.integer("kv_num_heads") if flat else 0,
        left_window_size=node.integer("left_window_size", -1),
        right_window_size=node.integer("right_window_size", -1),
        present=node.wants(1) or node.wants(2),
        scores=_scores(node) if node.wants(3) else AttentionScores.NONE,
    )
    others = (node.optional(i) for i in (4, 5, 6))
    return node.add_many(op, node.value(0), node.value(1), node.value(2), _mask(node), *others)


def _scores(node: Node) -> AttentionScores:
    mode = node.integer("qk_matmul_output_mode", 0)
    if not 0 <= mode < len(_SCORES):
        raise ParseError(f"qk_matmul_output_mode is {mode}; expected 0 to {len(_SCORES) - 1}")
    return _SCORES[mode]


def _mask(node: Node) -> Value | None:
    """Integers are added like other numbers."""
    mask = node.optional(3)
    if mask is not None and mask.known.dtype.is_integer:
        return node.step(Cast(node.info(0).dtype), mask)
    return mask


@operator("RotaryEmbedding", since=23)
def rotary_embedding(node: Node) -> Value:
    """The number of heads is of use only where they are no axis."""
    op = RotaryEmbedding(
        interleaved=node.flag("interleaved"),
        num_heads=node.integer("num_heads") if node.info(0).rank == 3 else 0,
        rotary_embedding_dim=node.integer("rotary_embedding_dim", 0),
    )
    return node.add(op, node.value(0), node.value(1), node.value(2), node.optional(3))
