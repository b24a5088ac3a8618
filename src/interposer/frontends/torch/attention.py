"""Converters for scaled dot-product attention."""

from __future__ import annotations

from typing import Any

import numpy as np

from interposer.core.types import DataType, Dim
from interposer.frontends.torch.call import Call
from interposer.frontends.torch.registry import aten
from interposer.ir.graph import Value
from interposer.ops.attention import Attention

__all__: list[str] = []


@aten("scaled_dot_product_attention", open_sizes=True)
def attention(
    c: Call, query: Value, key: Value, value: Value, mask: Value | None = None, dropout: float = 0.0,
    is_causal: bool = False, scale: float | None = None, enable_gqa: bool = False,
) -> Value:  # fmt: skip
    """Convert scaled dot-product attention of any number of leading axes."""
    if dropout:
        c.unsupported("it has dropout; call eval() on the module before the export")
    return _attended(c, query, key, value, mask, is_causal, scale)


@aten("_scaled_dot_product_flash_attention_for_cpu")
def flash_attention(
    c: Call, query: Value, key: Value, value: Value, dropout: float = 0.0, is_causal: bool = False,
    attn_mask: Value | None = None, scale: float | None = None,
) -> list[Value | None]:  # fmt: skip
    """Convert the attention kernel of CPUs; its second result, the logarithms of the sums, is for training."""
    if dropout:
        c.unsupported("it has dropout; call eval() on the module before the export")
    return [_attended(c, query, key, value, attn_mask, is_causal, scale), None]


@aten("_scaled_dot_product_attention_math", "_scaled_dot_product_attention_math_for_mps")
def math_attention(
    c: Call, query: Value, key: Value, value: Value, mask: Value | None = None, dropout: float = 0.0,
    is_causal: bool = False, *_: Any, scale: float | None = None, enable_gqa: bool = False,
) -> list[Value | None]:  # fmt: skip
    """Convert the attention of separate products."""
    if dropout:
        c.unsupported("it has dropout; call eval() on the module before the export")
    return [_attended(c, query, key, value, mask, is_causal, scale), None]


def _attended(
    c: Call, query: Value, key: Value, value: Value, mask: Value | None, is_causal: bool, scale: float | None
) -> Value:
    if not _fits(query, key, value):
        return _of_other_rank(c, query, key, value, mask, is_causal, scale)
    key, value = (_like_batch(c, operand, query) for operand in (key, value))
    mask = None if mask is None else _four_axes(c, mask, query)
    return c.step(Attention(scale=scale, is_causal=is_causal), query, key, value, mask)


def _fits(query: Value, key: Value, value: Value) -> bool:
    """Return True if key and value have equal heads and only their batch broadcasts, over that of the query."""
    if any(operand.known.rank != 4 for operand in (query, key, value)):
        return False
    batch, heads = query.known.shape[:2]
    batches = [operand.known.shape[0] for operand in (key, value) if not isinstance(operand.known.shape[0], Dim)]
    groups = [operand.known.shape[1] for operand in (key, value)]
    if isinstance(heads, Dim) or any(isinstance(size, Dim) for size in groups):
        return True
    return (isinstance(batch, Dim) or all(size in (1, batch) for size in batches)) and (
        groups[0] == groups[1] and (heads % groups[0] == 0 if groups[0] else heads == 0)
    )


def _like_batch(c: Call, operand: Value, query: Value) -> Value:
    """Return key or value with the batch of the query, over which it may broadcast."""
    batch, batch_of_query = operand.known.shape[0], query.known.shape[0]
    if isinstance(batch, Dim) or isinstance(batch_of_query, Dim) or batch == batch_of_query:
        return operand
    return c.broadcast(operand, [batch_of_query, *c.shape(operand)[1:]])


def _four_axes(c: Call, mask: Value, query: Value) -> Value:
    if mask.known.dtype not in (DataType.BOOL, query.known.dtype):
        mask = c.cast(mask, query.known.dtype)
    num_missing = 4 - mask.known.rank
    return c.reshape(mask, [1] * num_missing + list(mask.known.shape)) if num_missing > 0 and mask.known.rank else mask


def _of_other_rank(
    c: Call, query: Value, key: Value, value: Value, mask: Value | None, is_causal: bool, scale: float | None
) -> Value:
    """Return the attention of tensors that have more or fewer than two leading axes, which are merged into one."""
    shapes = [c.shape(operand) for operand in (query, key, value)]
    try:
        leading_shape = np.broadcast_shapes(*(shape[:-2] for shape in shapes))
    except ValueError:
        c.unsupported(f"its operands have the shapes {shapes}, whose leading axes do not broadcast")
    flat_operands = [
        c.reshape(c.broadcast(operand, [*leading_shape, *shape[-2:]]), [int(np.prod(leading_shape)), 1, *shape[-2:]])
        for operand, shape in zip((query, key, value), shapes, strict=True)
    ]
    lengths = [shapes[0][-2], shapes[1][-2]]
    if mask is not None:
        if mask.known.dtype is not DataType.BOOL:
            mask = c.cast(mask, query.known.dtype)
        mask = c.reshape(c.broadcast(mask, [*leading_shape, *lengths]), [int(np.prod(leading_shape)), 1, *lengths])
    attended = c.step(Attention(scale=scale, is_causal=is_causal), *flat_operands, mask)
    return c.reshape(attended, [*leading_shape, lengths[0], shapes[2][-1]])
