"""Samples of attention."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import numpy as np

from interposer.core.types import DataType
from interposer.ops import Attention, AttentionScores, RotaryEmbedding
from interposer.testing.sample import Given, Sample, given, of, samples

__all__: list[str] = []

FLOATS: Final = (DataType.FLOAT32, DataType.FLOAT16, DataType.BFLOAT16, DataType.FLOAT64)
FORMS: Final[dict[str, dict[str, Any]]] = {
    "plain": {},
    "causal": {"is_causal": True},
    "capped": {"softcap": 2.0, "scale": 0.7},
    "window": {"left_window_size": 2, "right_window_size": 1},
    "causal-window": {"is_causal": True, "left_window_size": 1},
    "present": {"present": True},
}


def _heads(dtype: DataType) -> list[Given]:
    """Return query, key and value.

    Four heads of the query share two of key and value, for three queries and five keys.
    """
    return [given((2, 4, 3, 6), dtype), given((2, 2, 5, 6), dtype), given((2, 2, 5, 4), dtype)]


def _past(dtype: DataType) -> list[Given]:
    return [given((2, 2, 3, 6), dtype), given((2, 2, 3, 4), dtype)]


@samples(Attention)
def forms() -> Iterator[Sample]:
    """Yield Attention samples: every option in every type, inputs of rank 3 and 4 (heads as an axis), and past keys."""
    for dtype in FLOATS:
        for name, options in FORMS.items():
            yield Sample(Attention(**options), _heads(dtype), name=f"{name}-{dtype}")
            with_past = [*_heads(dtype), None, *_past(dtype)]
            yield Sample(Attention(**options), with_past, name=f"{name}-past-{dtype}")
            flat_op = Attention(**options, q_num_heads=4, kv_num_heads=2)
            operands = [given((2, 3, 24), dtype), given((2, 5, 12), dtype), given((2, 5, 8), dtype)]
            yield Sample(flat_op, operands, name=f"{name}-flat-{dtype}")


@samples(Attention)
def masks() -> Iterator[Sample]:
    """Yield Attention samples.

    They cover boolean and numeric masks of every rank, masks shorter than the keys, and valid lengths that differ.
    """
    shapes = {"row": (5,), "matrix": (3, 5), "heads": (4, 1, 5), "whole": (2, 4, 3, 5), "shorter": (1, 1, 3, 4)}
    for dtype in FLOATS:
        for mask_dtype in (DataType.BOOL, dtype):
            for name, shape in shapes.items():
                for causal in (False, True):
                    title = f"mask-{name}-{mask_dtype}-{'causal-' if causal else ''}{dtype}"
                    operands = [*_heads(dtype), given(shape, mask_dtype)]
                    yield Sample(Attention(is_causal=causal), operands, name=title)
        lengths = [*_heads(dtype), None, None, None, of([5, 3], DataType.INT64)]
        yield Sample(Attention(), lengths, name=f"lengths-{dtype}")
        yield Sample(Attention(is_causal=True, left_window_size=1), lengths, name=f"lengths-causal-{dtype}")


@samples(Attention)
def sinks() -> Iterator[Sample]:
    """Yield Attention samples with a sink, with few and many queries, masks, and queries that see no key."""
    for dtype in FLOATS:
        sink = given((4,), dtype)
        for name, options in FORMS.items():
            operands = [*_heads(dtype), None, None, None, None, sink]
            yield Sample(Attention(**options), operands, name=f"sink-{name}-{dtype}")
        masked = [*_heads(dtype), given((3, 5), DataType.BOOL), None, None, None, sink]
        yield Sample(Attention(is_causal=True), masked, name=f"sink-mask-{dtype}")
        many_queries = [given((1, 4, 20, 6), dtype), given((1, 2, 40, 6), dtype), given((1, 2, 40, 4), dtype)]
        lengths = [*many_queries, None, None, None, of([25], DataType.INT64), sink]
        yield Sample(Attention(is_causal=True), lengths, name=f"sink-many-{dtype}")
    no_visible_key = of([[False, False, False]], DataType.BOOL)
    operands = [of(np.zeros((1, 1, 1, 1))), of(np.ones((1, 1, 3, 1))), of([[[[3], [5], [10]]]]), no_visible_key]
    zero = np.zeros((1, 1, 1, 1), np.float32)
    infinite_sink = of(np.array([-np.inf], np.float32))
    yield Sample(Attention(), [*operands, None, None, None, of(np.ones(1))], name="sink-nothing-seen", expected=[zero])
    yield Sample(Attention(), [*operands, None, None, None, infinite_sink], name="sink-infinite", expected=[zero])


@samples(Attention)
def scores() -> Iterator[Sample]:
    """Yield Attention samples that output the scores after each stage of the computation."""
    for stage in AttentionScores:
        op = Attention(softcap=1.5, is_causal=True, scores=stage)
        yield Sample(op, [*_heads(DataType.FLOAT32), given((3, 5), DataType.BOOL)], name=f"scores-{stage.name.lower()}")


@samples(Attention)
def precisions() -> Iterator[Sample]:
    """Yield Attention samples that compute the softmax in each type."""
    for dtype in FLOATS:
        yield Sample(Attention(softmax_precision=dtype), _heads(DataType.FLOAT16), name=f"softmax-in-{dtype}")


@samples(Attention)
def worked() -> Iterator[Sample]:
    """Yield worked Attention examples: equal scores give the mean of visible values, and no visible value gives 0."""
    queries, key, value = of(np.zeros((1, 1, 2, 1))), of(np.ones((1, 1, 3, 1))), of([[[[3], [5], [10]]]])
    means = {"all": (Attention(), [6, 6]), "causal": (Attention(is_causal=True), [3, 4])}
    for name, (op, expected) in means.items():
        mean_rows = np.array(expected, np.float32).reshape(1, 1, 2, 1)
        yield Sample(op, [queries, key, value], name=f"worked-{name}", expected=[mean_rows])
    mask = of([[False, False, False], [True, False, True]], DataType.BOOL)
    visible_means = np.array([0, 6.5], np.float32).reshape(1, 1, 2, 1)
    yield Sample(Attention(), [queries, key, value, mask], name="worked-nothing-seen", expected=[visible_means])


@samples(RotaryEmbedding)
def rotations() -> Iterator[Sample]:
    """Yield RotaryEmbedding samples.

    They cover rotations of halves and of adjacent pairs, of whole and partial heads, with caches by position or not.
    """
    ids = of([[3, 0, 2], [1, 1, 4]], DataType.INT64)
    for dtype in FLOATS:
        for interleaved in (False, True):
            for rotary_dim in (0, 4):
                size = (rotary_dim or 6) // 2
                title = f"{'neighbours' if interleaved else 'halves'}-{rotary_dim or 'all'}"
                rows, table = given((2, 3, size), dtype), given((5, size), dtype)
                flat_operand, heads = given((2, 3, 24), dtype), given((2, 4, 3, 6), dtype)
                op = RotaryEmbedding(interleaved, rotary_embedding_dim=rotary_dim)
                yield Sample(op, [heads, rows, rows], name=f"{title}-{dtype}")
                yield Sample(op, [heads, table, table, ids], name=f"{title}-positions-{dtype}")
                yield Sample(op.replace(num_heads=4), [flat_operand, rows, rows], name=f"{title}-flat-{dtype}")


@samples(RotaryEmbedding)
def quarter_turn() -> Iterator[Sample]:
    """Yield worked RotaryEmbedding examples: a rotation by 90 degrees maps (x, y) to (-y, x)."""
    x, cos, sin = of([[[[1, 2, 3, 4]]]]), of([[[0, 0]]]), of([[[1, 1]]])
    for name, op, rotated in (
        ("halves", RotaryEmbedding(), [-3, -4, 1, 2]),
        ("neighbours", RotaryEmbedding(interleaved=True), [-2, 1, -4, 3]),
    ):
        yield Sample(op, [x, cos, sin], name=f"worked-{name}", expected=[np.array([[[rotated]]], np.float32)])
