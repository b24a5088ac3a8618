"""ONNX converters for classifiers with support vectors and for the mapping of categories (ai.onnx.ml)."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations
from typing import Final

import numpy as np

from interposer.core.errors import ParseError
from interposer.core.types import Array, DataType
from interposer.frontends.elementwise import GREATER, SIGMOID
from interposer.frontends.onnx.learners import kernel_values
from interposer.frontends.onnx.node import Node
from interposer.frontends.onnx.onnx_converters import operator
from interposer.frontends.onnx.quantization import as_type
from interposer.frontends.onnx.scores import features, label, labels, opposites, transformed
from interposer.ir.graph import Value
from interposer.ops.elementwise import Addition, Multiplication, Subtraction
from interposer.ops.features import LabelEncoder
from interposer.ops.matmul import FullyConnected
from interposer.ops.quantization import Cast
from interposer.ops.rearrange import Concat

__all__: list[str] = []

_ML: Final = "ai.onnx.ml"


@operator("SVMClassifier", domain=_ML)
def support_vector_classifier(node: Node) -> Sequence[Value]:
    """Convert SVMClassifier: a score for each pair of classes; the class that wins most pairs is the label.

    The scores are those of the pairs. For two classes, they are a score and its opposite, or the probabilities.
    """
    vector_counts, class_labels, x = node.integers("vectors_per_class", ()), labels(node), features(node)
    if not vector_counts:
        node.unsupported("it has no support vectors; those with support vectors are supported")
    if len(vector_counts) != len(class_labels) or len(vector_counts) < 2 or min(vector_counts) < 0:
        raise ParseError(f"it has {list(vector_counts)} support vectors for {len(class_labels)} classes")
    dtype = x.known.dtype.numpy
    vectors = np.array(node.numbers("support_vectors"), dtype).reshape(sum(vector_counts), -1)
    weights, offsets = _pairwise(node, vector_counts, dtype)
    similarities = kernel_values(node, x, vectors)
    scores = node.step(FullyConnected(), similarities, node.constant(weights), node.constant(offsets))
    winner = label(node, class_labels, _votes(node, scores, len(vector_counts)))
    return [winner, as_type(node, _final_scores(node, scores, len(vector_counts)), DataType.FLOAT32)]


def _pairwise(node: Node, vector_counts: Sequence[int], dtype: np.dtype[np.generic]) -> tuple[Array, Array]:
    """Return the weights of the support vectors for each pair of classes, and the offset of each pair."""
    class_pairs, ends = list(combinations(range(len(vector_counts)), 2)), np.cumsum(vector_counts)
    coefficients = np.array(node.numbers("coefficients"), dtype).reshape(len(vector_counts) - 1, sum(vector_counts))
    offsets = np.array(node.numbers("rho"), dtype)
    if len(offsets) != len(class_pairs):
        raise ParseError(
            f"it has {len(offsets)} numbers in rho; expected {len(class_pairs)}, one for each pair of classes"
        )
    weights = np.zeros((sum(vector_counts), len(class_pairs)), dtype)
    for column, (first, second) in enumerate(class_pairs):
        for own_class, coefficient_row in ((first, second - 1), (second, first)):
            rows = slice(ends[own_class] - vector_counts[own_class], ends[own_class])
            weights[rows, column] = coefficients[coefficient_row, rows]
    return weights, offsets


def _votes(node: Node, scores: Value, num_classes: int) -> Value:
    """Return the number of pairs that each class wins: the first class of a pair if its score is positive."""
    class_pairs, dtype = list(combinations(range(num_classes), 2)), scores.known.dtype
    is_positive = node.step(GREATER, scores, node.scalar_like(0, scores))
    gains = np.zeros((len(class_pairs), num_classes), dtype.numpy)
    for row, (first, second) in enumerate(class_pairs):
        gains[row, first], gains[row, second] = 1, -1
    votes_without_positives = node.constant(
        np.bincount([second for _, second in class_pairs], minlength=num_classes).astype(dtype.numpy)
    )
    return node.step(
        FullyConnected(), node.step(Cast(dtype), is_positive), node.constant(gains), votes_without_positives
    )


def _final_scores(node: Node, scores: Value, num_classes: int) -> Value:
    transform = node.text("post_transform", "NONE")
    if node.has_attribute("prob_a") and node.numbers("prob_a"):
        return transformed(node, _probabilities(node, scores, num_classes), transform)
    if num_classes > 2:
        return transformed(node, scores, transform)
    if transform not in ("NONE", "LOGISTIC"):
        node.unsupported(f"its post_transform is {transform} for two classes; NONE and LOGISTIC are supported")
    return transformed(node, opposites(node, scores), transform)


def _probabilities(node: Node, scores: Value, num_classes: int) -> Value:
    """Return the probabilities of two classes by the numbers prob_a and prob_b."""
    if num_classes != 2:
        node.unsupported("it has probabilities for more than two classes, which are computed by an iteration")
    a, b = ((*node.numbers(name, ()), 0.0)[0] for name in ("prob_a", "prob_b"))
    scaled = node.step(Multiplication(), scores, node.scalar_like(-a, scores))
    first_probability = node.step(SIGMOID, node.step(Addition(), scaled, node.scalar_like(-b, scaled)))
    return node.step(
        Concat(1),
        first_probability,
        node.step(Subtraction(), node.scalar_like(1, first_probability), first_probability),
    )


@operator("CategoryMapper", domain=_ML)
def category_mapper(node: Node) -> Value:
    """Convert CategoryMapper: strings become integers, or integers strings, by two lists."""
    strings, integers = np.array([*node.texts("cats_strings"), ""], object)[:-1], np.array(node.integers("cats_int64s"))
    if len(strings) != len(integers):
        raise ParseError(f"it has {len(strings)} strings and {len(integers)} integers; expected as many")
    if node.info(0).dtype is DataType.STRING:
        default = np.array(node.integer("default_int64", -1))
        return node.result(LabelEncoder(strings, integers.astype(np.int64), default), node.value(0))
    default = np.array(node.text("default_string", "_Unused"), object)
    return node.result(LabelEncoder(integers.astype(np.int64), strings, default), node.value(0))
