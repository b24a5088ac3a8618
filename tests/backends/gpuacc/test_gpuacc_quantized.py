"""Quantized layers and integers on GpuAcc give the results of the reference, bit for bit."""

from __future__ import annotations

import numpy as np
import pytest

import interposer as ip
from interposer.ops import (
    BinaryOperation,
    ElementwiseBinary,
    L2Normalization,
    LogSoftmax,
    PaddingMethod,
    Pooling2d,
    PoolingAlgorithm,
)
from interposer.types import DataLayout, DataType, Quantization
from tests.backends.gpuacc.test_gpuacc_runs import PROFILES, loaded
from tests.parameters import slow_unless

pytestmark = pytest.mark.needs_cpuref
TYPES = {DataType.INT8: np.int8, DataType.UINT8: np.uint8}


def check(op, output, *operands, profile="cpu"):
    """Compare a layer with the reference; `operands` are pairs of an array and a quantization."""
    network = ip.Network("quantized")
    inputs = [
        network.add_input_layer(n, ip.TensorInfo(array.shape, DataType(str(array.dtype)), quantization))
        for n, (array, quantization) in enumerate(operands)
    ]
    network.add_output_layer(0, network.add_layer(op, *inputs, outputs=None if output is None else [output]))
    arrays = [array for array, _ in operands]
    model = loaded(network, ["GpuAcc"], Profile=profile)
    assert model.explain().counts() == {"GpuAcc": 1}
    np.testing.assert_array_equal(model.run(arrays)[0], loaded(network, ["CpuRef"]).run(arrays)[0])


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("operation", [BinaryOperation.DIV, BinaryOperation.SQ_DIFF])
@pytest.mark.parametrize("scales", [(0.1, 0.02, 0.05), (1.0, 1.0, 4.0), (3e-4, 7.0, 1e-6)])
def test_all_pairs_of_quantized_values_are_combined_as_in_the_reference(gpuacc, dtype, operation, scales):
    first = 0 if dtype is DataType.UINT8 else -128
    values = np.arange(first, first + 256, dtype=TYPES[dtype])
    a, b, result = (Quantization(scale, first + zero) for scale, zero in zip(scales, (120, 3, 100), strict=True))
    output = ip.TensorInfo((256, 256), dtype, result)
    check(ElementwiseBinary(operation=operation), output, (values[:, np.newaxis], a), (values[np.newaxis], b))


@pytest.mark.parametrize("profile", PROFILES)
@pytest.mark.parametrize("dtype", TYPES)
def test_log_softmax_of_quantized_rows_is_that_of_the_reference(gpuacc, dtype, profile):
    rows = np.random.default_rng(1).integers(0, 256, (40, 33))
    rows[0] = 7
    output = ip.TensorInfo(rows.shape, dtype, Quantization(1 / 16, 255 if dtype is DataType.UINT8 else 127))
    for scale, beta in [(0.004, 1.0), (0.1, 1.0), (1.7, 1.0), (0.1, 0.0)]:
        check(LogSoftmax(beta=beta), output, (rows.astype(TYPES[dtype]), Quantization(scale, 5)), profile=profile)


@pytest.mark.parametrize("dtype", TYPES)
def test_quantized_rows_are_divided_by_their_length_as_in_the_reference(gpuacc, dtype):
    rows = np.random.default_rng(2).integers(0, 256, (64, 19)).astype(TYPES[dtype])
    rows[:3] = np.asarray([[5], [6], [4]])
    output = ip.TensorInfo(rows.shape, dtype, Quantization(1 / 128, 128 if dtype is DataType.UINT8 else 0))
    check(L2Normalization(axis=1), output, (rows, Quantization(0.3, 5)))


@pytest.mark.parametrize("pool_type", [PoolingAlgorithm.L2, PoolingAlgorithm.AVERAGE])
@pytest.mark.parametrize("method", PaddingMethod)
def test_pooling_of_dequantized_values_is_that_of_the_reference(gpuacc, pool_type, method):
    image = np.random.default_rng(3).integers(-128, 128, (2, 9, 7, 5)).astype(np.int8)
    op = Pooling2d(
        pool_type=pool_type, pool_width=3, pool_height=2, stride_x=2, stride_y=1, pad_left=1, pad_bottom=1,
        padding_method=method, data_layout=DataLayout.NHWC,
    )  # fmt: skip
    output = ip.TensorInfo((2, 9, 3, 5), DataType.INT8, Quantization(0.07, -3))
    check(op, output, (image, Quantization(0.1, 4)))


@pytest.mark.parametrize(
    "dtype", slow_unless({"int32", "uint64"}.__contains__, ["int8", "uint8", "int32", "int64", "uint64"])
)
@pytest.mark.parametrize("operation", ["DIV", "FLOOR_DIV", "MOD", "FMOD", "SQ_DIFF", "SHIFT_LEFT", "SHIFT_RIGHT"])
def test_integers_are_divided_and_shifted_as_in_the_reference(gpuacc, dtype, operation):
    limits = np.iinfo(dtype)
    least = [] if limits.min == 0 else [limits.min, limits.min + 1, -7, -2, -1]
    values = np.array([*least, 0, 1, 2, 3, 7, limits.max - 1, limits.max], dtype)
    check(
        ElementwiseBinary(operation=BinaryOperation[operation]), None,
        (values[:, np.newaxis], None), (values[np.newaxis], None),
    )  # fmt: skip
