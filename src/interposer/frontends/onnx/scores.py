"""ONNX converters' helpers for the scores of ai.onnx.ml models: post-transforms and class labels."""

from __future__ import annotations

from typing import Final

import numpy as np

from interposer.core.errors import ParseError
from interposer.core.types import Array, DataType
from interposer.frontends.elementwise import ABS, EQUAL, EXP, GREATER, LOG, NEG, SIGMOID, SIGN, SQRT
from interposer.frontends.onnx.node import Node
from interposer.frontends.reshaping import inserted_axes, reshaped
from interposer.ir.graph import Value
from interposer.ops.activation import Softmax
from interposer.ops.elementwise import Addition, Division, ElementwiseBinary, Multiplication, Subtraction, Where
from interposer.ops.gather import Gather
from interposer.ops.quantization import Cast
from interposer.ops.rearrange import Concat
from interposer.ops.reduction import ArgMinMax, ArgMinMaxFunction, Reduce, ReduceOperation

__all__ = [
    "TRANSFORMS",
    "complements",
    "features",
    "integers",
    "label",
    "label_above",
    "labels",
    "numbers",
    "opposites",
    "scores_of_two",
    "transformed",
]

TRANSFORMS: Final = ("NONE", "SOFTMAX", "LOGISTIC", "SOFTMAX_ZERO", "PROBIT")


def features(node: Node) -> Value:
    """Return the first operand, the features, as float32 or float64: other types are cast to float32.

    A vector is a single row.
    """
    x = node.value(0)
    x = inserted_axes(node, x, (0,)) if x.known.rank == 1 else x
    return x if x.known.dtype in (DataType.FLOAT32, DataType.FLOAT64) else node.step(Cast(DataType.FLOAT32), x)


def numbers(node: Node, name: str) -> Array:
    """Return the list of numbers that the node gives as attribute `name`, or as a tensor in ``<name>_as_tensor``.

    The result is empty if both are absent.
    """
    if node.has_attribute(f"{name}_as_tensor"):
        return node.tensor_array(f"{name}_as_tensor").reshape(-1)
    return np.array(node.numbers(name, ()), np.float32)


def integers(node: Node, name: str) -> Array:
    return np.array(node.integers(name, ()), np.int64)


def transformed(node: Node, scores: Value, transform: str) -> Value:
    """Return the scores after the function that the attribute post_transform names, such as SOFTMAX or LOGISTIC.

    Of a single score, ONNX Runtime computes no function but PROBIT.
    """
    if transform not in TRANSFORMS:
        raise ParseError(f"its post_transform is {transform!r}; expected {', '.join(TRANSFORMS)}")
    if transform == "NONE" or (scores.known.shape[-1] == 1 and transform != "PROBIT"):
        return scores
    if transform == "SOFTMAX":
        return node.step(Softmax(axis=-1), scores)
    if transform == "LOGISTIC":
        return node.step(SIGMOID, scores)
    if transform == "SOFTMAX_ZERO":
        return _softmax_without_zeros(node, scores)
    return _probit(node, scores)


def _softmax_without_zeros(node: Node, scores: Value) -> Value:
    """Return the softmax of the nonzero scores; zeros stay zero, and a row of only zeros becomes 0.5 everywhere."""
    zero = node.scalar_like(0, scores)
    highest = node.step(Reduce((-1,), keep_dims=True, operation=ReduceOperation.MAX), scores)
    exps = node.step(EXP, node.step(Subtraction(), scores, highest))
    magnitudes = node.step(ABS, scores)
    is_nonzero = node.step(GREATER, magnitudes, node.scalar_like(1e-7, scores))
    kept_exps = node.step(Where(), is_nonzero, exps, zero)
    total = node.step(Reduce((-1,), keep_dims=True), kept_exps)
    is_zero_row = node.step(EQUAL, total, zero)
    return node.step(Where(), is_zero_row, node.scalar_like(0.5, scores), node.step(Division(), kept_exps, total))


def _probit(node: Node, scores: Value) -> Value:
    """Return the result of the post-transform PROBIT, the inverse of the normal distribution's cumulative function.

    The scores are probabilities. It uses Winitzki's approximation of the inverse of erf, as ONNX does.
    """

    def with_number(op: ElementwiseBinary, value: Value, factor: float) -> Value:
        return node.step(op, value, node.scalar_like(factor, scores))

    def root(value: Value) -> Value:
        return node.step(SQRT, value)

    x = with_number(Subtraction(), with_number(Multiplication(), scores, 2), 1)
    one_minus_square = node.step(Subtraction(), node.scalar_like(1, scores), node.step(Multiplication(), x, x))
    log = node.step(LOG, one_minus_square)
    half_sum = with_number(Addition(), with_number(Multiplication(), log, 0.5), 2 / (np.pi * 0.147))
    radicand = node.step(
        Subtraction(), node.step(Multiplication(), half_sum, half_sum), with_number(Division(), log, 0.147)
    )
    magnitude = root(node.step(Subtraction(), root(radicand), half_sum))
    sign = node.step(SIGN, x)
    return node.step(
        Multiplication(), node.step(Multiplication(), sign, magnitude), node.scalar_like(1.41421356, scores)
    )


def labels(node: Node) -> Array:
    """Return the class labels (integers or strings) from the attributes for them; 0 and 1 if the node has none."""
    for name in ("classlabels_int64s", "classlabels_ints"):
        if node.has_attribute(name) and node.integers(name):
            return integers(node, name)
    if node.has_attribute("classlabels_strings"):
        return np.array(node.texts("classlabels_strings"), object)
    return np.arange(2)


def label(node: Node, class_labels: Array, scores: Value) -> Value:
    """Return the label of the highest score in each row; `class_labels` has the label of each column of `scores`."""
    best = node.step(ArgMinMax(ArgMinMaxFunction.MAX, axis=1), scores)
    return node.result(Gather(0), node.constant(class_labels), best)


def label_above(node: Node, class_labels: Array, score: Value, threshold: float) -> Value:
    """Return the second of two labels in each row whose single score is above the threshold, else the first.

    If `class_labels` has only one label, it is the second, and the first is empty or 0.
    """
    is_above = node.step(GREATER, score, node.scalar_like(threshold, score))
    label_index = reshaped(node, node.step(Cast(DataType.INT64), is_above), [-1])
    if len(class_labels) < 2:
        class_labels = np.concatenate(
            [np.array([""], object) if class_labels.dtype == object else np.zeros(1, np.int64), class_labels]
        )
    return node.result(Gather(0), node.constant(class_labels), label_index)


def opposites(node: Node, score: Value) -> Value:
    """Return scores [rows, 2] for two classes: the negated score for the first, the given one for the second."""
    return node.step(Concat(1), node.step(NEG, score), score)


def scores_of_two(node: Node, score: Value, transform: str, *, are_probabilities: bool = True) -> Value:
    """Return the scores of two classes by that of the second one, as ONNX Runtime does.

    Of the functions that post_transform names, only LOGISTIC has an effect, and PROBIT is not supported.
    """
    if transform == "LOGISTIC":
        return transformed(node, opposites(node, score), transform)
    if transform == "PROBIT":
        node.unsupported("its post_transform is PROBIT for two classes, whose second score is undefined")
    return complements(node, score) if are_probabilities else opposites(node, score)


def complements(node: Node, score: Value) -> Value:
    """Return scores [rows, 2] for two classes: 1 minus the score for the first, the given one for the second."""
    return node.step(Concat(1), node.step(Subtraction(), node.scalar_like(1, score), score), score)
