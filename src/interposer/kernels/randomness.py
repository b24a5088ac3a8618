"""Kernels of the operators that generate random numbers."""

from __future__ import annotations

import numpy as np

from interposer.core.errors import InvalidArgumentError
from interposer.core.types import Array
from interposer.kernels.reference import kernel
from interposer.ops.randomness import Distribution, RandomFill

__all__: list[str] = []


@kernel(RandomFill)
def random_fill(op: RandomFill, dims: Array) -> Array:
    """Compute `RandomFill` in float64 by NumPy's `RandomState`, the generator of ONNX's reference evaluator."""
    if (dims < 0).any():
        raise InvalidArgumentError(f"dims is {dims.tolist()}; a dimension must not be negative")
    state, shape = np.random.RandomState(op.seed), tuple(dims.tolist())
    if op.distribution is Distribution.NORMAL:
        return np.asarray(state.standard_normal(shape) * op.b + op.a)
    return np.asarray(state.random_sample(shape) * (op.b - op.a) + op.a)
