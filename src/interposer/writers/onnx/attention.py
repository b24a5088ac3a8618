"""ONNX writers for attention and the operators that accompany it."""

from __future__ import annotations

from typing import Any, Final

from interposer.ops.attention import Attention, AttentionScores, RotaryEmbedding
from interposer.ops.linear_attention import LinearAttention
from interposer.writers.onnx.draft import Draft, fits
from interposer.writers.onnx.onnx_layer_writers import writer
from interposer.writers.onnx.tensor import Tensor
from interposer.writers.refusals import refuse

__all__: list[str] = []

_MODES: Final = {
    AttentionScores.NONE: None,
    AttentionScores.SCALED: 0,
    AttentionScores.CAPPED: 1,
    AttentionScores.MASKED: 2,
    AttentionScores.PROBABILITIES: 3,
}
_RULES: Final = {(False, False): "linear", (True, False): "gated", (False, True): "delta", (True, True): "gated_delta"}


@writer(Attention)
def attention(draft: Draft, op: Attention) -> list[Tensor]:
    """Write Attention as the operator of this name (since opset 23)."""
    query, key, value, mask, *cache_operands = (draft.optional(index) for index in range(7))
    if draft.optional(7) is not None:
        refuse("it has a sink")
    if mask is not None and mask.dtype.is_float and query is not None:
        mask = draft.cast(mask, query.dtype)
    if query is not None and not fits(query, op.softcap, op.scale or 0.0):
        refuse("its softcap or scale has more digits than an attribute holds")
    window: dict[str, int] = {"left_window_size": op.left_window_size, "right_window_size": op.right_window_size}
    return draft.nodes(
        "Attention",
        query,
        key,
        value,
        mask,
        *cache_operands,
        count=op.num_results(),
        scale=op.scale,
        is_causal=1 if op.is_causal else None,
        softcap=op.softcap or None,
        q_num_heads=op.q_num_heads or None,
        kv_num_heads=op.kv_num_heads or None,
        qk_matmul_output_mode=_MODES[op.scores],
        softmax_precision=op.softmax_precision,
        **_given(window),
    )


def _given(sizes: dict[str, int]) -> dict[str, Any]:
    return {name: size for name, size in sizes.items() if size >= 0}


@writer(RotaryEmbedding)
def rotary_embedding(draft: Draft, op: RotaryEmbedding) -> Tensor:
    """Write RotaryEmbedding as the operator of this name (since opset 23)."""
    x, *optional_operands = (draft.optional(index) for index in range(4))
    cos, sin = (table and x and draft.cast(table, x.dtype) for table in optional_operands[:2])
    return draft.node(
        "RotaryEmbedding",
        x,
        cos,
        sin,
        optional_operands[2],
        interleaved=1 if op.interleaved else None,
        num_heads=op.num_heads or None,
        rotary_embedding_dim=op.rotary_embedding_dim or None,
    )


@writer(LinearAttention)
def linear_attention(draft: Draft, op: LinearAttention) -> list[Tensor]:
    """Write LinearAttention as the operator of this name (since opset 27); the operands determine the rule."""
    operands = [draft.optional(index) for index in range(6)]
    rule = _RULES[operands[4] is not None, operands[5] is not None]
    return draft.nodes(
        "LinearAttention",
        *operands,
        count=2,
        giving=draft.results[1].dtype,
        q_num_heads=op.q_num_heads,
        kv_num_heads=op.kv_num_heads,
        scale=op.scale,
        update_rule=rule,
    )
