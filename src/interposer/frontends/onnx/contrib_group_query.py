"""ONNX converters for ONNX Runtime's GroupQueryAttention, the attention of language models with a cache."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from interposer.core.errors import ParseError
from interposer.core.types import DataType, differ
from interposer.frontends.elementwise import BITWISE_AND, BITWISE_OR, EQUAL, ROUND, SHIFT_LEFT, SHIFT_RIGHT
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
from interposer.frontends.reshaping import reshaped
from interposer.ir.graph import Value
from interposer.ops.activation import Activation, ActivationFunction
from interposer.ops.attention import Attention, RotaryEmbedding
from interposer.ops.elementwise import Addition, Division, Multiplication, Subtraction
from interposer.ops.elementwise import Where as Select
from interposer.ops.gather import Gather
from interposer.ops.quantization import Cast
from interposer.ops.rearrange import Pad, Stack

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
        query, key = (
            _rotated(node, x, num_heads, positions) for x, num_heads in ((query, _heads(node)), (key, _groups(node)))
        )
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
        given_name, absent_name = ("past_key", "past_value") if node.has(3) else ("past_value", "past_key")
        raise ParseError(f"it has a {given_name} but no {absent_name}; connect both, or neither")
    for reason in _refusals(node):
        node.unsupported(reason)


def _refusals(node: Node) -> Sequence[str]:
    """Return the reasons why the node's form is not supported."""
    reasons = {
        "it evicts keys from its caches (sliding_window_cache); use caches for all keys": node.flag(
            "sliding_window_cache"
        ),
        "it normalizes query and key; use SimplifiedLayerNormalization before it": node.has(14) or node.has(15),
        "it returns the products of query and key (qk_output); leave this output out": node.wants(3),
    }
    return [reason for reason, applies in reasons.items() if applies]


def _unpacked(node: Node) -> tuple[Value, Value, Value]:
    """Return query, key and value, (batch, steps, heads * size); the query has all three if there is no key."""
    query = node.value(0)
    if query.known.rank != 3:
        raise ParseError(f"its query has shape {query.known.shape}; expected (batch, steps, width)")
    if node.has(1) != node.has(2):
        given_name, absent_name = ("key", "value") if node.has(1) else ("value", "key")
        raise ParseError(f"it has a {given_name} but no {absent_name}; connect both, or neither with a packed query")
    if node.has(1):
        return query, node.value(1), node.value(2)
    heads, groups = _heads(node), _groups(node)
    width = node.known(query.known.shape[2], "width")
    if width % (heads + 2 * groups):
        raise ParseError(f"its packed operand has {width} elements in a row for {heads} + 2 * {groups} heads")
    size = width // (heads + 2 * groups)
    query_part, key_part, value_part = pieces(node, query, (heads * size, groups * size, groups * size))
    return query_part, key_part, value_part


# ---- Positions -------------------------------------------------------------------------------------------------------


def _phase(node: Node, query: Value) -> _Phase:
    batch, steps = (node.known(size, "batch size or number of steps") for size in query.known.shape[:2])
    lengths = vector(node, node.value(5), batch, "seqlens_k")
    past = node.known(node.value(3).known.shape[2], "length of the past") if node.has(3) else 0
    total_keys = steps if past == 0 else _total(node)
    _check_total(node, batch, steps, past, total_keys)
    if total_keys == steps:
        return _Phase(batch, steps, past, total_keys, lengths, None)
    start = node.step(Addition(), lengths, node.scalar_like(1 - steps, lengths))
    if total_keys is None:
        total_length = node.value(6)
        is_first_prompt = node.step(
            EQUAL,
            reshaped(node, total_length, [1]),
            node.scalar_like(steps, total_length),
        )
        start = node.step(Select(), is_first_prompt, node.scalar_like(0, start), start)
    return _Phase(batch, steps, past, total_keys, lengths, start)


def _check_total(node: Node, batch: int, steps: int, past: int, total: int | None) -> None:
    known_total = node.importer.dimensions_of(node.value(6))
    if past == 0 and known_total is not None and differ(known_total.reshape(-1)[0], steps):
        raise ParseError(f"its total_sequence_length is {known_total.reshape(-1)[0]} for {steps} steps without a past")
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
    known_total = node.importer.dimensions_of(total)
    if known_total is not None:
        return node.known(known_total.reshape(-1)[0], "total_sequence_length")
    if node.importer.needs(total) is None or node.keeps_size(3, 1, axis=2):
        return None
    return int(node.number_of(6, "total_sequence_length"))


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
    first_position = node.step(
        Gather(), reshaped(node, ids, [phase.batch * phase.steps]), node.constant(np.zeros(1, np.int64))
    )
    prompt_positions = steps_from(node, first_position, phase.batch, phase.steps)
    if phase.is_prompt:
        return prompt_positions
    total_length = node.value(6)
    is_first_prompt = node.step(EQUAL, total_length, node.scalar_like(phase.steps, total_length))
    return node.step(Select(), is_first_prompt, prompt_positions, ids)


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


def _sink(node: Node) -> Value | None:
    """Return the score of one more key without a value for each head; smooth_softmax is the same with scores of 0."""
    sink = node.optional(11)
    if sink is None and node.integer("smooth_softmax", -1) == 1:
        return node.constant(np.zeros(_heads(node), node.info(0).dtype.numpy))
    if sink is not None and (sink.known.rank != 1 or differ(sink.known.shape[0], _heads(node))):
        raise ParseError(f"its head_sink has shape {sink.known.shape}; expected [{_heads(node)}]")
    return sink


def _mask(node: Node, phase: _Phase) -> Value | None:
    """Return what is added to the scores, or False if no key is within the window of a query."""
    bias = node.optional(10)
    if bias is not None:
        num_keys = bias.known.shape[-1] if phase.total is None else phase.total
        check_bias(bias, (phase.batch, _heads(node), phase.steps, num_keys))
    return node.constant(np.array(False)) if node.integer("local_window_size", -1) == 0 else bias


def _prompt(node: Node, phase: _Phase, query: Value, key: Value, value: Value) -> list[Value | None]:
    """Attend to the new keys only, and write them to the caches."""
    lengths = None
    if not node.flag("causal", True):
        lengths = node.step(Addition(), phase.lengths, node.scalar_like(1, phase.lengths))
    stores, new_rows = _quantized_caches(node), [by_heads(node, tensor, _groups(node)) for tensor in (key, value)]
    if stores is None:
        op, other_operands = (
            _operator(node, _heads(node), _groups(node)),
            (_mask(node, phase), None, None, lengths, _sink(node)),
        )
        output = node.result(op, query, key, value, *other_operands)
    else:
        new_rows = [store.stored(x) for store, x in zip(stores, new_rows, strict=True)]
        output = _attended(
            node, phase, query, [store.loaded(x) for store, x in zip(stores, new_rows, strict=True)], lengths
        )
    if phase.past == 0:
        return [output, *new_rows]
    return [output, *(scattered(node, node.value(n), row, None) for n, row in zip((3, 4), new_rows, strict=True))]


def _steps(node: Node, phase: _Phase, query: Value, key: Value, value: Value) -> list[Value | None]:
    """Write the new keys to the caches, and attend to those in the caches."""
    assert phase.start is not None
    new_rows = [by_heads(node, tensor, _groups(node)) for tensor in (key, value)]
    stores = _quantized_caches(node)
    if stores is not None:
        new_rows = [store.stored(x) for store, x in zip(stores, new_rows, strict=True)]
    pasts = [_grown(node, node.value(n), phase) for n in (3, 4)]
    caches = [scattered(node, past, tensor, phase.start) for past, tensor in zip(pasts, new_rows, strict=True)]
    lengths = node.step(Addition(), phase.start, node.scalar_like(phase.steps, phase.start))
    if not node.flag("causal", True):
        lengths = node.step(Addition(), phase.lengths, node.scalar_like(1, phase.lengths))
    loaded_caches = caches if stores is None else [store.loaded(x) for store, x in zip(stores, caches, strict=True)]
    return [_attended(node, phase, query, loaded_caches, lengths), *caches]


def _attended(node: Node, phase: _Phase, query: Value, caches: Sequence[Value], lengths: Value | None) -> Value:
    """Return the attention of a query (batch, steps, width) to keys and values with an axis of heads."""
    query_by_heads = by_heads(node, query, _heads(node))
    other_operands = (_mask(node, phase), None, None, lengths, _sink(node))
    return merged_heads(node, node.step(_operator(node, 0, 0), query_by_heads, *caches, *other_operands))


def _grown(node: Node, cache: Value, phase: _Phase) -> Value:
    """Return a cache with room for the new steps."""
    if phase.total is None or phase.total <= phase.past:
        return cache
    return node.step(Pad(((0, 0), (0, 0), (0, phase.total - phase.past), (0, 0))), cache)


# ---- Quantized caches ------------------------------------------------------------------------------------------------


class _QuantizedCache(NamedTuple):
    """How a cache has keys or values as integers: their scale, which broadcasts, and the bits of each."""

    node: Node
    scale: Value
    bits: int

    def stored(self, x: Value) -> Value:
        """Return keys or values as they are in the cache, rounded to integers."""
        node, largest = self.node, (1 << (self.bits - 1)) - 1
        rounded = node.step(ROUND, node.step(Division(), x, self.scale))
        limits = Activation(ActivationFunction.BOUNDED_RELU, largest, -largest - 1)
        if self.bits == 8:
            return node.step(Cast(DataType.INT8), node.step(limits, rounded))
        positive = node.step(Addition(), node.step(limits, rounded), node.scalar_like(largest + 1, rounded))
        return self._packed(node.step(Cast(DataType.UINT8), positive))

    def loaded(self, x: Value) -> Value:
        """Return keys or values of the cache as floats."""
        node, dtype = self.node, self.scale.known.dtype
        if self.bits == 8:
            return node.step(Multiplication(), node.step(Cast(dtype), x), self.scale)
        low_bits = node.step(BITWISE_AND, x, node.scalar_like(15, x))
        high_bits = node.step(SHIFT_RIGHT, x, node.scalar_like(4, x))
        pairs = node.step(Stack(axis=-1), low_bits, high_bits)
        integers = node.step(Cast(dtype), reshaped(node, pairs, [*x.known.shape[:3], 2 * x.known.shape[3]], 3))
        centered = node.step(Subtraction(), integers, node.scalar_like(8, integers))
        return node.step(Multiplication(), centered, self.scale)

    def _packed(self, x: Value) -> Value:
        """Return integers of 4 bits, each two in a byte, of which the first has the lower bits."""
        node, size = self.node, self.node.known(x.known.shape[3], "size of a head")
        if size % 2:
            raise ParseError(f"its heads have {size} elements, which are not pairs in the bytes of its caches")
        pairs = reshaped(node, x, [*x.known.shape[:3], size // 2, 2], 3)
        low, high = (
            reshaped(node, halves_of_pairs, [*x.known.shape[:3], size // 2], 3)
            for halves_of_pairs in pieces(node, pairs, (1, 1), 4)
        )
        shifted = node.step(SHIFT_LEFT, high, node.scalar_like(4, high))
        return node.step(BITWISE_OR, low, shifted)


def _quantized_caches(node: Node) -> tuple[_QuantizedCache, _QuantizedCache] | None:
    """Return how the caches have keys and values as integers; None if they have them as floats."""
    kinds = [node.text(name, "NONE") for name in ("k_quant_type", "v_quant_type")]
    if kinds == ["NONE", "NONE"]:
        return None
    bits = node.integer("kv_cache_bit_width", 8)
    dtype = {8: DataType.INT8, 4: DataType.UINT8}.get(bits)
    if dtype is None or "NONE" in kinds or {*kinds} - {"PER_TENSOR", "PER_CHANNEL"}:
        raise ParseError(f"its caches have {bits} bits, k_quant_type is {kinds[0]!r} and v_quant_type {kinds[1]!r}")
    if node.has(3) and node.info(3).dtype is not dtype:
        raise ParseError(f"its caches are {node.info(3).dtype}; expected {dtype} for {bits} bits")
    key_store, value_store = (_QuantizedCache(node, _scale(node, 12 + n, kind), bits) for n, kind in enumerate(kinds))
    return key_store, value_store


def _scale(node: Node, index: int, kind: str) -> Value:
    """Return a scale as one number, or as one for each head and element, in the type of the query."""
    scale, dtype = node.value(index), node.info(0).dtype
    scale = scale if scale.known.dtype is dtype else node.step(Cast(dtype), scale)
    if kind == "PER_TENSOR":
        return reshaped(node, scale, [])
    groups = _groups(node)
    if scale.known.num_elements % groups:
        raise ParseError(
            f"a scale has shape {scale.known.shape}; expected one number for each element of {groups} heads"
        )
    return reshaped(node, scale, [1, groups, 1, scale.known.num_elements // groups])
