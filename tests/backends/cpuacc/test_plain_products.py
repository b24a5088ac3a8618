"""Matrix products of CpuAcc on float64 and on integers give what the reference gives."""

from __future__ import annotations

import numpy as np
import pytest

from interposer.core.types import Array
from interposer.ops import BatchMatMul, FullyConnected
from tests.backends.cpuacc.single import Layers, network_of, outcomes

pytestmark = [pytest.mark.usefixtures("shared_cpuacc"), pytest.mark.needs_cpuref]

RNG = np.random.default_rng(5)
INTEGERS = [np.int8, np.uint8, np.int16, np.uint16, np.int32, np.uint32, np.int64, np.uint64]
SHAPES = [
    ((9, 33), (33, 70)),
    ((8, 70), (70, 33)),
    ((1, 70), (70, 33)),
    ((2, 1, 6, 4), (3, 4, 17)),
    ((5,), (5, 3)),
    ((2, 3, 8), (8,)),
    ((4, 0), (0, 3)),
    ((3, 2, 0), (3, 0, 4)),
]


def drawn(dtype: type, *shape: int) -> Array:
    if dtype is np.float64:
        return RNG.normal(0, 1, shape)
    limits = np.iinfo(dtype)
    return RNG.integers(limits.min, limits.max, shape, dtype=dtype, endpoint=True)


def turned(shape: tuple[int, ...], turns: bool) -> tuple[int, ...]:
    return (*shape[:-2], shape[-1], shape[-2]) if turns and len(shape) > 1 else shape


@pytest.mark.parametrize("dtype", [np.float64, *INTEGERS])
@pytest.mark.parametrize("turns", [(False, False), (True, False), (False, True)])
def test_products_of_matrices(dtype: type, turns: tuple[bool, bool]) -> None:
    op, layers = BatchMatMul(transpose_x=turns[0], transpose_y=turns[1]), Layers()
    for a, b in SHAPES:
        arrays = [drawn(dtype, *turned(a, turns[0])), drawn(dtype, *turned(b, turns[1]))]
        for constants in ([], [1]):
            layers.add(f"{a} by {b}, constants {constants}", op, arrays, constants)
    layers.assert_like_the_reference(1e-12 if dtype is np.float64 else 0, 1e-12, threads=2)


@pytest.mark.parametrize("dtype", INTEGERS)
@pytest.mark.parametrize("transposed", [False, True])
def test_fully_connected_layers_of_integers(dtype: type, transposed: bool) -> None:
    op, layers = FullyConnected(transpose_weight_matrix=transposed), Layers()
    operands = [drawn(dtype, 3, 37), drawn(dtype, *turned((37, 19), transposed))]
    for constants in ([], [1]):
        layers.add(f"no bias, constants {constants}", op, operands, constants)
        layers.add(f"bias, constants {constants}", op, [*operands, drawn(dtype, 19)], constants)
    layers.assert_like_the_reference(0, 1e-12, threads=2)


@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("constants", [[], [1], [1, 2]])
def test_fully_connected_layers_of_float64(transposed: bool, constants: list[int]) -> None:
    op = FullyConnected(transpose_weight_matrix=transposed)
    weights = drawn(np.float64, *turned((37, 19), transposed))
    for bias in (None, drawn(np.float64, 19)):
        positions = constants if bias is not None else [position for position in constants if position < 2]
        network, given = network_of(op, [drawn(np.float64, 3, 37), weights, bias], positions)
        result, expected = outcomes(network, given)
        np.testing.assert_allclose(result[0], expected[0], 1e-12, 1e-12)
