"""ONNX converters for linear and support vector machines, and for feature preprocessing (ai.onnx.ml)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

import numpy as np

from interposer.core.errors import ParseError
from interposer.core.types import Array, DataType
from interposer.frontends.onnx.node import Node
from interposer.frontends.onnx.onnx_converters import Refusal, operator
from interposer.frontends.onnx.scores import (
    features,
    integers,
    label,
    label_above,
    labels,
    opposites,
    transformed,
)
from interposer.frontends.reshaping import reshaped
from interposer.ir.graph import Value
from interposer.ops.activation import Activation, ActivationFunction
from interposer.ops.elementwise import (
    Addition,
    BinaryOperation,
    Comparison,
    ComparisonOperation,
    Division,
    ElementwiseBinary,
    ElementwiseUnary,
    Maximum,
    Multiplication,
    Subtraction,
    UnaryOperation,
    Where,
)
from interposer.ops.matmul import BatchMatMul, FullyConnected
from interposer.ops.quantization import Cast
from interposer.ops.rearrange import Concat
from interposer.ops.reduction import Reduce, ReduceOperation

__all__ = ["kernel_values"]

_ML: Final = "ai.onnx.ml"


def _linear(node: Node, count: int) -> Value:
    """Return `count` scores of a linear model for each row of features: features times coefficients plus intercepts."""
    x = features(node)
    dtype = x.known.dtype.numpy
    weights = np.array(node.numbers("coefficients"), dtype).reshape(count, -1)
    offsets = np.array(node.numbers("intercepts", ()), dtype)
    bias = node.constant(offsets) if offsets.size else None
    return node.step(FullyConnected(transpose_weight_matrix=True), x, node.constant(weights), bias)


@operator("LinearRegressor", domain=_ML)
def linear_regressor(node: Node) -> Value:
    """Convert LinearRegressor: one weighted sum for each target."""
    return transformed(node, _linear(node, node.integer("targets", 1)), node.text("post_transform", "NONE"))


@operator("LinearClassifier", domain=_ML)
def linear_classifier(node: Node) -> Sequence[Value]:
    """Convert LinearClassifier.

    With two classes but coefficients for one, the other class has the opposite score.
    """
    names, transform = labels(node), node.text("post_transform", "NONE")
    width = node.known(node.info(0).shape[-1], "number of features")
    count = len(node.numbers("coefficients")) // max(1, width)
    scores = _linear(node, count)
    if count > 1:
        return [label(node, names, scores), transformed(node, scores, transform)]
    return [label_above(node, names, scores, 0.0), transformed(node, opposites(node, scores), transform)]


@operator("SVMRegressor", domain=_ML)
def support_vector_regressor(node: Node) -> Value:
    """Convert SVMRegressor: kernel values times coefficients, or without support vectors a linear model."""
    x, count = features(node), node.integer("n_supports", 0)
    dtype = x.known.dtype.numpy
    coefficients = np.array(node.numbers("coefficients"), dtype)
    offset = node.constant(np.array(node.numbers("rho"), dtype)[:1])
    known = x
    if count:
        known = kernel_values(node, x, np.array(node.numbers("support_vectors"), dtype).reshape(count, -1))
    weights = node.constant(coefficients.reshape(-1, 1))
    score = node.step(FullyConnected(), known, weights, offset)
    if node.flag("one_class"):
        above = node.step(Comparison(ComparisonOperation.GREATER), score, node.scalar_like(0, score))
        return node.result(Where(), above, node.scalar_like(1, score), node.scalar_like(-1, score))
    return transformed(node, score, node.text("post_transform", "NONE"))


def kernel_values(node: Node, x: Value, vectors: Array) -> Value:
    """Return the kernel function of every row of `x` with every support vector, of shape [rows, vectors].

    The attributes kernel_type and kernel_params select the function.
    """
    kind, (gamma, offset, degree) = node.text("kernel_type", "LINEAR"), (*node.numbers("kernel_params", (0, 0, 0)),)[:3]
    products = node.step(BatchMatMul(transpose_y=True), x, node.constant(vectors))
    if kind == "LINEAR":
        return products
    if kind == "RBF":
        return _gaussian(node, x, products, vectors, gamma)
    scaled = node.step(Multiplication(), products, node.scalar_like(gamma, x))
    moved = node.step(Addition(), scaled, node.scalar_like(offset, x))
    if kind == "SIGMOID":
        return node.step(Activation(ActivationFunction.TANH, 1.0, 1.0), moved)
    if kind != "POLY":
        raise ParseError(f"its kernel_type is {kind!r}; expected LINEAR, POLY, RBF or SIGMOID")
    return node.step(ElementwiseBinary(BinaryOperation.POWER), moved, node.scalar_like(degree, x))


def _gaussian(node: Node, x: Value, products: Value, vectors: Array, gamma: float) -> Value:
    squares = node.step(Reduce((1,), keep_dims=True, operation=ReduceOperation.SUM_SQUARE), x)
    twice = node.step(Multiplication(), products, node.scalar_like(2, x))
    distances = node.step(Subtraction(), squares, twice)
    distances = node.step(Addition(), distances, node.constant((vectors**2).sum(axis=1)))
    return node.step(
        ElementwiseUnary(UnaryOperation.EXP), node.step(Multiplication(), distances, node.scalar_like(-gamma, x))
    )


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
    """Convert Normalizer: divide every row by its maximum, by its sum of absolute values, or by its Euclidean norm."""
    norms = {"MAX": ReduceOperation.MAX, "L1": ReduceOperation.L1, "L2": ReduceOperation.L2}
    kind = node.text("norm", "MAX")
    if kind not in norms:
        raise ParseError(f"its norm is {kind!r}; expected MAX, L1 or L2")
    x = node.value(0) if node.info(0).dtype is DataType.FLOAT32 else node.step(Cast(DataType.FLOAT32), node.value(0))
    size = node.step(ElementwiseUnary(UnaryOperation.ABS), x) if kind == "MAX" else x
    norm = node.step(Reduce((-1,), keep_dims=True, operation=norms[kind]), size)
    return node.result(Division(), x, node.step(Maximum(), norm, node.scalar_like(1e-30, x)))


@operator("Imputer", domain=_ML)
def imputer(node: Node) -> Value:
    """Convert Imputer: replace the number that marks missing values by another one, for all columns or for each."""
    x = node.value(0)
    if x.known.dtype.is_float:
        values, missing = node.numbers("imputed_value_floats"), node.number("replaced_value_float", 0.0)
    else:
        values, missing = node.integers("imputed_value_int64s"), node.integer("replaced_value_int64", 0)
    if math.isnan(missing):
        is_missing = node.step(ElementwiseUnary(UnaryOperation.IS_NAN), x)
    else:
        is_missing = node.step(Comparison(ComparisonOperation.EQUAL), x, node.scalar_like(missing, x))
    return node.result(Where(), is_missing, node.constant(np.array(values, x.known.dtype.numpy)), x)


@operator("OneHotEncoder", domain=_ML)
def one_hot_encoder(node: Node) -> Value:
    """Convert OneHotEncoder: a 1 at the category's position; zeros for an unknown category."""
    if not node.flag("zeros", True):
        node.unsupported("it fails where a category is unknown (zeros = 0)")
    x = node.value(0)
    if x.known.dtype is DataType.STRING:
        categories = np.array(node.texts("cats_strings"), object)
    else:
        categories = integers(node, "cats_int64s")
        x = x if x.known.dtype is DataType.INT64 else node.step(Cast(DataType.INT64), x)
    column = reshaped(node, x, [*x.known.shape, 1], x.known.rank)
    encoded = node.step(Comparison(ComparisonOperation.EQUAL), column, node.constant(categories))
    return node.result(Cast(DataType.FLOAT32), encoded)


@operator("FeatureVectorizer", domain=_ML)
def feature_vectorizer(node: Node) -> Value:
    """Convert FeatureVectorizer: concatenate the columns of all tensors."""
    parts = [node.step(Cast(DataType.FLOAT32), value) for value in node.values()]
    parts = [value if value.known.rank == 2 else reshaped(node, value, [-1, 1]) for value in parts]
    return node.result(Concat(1), *parts)


operator("ZipMap", domain=_ML)(
    Refusal("its result is a list of maps, which are no tensors; export the model without it")
)
for _name in ("CastMap", "DictVectorizer"):
    operator(_name, domain=_ML)(Refusal("it takes maps, which are no tensors"))
