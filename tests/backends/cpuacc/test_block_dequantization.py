"""CpuAcc dequantizes blocks of computed integers as the reference does."""

from __future__ import annotations

import numpy as np
import pytest

import interposer as ip
from interposer.core.types import TensorInfo
from interposer.ops import Addition, BlockDequantize
from tests.backends.cpuacc.single import Layers, outcomes

pytestmark = [pytest.mark.usefixtures("shared_cpuacc"), pytest.mark.needs_cpuref]


@pytest.mark.parametrize("dtype", [np.int8, np.uint8, np.int16, np.uint16])
def test_blocks_of_integers(dtype: type) -> None:
    layers, random, limits = Layers(), np.random.default_rng(3), np.iinfo(dtype)
    for axis, shape in ((0, (13, 20)), (1, (13, 2, 3)), (2, (3, 4, 50)), (-1, (40,))):
        for block in (1, 4, 7, 100):
            counts = list(shape)
            counts[axis] = -(-shape[axis] // block)
            codes, zeros = (
                random.integers(limits.min, limits.max + 1, sizes).astype(dtype) for sizes in (shape, counts)
            )
            scales = random.uniform(-0.1, 0.1, counts).astype(np.float32)
            op = BlockDequantize(block, axis)
            layers.add(f"axis {axis}, blocks of {block}", op, [codes, scales, zeros])
            layers.add(f"axis {axis}, blocks of {block}, no zero points", op, [codes, scales])
    layers.assert_like_the_reference(0, 0, threads=2)


@pytest.mark.parametrize("dtype", [np.int8, np.uint16])
def test_blocks_of_constants_are_dequantized_when_the_network_is_loaded(dtype: type) -> None:
    network, random, limits = ip.Network("constants"), np.random.default_rng(3), np.iinfo(dtype)
    codes = random.integers(limits.min, limits.max + 1, (6, 20)).astype(dtype)
    zeros = random.integers(limits.min, limits.max + 1, (6, 5)).astype(dtype)
    operands = (codes, random.uniform(-0.1, 0.1, (6, 5)).astype(np.float32), zeros)
    constants = [network.add_constant_layer(array) for array in operands]
    dequantized = network.add_layer(BlockDequantize(4, 1), *constants)
    x = network.add_input_layer(0, TensorInfo((6, 20)))
    network.add_output_layer(0, network.add_layer(Addition(), x, dequantized))
    result, expected = outcomes(network, [random.uniform(-1, 1, (6, 20)).astype(np.float32)])
    np.testing.assert_array_equal(result[0], expected[0])
