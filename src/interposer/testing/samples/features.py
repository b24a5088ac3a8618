"""Samples of LabelEncoder, TfIdfVectorizer and PairwiseCoupling."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import numpy as np

from interposer.core.types import Array, DataType
from interposer.ops import LabelEncoder, PairwiseCoupling, TermWeighting, TfIdfVectorizer
from interposer.testing.sample import Sample, of, samples
from interposer.testing.samples.common import f32

__all__: list[str] = []

INT32, INT64, STRING = DataType.INT32, DataType.INT64, DataType.STRING
KEYS: Final = {
    STRING: (["a", "b", "a"], ["b", "c", "a"]),
    INT64: ([1, 2, 1], [2, 3, 1]),
    INT32: ([1, 2, 1], [2, 3, 1]),
    DataType.INT16: ([1, 2, 1], [2, 3, 1]),
    DataType.FLOAT32: ([1.5, np.nan, 0.0], [np.nan, 3, -0.0]),
    DataType.FLOAT64: ([1.5, np.nan, 0.0], [np.nan, 3, -0.0]),
}
"""Keys and inputs for each type."""


def _values(dtype: DataType) -> Array:
    return np.array(["x", "y", "z"], object) if dtype is STRING else np.arange(10, 13).astype(dtype.numpy)


@samples(LabelEncoder)
def label_encoder() -> Iterator[Sample]:
    """Yield LabelEncoder samples: every type of keys with every type of values, duplicate keys, and NaN."""
    for source, (keys, words) in KEYS.items():
        for target in KEYS:
            values = _values(target)
            default = np.array("", object) if target is STRING else np.zeros((), target.numpy)
            op = LabelEncoder(np.array(keys, source.numpy), values, default)
            yield Sample(op, [of(words, source)], name=f"{source}-{target}")
            yield Sample(op, [of([words, words], source)], name=f"{source}-{target}-table")
    op = LabelEncoder(np.array(["a", "b"], object), np.array([1, 2]), np.array(-1))
    yield Sample(op, [of(["b", "c", "a"], STRING)], name="worked", expected=[np.array([2, -1, 1])])


@samples(TfIdfVectorizer)
def tf_idf_vectorizer() -> Iterator[Sample]:
    """Yield TfIdfVectorizer samples.

    They cover n-grams of one to three words, of integers and strings, with skips, every weighting, and empty inputs.
    """
    pool = np.array([2, 3, 5, 4, 5, 6, 7, 8, 6, 7, 2, 3, 5])
    terms: dict[str, Any] = {"ngram_counts": (0, 4, 10), "ngram_indexes": (0, 1, 2, 3, 6, 5, 4, 7)}
    texts = np.array([f"w{word}" for word in pool], object)
    words = [1, 2, 3, 5, 3, 2, 6, 7, 8, 6, 7, 7]
    for mode in TermWeighting:
        for min_length, max_length, max_skipped in ((1, 1, 0), (1, 2, 0), (2, 2, 5), (1, 3, 1), (2, 3, 10**12)):
            settings: dict[str, Any] = {
                "min_gram_length": min_length,
                "max_gram_length": max_length,
                "max_skip_count": max_skipped,
            }
            name = f"{mode.value}-{min_length}-{max_length}-{max_skipped}"
            yield Sample(TfIdfVectorizer(pool, **terms, **settings, mode=mode), [of(words, INT64)], name=name)
            weights = tuple(0.5 * index for index in range(1, 9))
            op = TfIdfVectorizer(texts, **terms, **settings, mode=mode, weights=weights)
            table = of(np.array([f"w{word}" for word in words], object).reshape(2, 6), STRING)
            yield Sample(op, [table], name=f"{name}-texts")
    for shape in ((0,), (2, 0), (0, 3)):
        op = TfIdfVectorizer(pool, **terms, max_gram_length=2)
        yield Sample(op, [of(np.zeros(shape), INT32)], name=f"none-{'x'.join(map(str, shape))}")
    op = TfIdfVectorizer(np.array(["a", "b", "a", "b"], object), (0, 2), (1, 0, 2), max_gram_length=2)
    yield Sample(op, [of(["a", "b", "a"], STRING)], name="worked", expected=[f32([1, 2, 1])])


@samples(PairwiseCoupling)
def pairwise_coupling() -> Iterator[Sample]:
    """Yield PairwiseCoupling samples of two to six classes, also with probabilities near 0 and 1, and without rows."""
    for dtype in (DataType.FLOAT32, DataType.FLOAT64):
        for num_classes in (2, 3, 6):
            num_pairs = num_classes * (num_classes - 1) // 2
            x = (np.arange(4 * num_pairs).reshape(4, num_pairs) * 7 % 19 + 1) / 21
            yield Sample(PairwiseCoupling(), [of(x, dtype)], name=f"{num_classes}-{dtype}")
    extremes = [[1 - 1e-7, 1e-7, 0.5], [1e-7, 1 - 1e-7, 1 - 1e-7]]
    yield Sample(PairwiseCoupling(), [of(extremes, DataType.FLOAT32)], name="extremes")
    yield Sample(PairwiseCoupling(), [of(np.zeros((0, 3)), DataType.FLOAT32)], name="none")
    equal_probabilities = of(np.full((1, 6), 0.5), DataType.FLOAT64)
    yield Sample(PairwiseCoupling(), [equal_probabilities], name="worked", expected=[np.full((1, 4), 0.25)])
