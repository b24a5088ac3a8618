"""ONNX converters for classifiers with support vectors and for the mapping of categories (ai.onnx.ml)."""

from __future__ import annotations

import math
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
from interposer.frontends.onnx.scores import complements, features, label, labels, opposites, transformed
from interposer.ir.graph import Value
from interposer.ops.elementwise import Addition, Maximum, Minimum, Multiplication, Subtraction
from interposer.ops.features import LabelEncoder, PairwiseCoupling
from interposer.ops.gather import Gather
from interposer.ops.matmul import FullyConnected
from interposer.ops.quantization import Cast
from interposer.ops.reduction import ArgMinMax, ArgMinMaxFunction, Reduce, ReduceOperation

__all__: list[str] = []

_ML: Final = "ai.onnx.ml"


@operator("SVMClassifier", domain=_ML)
def support_vector_classifier(node: Node) -> Sequence[Value]:
    """Convert SVMClassifier: a score for each pair of classes; the class that wins most pairs is the label.

    The scores are those of the pairs, or the probabilities of the classes. For two classes without probabilities, they
    are a score and its opposite, or with SOFTMAX and SOFTMAX_ZERO 1 minus the score and the score. Without support
    vectors, it is a linear model with a score for each class.
    """
    vector_counts, class_labels, x = node.integers("vectors_per_class", ()), labels(node), features(node)
    if not vector_counts:
        return _linear_classifier(node, class_labels, x)
    if len(vector_counts) != len(class_labels) or len(vector_counts) < 2 or min(vector_counts) < 0:
        raise ParseError(f"it has {list(vector_counts)} support vectors for {len(class_labels)} classes")
    dtype = x.known.dtype.numpy
    vectors = np.array(node.numbers("support_vectors"), dtype).reshape(sum(vector_counts), -1)
    weights, offsets = _pairwise(node, vector_counts, dtype)
    similarities = kernel_values(node, x, vectors)
    scores = node.step(FullyConnected(), similarities, node.constant(weights), node.constant(offsets))
    winner = label(node, class_labels, _votes(node, scores, len(vector_counts)))
    return [winner, node.cast(_final_scores(node, scores, len(vector_counts)), DataType.FLOAT32)]


def _linear_classifier(node: Node, class_labels: Array, x: Value) -> Sequence[Value]:
    """Return the labels and scores of a linear model, to whose scores the first number in rho is added.

    For two classes, the label is the second one if any score is above a threshold, as in ONNX Runtime, and otherwise
    that of the highest score.
    """
    dtype, rho = x.known.dtype.numpy, node.numbers("rho")
    coefficients = np.array(node.numbers("coefficients"), dtype)
    if not rho or not coefficients.size or coefficients.size % len(class_labels):
        raise ParseError(f"it has {coefficients.size} coefficients for {len(class_labels)} classes, and rho is {rho}")
    vectors = coefficients.reshape(len(class_labels), -1)
    bias = node.constant(np.full(len(class_labels), rho[0], dtype))
    scores = node.step(FullyConnected(transpose_weight_matrix=True), x, node.constant(vectors), bias)
    transform = node.text("post_transform", "NONE")
    if len(class_labels) == 2:
        best = _second_if_above(node, scores, 0.5 if (coefficients >= 0).all() else 0.0)
        chosen_labels = node.result(Gather(0), node.constant(class_labels), best)
    else:
        chosen_labels = label(node, class_labels, scores)
    return [chosen_labels, node.cast(transformed(node, scores, transform), DataType.FLOAT32)]


def _second_if_above(node: Node, scores: Value, threshold: float) -> Value:
    """Return for each row 1 if a score is above the threshold, and otherwise the index of the highest of two scores."""
    highest = node.step(Reduce((1,), operation=ReduceOperation.MAX), scores)
    is_above = node.step(GREATER, highest, node.scalar_like(threshold, scores))
    best = node.step(ArgMinMax(ArgMinMaxFunction.MAX, axis=1), scores)
    return node.step(Maximum(), best, node.step(Cast(best.known.dtype), is_above))


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
    if transform == "PROBIT":
        node.unsupported("its post_transform is PROBIT for two classes, whose second score is undefined")
    if transform in ("SOFTMAX", "SOFTMAX_ZERO"):  # which ONNX Runtime computes for more classes only
        return complements(node, scores)
    return transformed(node, opposites(node, scores), transform)


def _probabilities(node: Node, scores: Value, num_classes: int) -> Value:
    """Return the probabilities of the classes by the numbers prob_a and prob_b, of which each pair of classes has one.

    The probabilities of pairs are clamped away from 0 and 1, as in ONNX Runtime and libsvm.
    """
    dtype, num_pairs = scores.known.dtype.numpy, math.comb(num_classes, 2)
    a, b = (node.constant(_of_pairs(node, name, num_pairs).astype(dtype)) for name in ("prob_a", "prob_b"))
    of_second = node.step(SIGMOID, node.step(Addition(), node.step(Multiplication(), scores, a), b))
    of_first = node.step(Subtraction(), node.scalar_like(1, scores), of_second)
    least_probability, most_probability = (node.scalar_like(bound, scores) for bound in (1e-7, 1 - 1e-7))
    return node.step(
        PairwiseCoupling(), node.step(Minimum(), node.step(Maximum(), of_first, least_probability), most_probability)
    )


def _of_pairs(node: Node, name: str, num_pairs: int) -> Array:
    numbers = np.array(node.numbers(name, ()))
    if len(numbers) != num_pairs:
        raise ParseError(f"it has {len(numbers)} numbers in {name}; expected {num_pairs}, one for each pair of classes")
    return numbers


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
