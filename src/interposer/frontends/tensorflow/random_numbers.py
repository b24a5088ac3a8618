"""TensorFlow converters for operators that draw random numbers, as dropout does."""

from __future__ import annotations

from typing import Final

from interposer.core.types import DataType
from interposer.frontends.tensorflow.node import Node
from interposer.frontends.tensorflow.tensorflow_converters import operator
from interposer.ir.graph import Value
from interposer.ops.randomness import Distribution, RandomFill, RandomGenerator

__all__: list[str] = []

_DISTRIBUTIONS: Final = {"RandomUniform": Distribution.UNIFORM, "RandomStandardNormal": Distribution.NORMAL}


@operator(*_DISTRIBUTIONS)
def random_fill(node: Node) -> Value:
    """Convert RandomUniform and RandomStandardNormal; with two seeds of 0, every run draws other numbers."""
    seed, seed2 = node.integer("seed", 0), node.integer("seed2", 0)
    op = RandomFill(
        _DISTRIBUTIONS[node.kind],
        seed=seed if seed or seed2 else None,
        seed2=seed2,
        dtype=node.dtype("dtype", DataType.FLOAT32),
        generator=RandomGenerator.PHILOX,
    )
    return node.result(op, node.value(0))
