"""Lookup and encoding operators: embedding tables, hash tables, locality-sensitive hashing and one-hot encoding."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from enum import Enum
from typing import Final

from interposer.core.schema import Op, attribute, op, operand, result
from interposer.core.traits import Role, Trait
from interposer.core.types import ANY_TYPE, INTEGERS, MAX_RANK, DataType, TensorInfo, differ
from interposer.ops.axes import quantized_axis_problems

__all__ = ["EmbeddingLookup", "HashtableLookup", "LshProjection", "LshProjectionType", "OneHot"]

_INDEX_TYPES: Final = (DataType.INT32, DataType.INT64)
_HASH_BITS: Final = 32
_FILLABLE: Final = tuple(sorted(ANY_TYPE - {DataType.STRING}, key=str))


@op(traits=Trait.MOVES)
class EmbeddingLookup(Op):
    """Select rows of a table by their index; an index out of range is an error, and so is a negative one.

    Shapes:
        lookups: (K,)
        values: (N, ...)
        output: (K, ...)

    Example:
        >>> compute(EmbeddingLookup(), [2, 0, 2], [[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]]).tolist()
        [[5.0, 6.0], [1.0, 2.0], [5.0, 6.0]]

    Source:
        TFLite EMBEDDING_LOOKUP; NNAPI EMBEDDING_LOOKUP.
    """

    lookups = operand(role=Role.INDICES, rank=1, dtypes=_INDEX_TYPES)
    values = operand(rank=(1, MAX_RANK))
    output = result(dtype_of="values")

    def check(self, lookups: TensorInfo, values: TensorInfo) -> Iterator[str]:
        yield from quantized_axis_problems(values, (0,), "pick from")
        if lookups.constant is not None:
            out_of_range = [number for number in lookups.constant.tolist() if number < 0 or number >= values.shape[0]]
            yield from (f"lookups has {number}; expected 0 to {values.shape[0] - 1}" for number in out_of_range[:1])

    def infer(self, lookups: TensorInfo, values: TensorInfo) -> TensorInfo:
        return values.with_shape((lookups.shape[0], *values.shape[1:]))


@op(traits=Trait.MOVES | Trait.FILLS)
class HashtableLookup(Op):
    """Select rows of a table by their keys; a missing key gives a row of zeros and no hit.

    In a quantized table, the zeros are the stored integers 0, not the zero point.

    Shapes:
        lookups: (K,)
        keys: (N,), all different
        values: (N, ...)
        output: (K, ...)
        hits: (K,), 1 where the key was found, else 0

    Example:
        >>> output, hits = compute(HashtableLookup(), [20, 15], keys=[10, 20], values=[[1.0, 2.0], [3.0, 4.0]])
        >>> output.tolist(), hits.tolist()
        ([[3.0, 4.0], [0.0, 0.0]], [1, 0])

    Source:
        TFLite HASHTABLE_LOOKUP; NNAPI HASHTABLE_LOOKUP.
    """

    lookups = operand(role=Role.INDICES, rank=1, dtypes=_INDEX_TYPES)
    keys = operand(role=Role.INDICES, rank=1, same_dtype_as="lookups")
    values = operand(rank=(1, MAX_RANK))
    output = result(dtype_of="values")
    hits = result(rank=1, dtypes=[DataType.UINT8])

    def check(self, lookups: TensorInfo, keys: TensorInfo, values: TensorInfo) -> Iterator[str]:
        yield from quantized_axis_problems(values, (0,), "pick from")
        if differ(keys.shape[0], values.shape[0]):
            yield f"keys has {keys.shape[0]} elements, but values {values.shape[0]} rows"

    def infer(self, lookups: TensorInfo, keys: TensorInfo, values: TensorInfo) -> tuple[TensorInfo, TensorInfo]:
        output = values.with_shape((lookups.shape[0], *values.shape[1:]))
        return output, TensorInfo((lookups.shape[0],), DataType.UINT8)


class LshProjectionType(Enum):
    """How `LshProjection` returns the bits of the hash functions; the numbers are those of NNAPI."""

    SPARSE_DEPRECATED = 1
    """One integer for each function, composed of its bits."""
    DENSE = 2
    """One integer, 0 or 1, for each bit."""
    SPARSE = 3
    """One integer for each function: its bits plus ``function * 2**bits``, so that functions do not collide."""


@op
class LshProjection(Op):
    """Locality-sensitive hashing of a tensor: similar tensors get similar bits.

    A bit is 1 if the weighted sum of the hash values of all elements along the first axis is above 0. The hash value is
    FarmHash's Fingerprint64, as a signed integer, of the bit's seed (as the bytes of a float32) followed by the bytes
    of the element.

    Shapes:
        seeds: (H, B), one for every bit of each hash function
        input: (N, ...)
        weights: (N,); 1 for each where it is absent
        output: (H,), or (H * B,) where it is DENSE

    Example:
        >>> seeds = [[0.1, 0.2], [0.3, 0.4], [0.5, 0.6]]
        >>> compute(LshProjection(), seeds, [[1, 2], [3, 4]]).tolist()
        [1, 4, 8]
        >>> compute(LshProjection(type=LshProjectionType.DENSE), seeds, [[1, 2], [3, 4]]).tolist()
        [0, 1, 0, 0, 0, 0]

    Source:
        TFLite LSH_PROJECTION; NNAPI LSH_PROJECTION.
    """

    seeds = operand(role=Role.PARAMETER, rank=2, dtypes=[DataType.FLOAT32, DataType.FLOAT16])
    input = operand(rank=(1, MAX_RANK))
    weights = operand(role=Role.WEIGHTS, rank=1, dtypes=[DataType.FLOAT32, DataType.FLOAT16], optional=True)
    output = result(rank=1, dtypes=[DataType.INT32])

    type: LshProjectionType = attribute(default=LshProjectionType.SPARSE, doc="How the bits are returned.")

    def check(self, seeds: TensorInfo, input: TensorInfo, weights: TensorInfo | None) -> Iterator[str]:
        if seeds.shape[1] > _HASH_BITS:
            yield f"seeds has shape {seeds.shape}; a hash has at most {_HASH_BITS} bits"
        if weights is not None and differ(weights.shape[0], input.shape[0]):
            yield f"weights has {weights.shape[0]} elements; expected {input.shape[0]}, the first dimension of input"

    def infer(self, seeds: TensorInfo, input: TensorInfo, weights: TensorInfo | None) -> TensorInfo:
        hash_count, bits = seeds.shape
        return TensorInfo((hash_count * bits if self.type is LshProjectionType.DENSE else hash_count,), DataType.INT32)

    def operations(self, inputs: Sequence[TensorInfo | None], outputs: Sequence[TensorInfo]) -> int:
        seeds, input = inputs[0], inputs[1]
        assert seeds is not None
        assert input is not None
        return int(seeds.num_elements) * int(input.num_elements)


@op(traits=Trait.EXACT)
class OneHot(Op):
    """One-hot encoding: for every index a row of ``off_value``, with ``on_value`` at the index.

    An index out of range gives a row without ``on_value``.

    Shapes:
        indices: any
        output: indices.shape with ``depth`` at ``axis``

    Example:
        >>> compute(OneHot(depth=3), [0, 2, 5]).tolist()
        [[1.0, 0.0, 0.0], [0.0, 0.0, 1.0], [0.0, 0.0, 0.0]]
        >>> compute(OneHot(depth=2, axis=0, on_value=5.0, dtype=DataType.INT8), [0, 1, 1]).tolist()
        [[5, 0, 0], [0, 5, 5]]

    Source:
        ONNX OneHot-11; TFLite ONE_HOT.
    """

    indices = operand(rank=(0, MAX_RANK - 1), dtypes=INTEGERS)
    output = result(rank=(1, MAX_RANK))

    depth: int = attribute(ge=0, doc="Length of a row.")
    axis: int = attribute(default=-1, doc="The axis of the rows in the result; negative ones count from the end.")
    on_value: float = attribute(default=1.0, doc="Value at the index: a float value.")
    off_value: float = attribute(default=0.0, doc="Value everywhere else: a float value.")
    dtype: DataType = attribute(default=DataType.FLOAT32, choices=_FILLABLE, doc="The type of the result.")
    from_end: bool = attribute(default=False, doc="Negative indices count from the end of the row.")

    def check(self, indices: TensorInfo) -> Iterator[str]:
        rank = indices.rank + 1
        if not -rank <= self.axis < rank:
            yield f"axis is {self.axis}, but the result has rank {rank}; expected {-rank} to {rank - 1}"

    def infer(self, indices: TensorInfo) -> TensorInfo:
        axis = self.axis % (indices.rank + 1)
        return TensorInfo((*indices.shape[:axis], self.depth, *indices.shape[axis:]), self.dtype)
