"""What the converters of ONNX Runtime's attention operators share: heads, positions, biases, caches and masks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from interposer.core.errors import ParseError
from interposer.core.types import differ
from interposer.frontends.elementwise import GREATER, GREATER_OR_EQUAL, LESS, LOGICAL_AND
from interposer.frontends.onnx.node import Node
from interposer.frontends.onnx.onnx_converters import operator
from interposer.frontends.onnx.operator_names import MICROSOFT
from interposer.frontends.reshaping import final_reshape, removed_axes, reshaped
from interposer.ir.graph import Value
from interposer.ops.attention import RotaryEmbedding
from interposer.ops.elementwise import Addition, Where
from interposer.ops.embedding import EmbeddingLookup
from interposer.ops.rearrange import Slice, Splitter, Transpose
from interposer.ops.scatter import TensorScatter

__all__ = [
    "added",
    "by_heads",
    "check_bias",
    "key_mask",
    "merged_heads",
    "pieces",
    "scale_of",
    "scattered",
    "split_bias",
    "steps_from",
    "vector",
]

_HEADS_FIRST: Final = (0, 2, 1, 3)


def by_heads(node: Node, x: Value, heads: int) -> Value:
    """Return a tensor (batch, length, heads * size) as (batch, heads, length, size); one of rank 4 is unchanged."""
    if x.known.rank == 4:
        return x
    batch, length, width = _sequence_of(x)
    if heads < 1 or width % heads:
        raise ParseError(f"a tensor of shape {x.known.shape} cannot be divided among {heads} heads")
    size = width // heads
    if length == 1:
        return reshaped(node, x, [batch, heads, 1, size], 1)
    return node.step(Transpose(_HEADS_FIRST), reshaped(node, x, [batch, length, heads, size], 2))


def merged_heads(node: Node, x: Value) -> Value:
    """Return a tensor (batch, heads, length, size) as (batch, length, heads * size), the node's own result."""
    batch, heads, length, size = x.known.shape
    by_position = x if length == 1 else node.step(Transpose(_HEADS_FIRST), x)
    return final_reshape(node, by_position, [batch, length, heads * size], 2)


def _sequence_of(x: Value) -> tuple[int, ...]:
    if x.known.rank != 3:
        raise ParseError(f"an operand has shape {x.known.shape}; expected (batch, length, width)")
    return tuple(x.known.shape)


def pieces(node: Node, x: Value, sizes: Sequence[int], axis: int = -1) -> list[Value]:
    """Return pieces of these sizes along an axis."""
    return node.steps(Splitter(axis, tuple(sizes)), x)


def split_bias(node: Node, bias: Value | None, sizes: Sequence[int]) -> list[Value | None]:
    """Return the pieces of a bias vector that belong to query, key and value; None for each if there is no bias."""
    if bias is None:
        return [None] * len(sizes)
    if bias.known.rank != 1 or differ(bias.known.shape[0], sum(sizes)):
        raise ParseError(f"its bias has shape {bias.known.shape}; expected [{sum(sizes)}]")
    return list(pieces(node, bias, sizes, 0))


def added(node: Node, x: Value | None, bias: Value | None) -> Value | None:
    """Return the sum of the operands that are present, or None if both are absent."""
    if x is None or bias is None:
        return bias if x is None else x
    return node.step(Addition(), x, bias)


def scale_of(node: Node) -> float | None:
    """Return the attribute scale, or None if the scale is 1 / sqrt(size of a head)."""
    return node.number("scale", 0.0) or None


def vector(node: Node, lengths: Value, batch: int, title: str) -> Value:
    """Return one integer for each sample as a vector; the operand may have the shape (batch,) or (batch, 1)."""
    shape = lengths.known.shape
    if not 1 <= len(shape) <= 2 or differ(shape[0], batch) or (len(shape) == 2 and differ(shape[1], 1)):
        raise ParseError(f"its {title} has shape {shape}; expected [{batch}]")
    return lengths if len(shape) == 1 else reshaped(node, lengths, [batch])


def steps_from(node: Node, start: Value, batch: int, steps: int) -> Value:
    """Return the positions start, start + 1, ... of the steps of each sample, as a tensor (batch, steps).

    `start` has one integer, or one for each sample.
    """
    offsets = np.broadcast_to(np.arange(steps, dtype=start.known.dtype.numpy), (batch, steps))
    rows = 1 if start.known.shape.num_elements == 1 else batch
    return node.step(Addition(), node.constant(np.array(offsets)), reshaped(node, start, [rows, 1]))


def scattered(node: Node, cache: Value, rows: Value, start: Value | None) -> Value:
    """Return a cache (batch, heads, length, size) after new rows are written to it, for each sample from its start."""
    return node.step(TensorScatter(axis=2), cache, rows, start)


# ---- Masks -----------------------------------------------------------------------------------------------------------


def check_bias(bias: Value | None, sizes: Sequence[int]) -> None:
    """Raise `ParseError` unless an attention_bias has these sizes; batch and heads may also be 1.

    `sizes` are batch, heads, queries and keys.
    """
    if bias is None:
        return
    shape = bias.known.shape
    fits = len(shape) == 4 and not any(differ(shape[n], sizes[n]) for n in (2, 3))
    if not fits or any(differ(shape[n], sizes[n]) and differ(shape[n], 1) for n in (0, 1)):
        batch, heads, queries, keys = sizes
        raise ParseError(
            f"its attention_bias has shape {shape}; expected [{batch} or 1, {heads} or 1, {queries}, {keys}]"
        )


def key_mask(
    node: Node, mask: Value | None, sizes: Sequence[int], like: Value, *, starts: bool = False
) -> Value | None:
    """Return what a mask of keys adds to the scores: 0 for keys that count, and mask_filter_value for others.

    Args:
        node: the node that has the mask.
        mask: the mask, in one of these forms. For each key of a sample, or for each of its queries and keys, an
            integer that is above 0 if the key counts: (batch, keys), (batch, queries, keys), or (batch, 1, length,
            length) for all positions. Or the number of keys of each sample that count: (batch,), or (3 * batch + 2,)
            with cumulated lengths after it.
        sizes: batch, queries and keys; keys of the past come before those at the queries.
        like: a tensor of the type of the scores.
        starts: whether (2 * batch,) is accepted, the number of keys followed by the first key of each sample.
    """
    if mask is None:
        return None
    is_shown = _shown(node, mask, sizes, starts)
    masked_score = node.number("mask_filter_value", -10000.0)
    return node.step(Where(), is_shown, node.scalar_like(0.0, like), node.scalar_like(masked_score, like))


def _shown(node: Node, mask: Value, sizes: Sequence[int], starts: bool) -> Value:
    batch, queries, keys = sizes
    shape = mask.known.shape
    if len(shape) == 1:
        return _shown_by_length(node, mask, sizes, starts)
    expected = {2: (batch, keys), 3: (batch, queries, keys), 4: (batch, 1, shape[-1], shape[-1])}.get(len(shape))
    if expected is None or any(map(differ, shape, expected)):
        raise ParseError(
            f"its mask has shape {shape}, which does not fit {batch} samples of {queries} queries, {keys} keys"
        )
    if len(shape) == 4:
        mask = node.step(Slice((0, 0, keys - queries, 0), (-1, -1, queries, keys)), mask)
    else:
        mask = reshaped(node, mask, [shape[0], 1, 1 if len(shape) == 2 else shape[1], shape[-1]])
    return node.step(GREATER, mask, node.scalar_like(0, mask))


def _shown_by_length(node: Node, mask: Value, sizes: Sequence[int], starts: bool) -> Value:
    batch, _, keys = sizes
    mask_size = node.known(mask.known.shape[0], "mask's size")
    batch = node.known(batch, "batch size")
    piece_sizes = {batch: [batch], 3 * batch + 2: [batch, 2 * batch + 2], 2 * batch if starts else -1: [batch, batch]}
    if mask_size not in piece_sizes:
        raise ParseError(f"its mask has {mask_size} elements for {batch} samples")
    limits = [reshaped(node, piece, [-1, 1, 1, 1]) for piece in pieces(node, mask, piece_sizes[mask_size], 0)]
    key = node.constant(np.arange(node.known(keys, "number of keys"), dtype=mask.known.dtype.numpy))
    before_end = node.step(LESS, key, limits[0])
    if piece_sizes[mask_size] != [batch, batch]:
        return before_end
    from_start = node.step(GREATER_OR_EQUAL, key, limits[1])
    return node.step(LOGICAL_AND, before_end, from_start)


# --- rotary positions -------------------------------------------------------------------------------------------------


@operator("RotaryEmbedding", domain=MICROSOFT)
def rotary_embedding(node: Node) -> Value:
    """Convert RotaryEmbedding, whose operands are input, position_ids, cos_cache and sin_cache.

    The attributes scale and is_packed_batching do not change the result.
    """
    x, cos = node.value(0), node.value(2)
    rotated_size = node.integer("rotary_embedding_dim", 0)
    if rotated_size and not node.integer("num_heads", 0):
        raise ParseError("it needs the attribute num_heads, as it has rotary_embedding_dim")
    op = RotaryEmbedding(
        interleaved=node.integer("interleaved", 0) == 1,
        num_heads=_heads(node, x, cos) if x.known.rank == 3 else 0,
        rotary_embedding_dim=rotated_size,
    )
    return node.result(op, x, cos, node.value(3), _positions(node, x))


def _heads(node: Node, x: Value, cos: Value) -> int:
    """Return the number of heads of an input of shape (batch, steps, width).

    Without the attribute `num_heads`, `cos` has half a head in each row, so that all elements of a head are rotated.
    """
    if node.integer("num_heads", 0):
        return node.integer("num_heads")
    if cos.known.rank != 2:
        raise ParseError(f"its cos_cache has shape {cos.known.shape}; expected rank 2")
    width, half_head = node.known(x.known.shape[2], "width"), node.known(cos.known.shape[1], "size of a head")
    if half_head == 0 or width % (2 * half_head):
        raise ParseError(
            f"its input has {width} elements in a row, which heads of {2 * half_head} elements do not divide"
        )
    return width // (2 * half_head)


def _positions(node: Node, x: Value) -> Value:
    """Return the position of each step, (batch, steps); one number is the position of the first step."""
    ids = node.value(1)
    if ids.known.rank == 2:
        return ids
    if ids.known.rank > 2 or differ(ids.known.shape.num_elements, 1):
        raise ParseError(f"its position_ids has shape {ids.known.shape}; expected one number, or (batch, steps)")
    batch, steps = x.known.shape[0], x.known.shape[-2]
    return steps_from(node, ids, node.known(batch, "batch size"), node.known(steps, "number of steps"))


@operator("MRotaryEmbedding", domain=MICROSOFT)
def multimodal_rotary_embedding(node: Node) -> Value:
    """Convert MRotaryEmbedding: each rotated pair takes its angle at the position in time, height or width.

    The operands are input, position_ids (3, batch, steps), cos_cache and sin_cache.
    """
    x, cos = node.value(0), node.value(2)
    rotated_size = node.integer("rotary_embedding_dim", 0)
    if rotated_size and not node.integer("num_heads", 0):
        raise ParseError("it needs the attribute num_heads, as it has rotary_embedding_dim")
    if x.known.rank == 3 and not node.integer("num_heads", 0):
        raise ParseError("it needs the attribute num_heads, as its input has rank 3")
    streams = _streams(node, node.known(cos.known.shape[-1], "size of a head"))
    op = RotaryEmbedding(
        interleaved=node.integer("interleaved", 0) == 1,
        num_heads=_heads(node, x, cos) if x.known.rank == 3 else 0,
        rotary_embedding_dim=rotated_size,
    )
    return node.result(op, x, *(_of_streams(node, node.value(index), streams) for index in (2, 3)))


def _streams(node: Node, pairs: int) -> list[int]:
    """Return for each rotated pair which position it takes: 0 is that in time, 1 in height, 2 in width."""
    sections = node.integers("mrope_section")
    layout = node.integer("mrope_layout", 0)
    if len(sections) != 3 or min(sections) < 0 or sum(sections) != pairs:
        raise ParseError(f"its mrope_section is {sections}; expected three numbers, {pairs} in all")
    if layout == 0:
        return [stream for stream, count in enumerate(sections) for _ in range(count)]
    if layout != 1:
        raise ParseError(f"its mrope_layout is {layout}; expected 0 or 1")
    return [pair % 3 if pair < 3 * sections[pair % 3] else 0 for pair in range(pairs)]


def _of_streams(node: Node, cache: Value, streams: Sequence[int]) -> Value:
    """Return the rows of a cache for each step, (batch, steps, pairs)."""
    ids = node.value(1)
    if ids.known.rank != 3 or differ(ids.known.shape[0], 3) or cache.known.rank != 2:
        expected = "expected (3, batch, steps) and (positions, pairs)"
        raise ParseError(f"its position_ids has shape {ids.known.shape}, a cache {cache.known.shape}; {expected}")
    batch, steps = ids.known.shape[1:]
    flat_rows = node.step(EmbeddingLookup(), reshaped(node, ids, [-1]), cache)
    rows = reshaped(node, flat_rows, [3, batch, steps, cache.known.shape[1]])
    rows_of_streams = node.steps(Splitter(0, (1, 1, 1)), rows)
    time, height, width = (removed_axes(node, rows_of_stream, [0]) for rows_of_stream in rows_of_streams)
    height_or_width = node.step(Where(), node.constant(np.array(streams) == 1), height, width)
    return node.step(Where(), node.constant(np.array(streams) == 0), time, height_or_width)
