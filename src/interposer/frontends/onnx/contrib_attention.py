"""ONNX converters for ONNX Runtime's Attention, MultiHeadAttention and their relatives.

A masked key gets mask_filter_value, -10,000 unless the node says otherwise, in addition to its score. If all keys of a
sample are masked, they all count. Keys after the position of a query of a unidirectional node never count.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from interposer.core.errors import ParseError
from interposer.core.types import differ
from interposer.frontends.onnx.contrib_heads import (
    added,
    by_heads,
    check_bias,
    key_mask,
    merged_heads,
    pieces,
    scale_of,
    scattered,
    split_bias,
)
from interposer.frontends.onnx.node import Node
from interposer.frontends.onnx.onnx_converters import operator
from interposer.frontends.onnx.operator_names import MICROSOFT
from interposer.frontends.reshaping import reshaped
from interposer.ir.graph import Value
from interposer.ops.attention import Attention, AttentionScores
from interposer.ops.elementwise import Addition, Multiplication
from interposer.ops.matmul import BatchMatMul, FullyConnected, IntegerMatMul
from interposer.ops.quantization import Cast
from interposer.ops.rearrange import Stack
from interposer.ops.reshape import BroadcastTo

__all__: list[str] = []

_PACKED: Final = 5
"""The rank of packed operands: (batch, length, heads, 2 or 3, size)."""


class Operands(NamedTuple):
    """Query, key and value, either all (batch, length, heads * size) or all (batch, heads, length, size)."""

    query: Value
    key: Value
    value: Value

    def by_heads(self, node: Node, heads: int) -> Operands:
        """Return the operands with an axis of heads."""
        return Operands(*(by_heads(node, x, heads) for x in self))

    @property
    def lengths(self) -> tuple[int, int]:
        """The numbers of queries and keys."""
        axis = -2 if self.query.known.rank == 4 else 1
        return self.query.known.shape[axis], self.key.known.shape[axis]


class Cache(NamedTuple):
    """Keys and values of earlier steps, (batch, heads, length, size), and the length of the past in a shared cache.

    Without `used`, all keys are of the past, and the present ones are appended to them. With it, they are written to
    the cache after that many keys of each sample.
    """

    key: Value | None = None
    value: Value | None = None
    used: Value | None = None


def _attend(
    node: Node,
    operands: Operands,
    heads: int,
    masks: Sequence[Value | None],
    cache: Cache,
    *,
    present: bool,
    with_scores: bool = False,
) -> list[Value]:
    """Add attention, and return its output of rank 3, the present keys and values, and the scores, as far as wanted.

    `masks` are added to the scores.
    """
    valid_lengths: Value | None = None
    _check_direction(node, operands, cache)
    if cache.used is not None and cache.key is not None and cache.value is not None:
        operands, valid_lengths = _with_shared_cache(node, operands.by_heads(node, heads), cache)
    is_flat = operands.query.known.rank == 3
    op = Attention(
        scale=scale_of(node),
        is_causal=node.flag("unidirectional"),
        q_num_heads=heads if is_flat else 0,
        kv_num_heads=heads if is_flat else 0,
        present=present and valid_lengths is None,
        scores=AttentionScores.MASKED if with_scores else AttentionScores.NONE,
    )
    mask = added(node, *masks)
    past = (cache.key, cache.value) if valid_lengths is None else (None, None)
    results = node.results(op, *operands, mask, *past, valid_lengths)
    if valid_lengths is not None:
        results = [results[0], operands.key, operands.value, *results[3:]]
    return results if is_flat else [merged_heads(node, results[0]), *results[1:]]


def _check_direction(node: Node, operands: Operands, cache: Cache) -> None:
    queries, keys = operands.lengths
    if node.flag("unidirectional") and cache.key is None and differ(queries, keys):
        node.unsupported(f"it is unidirectional, but has {queries} queries for {keys} keys")


def _with_shared_cache(node: Node, operands: Operands, cache: Cache) -> tuple[Operands, Value]:
    """Return the operands with the whole cache after the new keys were written to it, and its valid lengths."""
    batch, _, steps, _ = operands.key.known.shape
    assert cache.used is not None
    assert cache.key is not None
    assert cache.value is not None
    if not cache.used.known.shape.num_elements == 1:
        raise ParseError(f"its past_sequence_length has shape {cache.used.known.shape}; expected one number")
    start = node.step(BroadcastTo((batch,)), reshaped(node, cache.used, [1]))
    key, value = (
        scattered(node, old, new, start) for old, new in ((cache.key, operands.key), (cache.value, operands.value))
    )
    return Operands(operands.query, key, value), node.step(Addition(), start, node.scalar_like(steps, start))


# ---- Attention -------------------------------------------------------------------------------------------------------


@operator("Attention", domain=MICROSOFT)
def attention(node: Node) -> Sequence[Value]:
    """Convert Attention, which projects its input to query, key and value by one matrix.

    The operands are input, weights, bias, mask, past, attention_bias and past_sequence_length.
    """
    if node.flag("do_rotary"):
        node.unsupported("it rotates query and key; use MultiHeadAttention with RotaryEmbedding instead")
    operands = _projected(node, node.value(0), node.value(1), node.optional(2))
    shares_cache = node.flag("past_present_share_buffer")
    used_length = node.value(6) if shares_cache and node.has(4) else None
    return _with_past(node, operands, node.optional(3), node.optional(4), node.optional(5), used_length)


def _projected(node: Node, x: Value, weights: Value, bias: Value | None) -> Operands:
    """Return query, key and value as pieces of the product of an input with weights, plus a bias."""
    if x.known.rank != 3 or weights.known.rank != 2 or differ(x.known.shape[2], weights.known.shape[0]):
        raise ParseError(f"its input has shape {x.known.shape} and its weights {weights.known.shape}")
    sizes = _hidden_sizes(node, node.known(weights.known.shape[1], "width"))
    if bias is not None and bias.known.shape != (sum(sizes),):
        raise ParseError(f"its bias has shape {bias.known.shape}; expected [{sum(sizes)}]")
    if weights.constant is not None and weights.known.shape[0] > 0:
        product = node.step(FullyConnected(keep_dims=True), x, weights, bias)
    else:
        product = node.step(BatchMatMul(), x, weights)
        product = product if bias is None else node.step(Addition(), product, bias)
    return Operands(*pieces(node, product, sizes))


def _hidden_sizes(node: Node, width: int) -> tuple[int, ...]:
    """Return the widths of query, key and value."""
    if not node.has_attribute("qkv_hidden_sizes"):
        if width % 3:
            raise ParseError(f"its weights have {width} columns, which are not divisible by 3")
        return (width // 3,) * 3
    sizes = node.integers("qkv_hidden_sizes")
    if len(sizes) != 3 or sizes[0] != sizes[1] or sum(sizes) != width:
        raise ParseError(f"its qkv_hidden_sizes is {sizes} for weights with {width} columns")
    return sizes


def _with_past(
    node: Node,
    operands: Operands,
    mask: Value | None,
    past: Value | None,
    bias: Value | None,
    used: Value | None = None,
) -> list[Value]:
    """Add attention with the keys and values of the past in one tensor, (2, batch, heads, length, size).

    Return the output, and the present keys and values in one tensor if they are wanted.
    """
    heads = node.integer("num_heads")
    batch, (queries, keys) = operands.query.known.shape[0], operands.lengths
    cache = Cache(*_unstacked(node, past), used)
    total_keys = keys if cache.key is None or used is not None else cache.key.known.shape[2] + keys
    if used is not None and mask is not None:
        total_keys = mask.known.shape[-1]
    if mask is not None and mask.known.rank == 2 and mask.known.shape == (batch, 1):
        mask = None
    check_bias(bias, (batch, heads, queries, total_keys))
    added_mask = key_mask(node, mask, (batch, queries, total_keys), operands.query, starts=True)
    output, *present_outputs = _attend(node, operands, heads, (bias, added_mask), cache, present=node.wants(1))
    return [output, node.step(Stack(), *present_outputs[:2])] if node.wants(1) else [output]


def _unstacked(node: Node, past: Value | None) -> tuple[Value | None, Value | None]:
    if past is None:
        return None, None
    if past.known.rank != 5 or differ(past.known.shape[0], 2):
        raise ParseError(f"its past has shape {past.known.shape}; expected (2, batch, heads, length, size)")
    key, value = pieces(node, past, (1, 1), 0)
    return reshaped(node, key, past.known.shape[1:]), reshaped(node, value, past.known.shape[1:])


# ---- MultiHeadAttention ----------------------------------------------------------------------------------------------


@operator("MultiHeadAttention", domain=MICROSOFT)
def multi_head_attention(node: Node) -> Sequence[Value]:
    """Convert MultiHeadAttention.

    The operands are query, key, value, bias, key_padding_mask, attention_bias, past_key, past_value,
    past_sequence_length and cache_indirection.
    """
    if node.has(9):
        node.unsupported("its caches are shared by beams; expand the cache of each beam instead")
    heads = node.integer("num_heads")
    operands = _biased(node, _unpacked(node), node.optional(3))
    cache = Cache(node.optional(6), node.optional(7), node.optional(8))
    batch, (queries, keys) = operands.query.known.shape[0], operands.lengths
    mask, bias = node.optional(4), node.optional(5)
    total_keys = keys if cache.key is None else cache.key.known.shape[2] + keys
    if cache.used is not None:
        total_keys = (mask or bias or operands.key).known.shape[-1 if mask or bias else 1]
    check_bias(bias, (batch, heads, queries, total_keys))
    added_mask = key_mask(node, mask, (batch, queries, total_keys), operands.query)
    wants_present = node.wants(1) or node.wants(2)
    return _attend(node, operands, heads, (bias, added_mask), cache, present=wants_present, with_scores=node.wants(3))


def _unpacked(node: Node) -> Operands:
    """Return query, key and value of one rank; those of rank 5 are packed, and keys of rank 4 have an axis of heads."""
    heads, query = node.integer("num_heads"), node.value(0)
    if query.known.rank == _PACKED:
        return Operands(*_parts(node, query, 3))
    if not node.has(1):
        raise ParseError(f"it has no key, and its query of shape {query.known.shape} is not packed")
    key = node.value(1)
    if key.known.rank == _PACKED:
        return Operands(query, *_parts(node, key, 2))
    operands = Operands(query, key, node.value(2))
    return operands.by_heads(node, heads) if key.known.rank == 4 else operands


def _parts(node: Node, x: Value, count: int) -> list[Value]:
    """Return the tensors that are packed in one of shape (batch, length, heads, count, size)."""
    batch, length, heads, packed_count, size = x.known.shape
    if differ(packed_count, count) or differ(heads, node.integer("num_heads")):
        expected = f"(batch, length, {node.integer('num_heads')}, {count}, size)"
        raise ParseError(f"a packed operand has shape {x.known.shape}; expected {expected}")
    return [reshaped(node, part, [batch, length, heads * size], 2) for part in pieces(node, x, (1,) * count, 3)]


def _biased(node: Node, operands: Operands, bias: Value | None) -> Operands:
    """Return the operands plus their biases; keys and values with an axis of heads have been projected with theirs."""
    if bias is None:
        return operands
    heads = node.integer("num_heads")
    if operands.key.known.rank == 4:
        sizes = [heads * node.known(x.known.shape[3], "size of a head") for x in operands]
        bias_piece = split_bias(node, bias, sizes)[0]
        assert bias_piece is not None
        query_bias = reshaped(node, bias_piece, [1, heads, 1, sizes[0] // heads])
        return operands._replace(query=node.step(Addition(), operands.query, query_bias))
    sizes = [node.known(x.known.shape[-1], "width") for x in operands]
    bias_pieces = split_bias(node, bias, sizes)
    return Operands(
        *(node.step(Addition(), x, bias_piece) for x, bias_piece in zip(operands, bias_pieces, strict=True))
    )


@operator("DecoderMaskedMultiHeadAttention", domain=MICROSOFT)
def decoder_masked_multi_head_attention(node: Node) -> Sequence[Value]:
    """Convert DecoderMaskedMultiHeadAttention: MultiHeadAttention of one step, whose cache is shared.

    The operands are query, key, value, mask_index, attention_bias, past_key, past_value, past_sequence_length,
    beam_width, cache_indirection and bias.
    """
    if node.has(9) or node.has(8):
        node.unsupported("its caches are shared by beams; expand the cache of each beam instead")
    heads, key = node.integer("num_heads"), node.optional(1)
    if key is None:
        width = node.known(node.info(0).shape[-1], "width")
        operands = Operands(*pieces(node, node.value(0), (width // 3,) * 3))
    else:
        operands = Operands(node.value(0), key, node.value(2))
        operands = operands.by_heads(node, heads) if key.known.rank == 4 else operands
    queries, keys = operands.lengths
    if differ(queries, 1):
        raise ParseError(f"its query has {queries} steps; expected 1")
    shares_cache = node.flag("past_present_share_buffer")
    if node.has(5) and not shares_cache:
        raise ParseError("it has a past, but past_present_share_buffer is not 1")
    operands = _biased(node, operands, node.optional(10))
    cache = Cache(node.optional(5), node.optional(6), node.value(7) if node.has(5) else None)
    mask, bias = node.optional(3), node.optional(4)
    total_keys = keys if cache.used is None or not (mask or bias) else (mask or bias or operands.key).known.shape[-1]
    batch = operands.query.known.shape[0]
    check_bias(bias, (batch, heads, queries, total_keys))
    added_mask = key_mask(node, mask, (batch, queries, total_keys), operands.query)
    wants_present = node.wants(1) or node.wants(2)
    return _attend(node, operands, heads, (bias, added_mask), cache, present=wants_present, with_scores=node.wants(3))


# ---- QAttention ------------------------------------------------------------------------------------------------------


@operator("QAttention", domain=MICROSOFT)
def quantized_attention(node: Node) -> Sequence[Value]:
    """Convert QAttention: Attention whose projection multiplies 8-bit integers.

    The operands are input, weight, bias, input_scale, weight_scale, mask_index, input_zero_point, weight_zero_point
    and past.
    """
    if node.flag("do_rotary"):
        node.unsupported("it rotates query and key; use MultiHeadAttention with RotaryEmbedding instead")
    x, weights = node.value(0), node.value(1)
    if x.known.rank != 3 or weights.known.rank != 2 or differ(x.known.shape[2], weights.known.shape[0]):
        raise ParseError(f"its input has shape {x.known.shape} and its weights {weights.known.shape}")
    sizes = _hidden_sizes(node, node.known(weights.known.shape[1], "width"))
    zero_point, x_scale = node.optional(6), reshaped(node, node.value(3), [])
    sums = node.step(
        IntegerMatMul(), x, weights, zero_point and reshaped(node, zero_point, []), _columns(node, 7, sum(sizes))
    )
    product_scale = node.step(Multiplication(), x_scale, _columns(node, 4, sum(sizes)))
    product = node.step(Multiplication(), node.step(Cast(x_scale.known.dtype), sums), product_scale)
    operands = Operands(*pieces(node, node.step(Addition(), product, node.value(2)), sizes))
    return _with_past(node, operands, node.optional(5), node.optional(8), None)


def _columns(node: Node, index: int, width: int) -> Value | None:
    """Return the scale or zero point `index`: one number, or one for each of the `width` columns of the weights."""
    operand = node.optional(index)
    if operand is None or operand.known.shape == (width,):
        return operand
    if differ(operand.known.num_elements, 1):
        raise ParseError(f"a scale or zero point has shape {operand.known.shape}; expected one number, or [{width}]")
    return reshaped(node, operand, [])
