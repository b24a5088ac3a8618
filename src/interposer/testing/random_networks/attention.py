"""Growers of attention: as a single operator, and as matrix products, a softmax and the layers between them."""

from __future__ import annotations

import math
from typing import Any, Final

from interposer.core.types import Array, DataType, TensorInfo
from interposer.ir.graph import Value
from interposer.ops import (
    Addition,
    Attention,
    AttentionScores,
    BatchMatMul,
    FullyConnected,
    LinearAttention,
    Multiplication,
    Reshape,
    RotaryEmbedding,
    Softmax,
    Transpose,
    Where,
)
from interposer.testing.random_networks.arrays import as_type
from interposer.testing.random_networks.growers import grower
from interposer.testing.random_networks.growth import Growth, Skipped
from interposer.testing.random_networks.random_windows import as_rank

__all__: list[str] = []

_FLOAT: Final = ("float",)
_LENGTH: Final = 48
"""The maximum length of sequences for these growers."""


def _sequence(growth: Growth, value: Value) -> Value:
    """Return the value as floats of shape (batch, length, width), converted and reshaped if necessary.

    Raises:
        Skipped: a dimension is 0 or too large.
    """
    x = growth.real(as_rank(growth, value, 3))
    batch, length, width = x.known.shape
    if not 0 < length <= _LENGTH or not 0 < batch <= 8 or not 0 < width <= 128:
        raise Skipped
    return x


def _projected(growth: Growth, x: Value, width: int) -> Value:
    """Multiply the last axis of a sequence by weights, so that it has this width; return the result.

    A sequence of that width is returned unchanged in half of the cases.
    """
    depth = x.known.shape[-1]
    if depth == width and growth.draw.chance(1, 2):
        return x
    weights = growth.weights((depth, width), 2.0 / (growth.reach(x) * math.sqrt(depth)), x.known.dtype)
    return growth.add(FullyConnected(keep_dims=True), x, weights, reach=1.5)


def _heads(growth: Growth) -> tuple[int, int, int]:
    """Return the numbers of heads of the query and of the keys, and the size of a head."""
    draw = growth.draw
    groups = draw.weighted((1, 2, 3, 4), (4, 3, 1, 1))
    return (
        groups * draw.weighted((1, 2, 3), (4, 2, 1)),
        groups,
        draw.weighted((1, 2, 4, 5, 8, 16, 17), (1, 2, 4, 1, 4, 2, 1)),
    )


@grower(8, Attention, kinds=_FLOAT)
def _attention(growth: Growth, value: Value) -> None:
    """Add self- or cross-attention with masks, windows, past keys and several heads."""
    draw, x = growth.draw, _sequence(growth, value)
    heads, groups, size = _heads(growth)
    other_sequence = growth.another(lambda y: y.known.rank == 3 and y.known.dtype is x.known.dtype
                           and y.known.shape[0] == x.known.shape[0] and 0 < y.known.shape[1] <= _LENGTH
                                    and y.known.shape[2] > 0)  # fmt: skip
    key_source = other_sequence if other_sequence is not None and draw.chance(1, 2) else x
    value_size = size if draw.chance(3, 4) else draw.integer(1, 9)
    query = _projected(growth, x, heads * size)
    key, values = _projected(growth, key_source, groups * size), _projected(growth, key_source, groups * value_size)
    attributes: dict[str, Any] = {"q_num_heads": heads, "kv_num_heads": groups}
    if draw.chance(1, 3):
        query, key, values = _split(growth, query, heads), _split(growth, key, groups), _split(growth, values, groups)
        attributes = {}
    attributes |= _attention_attributes(growth)
    past, mask = _past(growth, key_source, (groups, size, value_size)), None
    keys = key_source.known.shape[1] + (past[0].known.shape[2] if past[0] is not None else 0)
    if draw.chance(1, 2):
        mask = _mask(growth, (x.known.shape[0], heads, x.known.shape[1], keys), x.known.dtype)
    growth.add(Attention(**attributes), query, key, values, mask, *past, reach=growth.reach(values))


def _attention_attributes(growth: Growth) -> dict[str, Any]:
    draw = growth.draw
    attributes: dict[str, Any] = {
        "is_causal": draw.chance(1, 3),
        "softcap": draw.weighted((0.0, 2.0), (6, 1)),
        "scale": draw.weighted((None, 0.5), (3, 1)),
        "scores": draw.weighted(tuple(AttentionScores), (12, 1, 1, 1, 1)),
    }
    if draw.chance(1, 6):
        attributes |= {"left_window_size": draw.integer(0, 5), "right_window_size": draw.integer(-1, 5)}
    return attributes | {"present": draw.chance(1, 6)}


def _split(growth: Growth, x: Value, heads: int) -> Value:
    batch, length, width = x.known.shape
    with_heads = growth.add(Reshape((batch, length, heads, width // heads)), x)
    return growth.add(Transpose((0, 2, 1, 3)), with_heads)


def _past(growth: Growth, source: Value, sizes: tuple[int, int, int]) -> tuple[Value | None, Value | None]:
    if growth.draw.chance(5, 6):
        return None, None
    groups, key_size, value_size = sizes
    batch, length, dtype = source.known.shape[0], growth.draw.integer(1, 9), source.known.dtype
    caches = (growth.weights((batch, groups, length, width), 1.0, dtype) for width in (key_size, value_size))
    return next(caches), next(caches)


def _mask(growth: Growth, shape: tuple[int, ...], dtype: DataType) -> Value:
    """Return a numeric or boolean mask, of full shape or to be broadcast; every query sees at least one key."""
    draw = growth.draw
    sizes = tuple(size if draw.chance(2, 3) else 1 for size in shape[:3])
    mask_shape = (*sizes, shape[3])[draw.integer(0, 3) :]
    if draw.chance(1, 2):
        return growth.weights(mask_shape, 2.0, dtype)
    is_visible: Array = draw.integers(mask_shape, 0, 3) > 0
    is_visible[..., 0] = True
    if draw.chance(1, 3):
        return growth.fed(is_visible, TensorInfo(mask_shape, DataType.BOOL))
    return growth.constant(is_visible)


@grower(4, Softmax, BatchMatMul, FullyConnected, Transpose, Reshape, Multiplication, kinds=_FLOAT)
def _attention_of_parts(growth: Growth, value: Value) -> None:
    """Add attention as exporters write it: matrix products, a scale, an optional mask, and a softmax."""
    draw, x = growth.draw, _sequence(growth, value)
    heads, _, size = _heads(growth)
    shared_projection = _split(growth, _projected(growth, x, heads * size), heads)
    query = _split(growth, _projected(growth, x, heads * size), heads) if draw.chance(1, 3) else shared_projection
    key = _split(growth, _projected(growth, x, heads * size), heads) if draw.chance(1, 3) else shared_projection
    values = _split(growth, _projected(growth, x, heads * size), heads) if draw.chance(1, 3) else shared_projection
    if draw.chance(1, 2):
        scores = growth.add(BatchMatMul(transpose_y=True), query, key, reach=4.0)
    else:
        scores = growth.add(BatchMatMul(), query, growth.add(Transpose((0, 1, 3, 2)), key), reach=4.0)
    shape = draw.one_of(((), (1,), (1, 1, 1, 1)))
    scale = growth.constant(as_type(draw.uniform(shape, 0.25, 1.0), x.known.dtype))
    scores = growth.add(Multiplication(), *((scores, scale) if draw.chance(1, 2) else (scale, scores)))
    length = x.known.shape[1]
    if draw.chance(1, 2):
        scores = growth.add(Addition(), scores, growth.weights((1, 1, length, length), 1.0, x.known.dtype))
    elif draw.chance(1, 2):
        masked_score = growth.constant(as_type(draw.uniform((1,), -9.0, -8.0), x.known.dtype))
        scores = growth.add(Where(), _mask(growth, (1, 1, length, length), x.known.dtype), scores, masked_score)
    probabilities = growth.add(Softmax(), scores, reach=1.0, positive=True)
    merged = growth.add(Transpose((0, 2, 1, 3)), growth.add(BatchMatMul(), probabilities, values, reach=1.5))
    growth.add(Reshape((x.known.shape[0], length, heads * size)), merged)


@grower(2, RotaryEmbedding, LinearAttention, kinds=_FLOAT)
def _positions(growth: Growth, value: Value) -> None:
    """Add a rotary embedding of a sequence, or linear attention."""
    draw, x = growth.draw, _sequence(growth, value)
    heads, groups, size = _heads(growth)
    batch, length, _ = x.known.shape
    dtype = x.known.dtype
    if growth.choice((RotaryEmbedding, LinearAttention), lambda op: op) is LinearAttention:
        query, key = _projected(growth, x, heads * size), _projected(growth, x, groups * size)
        op = LinearAttention(q_num_heads=heads, kv_num_heads=groups)
        decay = growth.add(Softmax(), _projected(growth, x, groups), reach=1.0) if draw.chance(1, 3) else None
        growth.add(op, query, key, _projected(growth, x, groups * size), None, decay, reach=4.0)
        return
    half = max(1, size // 2)
    x = _projected(growth, x, heads * 2 * half)
    caches = [growth.weights((batch, length, half), 1.0, dtype) for _ in range(2)]
    growth.add(RotaryEmbedding(draw.chance(1, 2), heads), x, *caches)
