"""Decompositions of the operators that PyTorch's attention modules call instead of their parts, if nothing is trained.

`torch.nn.TransformerEncoderLayer` and `torch.nn.MultiheadAttention` each have such a fast path.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from interposer.frontends.torch.package import torch

__all__ = ["fast_paths"]


def fast_paths() -> dict[Any, Callable[..., Any]]:
    """Return the decompositions by operator; calls with a mask are not decomposed."""
    return {
        torch.ops.aten._transformer_encoder_layer_fwd.default: _encoder_layer,
        torch.ops.aten._native_multi_head_attention.default: _attention,
    }


def _encoder_layer(src: Any, width: int, heads: int, *operands: Any, **keyword_operands: Any) -> Any:
    """Decompose a layer; `operands` are the operands after the first three, in the order of the operator's schema."""
    attention, (use_gelu, norm_first, epsilon), (norm_1, bias_1, norm_2, bias_2) = (
        operands[:4],
        operands[4:7],
        operands[7:11],
    )
    if any(operand is not None for operand in (*operands[15:], *keyword_operands.values())):
        return NotImplemented
    functional = torch.nn.functional

    def expanded(x: Any) -> Any:
        hidden = functional.linear(x, *operands[11:13])
        hidden = functional.gelu(hidden) if use_gelu else functional.relu(hidden)
        return functional.linear(hidden, *operands[13:15])

    def first(x: Any) -> Any:
        return functional.layer_norm(x, (width,), norm_1, bias_1, epsilon)

    def second(x: Any) -> Any:
        return functional.layer_norm(x, (width,), norm_2, bias_2, epsilon)

    if norm_first:
        x = src + _attended(first(src), heads, *attention)
        return x + expanded(second(x))
    x = first(src + _attended(src, heads, *attention))
    return second(x + expanded(x))


def _attention(
    query: Any,
    key: Any,
    value: Any,
    width: int,
    heads: int,
    qkv_weight: Any,
    qkv_bias: Any,
    out_weight: Any,
    out_bias: Any,
    mask: Any = None,
    need_weights: bool = True,
    average: bool = True,
    mask_type: int | None = None,
) -> Any:
    if mask is not None or need_weights or key is not query or value is not query:
        return NotImplemented
    attended = _attended(query, heads, qkv_weight, qkv_bias, out_weight, out_bias)
    return attended, query.new_empty(0)


def _attended(x: Any, heads: int, qkv_weight: Any, qkv_bias: Any, out_weight: Any, out_bias: Any) -> Any:
    """Return the attention of a sequence (batch, length, width) to itself."""
    functional = torch.nn.functional
    batch, length, width = x.shape
    q, k, v = functional.linear(x, qkv_weight, qkv_bias).chunk(3, -1)
    head_projections = (
        projection.view(batch, length, heads, width // heads).transpose(1, 2) for projection in (q, k, v)
    )
    merged = functional.scaled_dot_product_attention(*head_projections).transpose(1, 2).reshape(batch, length, width)
    return functional.linear(merged, out_weight, out_bias)
