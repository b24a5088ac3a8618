"""Random arrays for the inputs of a network."""

from __future__ import annotations

import numpy as np

from interposer.core.errors import InvalidArgumentError
from interposer.core.types import Array, TensorInfo
from interposer.ir.network import Network

__all__ = ["random_array", "random_inputs"]


def random_inputs(network: Network, seed: int = 0) -> dict[str, Array]:
    """Return random arrays for all inputs by name: normal floats, random 8-bit integers, zeros for other integers.

    The same seed gives the same arrays.

    Raises:
        InvalidArgumentError: an input has an unknown shape, or is not a numeric tensor.
    """
    generator = np.random.default_rng(seed)
    return {layer.name: random_array(generator, layer.name, layer.output.known) for layer in network.graph.inputs}


def random_array(generator: np.random.Generator, name: str, info: TensorInfo) -> Array:
    """Return random numbers for the input `name` with this info, drawn from `generator`, as `random_inputs` does."""
    if not info.is_tensor or not info.is_concrete or info.dtype.numpy.kind == "O":
        raise InvalidArgumentError(f"input {name!r} is {info}; give an array for it, or its shape")
    shape, dtype = tuple(info.shape), info.dtype.numpy
    if info.dtype.is_float:
        return generator.standard_normal(shape).astype(dtype)
    if dtype in {np.dtype(np.uint8), np.dtype(np.int8)}:
        limits = np.iinfo(dtype)
        return generator.integers(limits.min, limits.max, shape, dtype, endpoint=True)
    return np.zeros(shape, dtype)
