"""Sums of quantized tensors that are broadcast, also within products, are the reference's, bit for bit."""

from __future__ import annotations

import numpy as np
import pytest

import interposer as ip
from interposer.core.types import Quantization, TensorInfo
from interposer.ops import Addition, FullyConnected, Multiplication, Pooling2d, PoolingAlgorithm, Subtraction
from interposer.ops.quantization import Requantization
from tests.backends.cpuacc.single import reference_results

pytestmark = [pytest.mark.usefixtures("shared_cpuacc"), pytest.mark.needs_cpuref]


def outputs(network: ip.Network, inputs: list[np.ndarray]) -> list[np.ndarray]:
    with ip.load(network, backends=["CpuAcc"]) as model:
        return [model.run(inputs)[0], reference_results(network, inputs)[0]]


@pytest.mark.parametrize("rows", [1, 3, 40])
@pytest.mark.parametrize("columns", [5, 64, 100])
@pytest.mark.parametrize("dtype", ["int8", "uint8"])
def test_a_constant_row_is_added_to_products_bit_for_bit(dtype, rows, columns):
    rng, depth, network = np.random.default_rng(columns), 30, ip.Network("row")
    limits = np.iinfo(dtype)

    def values(*shape: int) -> np.ndarray:
        return rng.integers(limits.min, limits.max + 1, shape).astype(dtype)

    x = network.add_input_layer(0, TensorInfo((2, rows, depth), dtype, Quantization(0.03, 5)))
    weights = network.add_constant_layer(
        rng.integers(-127, 128, (columns, depth)).astype(np.int8), Quantization(0.01, 0)
    )
    products = TensorInfo((2, rows, columns), dtype, Quantization(0.07, 9))
    op = FullyConnected(transpose_weight_matrix=True, keep_dims=True)
    value = network.add_layer(op, x, weights, outputs=[products])
    row = network.add_constant_layer(values(columns), Quantization(0.02, 1))
    total = TensorInfo((2, rows, columns), dtype, Quantization(0.08, 2))
    network.add_output_layer(0, network.add_layer(Addition(), row, value, outputs=[total]))
    ours, reference = outputs(network, [values(2, rows, depth)])
    np.testing.assert_array_equal(ours, reference)


@pytest.mark.parametrize(
    "shape", [(2, 3, 40, 32), (1, 1, 1, 32), (1, 3, 1, 32), (2, 1, 40, 32), (32,), (40, 32), (1, 2)]
)
@pytest.mark.parametrize("dtype", ["int8", "uint8"])
def test_sums_of_quantized_tensors_that_are_broadcast_are_the_reference_bit_for_bit(dtype, shape):
    rng, whole = np.random.default_rng(len(shape)), (2, 3, 40, shape[-1])
    limits = np.iinfo(dtype)
    infos = [TensorInfo(each, dtype, Quantization(0.02 + n / 100, 7)) for n, each in enumerate([shape, whole])]
    for order in (infos, infos[::-1]):
        network = ip.Network("sum")
        operands = [network.add_input_layer(n, info) for n, info in enumerate(order)]
        info = TensorInfo(whole, dtype, Quantization(0.05, -3 if dtype == "int8" else 120))
        network.add_output_layer(0, network.add_layer(Addition(), *operands, outputs=[info]))
        inputs = [rng.integers(limits.min, limits.max + 1, tuple(info.shape)).astype(dtype) for info in order]
        ours, reference = outputs(network, inputs)
        np.testing.assert_array_equal(ours, reference)


SHAPES = {
    "equal": ((2, 7, 13), (2, 7, 13)),
    "one element": ((2, 7, 13), (1,)),
    "a short row": ((31, 67, 3), (3,)),
    "an element for each short row": ((31, 67, 3), (31, 67, 1)),
    "a short row and an element for each": ((9, 40, 5), (9, 1, 5)),
    "many dimensions": ((2, 1, 3, 1, 70), (1, 4, 1, 5, 1)),
}


@pytest.mark.parametrize("shapes", SHAPES.values(), ids=SHAPES)
@pytest.mark.parametrize("dtype", ["int8", "uint8"])
def test_arithmetic_of_two_quantized_tensors_is_the_reference_bit_for_bit(dtype, shapes):
    rng, network = np.random.default_rng(len(shapes[1])), ip.Network("arithmetic")
    infos = [TensorInfo(shape, dtype, Quantization(0.031 + n / 100, 7)) for n, shape in enumerate(shapes)]
    operands = [network.add_input_layer(n, info) for n, info in enumerate(infos)]
    result = TensorInfo(np.broadcast_shapes(*shapes), dtype, Quantization(0.043, 3))
    for op in (Addition(), Subtraction(), Multiplication()):
        for order in (operands, operands[::-1]):
            network.add_output_layer(len(network.outputs), network.add_layer(op, *order, outputs=[result]))
    inputs = [_values(rng, info.dtype.numpy, tuple(info.shape)) for info in infos]
    with ip.load(network, backends=["CpuAcc"]) as model:
        for ours, theirs in zip(model.run(inputs), reference_results(network, inputs), strict=True):
            np.testing.assert_array_equal(ours, theirs)


@pytest.mark.parametrize("dtype", ["uint16", "int32", "uint32", "int64", "uint64", "float64"])
def test_maxima_of_windows_are_taken_of_every_type(dtype):
    rng, network = np.random.default_rng(5), ip.Network("maxima")
    x = network.add_input_layer(0, TensorInfo((1, 3, 11, 13), dtype))
    op = Pooling2d(PoolingAlgorithm.MAX, pool_width=3, pool_height=2, stride_x=2, stride_y=1, pad_left=1, pad_right=1)
    network.add_output_layer(0, network.add_layer(op, x))
    ours, reference = outputs(network, [_values(rng, np.dtype(dtype), (1, 3, 11, 13))])
    np.testing.assert_array_equal(ours, reference)


def _values(rng, dtype, shape):
    if dtype.kind == "f":
        return rng.normal(size=shape).astype(dtype)
    limits = np.iinfo(dtype)
    return rng.integers(limits.min, limits.max, shape, dtype, endpoint=True)


@pytest.mark.parametrize("op", [Addition, Subtraction])
@pytest.mark.parametrize("requantization", list(Requantization))
@pytest.mark.parametrize("zero_point", [-3, 4])
@pytest.mark.parametrize("scale", [0.125, 0.05])
def test_sums_in_the_middle_between_two_quantized_values_are_rounded_like_the_reference(
    op, requantization, zero_point, scale
):
    network = ip.Network("middles")
    infos = [TensorInfo((256, 256), "int8", Quantization(scale * part, zero_point)) for part in (0.25, 0.1875)]
    operands = [network.add_input_layer(n, info) for n, info in enumerate(infos)]
    total = TensorInfo((256, 256), "int8", Quantization(scale, zero_point))
    layer = network.add_layer(op(requantization=requantization), *operands, outputs=[total])
    network.add_output_layer(0, layer)
    values = np.broadcast_to(np.arange(-128, 128, dtype=np.int8), (256, 256))
    ours, reference = outputs(network, [np.ascontiguousarray(values), np.ascontiguousarray(values.T)])
    np.testing.assert_array_equal(ours, reference)


@pytest.mark.parametrize("op", [Addition, Subtraction, Multiplication])
@pytest.mark.parametrize("dtype", ["int8", "uint8", "int16"])
@pytest.mark.parametrize("scales", [(1e-3, 1e-3, 1e-46), (3e38, 1e-3, 3e38), (3e38, 3e38, 3e38)])
def test_numbers_that_are_infinite_or_nan_in_float32_are_quantized_like_those_of_the_reference(op, dtype, scales):
    network, values = ip.Network("beyond float32"), np.arange(100).astype(dtype)
    a, b, total = (TensorInfo((100, 100), dtype, Quantization(scale, 5)) for scale in scales)
    operands = [network.add_input_layer(n, info) for n, info in enumerate((a, b))]
    layer = network.add_layer(op(requantization=Requantization.HALF_TO_EVEN), *operands, outputs=[total])
    network.add_output_layer(0, layer)
    columns = np.ascontiguousarray(np.broadcast_to(values, (100, 100)))
    with np.errstate(all="ignore"):
        ours, reference = outputs(network, [columns, np.ascontiguousarray(columns.T)])
    np.testing.assert_array_equal(ours, reference)
