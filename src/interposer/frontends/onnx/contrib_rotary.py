"""ONNX converters for ONNX Runtime's rotary position embeddings."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from interposer.core.errors import ParseError
from interposer.core.types import differ
from interposer.frontends.onnx.contrib_heads import steps_from
from interposer.frontends.onnx.node import Node
from interposer.frontends.onnx.onnx_converters import operator
from interposer.frontends.onnx.operator_names import MICROSOFT
from interposer.frontends.reshaping import removed_axes, reshaped
from interposer.ir.graph import Value
from interposer.ops.attention import RotaryEmbedding
from interposer.ops.elementwise import Where
from interposer.ops.embedding import EmbeddingLookup
from interposer.ops.rearrange import Splitter

__all__: list[str] = []


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
    """Return the number of heads of an input of rank 3; without the attribute, whole heads are rotated."""
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
