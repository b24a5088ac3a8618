"""ONNX converters for ONNX Runtime's GroupQueryAttention, the attention of language models with a cache."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from interposer.core.errors import ParseError
from interposer.core.types import differ
from interposer.frontends.onnx.contrib_heads import (
    by_heads,
    check_bias,
    merged_heads,
    pieces,
    scale_of,
    scattered,
    steps_from,
    vector,
)
from interposer.frontends.onnx.node import Node
from interposer.frontends.onnx.onnx_converters import operator
from interposer.frontends.onnx.operator_names import MICROSOFT
from interposer.frontends.onnx.shaping import reshaped
from interposer.ir.graph import Value
from interposer.ops.attention import Attention, RotaryEmbedding
from interposer.ops.elementwise import Addition, Comparison, ComparisonOperation
from interposer.ops.elementwise import Where as Select
from interposer.ops.gather import Gather
from interposer.ops.rearrange import Pad

__all__: list[str] = []


class _Phase(NamedTuple):
    """What is known about the steps of a node: a prompt without a past, or steps that follow a past.

    Attributes:
        batch, steps, past: sizes of the batch, the new steps, and the caches (0 without caches).
        total: the largest number of keys of a sample; None if only a run knows it.
        lengths: seqlens_k, the number of keys of each sample less one, as a vector.
        start: the position of the first step of each sample; None for 0.
    """

    batch: int
    steps: int
    past: int
    total: int | None
    lengths: Value
    start: Value | None

    @property
    def is_prompt(self) -> bool:
        return self.start is None


@operator("GroupQueryAttention", domain=MICROSOFT)
def group_query_attention(node: Node) -> Sequence[Value | None]:
    """Convert GroupQueryAttention.

    The operands are query, key, value, past_key, past_value, seqlens_k, total_sequence_length, cos_cache, sin_cache,
    position_ids, attention_bias, head_sink, k_scale, v_scale, q_norm_weight and k_norm_weight.
    """
    _check_form(node)
    query, key, value = _unpacked(node)
    phase = _phase(node, query)
    if node.flag("do_rotary"):
        positions = _positions(node, phase)
        query, key = (_rotated(node, x, n, positions) for x, n in ((query, _heads(node)), (key, _groups(node))))
    if phase.is_prompt:
        return _prompt(node, phase, query, key, value)
    return _steps(node, phase, query, key, value)


def _heads(node: Node) -> int:
    return node.integer("num_heads")


def _groups(node: Node) -> int:
    return node.integer("kv_num_heads")


def _check_form(node: Node) -> None:
    heads, groups = _heads(node), _groups(node)
    if groups < 1 or heads < 1 or heads % groups:
        raise ParseError(f"its num_heads is {heads}; expected a multiple of kv_num_heads, {groups}")
    if node.integer("causal", 1) not in (0, 1):
        raise ParseError(f"its causal is {node.integer('causal')}; expected 0 or 1")
    if not node.flag("causal", True) and node.integer("local_window_size", -1) != -1:
        raise ParseError("it has a local_window_size, but is not causal")
    if node.has(3) != node.has(4):
        raise ParseError("it has only one of past_key and past_value")
    for reason in _refusals(node):
        node.unsupported(reason)


def _refusals(node: Node) -> Sequence[str]:
    """Return the reasons why the node's form is not supported."""
    quantized = "NONE" not in {node.text("k_quant_type", "NONE"), node.text("v_quant_type", "NONE")}
    reasons = {
        "its caches are quantized; use caches of the query's type": quantized or node.has(12) or node.has(13),
        "it evicts keys from its caches (sliding_window_cache); use caches for all keys": node.flag(
            "sliding_window_cache"
        ),
        "it normalizes query and key; use SimplifiedLayerNormalization before it": node.has(14) or node.has(15),
        "it returns the products of query and key (qk_output); leave this output out": node.wants(3),
        "its softmax has another term (head_sink or smooth_softmax)": node.has(11)
        or node.integer("smooth_softmax", -1) == 1,
    }
    return [reason for reason, applies in reasons.items() if applies]


def _unpacked(node: Node) -> tuple[Value, Value, Value]:
    """Return query, key and value, (batch, steps, heads * size); the query has all three if there is no key."""
    query = node.value(0)
    if query.known.rank != 3:
        raise ParseError(f"its query has shape {query.known.shape}; expected (batch, steps, width)")
    if node.has(1) != node.has(2):
        raise ParseError("it has only one of key and value")
    if node.has(1):
        return query, node.value(1), node.value(2)
    heads, groups = _heads(node), _groups(node)
    width = node.known(query.known.shape[2], "width")
    if width % (heads + 2 * groups):
        raise ParseError(f"its packed operand has {width} elements in a row for {heads} + 2 * {groups} heads")
    size = width // (heads + 2 * groups)
    first, second, third = pieces(node, query, (heads * size, groups * size, groups * size))
    return first, second, third


# ---- Positions -------------------------------------------------------------------------------------------------------


def _phase(node: Node, query: Value) -> _Phase:
    batch, steps = (node.known(size, "batch size or number of steps") for size in query.known.shape[:2])
    lengths = vector(node, node.value(5), batch, "seqlens_k")
    past = node.known(node.value(3).known.shape[2], "length of the past") if node.has(3) else 0
    total = steps if past == 0 else _total(node)
    _check_total(node, batch, steps, past, total)
    if total == steps:
        return _Phase(batch, steps, past, total, lengths, None)
    begin = node.step(Addition(), lengths, node.scalar_like(1 - steps, lengths))
    if total is None:
        count = node.value(6)
        fresh = node.step(
            Comparison(ComparisonOperation.EQUAL), reshaped(node, count, [1]), node.scalar_like(steps, count)
        )
        begin = node.step(Select(), fresh, node.scalar_like(0, begin), begin)
    return _Phase(batch, steps, past, total, lengths, begin)


def _check_total(node: Node, batch: int, steps: int, past: int, total: int | None) -> None:
    total_known = node.importer.extents(node.value(6))
    if past == 0 and total_known is not None and differ(total_known.reshape(-1)[0], steps):
        raise ParseError(f"its total_sequence_length is {total_known.reshape(-1)[0]} for {steps} steps without a past")
    if total is not None and total > past and total != past + steps:
        expected = f"at most {past}, or {past + steps} with the new steps"
        raise ParseError(f"its total_sequence_length is {total} for caches of {past} keys; expected {expected}")
    if total is not None and total != steps and batch > 1 and steps > 1:
        raise ParseError(f"it has {steps} new steps of {batch} samples with a past; expected one step or one sample")


def _total(node: Node) -> int | None:
    """Return total_sequence_length; None if only a run knows it, and the caches of the model do not grow."""
    total = node.value(6)
    if differ(total.known.shape.num_elements, 1):
        raise ParseError(f"its total_sequence_length has shape {total.known.shape}; expected one number")
    known = node.importer.extents(total)
    if known is not None:
        return node.known(known.reshape(-1)[0], "total_sequence_length")
    if node.importer.needs(total) is None or node.keeps_size(3, 1, axis=2):
        return None
    return int(node.array_scalar(6, "total_sequence_length"))


def _positions(node: Node, phase: _Phase) -> Value:
    """Return the position of each step, (batch, steps); the steps of a prompt follow the first of position_ids."""
    start = phase.start
    if not node.has(9):
        zero = node.constant(np.zeros(1, phase.lengths.known.dtype.numpy))
        return steps_from(node, zero if start is None else start, phase.batch, phase.steps)
    ids = node.value(9)
    if ids.known.rank != 2 or any(map(differ, ids.known.shape, (phase.batch, phase.steps))):
        raise ParseError(f"its position_ids has shape {ids.known.shape}; expected [{phase.batch}, {phase.steps}]")
    if phase.total not in (None, phase.steps) or phase.steps == 1 == phase.batch:
        return ids
    first = node.step(Gather(), reshaped(node, ids, [phase.batch * phase.steps]), node.constant(np.zeros(1, np.int64)))
    prompt = steps_from(node, first, phase.batch, phase.steps)
    if phase.is_prompt:
        return prompt
    count = node.value(6)
    fresh = node.step(Comparison(ComparisonOperation.EQUAL), count, node.scalar_like(phase.steps, count))
    return node.step(Select(), fresh, prompt, ids)


def _rotated(node: Node, x: Value, heads: int, positions: Value) -> Value:
    cos, sin = node.value(7), node.value(8)
    if cos.known.rank != 2:
        raise ParseError(f"its cos_cache has shape {cos.known.shape}; expected (positions, half of a head)")
    op = RotaryEmbedding(
        interleaved=node.flag("rotary_interleaved"),
        num_heads=heads,
        rotary_embedding_dim=2 * node.known(cos.known.shape[1], "number of rotated elements"),
    )
    return node.step(op, x, cos, sin, positions)


# ---- Attention -------------------------------------------------------------------------------------------------------


def _operator(node: Node, heads: int, groups: int) -> Attention:
    window = node.integer("local_window_size", -1)
    return Attention(
        scale=scale_of(node),
        is_causal=node.flag("causal", True),
        softcap=max(0.0, node.number("softcap", 0.0)),
        q_num_heads=heads,
        kv_num_heads=groups,
        left_window_size=window - 1 if window > 0 else -1,
    )


def _mask(node: Node, phase: _Phase) -> Value | None:
    """Return what is added to the scores, or False if no key is within the window of a query."""
    bias = node.optional(10)
    if bias is not None:
        total = bias.known.shape[-1] if phase.total is None else phase.total
        check_bias(bias, (phase.batch, _heads(node), phase.steps, total))
    return node.constant(np.array(False)) if node.integer("local_window_size", -1) == 0 else bias


def _prompt(node: Node, phase: _Phase, query: Value, key: Value, value: Value) -> list[Value | None]:
    """Attend to the new keys only, and write them to the caches."""
    lengths = None
    if not node.flag("causal", True):
        lengths = node.step(Addition(), phase.lengths, node.scalar_like(1, phase.lengths))
    op = _operator(node, _heads(node), _groups(node))
    output = node.add(op, query, key, value, _mask(node, phase), None, None, lengths)
    fresh_rows = [fresh if node.wants(n) else None for n, fresh in ((1, key), (2, value))]
    rows = [None if fresh is None else by_heads(node, fresh, _groups(node)) for fresh in fresh_rows]
    if phase.past == 0:
        return [output, *rows]
    return [output, *(row and scattered(node, node.value(n), row, None) for n, row in zip((3, 4), rows, strict=True))]


def _steps(node: Node, phase: _Phase, query: Value, key: Value, value: Value) -> list[Value | None]:
    """Write the new keys to the caches, and attend to those in the caches."""
    assert phase.start is not None
    caches = [
        scattered(node, _grown(node, node.value(n), phase), by_heads(node, fresh, _groups(node)), phase.start)
        for n, fresh in ((3, key), (4, value))
    ]
    lengths = node.step(Addition(), phase.start, node.scalar_like(phase.steps, phase.start))
    if not node.flag("causal", True):
        lengths = node.step(Addition(), phase.lengths, node.scalar_like(1, phase.lengths))
    rows = by_heads(node, query, _heads(node))
    output = node.step(_operator(node, 0, 0), rows, *caches, _mask(node, phase), None, None, lengths)
    return [merged_heads(node, output), *caches]


def _grown(node: Node, cache: Value, phase: _Phase) -> Value:
    """Return a cache with room for the new steps."""
    if phase.total is None or phase.total <= phase.past:
        return cache
    return node.step(Pad(((0, 0), (0, 0), (0, phase.total - phase.past), (0, 0))), cache)
