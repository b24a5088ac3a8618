"""ONNX converters for classifiers with support vectors and for the mapping of categories (ai.onnx.ml)."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations
from typing import Final

import numpy as np

from interposer.core.errors import ParseError
from interposer.core.types import Array, DataType
from interposer.frontends.onnx.learners import kernel_values
from interposer.frontends.onnx.node import Node
from interposer.frontends.onnx.onnx_converters import operator
from interposer.frontends.onnx.quantization import as_type
from interposer.frontends.onnx.scores import features, label, labels, opposites, transformed
from interposer.ir.graph import Value
from interposer.ops.activation import Activation, ActivationFunction
from interposer.ops.elementwise import Addition, Comparison, ComparisonOperation, Multiplication, Subtraction
from interposer.ops.features import LabelEncoder
from interposer.ops.matmul import FullyConnected
from interposer.ops.quantization import Cast
from interposer.ops.rearrange import Concat

__all__: list[str] = []

_ML: Final = "ai.onnx.ml"
_SIGMOID: Final = Activation(ActivationFunction.SIGMOID)


@operator("SVMClassifier", domain=_ML)
def support_vector_classifier(node: Node) -> Sequence[Value]:
    """Convert SVMClassifier: a score for each pair of classes; the class that wins most pairs is the label.

    The scores are those of the pairs. For two classes, they are a score and its opposite, or the probabilities.
    """
    counts, names, x = node.integers("vectors_per_class", ()), labels(node), features(node)
    if not counts:
        node.unsupported("it has no support vectors; those with support vectors are supported")
    if len(counts) != len(names) or len(counts) < 2 or min(counts) < 0:
        raise ParseError(f"it has {list(counts)} support vectors for {len(names)} classes")
    dtype = x.known.dtype.numpy
    vectors = np.array(node.numbers("support_vectors"), dtype).reshape(sum(counts), -1)
    weights, offsets = _pairwise(node, counts, dtype)
    known = kernel_values(node, x, vectors)
    scores = node.step(FullyConnected(), known, node.constant(weights), node.constant(offsets))
    winner = label(node, names, _votes(node, scores, len(counts)))
    return [winner, as_type(node, _results(node, scores, len(counts)), DataType.FLOAT32)]


def _pairwise(node: Node, counts: Sequence[int], dtype: np.dtype[np.generic]) -> tuple[Array, Array]:
    """Return the weights of the support vectors for each pair of classes, and the offset of each pair."""
    pairs, ends = list(combinations(range(len(counts)), 2)), np.cumsum(counts)
    coefficients = np.array(node.numbers("coefficients"), dtype).reshape(len(counts) - 1, sum(counts))
    offsets = np.array(node.numbers("rho"), dtype)
    if len(offsets) != len(pairs):
        raise ParseError(f"it has {len(offsets)} numbers in rho; expected {len(pairs)}, one for each pair of classes")
    weights = np.zeros((sum(counts), len(pairs)), dtype)
    for column, (first, second) in enumerate(pairs):
        for own, other in ((first, second - 1), (second, first)):
            rows = slice(ends[own] - counts[own], ends[own])
            weights[rows, column] = coefficients[other, rows]
    return weights, offsets


def _votes(node: Node, scores: Value, count: int) -> Value:
    """Return the number of pairs that each class wins: the first class of a pair if its score is positive."""
    pairs, dtype = list(combinations(range(count), 2)), scores.known.dtype
    above = node.step(Comparison(ComparisonOperation.GREATER), scores, node.scalar_like(0, scores))
    gains = np.zeros((len(pairs), count), dtype.numpy)
    for row, (first, second) in enumerate(pairs):
        gains[row, first], gains[row, second] = 1, -1
    won = node.constant(np.bincount([second for _, second in pairs], minlength=count).astype(dtype.numpy))
    return node.step(FullyConnected(), node.step(Cast(dtype), above), node.constant(gains), won)


def _results(node: Node, scores: Value, count: int) -> Value:
    transform = node.text("post_transform", "NONE")
    if node.has_attribute("prob_a") and node.numbers("prob_a"):
        return transformed(node, _probabilities(node, scores, count), transform)
    if count > 2:
        return transformed(node, scores, transform)
    if transform not in ("NONE", "LOGISTIC"):
        node.unsupported(f"its post_transform is {transform} for two classes; NONE and LOGISTIC are supported")
    return transformed(node, opposites(node, scores), transform)


def _probabilities(node: Node, scores: Value, count: int) -> Value:
    """Return the probabilities of two classes by the numbers prob_a and prob_b."""
    if count != 2:
        node.unsupported("it has probabilities for more than two classes, which are computed by an iteration")
    a, b = ((*node.numbers(name, ()), 0.0)[0] for name in ("prob_a", "prob_b"))
    scaled = node.step(Multiplication(), scores, node.scalar_like(-a, scores))
    first = node.step(_SIGMOID, node.step(Addition(), scaled, node.scalar_like(-b, scaled)))
    return node.step(Concat(1), first, node.step(Subtraction(), node.scalar_like(1, first), first))


@operator("CategoryMapper", domain=_ML)
def category_mapper(node: Node) -> Value:
    """Convert CategoryMapper: strings become integers, or integers strings, by two lists."""
    texts, numbers = np.array([*node.texts("cats_strings"), ""], object)[:-1], np.array(node.integers("cats_int64s"))
    if len(texts) != len(numbers):
        raise ParseError(f"it has {len(texts)} strings and {len(numbers)} integers; expected as many")
    if node.info(0).dtype is DataType.STRING:
        default = np.array(node.integer("default_int64", -1))
        return node.result(LabelEncoder(texts, numbers.astype(np.int64), default), node.value(0))
    default = np.array(node.text("default_string", "_Unused"), object)
    return node.result(LabelEncoder(numbers.astype(np.int64), texts, default), node.value(0))
