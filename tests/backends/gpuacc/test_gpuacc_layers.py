"""Layers of all kinds on GpuAcc, beside the reference."""

from __future__ import annotations

import re

import numpy as np
import pytest

import interposer as ip
from interposer.core.schema import registered_ops
from interposer.errors import InvalidValueError, UnsupportedLayerError
from interposer.kernels import compute
from interposer.ops import (
    Activation,
    ActivationFunction,
    Addition,
    Attention,
    BatchMatMul,
    BatchNormalization,
    BlockDequantize,
    Convolution2d,
    Convolution3d,
    ElementwiseUnary,
    GatherNd,
    GruSequence,
    LpPooling,
    MeanVarianceNormalization,
    Normalization,
    Pad,
    Pooling3d,
    RecurrentDirection,
    RnnSequence,
    RoiAlign,
    RoiAlignMode,
    RotaryEmbedding,
    TopK,
    UnaryOperation,
)
from interposer.testing import Settings, check_backend, samples_of
from interposer.types import DataLayout, DataType, Quantization
from tests.backends.gpuacc.test_gpuacc_conformance import EXACT_INTEGERS
from tests.backends.gpuacc.test_gpuacc_runs import PROFILES, loaded

SAMPLED = {
    "Activation": 151,
    "Attention": 47,
    "BatchMatMul": 65,
    "BatchToSpaceNd": 45,
    "BlockDequantize": 31,
    "ChannelShuffle": 15,
    "Comparison": 41,
    "Concat": 19,
    "Convolution3d": 24,
    "CumSum": 56,
    "Dequantize": 20,
    "DynamicFakeQuantization": 9,
    "DynamicQuantize": 3,
    "EmbeddingLookup": 37,
    "GatherNd": 17,
    "GridSample": 71,
    "GruSequence": 13,
    "Hardmax": 17,
    "IntegerConvolution2d": 9,
    "IntegerMatMul": 9,
    "LpPooling": 43,
    "LstmSequence": 13,
    "MaxPoolingWithIndices": 31,
    "Maximum": 50,
    "Normalization": 31,
    "OneHot": 20,
    "Pad": 114,
    "Pooling3d": 100,
    "Prelu": 14,
    "Quantize": 65,
    "Reduce": 119,
    "ReverseSequence": 25,
    "RoiAlign": 11,
    "RnnSequence": 13,
    "RotaryEmbedding": 17,
    "ScatterElements": 73,
    "ScatterNd": 110,
    "Softmax": 29,
    "SpaceToBatchNd": 45,
    "TopK": 58,
    "TransposeConvolution2d": 65,
    "Trilu": 46,
}
"""One of how many samples of an operator is tried."""


@pytest.mark.parametrize("profile", ["cpu", pytest.param("desktop", marks=pytest.mark.slow)])
@pytest.mark.parametrize("operator", SAMPLED)
def test_some_samples_of_an_operator_have_the_results_of_the_reference(gpuacc, operator, profile):
    [op] = [op for op in registered_ops().values() if op.op_name() == operator]
    samples = samples_of(op)[:: SAMPLED[operator]]
    settings = Settings({"Profile": profile}, EXACT_INTEGERS)
    report = check_backend("GpuAcc", only="results/*", samples=samples, settings=settings)
    assert report.ok, report
    assert report.counts["pass"]


@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
@pytest.mark.parametrize("profile, level", [("cpu", 0), ("cpu", 1), ("desktop", 1)])
def test_convolutions_of_3x3_with_many_channels_have_the_results_of_the_reference(gpuacc, layout, profile, level):
    """By rules, processors compute them by Winograd's algorithm; TuningLevel 1 measures which way is faster."""
    random, last = np.random.default_rng(3), layout == "NHWC"
    shape, filters = ((2, 9, 7, 130), (144, 3, 3, 130)) if last else ((2, 130, 9, 7), (144, 130, 3, 3))
    network = ip.Network("wide")
    x = network.add_input_layer(0, ip.TensorInfo(shape))
    weights = network.add_constant_layer(random.normal(0, 0.03, filters).astype(np.float32))
    bias = network.add_constant_layer(random.normal(size=144).astype(np.float32))
    op = Convolution2d(pad_left=1, pad_top=2, pad_bottom=1, data_layout=DataLayout[layout])
    curved = network.add_layer(Activation(function=ActivationFunction.SIGMOID), network.add_layer(op, x, weights, bias))
    network.add_output_layer(0, network.add_layer(Addition(), curved, curved))
    image = random.normal(size=shape).astype(np.float32)
    expected = loaded(network, ["CpuRef"]).run([image])[0]
    model = loaded(network, ["GpuAcc"], Profile=profile, TuningLevel=level)
    np.testing.assert_allclose(model.run([image])[0], expected, 1e-5, 1e-5)


@pytest.mark.parametrize("value", [np.inf, np.nan])
@pytest.mark.parametrize("place", [(0, 0), (2, 3), (3, 3)])
def test_only_windows_with_an_infinity_or_nan_are_not_finite(gpuacc, value, place):
    network = ip.Network("infinite")
    x = network.add_input_layer(0, ip.TensorInfo((1, 128, 6, 6)))
    weights = network.add_constant_layer(np.ones((128, 128, 3, 3), np.float32))
    network.add_output_layer(0, network.add_layer(Convolution2d(), x, weights))
    image = np.ones((1, 128, 6, 6), np.float32)
    image[(0, 5, *place)] = value
    expected = np.full((1, 128, 4, 4), 1152, np.float32)
    expected[:, :, max(place[0] - 2, 0) : place[0] + 1, max(place[1] - 2, 0) : place[1] + 1] = value
    np.testing.assert_allclose(loaded(network, ["GpuAcc"], TuningLevel=0).run([image])[0], expected, 1e-5)


@pytest.mark.parametrize("groups", [1, 5])
def test_infinite_weights_times_padding_are_nan(gpuacc, groups):
    network = ip.Network("infinite weights")
    x = network.add_input_layer(0, ip.TensorInfo((1, 5, 3, 1)))
    weights = np.ones((5, 5 // groups, 2, 1), np.float32)
    weights[4, 0, 0, 0] = np.inf
    op = Convolution2d(pad_top=1, groups=groups)
    network.add_output_layer(0, network.add_layer(op, x, network.add_constant_layer(weights)))
    image = np.ones((1, 5, 3, 1), np.float32)
    [result], [expected] = (loaded(network, [name]).run([image]) for name in ("GpuAcc", "CpuRef"))
    np.testing.assert_array_equal(result, expected)
    assert np.isnan(result[0, 4, 0, 0])


@pytest.mark.parametrize("profile", PROFILES)
def test_an_infinite_pixel_stays_infinite_in_two_convolutions(gpuacc, profile):
    """The channels fill no whole block, and the product of infinity and a weight of 0 is NaN."""
    network = ip.Network("infinite pixel")
    x = network.add_input_layer(0, ip.TensorInfo((1, 1, 2, 2)))
    for shape in ((17, 1, 1, 1), (3, 17, 1, 1)):
        x = network.add_layer(Convolution2d(), x, network.add_constant_layer(np.ones(shape, np.float32)))
    network.add_output_layer(0, x)
    image = np.float32([[[[1, np.inf], [2, 3]]]])
    expected = np.broadcast_to(17 * image, (1, 3, 2, 2))
    np.testing.assert_array_equal(loaded(network, ["GpuAcc"], Profile=profile).run([image])[0], expected)


def test_results_that_are_float32_numbers_do_not_overflow_on_the_way(gpuacc):
    functions = ActivationFunction.HARD_SWISH, ActivationFunction.GELU
    network, large = ip.Network("large"), np.float32([3e38, 1e38, -3e38])
    x = network.add_input_layer(0, ip.TensorInfo((3,)))
    for number, function in enumerate(functions):
        network.add_output_layer(number, network.add_layer(Activation(function=function), x))
    for result in loaded(network, ["GpuAcc"]).run([large]):
        np.testing.assert_allclose(result, [3e38, 1e38, 0], 1e-6)


@pytest.mark.needs_cpuref
@pytest.mark.parametrize("profile", PROFILES)
@pytest.mark.parametrize(
    "op",
    [Activation(function=ActivationFunction.GELU), ElementwiseUnary(operation=UnaryOperation.ERF)],
    ids=["gelu", "erf"],
)
def test_functions_by_polynomials_are_near_the_reference_also_far_from_zero(gpuacc, op, profile):
    special = [0, -0.0, 1e-30, 3e38, -3e38, np.inf, -np.inf, np.nan]
    values = np.concatenate([np.linspace(-14, 8, 5001), special]).astype(np.float32)
    network = ip.Network("functions")
    network.add_output_layer(0, network.add_layer(op, network.add_input_layer(0, ip.TensorInfo(values.shape))))
    expected = loaded(network, ["CpuRef"]).run([values])[0]
    result = loaded(network, ["GpuAcc"], Profile=profile).run([values])[0]
    np.testing.assert_allclose(result, expected, rtol=5e-5, atol=1e-12)


def test_without_axes_each_element_is_normalized_by_itself(gpuacc):
    network = ip.Network("no axes")
    x = network.add_input_layer(0, ip.TensorInfo((2, 3)))
    network.add_output_layer(0, network.add_layer(MeanVarianceNormalization(axis=()), x))
    np.testing.assert_array_equal(loaded(network, ["GpuAcc"]).run([np.ones((2, 3), np.float32)])[0], np.zeros((2, 3)))


def test_keys_that_are_masked_out_may_hold_infinities_and_nan(gpuacc):
    network = ip.Network("masked")
    operands = [network.add_input_layer(n, ip.TensorInfo((1, 2, 3, 4))) for n in range(3)]
    mask = network.add_constant_layer(np.array([True, False, True]))
    network.add_output_layer(0, network.add_layer(Attention(), *operands, mask))
    query, key, value = (np.random.default_rng(n).normal(size=(1, 2, 3, 4)).astype(np.float32) for n in range(3))
    expected = loaded(network, ["GpuAcc"]).run([query, key, value])[0]
    key[:, :, 1], value[:, :, 1] = np.nan, np.inf
    np.testing.assert_array_equal(loaded(network, ["GpuAcc"]).run([query, key, value])[0], expected)


def test_truth_values_that_are_padded_with_any_number_hold_true(gpuacc):
    network = ip.Network("padded")
    truths = network.add_input_layer(0, ip.TensorInfo((2,), DataType.BOOL))
    network.add_output_layer(0, network.add_layer(Pad(pad_list=((1, 2),), pad_value=5.0), truths))
    [padded] = loaded(network, ["GpuAcc"]).run([np.array([False, True])])
    assert padded.view(np.uint8).tolist() == [1, 0, 1, 1, 1]


def test_adjugate_matrices_of_quantized_tensors_are_refused(gpuacc):
    network = ip.Network("adjugate")
    matrices = ip.TensorInfo((2, 2), DataType.INT8, Quantization(0.5, 3))
    operands = [network.add_input_layer(n, matrices) for n in range(2)]
    network.add_output_layer(0, network.add_layer(BatchMatMul(adjoint_x=True), *operands, outputs=matrices))
    with pytest.raises(UnsupportedLayerError, match="GpuAcc says: no kernel for adjugate matrices"):
        loaded(network, ["GpuAcc"])


@pytest.mark.parametrize(
    ("op", "name"),
    [
        (Pooling3d(dilation_y=2**32), "dilation_y"),
        (Convolution3d(stride_z=2**32), "stride_z"),
        (Normalization(norm_size=2**32 + 3), "norm_size"),
        (LpPooling(window_shape=(1, 1, 1), p=2**32), "p"),
    ],
)
def test_attributes_that_exceed_32_bits_are_refused(gpuacc, op, name):
    network = ip.Network("wide")
    volume = network.add_input_layer(0, ip.TensorInfo((1, 1, 2, 2, 1)))
    filters = network.add_constant_layer(np.ones((1, 1, 1, 1, 1), np.float32))
    operands = (volume, filters) if isinstance(op, Convolution3d) else (volume,)
    network.add_output_layer(0, network.add_layer(op, *operands))
    with pytest.raises(UnsupportedLayerError, match=rf"GpuAcc says: {name} is greater than 2\*\*20"):
        loaded(network, ["GpuAcc"])


@pytest.mark.parametrize("size", [3, 4, 2**31, 2**32, 2**40])
def test_a_block_may_be_longer_than_its_axis(gpuacc, size):
    values, scales = np.arange(-6, 6, dtype=np.int8).reshape(4, 3), np.float32([[0.5], [2], [3], [10]])
    network = ip.Network("blocks")
    operands = [network.add_input_layer(0, ip.TensorInfo((4, 3), "int8")), network.add_constant_layer(scales)]
    network.add_output_layer(0, network.add_layer(BlockDequantize(block_size=size), *operands))
    np.testing.assert_array_equal(loaded(network, ["GpuAcc"]).run([values])[0], values * scales)


def test_many_long_rows_are_not_sorted(gpuacc):
    network = ip.Network("rows")
    rows = network.add_input_layer(0, ip.TensorInfo((64, 32768)))
    network.add_output_layer(0, network.add_layer(TopK(k=1), rows).outputs[0])
    with pytest.raises(UnsupportedLayerError, match="GpuAcc says: more than 17179869184 pairs of elements"):
        loaded(network, ["GpuAcc"])


@pytest.mark.parametrize("types", [(np.float32, np.float16), (np.float16, np.float32)])
def test_the_caches_of_rotary_embeddings_may_have_different_types(gpuacc, types):
    angles, rows = np.arange(6).reshape(1, 3, 2), np.arange(12, dtype=np.float32).reshape(1, 1, 3, 4)
    operands = [rows, np.cos(angles).astype(types[0]), np.sin(angles).astype(types[1])]
    network = ip.Network("rotated")
    values = [network.add_input_layer(n, ip.TensorInfo(one.shape, one.dtype)) for n, one in enumerate(operands)]
    network.add_output_layer(0, network.add_layer(RotaryEmbedding(), *values))
    expected = compute(RotaryEmbedding(), *operands)
    np.testing.assert_allclose(loaded(network, ["GpuAcc"]).run(operands)[0], expected, 1e-3, 1e-3)


@pytest.mark.parametrize("constant", [False, True])
def test_a_sequence_that_is_longer_than_the_input_is_refused(gpuacc, constant):
    op, lengths = RnnSequence(direction=RecurrentDirection.BIDIRECTIONAL), np.int32([2, 4])
    network = ip.Network("sequences")
    values = [network.add_input_layer(n, ip.TensorInfo(shape)) for n, shape in enumerate([(3, 2, 1), (2, 1, 1)])]
    values += [network.add_constant_layer(np.ones((2, 1, 1), np.float32)), None]
    last = network.add_constant_layer(lengths) if constant else network.add_input_layer(2, ip.TensorInfo((2,), "int32"))
    network.add_output_layer(0, network.add_layer(op, *values, last).outputs[0])
    given = [np.ones((3, 2, 1), np.float32), np.ones((2, 1, 1), np.float32), lengths]
    with pytest.raises(InvalidValueError, match=r"sequence_lengths has 4 at \[1\]; expected 0 to 3"):
        loaded(network, ["GpuAcc"]).run(given[: 2 if constant else 3])


def test_the_first_index_out_of_range_of_all_tuples_is_named_with_its_value(gpuacc):
    network = ip.Network("tuples")
    params = network.add_input_layer(0, ip.TensorInfo((5, 3)))
    indices = network.add_input_layer(1, ip.TensorInfo((4, 2), DataType.INT32))
    network.add_output_layer(0, network.add_layer(GatherNd(), params, indices))
    model, rows = loaded(network, ["GpuAcc"]), np.arange(15, dtype=np.float32).reshape(5, 3)
    with pytest.raises(InvalidValueError, match=r"indices has 3 at \[1, 1\]") as caught:
        model.run([rows, np.int32([[0, 0], [1, 3], [7, 0], [2, 2]])])
    assert caught.value.value == 3
    np.testing.assert_array_equal(model.run([rows, np.int32([[4, 0], [-1, 2], [0, -3], [1, 1]])])[0], [12, 14, 0, 4])


def test_a_normalization_after_a_convolution_is_finite_where_its_result_is(gpuacc):
    channels = np.arange(16)
    rng = np.random.default_rng(3)
    network = ip.Network("normalized")
    x = network.add_input_layer(0, ip.TensorInfo((1, 16, 5, 5)), name="x")
    kernel = network.add_constant_layer(np.eye(16, dtype=np.float32).reshape(16, 16, 1, 1))
    activation = Activation(ActivationFunction.RELU)
    y = network.add_layer(activation, network.add_layer(Convolution2d(data_layout=DataLayout.NCHW), x, kernel))
    statistics = [np.full(16, 1e38), np.full(16, 0.01), channels / 4, np.full(16, 0.5)]
    operands = [network.add_constant_layer(values.astype(np.float32)) for values in statistics]
    normalized = network.add_layer(BatchNormalization(eps=0.0, data_layout=DataLayout.NCHW), y, *operands)
    network.add_output_layer(0, normalized, name="y")
    data = (1e38 + rng.normal(size=(1, 16, 5, 5)) * 1e35).astype(np.float32)
    results = [model(x=data) for model in (loaded(network, ["GpuAcc"]), loaded(network, ["CpuRef"]))]
    assert np.isfinite(results[1]).all()
    np.testing.assert_allclose(results[0], results[1], rtol=1e-4)


def regions_network(op, shape, regions):
    network = ip.Network("regions")
    values = [
        network.add_input_layer(0, ip.TensorInfo(shape)),
        network.add_input_layer(1, ip.TensorInfo(regions.shape)),
    ]
    batches = network.add_constant_layer(np.zeros(len(regions), np.int32))
    network.add_output_layer(0, network.add_layer(op, *values, batches))
    return network


@pytest.mark.needs_cpuref
@pytest.mark.parametrize("mode", RoiAlignMode, ids=str)
@pytest.mark.parametrize("half_pixel", [False, True])
def test_regions_that_are_much_larger_than_the_image_are_sampled_like_by_the_reference(gpuacc, mode, half_pixel):
    op = RoiAlign(2, 3, mode=mode, half_pixel=half_pixel)
    image = np.random.default_rng(3).normal(0, 1, (1, 2, 5, 6)).astype(np.float32)
    regions = np.float32([[-300, -900, 280, 700], [2, 1, 400, 2], [1, 1, 1, 1], [50, 3, 90, 4], [4, 4, 1, 0]])
    network = regions_network(op, image.shape, regions)
    expected = loaded(network, ["CpuRef"]).run([image, regions])[0]
    np.testing.assert_allclose(loaded(network, ["GpuAcc"]).run([image, regions])[0], expected, 1e-4, 1e-5)


@pytest.mark.parametrize("corner", [np.nan, np.inf, 1e30])
def test_a_region_that_cannot_be_sampled_is_an_error(gpuacc, corner):
    regions = np.float32([[0, 0, 2, 2], [0, 0, corner, 2]])
    network = regions_network(RoiAlign(2, 2), (1, 2, 5, 6), regions)
    message = "region 1 cannot be sampled: it is not finite, or a bin has more than 2**20 rows or columns"
    with pytest.raises(InvalidValueError, match=re.escape(message)):
        loaded(network, ["GpuAcc"]).run([np.ones((1, 2, 5, 6), np.float32), regions])


def test_the_image_of_a_region_that_does_not_exist_is_named(gpuacc):
    network = ip.Network("regions")
    infos = [ip.TensorInfo((1, 2, 5, 6)), ip.TensorInfo((2, 4)), ip.TensorInfo((2,), DataType.INT32)]
    values = [network.add_input_layer(n, info) for n, info in enumerate(infos)]
    network.add_output_layer(0, network.add_layer(RoiAlign(2, 2), *values))
    regions = np.float32([[0, 0, 2, 2], [0, 0, 1, 2]])
    with pytest.raises(InvalidValueError, match=r"batches has 1 at \[1\]; expected 0"):
        loaded(network, ["GpuAcc"]).run([np.ones((1, 2, 5, 6), np.float32), regions, np.int32([0, 1])])


@pytest.mark.needs_cpuref
@pytest.mark.parametrize("direction", [RecurrentDirection.FORWARD, RecurrentDirection.BIDIRECTIONAL], ids=str)
def test_equal_weights_of_inputs_and_states_are_packed_separately(gpuacc, direction):
    directions = 2 if direction is RecurrentDirection.BIDIRECTIONAL else 1
    weights = np.float32([[[1], [2], [3]], [[0.5], [-1], [2]]])[:directions]
    network = ip.Network("equal weights")
    x = network.add_input_layer(0, ip.TensorInfo((2, 1, 1)))
    constants = [network.add_constant_layer(weights.copy()) for _ in range(2)]
    network.add_output_layer(0, network.add_layer(GruSequence(direction=direction), x, *constants).outputs[0])
    values = np.float32([0.3, -0.7]).reshape(2, 1, 1)
    expected = loaded(network, ["CpuRef"]).run([values])[0]
    np.testing.assert_allclose(loaded(network, ["GpuAcc"]).run([values])[0], expected, 1e-4, 1e-5)
