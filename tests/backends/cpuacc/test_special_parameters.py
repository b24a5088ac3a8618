"""Parameters that are infinite, NaN or denormal, and numbers that are nearly equal, give CpuRef's results on CpuAcc."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

import interposer as ip
from interposer.core.errors import UnsupportedLayerError
from interposer.core.schema import Op
from interposer.core.types import Array, DataLayout, TensorInfo
from interposer.ops import (
    BatchMatMul,
    BatchNormalization,
    BinaryOperation,
    Convolution2d,
    DepthwiseConvolution2d,
    ElementwiseBinary,
    GroupNormalization,
    InstanceNormalization,
    LayerNormalization,
    MeanVarianceNormalization,
    Reduce,
    ReduceOperation,
    Softmax,
    TransposeConvolution2d,
)
from tests.backends.cpuacc.single import reference_results

pytestmark = [
    pytest.mark.usefixtures("shared_cpuacc"),
    pytest.mark.needs_cpuref,
    pytest.mark.filterwarnings("ignore::RuntimeWarning"),
]

LAYOUTS = [DataLayout.NHWC, DataLayout.NCHW]
NOT_FINITE = [np.nan, np.inf, -np.inf]
ANYTHING = [0, -0.0, 1, -2, 1e30, 1e-40, np.inf, -np.inf, np.nan]


def drawn(*shape: int) -> Array:
    return np.random.default_rng(sum(shape)).standard_normal(shape).astype(np.float32)


def in_layout(nhwc: Array, layout: DataLayout) -> Array:
    return nhwc if layout is DataLayout.NHWC else np.ascontiguousarray(np.moveaxis(nhwc, 3, 1))


def network_of(op: Op, x: Array, *constants: Array) -> ip.Network:
    network = ip.Network("special")
    layers = [network.add_input_layer(0, TensorInfo(x.shape, "float32"))]
    layers += [network.add_constant_layer(values) for values in constants]
    network.add_output_layer(0, network.add_layer(op, *layers))
    return network


def assert_alike(network: ip.Network, *inputs: Array) -> None:
    results = ip.load(network, backends=["CpuAcc", "CpuRef"]).run(inputs)
    reference = reference_results(network, inputs)
    for result, expected in zip(results, reference, strict=True):
        np.testing.assert_array_equal(np.isnan(result), np.isnan(expected))
        np.testing.assert_allclose(result, expected, rtol=1e-5, atol=1e-5)


def refusals(network: ip.Network) -> str:
    with pytest.raises(UnsupportedLayerError) as caught:
        ip.load(network, backends=["CpuAcc"])
    return str(caught.value)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("kind", [Convolution2d, DepthwiseConvolution2d, TransposeConvolution2d])
@pytest.mark.parametrize("special", NOT_FINITE)
def test_weights_that_are_not_finite_meet_padding_as_in_the_reference(
    special: float, kind: type[Op], layout: DataLayout
) -> None:
    for (inputs, outputs), tap, stride in itertools.product([(1, 1), (18, 20)], [0, 4, 8], [1, 2]):
        of_channels = kind is DepthwiseConvolution2d
        weights = drawn(1 if of_channels else outputs, 3, 3, inputs)
        weights.reshape(-1, 9, inputs)[-1, tap, -1] = special
        op = kind(pad_top=1, pad_left=2, pad_right=1, stride_x=stride, stride_y=stride, data_layout=layout)
        x = in_layout(drawn(1, 4, 3, inputs), layout)
        assert_alike(network_of(op, x, weights if of_channels else in_layout(weights, layout)), x)


@pytest.mark.parametrize("kind", [Convolution2d, DepthwiseConvolution2d])
@pytest.mark.parametrize("special", NOT_FINITE)
def test_a_weight_that_sees_only_padding_is_multiplied_with_zeros(special: float, kind: type[Op]) -> None:
    weights = np.ones((1, 3, 3, 1), np.float32)
    weights[0, 0, 1, 0] = special  # above an image of one row
    op = kind(pad_top=1, pad_left=1, pad_right=1, pad_bottom=1, data_layout=DataLayout.NHWC)
    x = drawn(1, 1, 5, 1)
    network = network_of(op, x, weights)
    assert np.isnan(reference_results(network, [x])[0]).all()
    assert_alike(network, x)


def test_a_depthwise_convolution_says_why_infinite_weights_are_refused() -> None:
    weights = np.full((1, 3, 3, 2), np.inf, np.float32)
    padded = DepthwiseConvolution2d(pad_top=1, data_layout=DataLayout.NHWC)
    said = refusals(network_of(padded, drawn(1, 4, 4, 2), weights))
    assert "CpuAcc says: weights hold infinities or NaNs, whose products with padding are not computed" in said
    without = DepthwiseConvolution2d(data_layout=DataLayout.NHWC)
    assert ip.load(network_of(without, drawn(1, 4, 4, 2), weights), backends=["CpuAcc"])


def test_a_transposed_convolution_says_why_weights_that_are_no_numbers_are_refused() -> None:
    weights = np.full((3, 2, 2, 2), np.nan, np.float32)
    op = TransposeConvolution2d(stride_x=2, stride_y=2, data_layout=DataLayout.NHWC)
    said = refusals(network_of(op, drawn(1, 4, 4, 2), weights))
    assert "weights hold infinities or NaNs, which would be multiplied with zeros around the image" in said


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("gamma", [1, 0, np.inf, -np.inf, np.nan, 1e-40])
@pytest.mark.parametrize("variance", [1, 0, np.inf, 1e-40, np.nan])
def test_a_batch_normalization_takes_parameters_of_every_kind(
    variance: float, gamma: float, layout: DataLayout
) -> None:
    x = in_layout(np.array(ANYTHING * 4, np.float32).reshape(1, 2, 6, 3), layout)
    network = ip.Network("special")
    image = network.add_input_layer(0, TensorInfo(x.shape, "float32"))
    item = network.add_constant_layer(np.ones((1, 1, 1, 3), np.float32))
    blocked = network.add_layer(DepthwiseConvolution2d(data_layout=layout), image, item)
    network.add_output_layer(0, blocked)
    kinds = itertools.product([image, blocked], [0, np.inf, 1e6], [0, np.inf], [0, 1e-5])
    for number, (value, mean, beta, eps) in enumerate(kinds, start=1):
        parameters = [
            network.add_constant_layer(np.full(3, parameter, np.float32)) for parameter in (mean, variance, beta, gamma)
        ]
        op = BatchNormalization(eps=eps, data_layout=layout)
        network.add_output_layer(number, network.add_layer(op, value, *parameters))
    assert_alike(network, x)


def test_a_batch_normalization_keeps_the_digits_of_a_difference_from_a_large_mean() -> None:
    x = (4096 + np.arange(12, dtype=np.float32) / 1024).reshape(1, 2, 2, 3)
    parameters = [np.full(3, value, np.float32) for value in (4096, 1e-6, 0, 1)]
    network = network_of(BatchNormalization(eps=0, data_layout=DataLayout.NHWC), x, *parameters)
    [result] = ip.load(network, backends=["CpuAcc"]).run([x])
    np.testing.assert_allclose(result, (x.astype(np.float64) - 4096) / 1e-3, rtol=1e-5)


def test_a_deviation_that_is_denormal_can_be_divided_by() -> None:
    x = np.full((1, 2, 2, 3), 2, np.float32)
    assert_alike(network_of(MeanVarianceNormalization(axis=(1, 2), eps=1e-40), x), x)


def scores(operation: str, factor: float) -> ip.Network:
    """softmax(query key^T with a factor) value."""
    network = ip.Network("attention")
    query, key, value = (network.add_input_layer(n, TensorInfo((1, 2, 5, 8), "float32")) for n in range(3))
    product = network.add_layer(BatchMatMul(transpose_y=True), query, key)
    scaled: Any = ElementwiseBinary(BinaryOperation[operation])
    number = network.add_constant_layer(np.full((1, 1, 1, 1), factor, np.float32))
    weights = network.add_layer(Softmax(), network.add_layer(scaled, product, number))
    network.add_output_layer(0, network.add_layer(BatchMatMul(), weights, value))
    return network


@pytest.mark.parametrize("factor", [0, 1e-40, -1e-40, 3e38, np.inf, np.nan])
@pytest.mark.parametrize("operation", ["MUL", "DIV"])
def test_scores_of_attention_are_scaled_by_any_number(operation: str, factor: float) -> None:
    assert_alike(scores(operation, factor), *(np.abs(drawn(1, 2, 5, 8)) * 1e-3 for _ in range(3)))


@pytest.mark.parametrize(
    "op",
    [
        LayerNormalization(axis=1, eps=1e-12),
        InstanceNormalization(eps=1e-12),
        GroupNormalization(num_groups=2, eps=1e-12),
        MeanVarianceNormalization(),
    ],
    ids=lambda op: type(op).__name__,
)
@pytest.mark.parametrize("size", [1, 3, 5, 12])
def test_normalizations_take_the_exact_mean_of_nearly_equal_numbers(op: Op, size: int) -> None:
    x = np.full((2, 4, size, size), 12.040234, np.float32)
    x[1] = np.where(drawn(4, size, size) > 0, x[1], np.nextafter(x[1], np.float32(0)))
    assert_alike(network_of(op, x), x)


@pytest.mark.parametrize("length", [9, 32, 100, 5000])
def test_the_logarithm_of_a_sum_near_1_keeps_its_digits(length: int) -> None:
    x = np.abs(drawn(40, length))
    x /= x.sum(axis=1, keepdims=True, dtype=np.float64).astype(np.float32)
    [result] = ip.load(
        network_of(Reduce((1,), operation=ReduceOperation.LOG_SUM), x), backends=["CpuAcc", "CpuRef"]
    ).run([x])
    np.testing.assert_allclose(np.ravel(result), np.log(x.sum(axis=1, dtype=np.float64)), atol=1.3e-7)
