"""Operators of classical models: label encoding, TF-IDF, and probabilities of classes from those of pairs."""

from __future__ import annotations

import math
from collections.abc import Iterator
from enum import Enum
from itertools import pairwise
from typing import Final

from interposer.core.schema import Op, attribute, op, operand, result
from interposer.core.traits import Trait
from interposer.core.types import ANY_TYPE, Array, DataType, TensorInfo

__all__ = ["LabelEncoder", "PairwiseCoupling", "TermWeighting", "TfIdfVectorizer"]

_WORDS: Final = (DataType.INT32, DataType.INT64, DataType.STRING)


@op(traits=Trait.POINTWISE)
class LabelEncoder(Op):
    """Replace every element that is a key by the value of that key, and all other elements by a default.

    A NaN key matches NaN elements. If a key occurs twice, its last occurrence is used.

    Shapes:
        input, output: any, the same

    Example:
        >>> op = LabelEncoder(keys=np.array(["a", "b"]), values=np.int64([1, 2]), default=np.int64(-1))
        >>> compute(op, ["b", "c", "a"]).tolist()
        [2, -1, 1]

    Source:
        ONNX LabelEncoder-4 of ai.onnx.ml.
    """

    input = operand(dtypes=ANY_TYPE)
    output = result(dtypes=ANY_TYPE)

    keys: Array = attribute(doc="The keys, of rank 1.")
    values: Array = attribute(doc="The value of each key; as many as keys.")
    default: Array = attribute(doc="Replacement for all other elements: one element of the values' type.")

    def _attribute_problems(self) -> Iterator[str]:
        if self.keys.ndim != 1 or self.values.shape != self.keys.shape:
            yield f"keys has shape {list(self.keys.shape)} and values {list(self.values.shape)}; expected equal lengths"
        if self.default.size != 1 or self.default.dtype != self.values.dtype:
            default = f"{DataType.of(self.default.dtype)}{list(self.default.shape)}"
            expected = DataType.of(self.values.dtype)
            yield f"default is {default}; expected one element of {expected}, the values' type"

    def check(self, input: TensorInfo) -> Iterator[str]:
        if input.dtype is not DataType.of(self.keys.dtype):
            yield f"input is {input.dtype}; expected {DataType.of(self.keys.dtype)}, the type of the keys"

    def infer(self, input: TensorInfo) -> TensorInfo:
        return TensorInfo(input.shape, DataType.of(self.values.dtype))


class TermWeighting(Enum):
    """What `TfIdfVectorizer` returns for a term: its count (TF), its weight if it occurs (IDF), or their product."""

    TF = "TF"
    IDF = "IDF"
    TFIDF = "TFIDF"


@op
class TfIdfVectorizer(Op):
    """Count in texts the n-grams (terms of n words) of a pool; words may be skipped between those of a term.

    The pool holds n consecutive elements for a term of n words: first all terms of one word, then all terms of two
    words, and so on. ``TF`` returns the number of occurrences of a term, ``TFIDF`` this number times the weight of the
    term, and ``IDF`` the weight if the term occurs.

    Shapes:
        input: (C,), the words of a text, or (N, C)
        output: (M,) or (N, M), where M is the largest of ``ngram_indexes`` plus 1

    Example:
        >>> op = TfIdfVectorizer(max_gram_length=2, ngram_counts=(0, 2), ngram_indexes=(0, 1, 2),
        ...                      pool=np.array(["a", "b", "a", "b"]))
        >>> compute(op, ["a", "b", "c", "a", "b"]).tolist()
        [2.0, 2.0, 2.0]

    Source:
        ONNX TfIdfVectorizer-9.
    """

    input = operand(rank=(1, 2), dtypes=_WORDS)
    output = result(dtypes=(DataType.FLOAT32,))

    pool: Array = attribute(doc="The words of all terms: int64 or strings.")
    ngram_counts: tuple[int, ...] = attribute(
        ge=0, doc="Index in the pool at which the terms of 1, 2, ... words begin."
    )
    ngram_indexes: tuple[int, ...] = attribute(ge=0, doc="For each term its index in the result.")
    min_gram_length: int = attribute(default=1, ge=1, doc="Minimum number of words of a counted term.")
    max_gram_length: int = attribute(default=1, ge=1, doc="Maximum number of words of a counted term.")
    max_skip_count: int = attribute(
        default=0, ge=0, doc="Maximum number of words that are skipped between two words of a term."
    )
    mode: TermWeighting = attribute(default=TermWeighting.TF, doc="The number that is returned for a term.")
    weights: tuple[float, ...] = attribute(default=(), doc="A weight for each term; an empty tuple means 1 for all.")

    def terms(self) -> Iterator[tuple[int, int]]:
        """Yield for each term of the pool the index of its first word there, and its number of words."""
        bounds = [*self.ngram_counts, self.pool.size]
        for length, (pool_start, stop) in enumerate(pairwise(bounds), 1):
            yield from ((start, length) for start in range(pool_start, stop, length))

    def _attribute_problems(self) -> Iterator[str]:
        if self.pool.ndim != 1 or DataType.of(self.pool.dtype) not in _WORDS[1:]:
            pool_type = f"{DataType.of(self.pool.dtype)}{list(self.pool.shape)}"
            yield f"the pool is {pool_type}; expected int64 or strings of rank 1"
            return
        yield from self._term_problems()
        if self.min_gram_length > self.max_gram_length:
            yield f"min_gram_length is {self.min_gram_length}, and max_gram_length {self.max_gram_length}"
        if not all(map(math.isfinite, self.weights)):
            yield "a weight is not finite"

    def _term_problems(self) -> Iterator[str]:
        bounds = [*self.ngram_counts, self.pool.size]
        if not self.ngram_counts or any(start > stop for start, stop in pairwise(bounds)):
            yield f"ngram_counts is {self.ngram_counts}; expected increasing indices into {self.pool.size} words"
            return
        if any((stop - start) % length for length, (start, stop) in enumerate(pairwise(bounds), 1)):
            yield f"ngram_counts is {self.ngram_counts}, which splits a term in a pool of {self.pool.size} words"
            return
        count = sum(1 for _ in self.terms())
        if len(self.ngram_indexes) != count or not count:
            yield f"there are {len(self.ngram_indexes)} ngram_indexes for {count} terms"
        if self.weights and len(self.weights) != count:
            yield f"there are {len(self.weights)} weights for {count} terms"
        if len(self.ngram_counts) < self.max_gram_length:
            yield f"max_gram_length is {self.max_gram_length}, but ngram_counts has {len(self.ngram_counts)} numbers"

    def check(self, input: TensorInfo) -> Iterator[str]:
        if (input.dtype is DataType.STRING) is not (DataType.of(self.pool.dtype) is DataType.STRING):
            yield f"input is {input.dtype}, but the pool {DataType.of(self.pool.dtype)}"

    def infer(self, input: TensorInfo) -> TensorInfo:
        return TensorInfo((*input.shape[:-1], max(self.ngram_indexes) + 1), DataType.FLOAT32)


@op(traits=Trait.DISCONTINUOUS)
class PairwiseCoupling(Op):
    """Compute the probabilities of C classes from the probabilities of each class against each other one.

    The pairs are (0, 1), (0, 2), ..., (1, 2), ..., and each number is the probability of the first class of its pair.
    The result minimizes the sum of (r_ji p_i - r_ij p_j)^2 over all pairs, where r_ij is the probability of the class i
    against the class j, under the condition that the probabilities p add up to 1. It is found by iteration from equal
    probabilities, which ends if the condition of optimality holds within 0.005 / C, or after max(100, C) rounds. So a
    small difference of the input can change the number of rounds. Inputs of exactly 0 and 1 can lead to NaN.

    Shapes:
        input: (N, P) for P = C (C - 1) / 2 pairs, between 0 and 1
        output: (N, C)

    Example:
        >>> compute(PairwiseCoupling(), [[0.75, 0.75, 0.5]]).astype(float).round(2).tolist()
        [[0.6, 0.2, 0.2]]

    Source:
        ONNX SVMClassifier-1 of ai.onnx.ml, with prob_a. Wu, Lin and Weng, "Probability estimates for multi-class
        classification by pairwise coupling", the second approach.
    """

    input = operand(rank=2, dtypes=(DataType.FLOAT32, DataType.FLOAT64))
    output = result(dtypes=(DataType.FLOAT32, DataType.FLOAT64))

    @staticmethod
    def num_classes(num_pairs: int) -> int:
        """Return the number of classes with this number of pairs, rounded down if there is none."""
        return (1 + math.isqrt(1 + 8 * num_pairs)) // 2

    def check(self, input: TensorInfo) -> Iterator[str]:
        num_pairs = input.shape[1]
        if not isinstance(num_pairs, int):
            yield "the number of pairs is unknown"
        elif num_pairs < 1 or math.comb(self.num_classes(num_pairs), 2) != num_pairs:
            yield f"input has {num_pairs} pairs; expected C (C - 1) / 2 for at least two classes"

    def infer(self, input: TensorInfo) -> TensorInfo:
        return TensorInfo((input.shape[0], self.num_classes(int(input.shape[1]))), input.dtype)
