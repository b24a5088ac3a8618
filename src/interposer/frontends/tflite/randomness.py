"""TFLite converters for operators that draw random numbers."""

from __future__ import annotations

from typing import Final

import numpy as np

from interposer.frontends.tflite.node import Node
from interposer.frontends.tflite.tflite_converters import operator
from interposer.ir.graph import Value
from interposer.ops.choice import RandomMultinomial
from interposer.ops.randomness import Distribution, RandomFill, RandomGenerator

__all__: list[str] = []

_DISTRIBUTIONS: Final = {"RANDOM_UNIFORM": Distribution.UNIFORM, "RANDOM_STANDARD_NORMAL": Distribution.NORMAL}


@operator(*_DISTRIBUTIONS, options=True)
def random_fill(node: Node) -> Value:
    """Convert RANDOM_UNIFORM and RANDOM_STANDARD_NORMAL; with two seeds of 0, every run draws other numbers."""
    seed, seed2 = _seeds(node)
    op = RandomFill(
        _DISTRIBUTIONS[node.kind],
        seed=seed if seed or seed2 else None,
        seed2=seed2,
        dtype=node.output_info.dtype,
        generator=RandomGenerator.PHILOX,
    )
    return node.result(op, node.value(0))


@operator("MULTINOMIAL", options=True)
def multinomial(node: Node) -> Value:
    """Convert MULTINOMIAL; the number of samples is an input."""
    op = RandomMultinomial(node.integer_of(1, "the number of samples"), node.output_info.dtype)
    return node.result(op, node.value(0), node.constant(np.array(_seeds(node), np.int64)))


def _seeds(node: Node) -> tuple[int, int]:
    """Return both seeds; like TFLite, which stores them as int32, keep only their lower 32 bits."""
    first, second = np.array([node.options["seed"], node.options["seed2"]], np.int64).astype(np.int32).tolist()
    return first, second
