"""ONNX converters for linear and support vector machines, and for feature preprocessing (ai.onnx.ml)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

import numpy as np

from interposer.core.errors import ParseError
from interposer.core.types import Array, DataType, differ
from interposer.frontends.elementwise import EQUAL, EXP, GREATER, IS_NAN, POWER, TANH
from interposer.frontends.onnx.node import Node
from interposer.frontends.onnx.onnx_converters import Refusal, operator
from interposer.frontends.onnx.scores import (
    features,
    integers,
    label,
    label_above,
    labels,
    scores_of_two,
    transformed,
)
from interposer.frontends.reshaping import inserted_axes, reshaped
from interposer.ir.graph import Value
from interposer.ops.elementwise import Addition, Division, Multiplication, Subtraction, Where
from interposer.ops.features import LabelEncoder
from interposer.ops.gather import Gather
from interposer.ops.matmul import BatchMatMul, FullyConnected
from interposer.ops.quantization import Cast
from interposer.ops.rearrange import Concat
from interposer.ops.reduction import Reduce, ReduceOperation

__all__ = ["kernel_values"]

_ML: Final = "ai.onnx.ml"


def _linear(node: Node, count: int, coefficients: Sequence[float]) -> Value:
    """Return `count` scores of a linear model for each row of features: features times coefficients plus intercepts."""
    x = features(node)
    dtype = x.known.dtype.numpy
    weights = np.array(coefficients, dtype).reshape(count, -1)
    intercepts = np.array(node.numbers("intercepts", ()), dtype)
    bias = node.constant(intercepts) if intercepts.size else None
    return node.step(FullyConnected(transpose_weight_matrix=True), x, node.constant(weights), bias)


@operator("LinearRegressor", domain=_ML)
def linear_regressor(node: Node) -> Value:
    """Convert LinearRegressor: one weighted sum for each target."""
    scores = _linear(node, node.integer("targets", 1), node.numbers("coefficients"))
    return transformed(node, scores, node.text("post_transform", "NONE"))


@operator("LinearClassifier", domain=_ML)
def linear_classifier(node: Node) -> Sequence[Value]:
    """Convert LinearClassifier.

    Each intercept stands for a score, and coefficients beyond those of the scores have no effect. With two classes but
    coefficients for one, the first class has the score 1 minus that of the second, or with LOGISTIC its complement.
    """
    class_labels, transform = labels(node), node.text("post_transform", "NONE")
    width = node.known(node.info(0).shape[-1], "number of features")
    coefficients = node.numbers("coefficients")
    num_scores = len(node.numbers("intercepts", ())) or len(coefficients) // max(1, width)
    if len(coefficients) < num_scores * width:
        raise ParseError(f"it has {len(coefficients)} coefficients; expected {num_scores} x {width}")
    if num_scores == 1 and len(class_labels) != 2:
        raise ParseError(f"it has coefficients for one score, but {len(class_labels)} labels; expected 2")
    scores = _linear(node, num_scores, coefficients[: num_scores * width])
    if num_scores > 1:
        chosen_labels, scores = label(node, class_labels, scores), transformed(node, scores, transform)
    else:
        chosen_labels, scores = label_above(node, class_labels, scores, 0.0), scores_of_two(node, scores, transform)
    return [chosen_labels, node.cast(scores, DataType.FLOAT32)]


@operator("SVMRegressor", domain=_ML)
def support_vector_regressor(node: Node) -> Value:
    """Convert SVMRegressor: kernel values times coefficients, or without support vectors a linear model.

    The attribute post_transform has no effect on the score, as in ONNX Runtime.
    """
    x, num_vectors = features(node), node.integer("n_supports", 0)
    dtype = x.known.dtype.numpy
    coefficients = np.array(node.numbers("coefficients"), dtype)
    intercept = node.constant(np.array(node.numbers("rho"), dtype)[:1])
    inputs = x
    if num_vectors:
        inputs = kernel_values(node, x, np.array(node.numbers("support_vectors"), dtype).reshape(num_vectors, -1))
    weights = node.constant(coefficients.reshape(-1, 1))
    score = node.step(FullyConnected(), inputs, weights, intercept)
    if node.flag("one_class"):
        is_inlier = node.step(GREATER, score, node.scalar_like(0, score))
        return node.result(Where(), is_inlier, node.scalar_like(1, score), node.scalar_like(-1, score))
    return score


def kernel_values(node: Node, x: Value, vectors: Array) -> Value:
    """Return the kernel function of every row of `x` with every support vector, of shape [rows, vectors].

    The attributes kernel_type and kernel_params select the function.
    """
    kernel_type, (gamma, offset, degree) = (
        node.text("kernel_type", "LINEAR"),
        (*node.numbers("kernel_params", (0, 0, 0)),)[:3],
    )
    products = node.step(BatchMatMul(transpose_y=True), x, node.constant(vectors))
    if kernel_type == "LINEAR":
        return products
    if kernel_type == "RBF":
        return _gaussian(node, x, products, vectors, gamma)
    scaled = node.step(Multiplication(), products, node.scalar_like(gamma, x))
    shifted = node.step(Addition(), scaled, node.scalar_like(offset, x))
    if kernel_type == "SIGMOID":
        return node.step(TANH, shifted)
    if kernel_type != "POLY":
        raise ParseError(f"its kernel_type is {kernel_type!r}; expected LINEAR, POLY, RBF or SIGMOID")
    return node.step(POWER, shifted, node.scalar_like(degree, x))


def _gaussian(node: Node, x: Value, products: Value, vectors: Array, gamma: float) -> Value:
    squares = node.step(Reduce((1,), keep_dims=True, operation=ReduceOperation.SUM_SQUARE), x)
    doubled = node.step(Multiplication(), products, node.scalar_like(2, x))
    distances = node.step(Subtraction(), squares, doubled)
    distances = node.step(Addition(), distances, node.constant((vectors**2).sum(axis=1)))
    return node.step(EXP, node.step(Multiplication(), distances, node.scalar_like(-gamma, x)))


# --- features ---------------------------------------------------------------------------------------------------------


@operator("Scaler", domain=_ML)
def scaler(node: Node) -> Value:
    """Convert Scaler: subtract an offset, then multiply by a scale; each is one number in all or one per column."""
    x = node.value(0) if node.info(0).dtype is DataType.FLOAT32 else node.step(Cast(DataType.FLOAT32), node.value(0))
    if node.has_attribute("offset"):
        x = node.step(Subtraction(), x, node.constant(np.array(node.numbers("offset"), np.float32)))
    return node.result(Multiplication(), x, node.constant(np.array(node.numbers("scale", (1.0,)), np.float32)))


@operator("Normalizer", domain=_ML)
def normalizer(node: Node) -> Value:
    """Convert Normalizer: divide every row by its maximum, by its sum of absolute values, or by its Euclidean norm.

    A row whose norm is 0 stays as it is. The maximum is not that of the absolute values, as in ONNX Runtime.
    """
    norms = {"MAX": ReduceOperation.MAX, "L1": ReduceOperation.L1, "L2": ReduceOperation.L2}
    norm_name = node.text("norm", "MAX")
    if norm_name not in norms:
        raise ParseError(f"its norm is {norm_name!r}; expected MAX, L1 or L2")
    x = node.value(0) if node.info(0).dtype is DataType.FLOAT32 else node.step(Cast(DataType.FLOAT32), node.value(0))
    norm = node.step(Reduce((-1,), keep_dims=True, operation=norms[norm_name]), x)
    is_zero = node.step(EQUAL, norm, node.scalar_like(0, x))
    return node.result(Division(), x, node.step(Where(), is_zero, node.scalar_like(1, x), norm))


@operator("Imputer", domain=_ML)
def imputer(node: Node) -> Value:
    """Convert Imputer: replace the number that marks missing values by another one, for all columns or for each."""
    x = node.value(0)
    if x.known.dtype.is_float:
        replacements, missing_marker = node.numbers("imputed_value_floats"), node.number("replaced_value_float", 0.0)
    else:
        replacements, missing_marker = node.integers("imputed_value_int64s"), node.integer("replaced_value_int64", 0)
    if math.isnan(missing_marker):
        is_missing = node.step(IS_NAN, x)
    else:
        is_missing = node.step(EQUAL, x, node.scalar_like(missing_marker, x))
    return node.result(Where(), is_missing, node.constant(np.array(replacements, x.known.dtype.numpy)), x)


@operator("OneHotEncoder", domain=_ML)
def one_hot_encoder(node: Node) -> Value:
    """Convert OneHotEncoder: a 1 at the category's position.

    An unknown category gives zeros, or with zeros = 0 an invalid index, which ends the run with `InvalidValueError`.
    """
    x = node.value(0)
    if x.known.dtype is DataType.STRING:
        categories = np.array(node.texts("cats_strings"), object)
    else:
        categories = integers(node, "cats_int64s")
        x = x if x.known.dtype is DataType.INT64 else node.step(Cast(DataType.INT64), x)
    if not node.flag("zeros", True):
        rows, unknown_index = np.eye(len(categories), dtype=np.float32), np.array(len(categories))
        indices = node.step(LabelEncoder(categories, np.arange(len(categories)), unknown_index), x)
        return node.result(Gather(0), node.constant(rows), indices)
    expanded = reshaped(node, x, [*x.known.shape, 1], x.known.rank)
    is_category = node.step(EQUAL, expanded, node.constant(categories))
    return node.result(Cast(DataType.FLOAT32), is_category)


@operator("FeatureVectorizer", domain=_ML)
def feature_vectorizer(node: Node) -> Value:
    """Convert FeatureVectorizer: concatenate the columns of all tensors."""
    columns = [node.step(Cast(DataType.FLOAT32), tensor) for tensor in node.values()]
    columns = [tensor if tensor.known.rank == 2 else reshaped(node, tensor, [-1, 1]) for tensor in columns]
    return node.result(Concat(1), *columns)


@operator("ZipMap", domain=_ML)
def zip_map(node: Node) -> Value:
    """Convert ZipMap to nothing: its result is the tensor of scores, of which each column belongs to a class.

    The maps of ONNX Runtime have the same scores, by the label of the class; a map is no tensor.
    """
    names = [name for name in ("classlabels_int64s", "classlabels_strings") if node.has_attribute(name)]
    if len(names) != 1:
        raise ParseError("it has not exactly one of classlabels_int64s and classlabels_strings")
    labels = node.integers(names[0]) if names[0] == "classlabels_int64s" else node.texts(names[0])
    x = node.value(0)
    if not 1 <= x.known.rank <= 2 or differ(x.known.shape[-1], len(labels)):
        raise ParseError(f"its input is {x.known}; expected scores of {len(labels)} classes")
    return x if x.known.rank == 2 else inserted_axes(node, x, (0,))


for _name in ("CastMap", "DictVectorizer"):
    operator(_name, domain=_ML)(Refusal("it takes maps, which are no tensors"))
