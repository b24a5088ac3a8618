"""Kernels of LabelEncoder and TfIdfVectorizer, which look labels and words up in prepared dictionaries."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from interposer.core.types import Array
from interposer.kernels.reference import kernel
from interposer.kernels.table import KernelInfo
from interposer.ops.features import LabelEncoder, TermWeighting, TfIdfVectorizer

__all__: list[str] = []

Terms = Mapping[tuple[Any, ...], int]
_NOT_A_NUMBER = object()


def _label(element: Any) -> Any:
    """Return the key of an element in the dictionary of labels: the element itself, or one key for all NaNs."""
    return _NOT_A_NUMBER if isinstance(element, float) and math.isnan(element) else element


@kernel(LabelEncoder)
def label_encoder(op: LabelEncoder, x: Array, *, prepared: Mapping[Any, Any]) -> Array:
    default = op.default.reshape(-1)[0]
    array = np.empty(x.shape, op.values.dtype)
    array.reshape(-1)[:] = [prepared.get(_label(element), default) for element in x.reshape(-1).tolist()]
    return array


@kernel.prepare(label_encoder)
def values_by_key(op: LabelEncoder, info: KernelInfo) -> Mapping[Any, Any]:
    return dict(zip(map(_label, op.keys.tolist()), op.values, strict=True))


@kernel(TfIdfVectorizer)
def tf_idf_vectorizer(op: TfIdfVectorizer, x: Array, *, prepared: Terms) -> Array:
    texts = np.atleast_2d(x)
    counts = np.zeros((len(texts), len(op.ngram_indexes)), np.float32)
    for row, words in zip(counts, texts.tolist(), strict=True):
        _count(op, prepared, words, row)
    weights = np.array(op.weights or [1.0] * len(op.ngram_indexes), np.float32)
    if op.mode is not TermWeighting.TF:
        counts = (np.sign(counts) if op.mode is TermWeighting.IDF else counts) * weights
    array = np.zeros((len(texts), max(op.ngram_indexes) + 1), np.float32)
    for index, column in zip(op.ngram_indexes, counts.T, strict=True):
        array[:, index] += column
    return array.reshape((*x.shape[:-1], array.shape[1]))


def _count(op: TfIdfVectorizer, terms: Terms, words: Sequence[Any], counts: Array) -> None:
    """Count the n-grams of `terms` in a row of words, for every gap between words that the operator allows.

    `terms` maps each n-gram, a tuple of words, to its index in `counts`, which is increased in place. An n-gram of one
    word has no gaps and is counted once.
    """
    for step in range(1, min(op.max_skip_count + 1, max(1, len(words))) + 1):
        for length in range(max(op.min_gram_length, 1 if step == 1 else 2), op.max_gram_length + 1):
            span = step * (length - 1)
            for start in range(len(words) - span):
                index = terms.get(tuple(words[start : start + span + 1 : step]))
                if index is not None:
                    counts[index] += 1


@kernel.prepare(tf_idf_vectorizer)
def terms_of(op: TfIdfVectorizer, info: KernelInfo) -> Terms:
    pool = op.pool.tolist()
    return {tuple(pool[start : start + length]): index for index, (start, length) in enumerate(op.terms())}
