"""Kernels of the operators that generate random numbers."""

from __future__ import annotations

import math
from typing import Final

import numpy as np

from interposer.core.types import Array
from interposer.kernels.operand_values import checked_shape
from interposer.kernels.philox import normal, philox, stream, threefry, uniform32
from interposer.kernels.reference import kernel
from interposer.ops.randomness import BitGenerator, Distribution, RandomBits, RandomFill, RandomGenerator

__all__: list[str] = []

_WORDS: Final = {BitGenerator.THREEFRY: 2, BitGenerator.PHILOX: 4}
"""The number of words in a block of each generator."""


@kernel(RandomFill)
def random_fill(op: RandomFill, dims: Array) -> Array:
    """Compute `RandomFill` in float64 by NumPy's `RandomState`, the generator of ONNX's reference evaluator.

    The numbers of Philox are those of TensorFlow.
    """
    shape = checked_shape("dims", dims, np.dtype(np.float64).itemsize)
    if op.generator is RandomGenerator.PHILOX and op.seed is not None:
        return _of_philox(op, op.seed, shape)
    state = np.random.RandomState(op.seed)
    if op.distribution is Distribution.NORMAL:
        return np.asarray(state.standard_normal(shape) * op.b + op.a)
    return np.asarray(state.random_sample(shape) * (op.b - op.a) + op.a)


def _of_philox(op: RandomFill, seed: int, shape: tuple[int, ...]) -> Array:
    count = math.prod(shape)
    words = stream(seed, op.seed2, count)
    numbers = normal(words) if op.distribution is Distribution.NORMAL else uniform32(words)
    factor = op.b if op.distribution is Distribution.NORMAL else op.b - op.a
    return numbers[:count].reshape(shape) * np.float32(factor) + np.float32(op.a)


@kernel(RandomBits)
def random_bits(op: RandomBits, state: Array) -> tuple[Array, Array]:
    """Compute `RandomBits`: the lower two words of the counter count the blocks."""
    words = np.ascontiguousarray(state).astype("<u8").view("<u4").astype(np.uint64)
    dtype = op.dtype.numpy
    count, block_size = math.prod(op.shape) * dtype.itemsize // 4, _WORDS[op.generator]
    start, blocks = int(state[1]), -(-count // block_size)
    counters = np.uint64(start) + np.arange(blocks, dtype=np.uint64)
    low, high = counters & np.uint64((1 << 32) - 1), counters >> np.uint64(32)
    key = int(words[0]), int(words[1])
    if op.generator is BitGenerator.THREEFRY:
        random_words = threefry(key, np.stack([low, high], axis=1))
    else:
        upper_words = words[4:6] if len(state) == 3 else words[0:2]
        random_words = philox(key, np.stack([low, high, *(np.full_like(low, word) for word in upper_words)], axis=1))
    bits = random_words.reshape(-1)[:count].astype("<u4").view(dtype).reshape(op.shape)
    next_state = state.copy()
    next_state[1] = (start + blocks) % (1 << 64)
    return next_state, bits
