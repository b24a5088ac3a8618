"""Kernels of LabelEncoder and TfIdfVectorizer, which look words up in prepared dictionaries, and PairwiseCoupling."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from interposer.core.types import Array
from interposer.kernels.reference import kernel
from interposer.kernels.table import KernelInfo
from interposer.ops.features import LabelEncoder, PairwiseCoupling, TermWeighting, TfIdfVectorizer

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


@kernel(PairwiseCoupling)
def pairwise_coupling(op: PairwiseCoupling, x: Array) -> Array:
    num_classes = op.num_classes(x.shape[1])
    wins = _wins(x, num_classes)
    probabilities = np.full((len(x), num_classes), 1 / num_classes, x.dtype)
    with np.errstate(all="ignore"):  # pairs of 0 and 1 may give no probabilities
        for row, matrix in zip(probabilities, _quadratic_forms(wins), strict=True):
            _minimize(matrix, row)
    return probabilities


def _wins(x: Array, num_classes: int) -> Array:
    """Return the probabilities of every class (rows) against every other one (columns), for each row of `x`."""
    wins = np.zeros((len(x), num_classes, num_classes), x.dtype)
    firsts, seconds = np.triu_indices(num_classes, 1)
    wins[:, firsts, seconds], wins[:, seconds, firsts] = x, 1 - x
    return wins


def _quadratic_forms(wins: Array) -> Array:
    """Return the matrices Q for which p Q p is the sum that `PairwiseCoupling` minimizes."""
    matrices = -wins * wins.swapaxes(1, 2)
    diagonal = np.arange(wins.shape[1])
    matrices[:, diagonal, diagonal] = (wins**2).sum(axis=1)
    return matrices


def _minimize(matrix: Array, probabilities: Array) -> None:
    """Minimize p Q p in place: change one probability p_i after the other, and scale all so that they add up to 1."""
    num_classes = len(probabilities)
    for _ in range(max(100, num_classes)):
        gradient = matrix @ probabilities
        value = probabilities @ gradient
        if not np.abs(gradient - value).max() >= 0.005 / num_classes:
            return
        for index in range(num_classes):
            change = (value - gradient[index]) / matrix[index, index]
            probabilities[index] += change
            value = (value + change * (change * matrix[index, index] + 2 * gradient[index])) / (1 + change) ** 2
            gradient = (gradient + change * matrix[index]) / (1 + change)
            probabilities /= 1 + change
