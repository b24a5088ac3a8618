"""ONNX converters for random numbers, and for dropout in training mode."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

import numpy as np

from interposer.core.errors import ParseError
from interposer.core.types import DataType
from interposer.frontends.elementwise import GREATER_OR_EQUAL, LESS
from interposer.frontends.onnx.node import Node
from interposer.frontends.onnx.onnx_converters import operator
from interposer.frontends.onnx.tensors import data_type
from interposer.ir.graph import Value
from interposer.ops.choice import RandomMultinomial
from interposer.ops.elementwise import Division, Multiplication, Subtraction
from interposer.ops.quantization import Cast
from interposer.ops.randomness import Distribution, RandomFill
from interposer.ops.reshape import BroadcastTo, Shape

__all__: list[str] = []

_SEEDS: Final = 1 << 32
_PARAMETERS: Final = {
    Distribution.UNIFORM: (("low", 0.0), ("high", 1.0)),
    Distribution.NORMAL: (("mean", 0.0), ("scale", 1.0)),
}


@operator("RandomUniform")
def random_uniform(node: Node) -> Value:
    """Convert RandomUniform, with the shape as an attribute."""
    return _filled(node, Distribution.UNIFORM, _given_shape(node), DataType.FLOAT32)


@operator("RandomNormal")
def random_normal(node: Node) -> Value:
    """Convert RandomNormal, with the shape as an attribute."""
    return _filled(node, Distribution.NORMAL, _given_shape(node), DataType.FLOAT32)


@operator("RandomUniformLike")
def random_uniform_like(node: Node) -> Value:
    """Convert RandomUniformLike, with the shape of another tensor, and its type unless an attribute names one."""
    return _filled(node, Distribution.UNIFORM, _shape_of(node, node.value(0)), node.info(0).dtype)


@operator("RandomNormalLike")
def random_normal_like(node: Node) -> Value:
    """Convert RandomNormalLike, with the shape of another tensor, and its type unless an attribute names one."""
    return _filled(node, Distribution.NORMAL, _shape_of(node, node.value(0)), node.info(0).dtype)


@operator("Bernoulli", since=15)
def bernoulli(node: Node) -> Value:
    """Convert Bernoulli: 1 if a random number between 0 and 1 is less than the probability."""
    probability, type_number = node.value(0), node.integer("dtype", 0)
    random_numbers = node.step(RandomFill(seed=_seed(node), dtype=DataType.FLOAT64), _shape_of(node, probability))
    is_one = node.step(LESS, random_numbers, node.cast(probability, DataType.FLOAT64))
    return node.result(Cast(data_type(type_number) if type_number else probability.known.dtype), is_one)


@operator("Multinomial", since=7)
def multinomial(node: Node) -> Value:
    """Convert Multinomial; the scores are log-probabilities."""
    type_number = node.integer("dtype", 6)
    seed = _seed(node)
    seeds = None if seed is None else node.constant(np.array([seed, 1], np.int64))
    return node.result(RandomMultinomial(node.integer("sample_size", 1), data_type(type_number)), node.value(0), seeds)


@operator("Dropout")
def idle_dropout(node: Node) -> Sequence[Value | None]:
    """Convert Dropout of old opsets, which does nothing at inference."""
    return _undropped(node)


def _undropped(node: Node) -> Sequence[Value | None]:
    """Return the results of Dropout that drops nothing: the input, and if it is used a mask that is true everywhere."""
    if not node.wants(1):
        return [node.value(0)]
    shape = node.concrete(node.info(0).shape, "input")
    return [node.value(0), node.result(BroadcastTo(shape), node.constant(np.array(True)))]


@operator("Dropout", since=12)
def dropout(node: Node) -> Sequence[Value | None]:
    """Convert Dropout.

    In training mode, an element remains if its random number is at least the ratio, and is scaled by 1 / (1 - ratio).
    """
    if not (node.has(2) and node.number_of(2, "training_mode")):
        return _undropped(node)
    x = node.value(0)
    ratio = node.value(1) if node.has(1) else node.constant(np.array(0.5, np.float32))
    seed = node.integer("seed") % _SEEDS if node.has_attribute("seed") else None
    random_numbers = node.step(RandomFill(seed=seed, dtype=DataType.FLOAT64), _shape_of(node, x))
    is_kept = node.step(GREATER_OR_EQUAL, random_numbers, node.cast(ratio, DataType.FLOAT64))
    kept_fraction = node.step(Subtraction(), node.scalar_like(1, x), node.cast(ratio, x.known.dtype))
    kept_elements = node.step(Multiplication(), node.cast(is_kept, x.known.dtype), x)
    return [node.result(Division(), kept_elements, kept_fraction), is_kept]


def _filled(node: Node, distribution: Distribution, shape: Value, dtype: DataType) -> Value:
    a, b = (node.number(name, default) for name, default in _PARAMETERS[distribution])
    if distribution is Distribution.NORMAL and b < 0:
        raise ParseError(f"its scale is {b:g}; expected 0 or more")
    type_number = node.integer("dtype", 0)
    return node.result(
        RandomFill(distribution, a, b, _seed(node), data_type(type_number) if type_number else dtype), shape
    )


def _given_shape(node: Node) -> Value:
    return node.constant(np.array(node.integers("shape"), np.int64))


def _shape_of(node: Node, value: Value) -> Value:
    return node.step(Shape(DataType.INT64), value)


def _seed(node: Node) -> int | None:
    """Return the attribute seed truncated to an integer, as ONNX's reference evaluator does; None if absent."""
    if not node.has_attribute("seed") or not math.isfinite(node.number("seed")):
        return None
    return int(node.number("seed")) % _SEEDS
