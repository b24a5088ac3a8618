"""Kernels of EmbeddingLookup, HashtableLookup, LshProjection and OneHot."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import numpy as np

from interposer.core.types import ANY_TYPE, Array, DataType
from interposer.kernels.encoding import encoded
from interposer.kernels.farmhash import fingerprint64
from interposer.kernels.operand_values import check_range
from interposer.kernels.reference import kernel
from interposer.kernels.table import KernelInfo
from interposer.ops.embedding import EmbeddingLookup, HashtableLookup, LshProjection, LshProjectionType, OneHot

__all__: list[str] = []

OF_FIXED_SIZE: Final = ANY_TYPE - {DataType.STRING}


@kernel(EmbeddingLookup)
def embedding_lookup(op: EmbeddingLookup, lookups: Array, values: Array) -> Array:
    """Compute `EmbeddingLookup`; a negative index is out of range, as it does not count from the end."""
    check_range("lookups", lookups, 0, len(values) - 1)
    return values[lookups]


@kernel(HashtableLookup)
def hashtable_lookup(op: HashtableLookup, lookups: Array, keys: Array, values: Array) -> tuple[Array, Array]:
    """Compute `HashtableLookup`; return the selected rows, and for each key whether it was found.

    Unlike in TFLite and NNAPI, the keys need not be sorted.
    """
    row_of_key = {key: row for row, key in enumerate(keys.tolist())}
    rows = [row_of_key.get(key, -1) for key in lookups.tolist()]
    zero = "" if values.dtype.kind == "O" else 0
    selected_rows = np.empty((len(rows), *values.shape[1:]), values.dtype)
    for index, row in enumerate(rows):
        selected_rows[index] = values[row] if row >= 0 else zero
    return selected_rows, np.greater_equal(rows, 0)


@kernel(LshProjection, dtypes={"input": OF_FIXED_SIZE})
def lsh_projection(op: LshProjection, seeds: Array, x: Array, weights: Array | None) -> Array:
    """Compute `LshProjection`; the seeds are hashed as float32, and the weighted sums of hash values are in float64."""
    elements = [element.tobytes() for element in np.ascontiguousarray(x)]
    factors = np.ones(len(elements)) if weights is None else weights.astype(np.float64)
    bits = np.array(list(_bits(seeds, elements, factors.tolist())), np.int64).reshape(seeds.shape)
    if op.type is LshProjectionType.DENSE:
        return bits.ravel().astype(np.int32)
    count, width = seeds.shape
    signatures: Array = (bits << np.arange(width - 1, -1, -1)).sum(axis=1)
    if op.type is LshProjectionType.SPARSE:
        signatures += np.arange(count) << width
    return signatures.astype(np.int32)


def _bits(seeds: Array, elements: list[bytes], factors: list[float]) -> Iterator[bool]:
    for seed in seeds.astype("<f4").ravel():
        score = 0.0
        for element, factor in zip(elements, factors, strict=True):
            score += factor * _signed(fingerprint64(seed.tobytes() + element))
        yield score > 0


def _signed(unsigned: int) -> float:
    return float(unsigned - (1 << 64) if unsigned >> 63 else unsigned)


@kernel(OneHot)
def one_hot(op: OneHot, indices: Array, *, info: KernelInfo) -> Array:
    """Compute `OneHot` by comparing every index with all positions along the new axis."""
    classes, class_indices = np.arange(op.depth), indices.astype(np.int64)
    if op.from_end:
        class_indices = np.where(class_indices < 0, class_indices + op.depth, class_indices)
    is_hot = np.expand_dims(class_indices, -1) == classes
    axis = op.axis % (indices.ndim + 1)
    return np.where(
        np.moveaxis(is_hot, -1, axis), encoded(op.on_value, info.output), encoded(op.off_value, info.output)
    )
