"""Scaled dot-product attention and rotary position embedding."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from enum import Enum
from typing import Any, Final

from interposer.core.schema import Op, attribute, op, operand, result
from interposer.core.traits import Role
from interposer.core.types import DataType, TensorInfo, TensorShape, differ
from interposer.ops.axes import broadcast_shapes
from interposer.ops.named_sizes import Infos, by_name, dimension_problems, shape_of, sizes_by_letter

__all__ = ["Attention", "AttentionScores", "RotaryEmbedding"]

_FLOATS: Final = (DataType.FLOAT16, DataType.BFLOAT16, DataType.FLOAT32, DataType.FLOAT64)
_INDEX_TYPES: Final = (DataType.INT32, DataType.INT64)


class AttentionScores(Enum):
    """The scores that `Attention` returns as its last result: none, or those of one stage of the computation."""

    NONE = 0
    """No scores."""
    SCALED = 1
    """Products of query and key, multiplied by the scale."""
    CAPPED = 2
    """Scaled scores after the soft cap."""
    MASKED = 3
    """Capped scores plus the mask; minus infinity where the key is masked out."""
    PROBABILITIES = 4
    """Softmax of the masked scores."""


def by_heads(shape: TensorShape, heads: int) -> TensorShape:
    """Return the shape (batch, heads, length, size) of a tensor (batch, length, heads * size).

    A shape of another rank than 3, such as (batch, heads, length, size), is returned unchanged.
    """
    if len(shape) != 3:
        return shape
    batch, length, width = shape
    return TensorShape((batch, heads, length, width if heads == 1 else width // heads))


def with_heads(infos: Infos, q_num_heads: int, kv_num_heads: int) -> dict[str, TensorInfo | None]:
    """Return the operands' infos by name, with query, key and value reshaped to (batch, heads, length, size)."""
    heads = {"query": q_num_heads, "key": kv_num_heads, "value": kv_num_heads}
    return {
        name: info and (info.with_shape(by_heads(info.shape, heads[name])) if name in heads else info)
        for name, info in infos.items()
    }


_AXIS_LETTERS: Final = {
    "query": "BHQD",
    "key": "BGKD",
    "value": "BGKE",
    "past_key": "BGPD",
    "past_value": "BGPE",
    "valid_lengths": "B",
    "sink": "H",
}


@op
class Attention(Op):
    """Multi-head scaled dot-product attention: softmax(scale * query key^T + mask) value, computed for each head.

    Grouped-query attention: each of the G heads of key and value serves H / G consecutive heads of the query.

    The query with index i has the position p = i + P, where P is the length of the past keys; with ``valid_lengths`` n,
    it has the position p = i + n - Q. The query attends to the key at position j only if all of these conditions hold:
    p - ``left_window_size`` <= j <= p + ``right_window_size``; j <= p if ``is_causal``; j < n if ``valid_lengths`` is
    connected; and the boolean mask, if any, is true. A numeric mask is added to the scores; where it is minus infinity,
    the key is masked out too. With a ``softcap`` c > 0, scores s become c * tanh(s / c) before the mask is applied.

    A key that is masked out has the score minus infinity and the probability 0. It never influences the result for that
    query, even if the key or its value holds an infinity or NaN. A query without any visible key gives zeros. All other
    infinities and NaNs follow IEEE 754.

    A ``sink`` is the score of one more key of each head, which every query sees and whose value is zero: it takes a
    part of the probability. It is neither scaled nor capped, and not among the returned scores.

    Shapes:
        query: (B, H, Q, D), or (B, Q, H * D) with ``q_num_heads`` H
        key: (B, G, K, D), or (B, K, G * D) with ``kv_num_heads`` G
        value: (B, G, K, E), or (B, K, G * E)
        mask: any that broadcasts to (B, H, Q, P + K); a last dimension below that leaves out the last keys
        past_key, past_value: (B, G, P, D) and (B, G, P, E), the keys and values of earlier steps
        valid_lengths: (B,)
        sink: (H,)
        output: (B, H, Q, E), or (B, Q, H * E)
        present_key, present_value: (B, G, P + K, D) and (B, G, P + K, E)
        score: (B, H, Q, P + K)

    Example:
        >>> query, key, value = [[[[1.0], [1.0]]]], [[[[5.0], [5.0]]]], [[[[1.0], [3.0]]]]
        >>> compute(Attention(), query, key, value).tolist()
        [[[[2.0], [2.0]]]]
        >>> compute(Attention(is_causal=True), query, key, value).tolist()
        [[[[1.0], [2.0]]]]
        >>> compute(Attention(), query, key, value, mask=[False, True]).tolist()
        [[[[3.0], [3.0]]]]
        >>> compute(Attention(), query, key, value, sink=[5 + np.log(2)]).round(4).tolist()
        [[[[1.0], [1.0]]]]

    Source:
        ONNX Attention-25, which has no sink.
    """

    query = operand(rank=(3, 4), dtypes=_FLOATS)
    key = operand(rank=(3, 4), dtypes=_FLOATS)
    value = operand(rank=(3, 4), dtypes=_FLOATS)
    mask = operand(role=Role.CONDITION, rank=(0, 4), dtypes=(DataType.BOOL, *_FLOATS), optional=True)
    past_key = operand(rank=4, same_dtype_as="key", optional=True)
    past_value = operand(rank=4, same_dtype_as="value", optional=True)
    valid_lengths = operand(
        role=Role.SIZES,
        rank=1,
        dtypes=_INDEX_TYPES,
        optional=True,
        doc="Number of valid keys of each sample, if the keys are padded.",
    )
    sink = operand(
        role=Role.PARAMETER, rank=1, dtypes=_FLOATS, optional=True, doc="Score of a key without a value, for each head."
    )
    output = result(dtype_of="query")
    present_key = result(
        rank=4, dtype_of="key", optional=True, doc="Only with ``present``: past and current keys, concatenated."
    )
    present_value = result(
        rank=4, dtype_of="value", optional=True, doc="Only with ``present``: past and current values, concatenated."
    )
    score = result(rank=4, dtype_of="query", optional=True, doc="Only with ``scores``, which implies ``present``.")

    scale: float | None = attribute(default=None, doc="Factor that multiplies query key^T; None means 1 / sqrt(D).")
    is_causal: bool = attribute(default=False, doc="A query does not attend to keys after its own position.")
    softcap: float = attribute(default=0.0, ge=0, doc="Soft upper bound on the magnitude of a score; 0 means none.")
    q_num_heads: int = attribute(default=0, ge=0, doc="Number of heads of a query of rank 3.")
    kv_num_heads: int = attribute(default=0, ge=0, doc="Number of heads of key and value of rank 3.")
    left_window_size: int = attribute(
        default=-1, ge=-1, doc="Number of keys before its own position that a query attends to; -1 means all."
    )
    right_window_size: int = attribute(
        default=-1, ge=-1, doc="Number of keys after its own position that a query attends to; -1 means all."
    )
    present: bool = attribute(default=False, doc="Also return present_key and present_value.")
    scores: AttentionScores = attribute(
        default=AttentionScores.NONE, doc="The scores to return in addition to the output."
    )
    softmax_precision: DataType | None = attribute(
        default=None, choices=(None, *_FLOATS), doc="The type to compute the softmax in; None for float32 or better."
    )

    def num_results(self) -> int:
        if self.scores is not AttentionScores.NONE:
            return 4
        return 3 if self.present else 1

    def check(self, *operands: Any) -> Iterator[str]:
        infos = by_name(self, operands)
        errors = [*self._head_problems(*operands[:3]), *_past_problems(infos)]
        yield from errors
        if errors:
            return
        split_infos = with_heads(infos, self.q_num_heads, self.kv_num_heads)
        yield from dimension_problems(split_infos, _AXIS_LETTERS)
        sizes, mask = sizes_by_letter(split_infos, _AXIS_LETTERS), infos["mask"]
        if sizes["G"] == 0 or sizes["H"] % sizes["G"]:
            yield f"{sizes['H']} heads of the query are not a multiple of the {sizes['G']} heads of key and value"
        if mask is not None:
            yield from _mask_problems(mask, _score_shape(infos, sizes))

    def _head_problems(self, query: TensorInfo, key: TensorInfo, value: TensorInfo) -> Iterator[str]:
        if not query.rank == key.rank == value.rank:
            yield f"query, key and value have ranks {query.rank}, {key.rank} and {value.rank}; expected one rank"
            return
        names = ("q_num_heads", "kv_num_heads", "kv_num_heads")
        for operand_name, name, info in zip(("query", "key", "value"), names, (query, key, value), strict=True):
            heads = getattr(self, name)
            if info.rank == 4 and heads and differ(heads, info.shape[1]):
                yield f"{name} is {heads}, but {operand_name} of shape {info.shape} has {info.shape[1]} heads"
            elif info.rank == 3 and (heads == 0 or info.shape[2] % heads):
                yield f"{name} is {heads}; expected a divisor of {info.shape[2]}, the last dimension of {operand_name}"

    def infer(self, *operands: Any) -> tuple[TensorInfo, ...]:
        infos = by_name(self, operands)
        sizes = sizes_by_letter(with_heads(infos, self.q_num_heads, self.kv_num_heads), _AXIS_LETTERS)
        scores = _score_shape(infos, sizes)
        sizes["K"] = scores[3]
        output = shape_of("BHQE", sizes)
        if operands[0].rank == 3:
            output = TensorShape((sizes["B"], sizes["Q"], sizes["H"] * sizes["E"]))
        shapes = (output, shape_of("BGKD", sizes), shape_of("BGKE", sizes), scores)
        sources = (*operands[:3], operands[0])
        results = [TensorInfo(shape, source.dtype) for shape, source in zip(shapes, sources, strict=True)]
        return tuple(results[: self.num_results()])

    def operations(self, inputs: Sequence[TensorInfo | None], outputs: Sequence[TensorInfo]) -> int:
        infos = by_name(self, inputs)
        sizes = sizes_by_letter(with_heads(infos, self.q_num_heads, self.kv_num_heads), _AXIS_LETTERS)
        return 2 * math.prod(_score_shape(infos, sizes)) * (sizes["D"] + sizes["E"])


def _score_shape(infos: Infos, sizes: Mapping[str, int]) -> TensorShape:
    keys = sizes["K"] if infos["past_key"] is None else sizes["P"] + sizes["K"]
    return TensorShape((sizes["B"], sizes["H"], sizes["Q"], keys))


def _past_problems(infos: Infos) -> Iterator[str]:
    connected_names = [name for name in ("past_key", "past_value") if infos[name] is not None]
    if len(connected_names) == 1:
        absent_name = "past_value" if connected_names == ["past_key"] else "past_key"
        yield f"{absent_name} is not connected, but {connected_names[0]} is"
    elif connected_names and infos["valid_lengths"] is not None:
        yield "valid_lengths and past_key are both connected; connect only one of them"


def _mask_problems(mask: TensorInfo, scores: TensorShape) -> Iterator[str]:
    if mask.shape[-1:] > scores[3:]:
        yield f"mask has shape {mask.shape}, but there are {scores[3]} keys"
        return
    broadcast_shape = broadcast_shapes(TensorShape((*mask.shape[:-1], scores[3])), scores)
    if broadcast_shape is None or not scores.accepts(broadcast_shape):
        yield f"mask has shape {mask.shape}, which does not broadcast to the shape of the scores, {scores}"


@op
class RotaryEmbedding(Op):
    """Rotary position embedding: rotate pairs of elements of each head by position-dependent angles.

    In every head, the first R elements are rotated, where R is ``rotary_embedding_dim``, or D if that is 0. The
    elements i and i + R / 2 form a pair (x, y); with ``interleaved``, the elements 2i and 2i + 1. The pair becomes (cos
    * x - sin * y, sin * x + cos * y). The other elements are unchanged.

    Shapes:
        input: (B, H, S, D), or (B, S, H * D) with ``num_heads`` H
        cos_cache, sin_cache: (B, S, R / 2); with ``position_ids`` (P, R / 2)
        position_ids: (B, S), rows of the caches
        output: the shape of the input

    Example:
        >>> quarter = {"cos_cache": [[[0.0]]], "sin_cache": [[[1.0]]]}
        >>> compute(RotaryEmbedding(), [[[[3.0, 4.0]]]], **quarter).tolist()
        [[[[-4.0, 3.0]]]]
        >>> compute(RotaryEmbedding(rotary_embedding_dim=2), [[[[3.0, 4.0, 5.0]]]], **quarter).tolist()
        [[[[-4.0, 3.0, 5.0]]]]

    Source:
        ONNX RotaryEmbedding-23.
    """

    input = operand(rank=(3, 4), dtypes=_FLOATS)
    cos_cache = operand(role=Role.PARAMETER, rank=(2, 3), dtypes=_FLOATS)
    sin_cache = operand(role=Role.PARAMETER, rank=(2, 3), dtypes=_FLOATS)
    position_ids = operand(role=Role.INDICES, rank=2, dtypes=_INDEX_TYPES, optional=True)
    output = result(like="input")

    interleaved: bool = attribute(default=False, doc="Pairs consist of adjacent elements.")
    num_heads: int = attribute(default=0, ge=0, doc="Number of heads of an input of rank 3.")
    rotary_embedding_dim: int = attribute(
        default=0, ge=0, doc="Number of elements of a head that are rotated; 0 means all."
    )

    def check(
        self, input: TensorInfo, cos_cache: TensorInfo, sin_cache: TensorInfo, position_ids: TensorInfo | None
    ) -> Iterator[str]:
        if input.rank == 3 and (self.num_heads == 0 or input.shape[2] % self.num_heads):
            yield f"num_heads is {self.num_heads}; expected a divisor of {input.shape[2]}, the input's last dimension"
            return
        batch, _, length, size = by_heads(input.shape, self.num_heads)
        rotated_size = self.rotary_embedding_dim or size
        if rotated_size > size or rotated_size % 2:
            yield f"{rotated_size} elements of a head are to be rotated; expected an even number, at most {size}"
            return
        if position_ids is not None and not TensorShape((batch, length)).accepts(position_ids.shape):
            yield f"position_ids has shape {position_ids.shape}; expected {TensorShape((batch, length))}"
        rows = (batch, length) if position_ids is None else (None,)
        expected = TensorShape((*rows, rotated_size // 2))
        for name, info in (("cos_cache", cos_cache), ("sin_cache", sin_cache)):
            if not expected.accepts(info.shape):
                yield f"{name} has shape {info.shape}; expected {expected}"
