"""Kernels of attention."""

from __future__ import annotations

import math

import numpy as np

from interposer.core.types import Array
from interposer.kernels.operand_values import check_range
from interposer.kernels.real import real
from interposer.kernels.reference import kernel
from interposer.kernels.table import KernelInfo
from interposer.ops.attention import Attention, AttentionScores, RotaryEmbedding

__all__: list[str] = []


def _split(x: Array, heads: int) -> Array:
    """Split the last axis into heads: (B, S, heads * E) becomes (B, heads, S, E); a tensor of rank 4 is unchanged."""
    if x.ndim == 4:
        return x
    batch, length, width = x.shape
    return x.reshape(batch, length, heads, width // heads).transpose(0, 2, 1, 3)


def _merged(x: Array, rank: int) -> Array:
    """Undo `_split`: (B, H, S, E) becomes (B, S, H * E) if `rank`, that of the operator's query, is 3."""
    if rank == 4:
        return x
    batch, heads, length, size = x.shape
    return x.transpose(0, 2, 1, 3).reshape(batch, length, heads * size)


@kernel(Attention)
def attention(
    op: Attention, query: Array, key: Array, value: Array, mask: Array | None,
    past_key: Array | None, past_value: Array | None, valid_lengths: Array | None, sink: Array | None = None,
    *, info: KernelInfo,
) -> tuple[Array, ...]:  # fmt: skip
    """Compute `Attention`, in float32 for narrower types; masked keys have a score of minus infinity.

    Return the output, the present key, the present value and the scores, or the first of these if the operator has
    fewer results.
    """
    q, k, v = _split(query, op.q_num_heads), _split(key, op.kv_num_heads), _split(value, op.kv_num_heads)
    if past_key is not None and past_value is not None:
        k, v = np.concatenate([past_key, k], 2), np.concatenate([past_value, v], 2)
    q32, k32, v32 = (real(x, info.at(index)) for index, x in enumerate((q, k, v)))
    scale = 1 / math.sqrt(q.shape[3]) if op.scale is None else op.scale
    scaled_scores = _by_groups(q32 * scale, k32.swapaxes(2, 3))
    capped = op.softcap * np.tanh(scaled_scores / op.softcap) if op.softcap else scaled_scores
    is_visible = _visible(op, capped, mask, valid_lengths, past=0 if past_key is None else past_key.shape[2])
    masked_scores = np.where(is_visible, capped + _mask_bias(mask, capped), -np.inf)
    precise_scores = masked_scores if op.softmax_precision is None else masked_scores.astype(op.softmax_precision.numpy)
    probabilities = _softmax(precise_scores, sink)
    probabilities = probabilities.astype(masked_scores.dtype, copy=False)
    output = _merged(_weighted(probabilities, v32, is_visible), query.ndim)
    scores = {
        AttentionScores.SCALED: scaled_scores,
        AttentionScores.CAPPED: capped,
        AttentionScores.MASKED: masked_scores,
        AttentionScores.PROBABILITIES: probabilities,
    }
    return (output, k, v, scores.get(op.scores, scaled_scores))[: op.num_results()]


def _by_groups(a: Array, b: Array) -> Array:
    """Multiply matrices (B, H, M, N) with matrices (B, G, N, P), to (B, H, M, P).

    Each of the G heads of `b` is used by H / G consecutive heads of `a`.
    """
    groups = b.shape[1]
    grouped = a.reshape(a.shape[0], groups, a.shape[1] // groups, *a.shape[2:])
    product: Array = grouped @ b[:, :, np.newaxis]
    return product.reshape(*a.shape[:3], b.shape[3])


def _weighted(probabilities: Array, values: Array, visible: Array) -> Array:
    """Multiply probabilities (B, H, Q, K) with values (B, G, K, E), to (B, H, Q, E), excluding masked keys.

    `visible` is True for keys that are not masked. A plain product would turn an infinity or NaN in the value of an
    excluded key into NaN, as its probability is 0.
    """
    finite = np.isfinite(values)
    output = _by_groups(probabilities, np.where(finite, values, 0))
    not_finite = np.repeat(np.where(finite, 0, values), probabilities.shape[1] // values.shape[1], axis=1)
    for key in np.flatnonzero(~finite.all(axis=(0, 1, 3))):
        product = probabilities[..., key, np.newaxis] * not_finite[:, :, np.newaxis, key]
        output += np.where(visible[..., key, np.newaxis], product, 0)
    return output


def _mask_bias(mask: Array | None, scores: Array) -> Array:
    """Return what a numeric mask adds to the scores (B, H, Q, K); 0 without a mask or with a boolean mask."""
    if mask is None or mask.dtype == np.bool_:
        return np.zeros((), scores.dtype)
    return _for_all_keys(mask, scores.shape[3]).astype(scores.dtype)


def _visible(op: Attention, scores: Array, mask: Array | None, valid_lengths: Array | None, past: int) -> Array:
    """Return which keys each query attends to, by the mask and by position, as booleans (B, H, Q, K).

    `scores` has this shape; `past` is the number of past keys, which come before the new ones.
    """
    keys = scores.shape[3]
    is_visible = _visible_by_position(op, scores.shape[2], keys, valid_lengths, past)
    if mask is not None and mask.ndim:
        is_visible = is_visible & (np.arange(keys) < mask.shape[-1])
    if mask is not None:
        unmasked = mask if mask.dtype == np.bool_ else ~np.isneginf(mask.astype(scores.dtype))
        is_visible = is_visible & _for_all_keys(unmasked, keys)
    return np.broadcast_to(is_visible, scores.shape)


def _for_all_keys(mask: Array, keys: int) -> Array:
    """Append zeros along the last axis of a mask until it has `keys` elements; a scalar mask is unchanged."""
    if mask.ndim == 0:
        return mask
    return np.pad(mask, [(0, 0)] * (mask.ndim - 1) + [(0, keys - mask.shape[-1])])


def _visible_by_position(op: Attention, queries: int, keys: int, valid_lengths: Array | None, past: int) -> Array:
    """Return which keys each query attends to by position alone, as booleans (B or 1, 1, Q, K).

    `past` is the number of past keys. The rules are causality, the windows and the number of valid keys
    (`valid_lengths`).
    """
    key_positions = np.arange(keys)
    valid_counts = np.array([keys]) if valid_lengths is None else valid_lengths
    past_counts = np.array([past]) if valid_lengths is None else valid_lengths - queries
    query_positions = np.arange(queries)[:, np.newaxis] + past_counts.reshape(-1, 1, 1, 1)
    is_visible = np.broadcast_to(
        key_positions < valid_counts.reshape(-1, 1, 1, 1), (valid_counts.size, 1, queries, keys)
    )
    if op.is_causal:
        is_visible = is_visible & (key_positions <= query_positions)
    if op.left_window_size >= 0:
        is_visible = is_visible & (key_positions >= query_positions - op.left_window_size)
    if op.right_window_size >= 0:
        is_visible = is_visible & (key_positions <= query_positions + op.right_window_size)
    return is_visible


def _softmax(scores: Array, sink: Array | None) -> Array:
    """Compute softmax along the last axis; the result is zeros if all scores are minus infinity.

    A sink has one more score for each head, whose probability is left out.
    """
    if sink is not None:
        sink_scores = np.broadcast_to(sink.astype(scores.dtype)[:, np.newaxis, np.newaxis], (*scores.shape[:3], 1))
        return _softmax(np.concatenate([scores, sink_scores], axis=3), None)[..., :-1]
    greatest = scores.max(axis=-1, keepdims=True, initial=-np.inf)
    exps = np.exp(scores - np.where(np.isneginf(greatest), 0, greatest))
    total = exps.sum(axis=-1, keepdims=True)
    probabilities: Array = exps / np.where(total == 0, 1, total)
    return probabilities


@kernel(RotaryEmbedding)
def rotary_embedding(
    op: RotaryEmbedding, x: Array, cos: Array, sin: Array, position_ids: Array | None, *, info: KernelInfo
) -> Array:
    """Compute `RotaryEmbedding`: rotate two views of `x`, which hold the first and the second elements of all pairs."""
    cos, sin = real(cos, info.at(1)), real(sin, info.at(2))
    if position_ids is not None:
        _check_positions(position_ids, len(cos))
        cos, sin = cos[position_ids], sin[position_ids]
    cos, sin = cos[:, np.newaxis], sin[:, np.newaxis]
    rotated = real(_split(x, op.num_heads), info.input).copy()
    rotated_size = 2 * cos.shape[-1]
    pair_slices = (slice(0, rotated_size, 2), slice(1, rotated_size, 2)) if op.interleaved else _halves(rotated_size)
    pair_x, pair_y = (rotated[..., part].copy() for part in pair_slices)
    rotated[..., pair_slices[0]] = cos * pair_x - sin * pair_y
    rotated[..., pair_slices[1]] = sin * pair_x + cos * pair_y
    return _merged(rotated, x.ndim)


def _halves(count: int) -> tuple[slice, slice]:
    return slice(0, count // 2), slice(count // 2, count)


def _check_positions(position_ids: Array, rows: int) -> None:
    check_range("position_ids", position_ids, 0, rows - 1)
