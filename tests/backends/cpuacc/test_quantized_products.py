"""Quantized matrix products and softmax of CpuAcc equal the reference bit for bit."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import interposer as ip
from interposer.core.types import Array, DataType, Quantization, TensorInfo
from interposer.ops import BatchMatMul, Softmax
from interposer.ops.quantization import Requantization
from tests.backends.cpuacc.single import outcomes

pytestmark = [pytest.mark.usefixtures("shared_cpuacc"), pytest.mark.needs_cpuref]

RNG = np.random.default_rng(8)


def drawn(info: TensorInfo) -> Array:
    limits = np.iinfo(info.dtype.numpy)
    return RNG.integers(limits.min, limits.max + 1, tuple(info.shape)).astype(info.dtype.numpy)


def assert_same(op: Any, infos: list[TensorInfo], output: TensorInfo | None = None, threads: int = 1) -> None:
    network = ip.Network("quantized")
    inputs = [network.add_input_layer(n, info) for n, info in enumerate(infos)]
    layer = network.add_layer(op, *inputs, outputs=None if output is None else [output])
    network.add_output_layer(0, layer)
    arrays = [drawn(info) for info in infos]
    [result], [expected] = outcomes(network, arrays, threads)
    np.testing.assert_array_equal(result, expected)


@pytest.mark.parametrize("rounding", list(Requantization))
@pytest.mark.parametrize("turned", [(False, False), (True, True)])
@pytest.mark.parametrize("sizes", [(5, 70, 9), (1, 33, 17), (12, 1, 8)])
def test_products_of_16_bits(rounding: Requantization, turned: tuple[bool, bool], sizes: tuple[int, int, int]) -> None:
    rows, depth, columns = sizes
    shapes = [(3, 1, rows, depth), (2, depth, columns)]
    infos = [
        TensorInfo((*shape[:-2], *(shape[:-3:-1] if turn else shape[-2:])), DataType.INT16, Quantization(0.001))
        for shape, turn in zip(shapes, turned, strict=True)
    ]
    op = BatchMatMul(transpose_x=turned[0], transpose_y=turned[1], requantization=rounding)
    output = TensorInfo((3, 2, rows, columns), DataType.INT16, Quantization(0.9))
    assert_same(op, infos, output, threads=2)


def test_products_of_two_types_and_with_scales_of_columns() -> None:
    a = TensorInfo((2, 4, 40), DataType.INT16, Quantization(0.001))
    b = TensorInfo((40, 6), DataType.INT8, Quantization([0.1 + 0.01 * n for n in range(6)], [0] * 6, 1))
    assert_same(BatchMatMul(), [a, b], TensorInfo((2, 4, 6), DataType.INT16, Quantization(0.05)))
    a = TensorInfo((2, 4, 40), DataType.UINT8, Quantization(0.02, 100))
    assert_same(BatchMatMul(), [a, b], TensorInfo((2, 4, 6), DataType.UINT8, Quantization(2.5, 90)))


def test_products_of_quantized_vectors() -> None:
    vector = TensorInfo((40,), DataType.INT8, Quantization(0.02, 5))
    matrix = TensorInfo((3, 40, 7), DataType.INT8, Quantization(0.03, -9))
    assert_same(BatchMatMul(), [vector, matrix], TensorInfo((3, 7), DataType.INT8, Quantization(0.2, 1)))


@pytest.mark.parametrize("scale", [1e-5, 1 / 3000, 0.02, 5.0])
@pytest.mark.parametrize("beta", [1.0, 0.25])
@pytest.mark.parametrize("axis", [-1, 1])
def test_softmax_of_16_bits(scale: float, beta: float, axis: int) -> None:
    assert_same(Softmax(axis=axis, beta=beta), [TensorInfo((3, 50, 7), DataType.INT16, Quantization(scale))])
