"""Run in a process of its own: casts of all float16 and bfloat16 numbers, and to them, are as numpy's."""

from __future__ import annotations

import sys

import numpy as np

import interposer as ip
from interposer.core.types import Array, DataType, TensorInfo


def cast(array: Array, of: DataType, to: DataType) -> Array:
    network = ip.Network("cast")
    x = network.add_input_layer(0, TensorInfo(array.shape, of), name="x")
    network.add_output_layer(0, network.add_cast_layer(x, dtype=to), name="y")
    [result] = ip.load(network, ["CpuAcc"]).run([array])
    return np.asarray(result)


def numbers() -> Array:
    """Return numbers, some of them halfway between two neighbours, too large or too small."""
    rng = np.random.default_rng(1)
    bits = rng.integers(0, 1 << 32, 1 << 16, dtype=np.uint32)
    halves = np.arange(1 << 16, dtype=np.uint16).view(np.float16).astype(np.float32)
    between = halves.view(np.uint32) + rng.choice(np.array([0, 0xFFF, 0x1000, 0x1001], np.uint32), halves.size)
    return np.concatenate([bits, between]).view(np.float32)


def same(found: Array, wanted: Array) -> bool:
    nan = np.isnan(wanted.astype(np.float32))
    bits = f"u{wanted.dtype.itemsize}"
    return bool(
        (found.view(bits)[~nan] == wanted.view(bits)[~nan]).all() and np.isnan(found[nan].astype(np.float32)).all()
    )


def main() -> int:
    with np.errstate(all="ignore"):
        for to in (DataType.FLOAT16, DataType.BFLOAT16):
            every = np.arange(1 << 16, dtype=np.uint16).view(to.numpy)
            if not same(cast(every, to, DataType.FLOAT32), every.astype(np.float32)):
                return 1
            if not same(cast(numbers(), DataType.FLOAT32, to), numbers().astype(to.numpy)):
                return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
