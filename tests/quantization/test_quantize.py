"""Quantizing whole networks: what is quantized, with which scales, and what the result computes."""

from __future__ import annotations

import numpy as np
import pytest

import interposer as ip
from interposer import DataLayout, Network, TensorInfo
from interposer.core.errors import InvalidArgumentError, UnwritableError
from interposer.ops import (
    Activation,
    ActivationFunction,
    Addition,
    ArgMinMax,
    Concat,
    Dequantize,
    Quantize,
    Softmax,
    TransposeConvolution2d,
)
from interposer.quantization import STORAGE, quantize
from interposer.quantization.schemes import quantization_of
from interposer.writers import armnn, tflite
from tests.quantization.networks import image_network, images

pytestmark = pytest.mark.needs_cpuref
SCHEMES = ["int8", "uint8", "int16", "int8-symmetric"]


def kinds(network: Network) -> list[str]:
    return [layer.kind for layer in network.graph.topological() if layer.op.executable]


def quantizations(network: Network) -> dict[str, ip.Quantization | None]:
    return {value.name: value.known.quantization for layer in network for value in layer.outputs}


@pytest.mark.parametrize("layout", [DataLayout.NHWC, DataLayout.NCHW])
@pytest.mark.parametrize("scheme", SCHEMES)
def test_every_layer_of_an_image_classifier_is_quantized_and_its_results_stay_close(scheme, layout):
    network, data = image_network(layout=layout), images(layout=layout)
    quantized = quantize(network, data, scheme=scheme)
    assert quantized.report.left == ()
    [output] = quantized.report.outputs
    assert output.name == "classes"
    assert output.snr > 20
    expected = ip.load(network, ["CpuRef"]).run([data[:1]])
    assert np.abs(ip.load(quantized, ["CpuRef"]).run([data[:1]])[0] - expected[0]).max() < 0.05


@pytest.mark.parametrize("scheme", SCHEMES)
def test_the_native_backend_gives_the_same_integers_as_the_reference(scheme, cpuacc):
    data = images()
    quantized = quantize(image_network(), data, scheme=scheme)
    models = [ip.load(quantized, ids) for ids in (["CpuRef"], ["CpuAcc", "CpuRef"])]
    for image in data:
        first, second = (model.run([image[None]])[0] for model in models)
        np.testing.assert_array_equal(first, second)


def test_the_native_backend_runs_all_layers_of_an_int8_network(cpuacc):
    quantized = quantize(image_network(), images())
    with ip.load(quantized, ["CpuAcc"], fallback=False) as model:
        assert {str(item.backend) for item in model.optimized.placements} == {"CpuAcc"}


def test_numbers_of_numpy_are_numbers():
    network, data = image_network(), images()
    percentile = quantize(network, data, observer="percentile", percentile=np.float32(99.5), target=np.float32(1))
    assert percentile.text() == quantize(network, data, observer="percentile", percentile=99.5, target=1.0).text()


def test_inputs_and_outputs_keep_their_types_unless_they_are_to_be_quantized():
    network, data = image_network(), images()
    floats, integers = quantize(network, data), quantize(network, data, keep_types=False)
    assert kinds(floats)[0] == "Quantize"
    assert kinds(floats)[-1] == "Dequantize"
    assert not {"Quantize", "Dequantize"} & set(kinds(integers))
    [source], [target] = integers.graph.inputs, integers.graph.outputs
    assert (str(source.output.known.dtype), str(target.values[0].known.dtype)) == ("int8", "int8")
    assert integers.report.outputs == floats.report.outputs


def test_an_index_that_a_quantized_layer_gives_keeps_its_type_as_an_output():
    network = image_network()
    [output] = network.graph.outputs
    network.add_output_layer(1, network.add_layer(ArgMinMax(axis=1), output.values[0], name="best"), name="class")
    quantized = quantize(network, images(), keep_types=False)
    assert [layer.values[0].known.dtype.name for layer in quantized.graph.outputs] == ["INT8", "INT32"]


@pytest.mark.parametrize("has_bias", [False, True])
def test_a_transposed_convolution_with_groups_has_one_scale_for_its_weights(has_bias):
    draw = np.random.default_rng(4)
    network = Network("groups")
    x = network.add_input_layer(0, TensorInfo((1, 4, 4, 4)), name="image")
    arrays = [draw.normal(size=(3, 3, 3, 4)), *([draw.normal(size=6)] if has_bias else [])]
    constants = [network.add_constant_layer(array.astype(np.float32)) for array in arrays]
    op = TransposeConvolution2d(groups=2, data_layout=DataLayout.NHWC, stride_x=2, stride_y=2)
    network.add_output_layer(0, network.add_layer(op, x, *constants, name="wide"), name="y")
    quantized = quantize(network, draw.normal(size=(4, 4, 4, 4)).astype(np.float32))
    assert quantized.report.left == ()
    assert quantized.report.outputs[0].snr > 30


def test_the_network_that_is_quantized_does_not_change():
    network = image_network()
    before = str(network)
    quantize(network, images())
    assert str(network) == before


def test_fused_layers_concatenations_and_moves_share_one_scale():
    quantizations_by_name = quantizations(quantize(image_network(), images()))
    assert quantizations_by_name["first"] == quantizations_by_name["activation"]
    assert quantizations_by_name["deep"] == quantizations_by_name["activation_1"]
    assert (
        quantizations_by_name["narrow"]
        == quantizations_by_name["total"]
        == quantizations_by_name["both"]
        == quantizations_by_name["halved"]
    )
    assert quantizations_by_name["mean"] == quantizations_by_name["flat"]
    assert quantizations_by_name["probabilities"] == ip.Quantization(1 / 256, -128)


def test_weights_have_a_scale_for_each_channel_and_the_bias_has_steps_of_the_products():
    quantized = quantize(image_network(), images())
    deep = quantized.graph.layer("deep")
    image, weights, bias = deep.values
    assert weights.known.quantization.axis == 3
    assert set(weights.known.quantization.zero_points) == {0}
    assert int(np.abs(weights.constant.astype(int)).max()) == 127
    products = [image.known.scale * scale for scale in weights.known.quantization.scales]
    np.testing.assert_allclose(bias.known.quantization.scales, products)
    assert str(bias.known.dtype) == "int32"


def test_layers_can_be_left_in_float_by_name_and_by_operator():
    report = quantize(image_network(), images(), float_layers=["first", "Softmax"]).report
    assert {layer.name: layer.reason for layer in report.left} == {
        "first": "left in float as requested",
        "probabilities": "left in float as requested",
    }


def test_a_layer_without_a_form_in_integers_stays_in_float_with_a_reason():
    network = Network("roots")
    x = network.add_input_layer(0, TensorInfo((1, 4)), name="x")
    root = network.add_elementwise_unary_layer(x, operation=ip.ops.UnaryOperation.SQRT, name="root")
    network.add_output_layer(0, network.add_layer(Addition(), root, x, name="sum"))
    quantized = quantize(network, np.ones((2, 4), np.float32))
    assert kinds(quantized) == ["ElementwiseUnary", "Quantize", "Quantize", "Addition", "Dequantize"]
    [left] = quantized.report.left
    assert left.reason == "SQRT loses too much precision in integers"


def test_layers_that_only_move_values_stay_in_float_beside_float_layers():
    network = Network("moves")
    x = network.add_input_layer(0, TensorInfo((1, 4)), name="x")
    network.add_output_layer(0, network.add_layer(ip.ops.Reshape((4, 1)), x, name="column"))
    quantized = quantize(network, np.ones((2, 4), np.float32))
    assert kinds(quantized) == ["Reshape"]
    assert quantized.report.left[0].reason == "no layer beside it computes in integers"


def test_a_value_with_a_prescribed_scale_is_requantized_for_a_concatenation():
    network = Network("mixed")
    x = network.add_input_layer(0, TensorInfo((1, 4)), name="x")
    chances = network.add_layer(Softmax(), x, name="chances")
    wide = network.add_layer(Addition(), x, x, name="wide")
    network.add_output_layer(0, network.add_layer(Concat(1), chances, wide, name="all"))
    quantized = quantize(network, np.float32([[1, 2, 3, 40]]))
    quantizations_by_name = quantizations(quantized)
    assert quantizations_by_name["chances"] == ip.Quantization(1 / 256, -128)
    assert quantizations_by_name["wide"] == quantizations_by_name["all"] == quantizations_by_name["chances:requantized"]
    assert quantized.report.outputs[0].snr > 30


def test_a_tensor_with_infinite_values_is_not_quantized():
    network = Network("mask")
    x = network.add_input_layer(0, TensorInfo((1, 4)), name="x")
    mask = network.add_constant_layer(np.float32([[0, 0, 0, -np.inf]]))
    network.add_output_layer(0, network.add_layer(Addition(), x, mask, name="masked"))
    [left] = quantize(network, np.ones((1, 4), np.float32)).report.left
    assert (left.name, left.reason) == ("masked", "its result has values that are not finite")


def test_a_layer_that_reads_infinite_values_is_not_quantized():
    network = Network("mask")
    x = network.add_input_layer(0, TensorInfo((1, 4)), name="x")
    mask = network.add_constant_layer(np.float32([[0, 0, 0, -np.inf]]))
    masked = network.add_layer(Addition(), x, mask, name="masked")
    network.add_output_layer(0, network.add_layer(Softmax(), masked, name="chances"))
    quantized = quantize(network, np.ones((10, 4), np.float32))
    assert {layer.name: layer.reason for layer in quantized.report.left} == {
        "masked": "its result has values that are not finite",
        "chances": "its operand 'masked' has values that are not finite",
    }
    assert ip.load(quantized, ["CpuRef"]).run([np.ones((1, 4), np.float32)])[0][0, 3] == 0


@pytest.mark.parametrize("algorithm", ["calibrated", "armnn"])
@pytest.mark.parametrize("number", [np.inf, np.nan])
def test_a_layer_with_infinite_constants_is_not_quantized(number, algorithm):
    network = Network("constants")
    x = network.add_input_layer(0, TensorInfo((1, 4)), name="x")
    weights = np.eye(4, dtype=np.float32)
    weights[2, 2] = number
    dense = network.add_layer(ip.ops.FullyConnected(), x, network.add_constant_layer(weights, name="w"), name="dense")
    relu = network.add_layer(Activation(ActivationFunction.RELU), dense, name="relu")
    network.add_output_layer(0, network.add_layer(Activation(ActivationFunction.TANH, 1, 1), relu, name="tanh"))
    report = quantize(
        network, None if algorithm == "armnn" else np.zeros((10, 4), np.float32), algorithm=algorithm
    ).report
    assert report.layers[0].reason.endswith("has values that are not finite")


def test_a_clamp_without_an_upper_bound_stays_in_float_by_arm_nns_algorithm():
    network = Network("clamp")
    x = network.add_input_layer(0, TensorInfo((1, 4)), name="x")
    clamp = network.add_layer(Activation(ActivationFunction.BOUNDED_RELU, np.inf, 0), x, name="clamp")
    network.add_output_layer(0, network.add_layer(Addition(), clamp, x, name="sum"))
    assert {layer.name: layer.reason for layer in quantize(network, algorithm="armnn").report.left} == {
        "clamp": "its result has values that are not finite",
        "sum": "its operand 'clamp' has values that are not finite",
    }


def test_a_layer_whose_values_were_not_observed_stays_in_float():
    network = Network("empty")
    x = network.add_input_layer(0, TensorInfo((0, 4)), name="x")
    network.add_output_layer(0, network.add_layer(Addition(), x, x, name="sum"))
    [left] = quantize(network, [np.zeros((0, 4), np.float32)]).report.left
    assert left.reason == "no value of its result was observed"


@pytest.mark.parametrize("bounds", [(-np.inf, 1.0), (0.0, np.inf), (np.nan, 1.0)])
def test_a_range_that_is_not_finite_has_no_scale(bounds):
    with pytest.raises(InvalidArgumentError, match="^the range that is quantized must be finite, not "):
        quantization_of(*bounds, ip.DataType.INT8, symmetric=False)


def test_a_network_that_is_quantized_already_is_refused():
    quantized = quantize(image_network(), images(), float_layers=["Softmax"])
    for scheme in ("int8", "weights-int8"):
        with pytest.raises(InvalidArgumentError) as caught:
            quantize(quantized, images(), scheme=scheme)
        assert str(caught.value) == (
            "the network is quantized already: 9 of its 10 layers compute with quantized values, such as 'first' "
            "(Convolution2d) with int8; give the float network that it was made from"
        )


def test_layers_that_were_quantized_before_are_remarked_upon_if_they_are_few():
    network = Network("mixed")
    x = network.add_input_layer(0, TensorInfo((1, 4)), name="x")
    q = network.add_layer(
        Quantize(ip.DataType.INT8), x, outputs=TensorInfo((1, 4), ip.DataType.INT8, ip.Quantization(0.5))
    )
    relu = network.add_layer(Activation(ActivationFunction.RELU), q, name="relu")
    floats = network.add_layer(Dequantize(), relu)
    for name in ("once", "twice", "thrice"):
        floats = network.add_layer(Addition(), floats, floats, name=name)
    network.add_output_layer(0, floats)
    report = quantize(network, np.ones((10, 4), np.float32)).report
    assert report.notes == ("layers that were quantized already, and stay as they are: 1",)
    assert "note: layers that were quantized already, and stay as they are: 1" in str(report)


@pytest.mark.parametrize(("count", "shown"), [(1, "1 sample"), (9, "9 samples")])
def test_too_few_samples_are_remarked_upon(count, shown):
    report = quantize(image_network(), images(count)).report
    note = (
        f"the ranges are those of {shown}, and values of other inputs may lie outside; "
        "give 10 samples or more that are like the inputs in use"
    )
    assert report.notes == (note,)
    assert report.to_dict()["notes"] == [note]
    assert f"<p>Note: {note}</p>" in report.to_html()
    assert quantize(image_network(), images(10)).report.notes == ()


# --- the format that is written ---------------------------------------------------------------------------------------


def negated_network() -> Network:
    """Return a network with a negation, which TensorFlow Lite has for float but not for int8."""
    network = Network("negated")
    x = network.add_input_layer(0, TensorInfo((1, 4)), name="x")
    double = network.add_layer(Addition(), x, x, name="double")
    negative = network.add_elementwise_unary_layer(double, operation=ip.ops.UnaryOperation.NEG, name="negative")
    network.add_output_layer(0, network.add_layer(Addition(), negative, x, name="sum"))
    return network


def test_a_layer_that_the_written_format_cannot_hold_in_integers_stays_in_float():
    data = np.random.default_rng(0).random((10, 4), np.float32)
    assert quantize(negated_network(), data).report.left == ()
    quantized = quantize(negated_network(), data, output_format="tflite")
    [left] = quantized.report.left
    assert left.name == "negative"
    assert left.reason.startswith("TFLite cannot hold it in this form: ")
    again = ip.load(tflite.write(quantized), ["CpuRef"])
    np.testing.assert_array_equal(*(m.run([data[:1]])[0] for m in (again, ip.load(quantized, ["CpuRef"]))))


def test_weights_of_few_bits_that_the_written_format_cannot_hold_stay_in_float():
    quantized = quantize(product_network(), scheme="weights-int4", block_size=np.int64(16), output_format="TFLite")
    assert [layer.name for layer in quantized.report.left] == ["rows", "dense", "product"]
    ip.load(tflite.write(quantized), ["CpuRef"])


def test_a_layer_that_the_written_format_has_in_no_form_is_named_before_calibration():
    network = Network("spectrum")
    x = network.add_input_layer(0, TensorInfo((1, 8, 1)), name="x")
    network.add_output_layer(0, network.add_layer(ip.ops.Dft(axis=1), x, name="spectrum"))

    def samples():
        raise AssertionError("the samples are not read")
        yield

    with pytest.raises(
        UnwritableError, match="^network 'spectrum' cannot be written as Arm NN:\n  - layer 'spectrum' "
    ):
        quantize(network, samples(), output_format="armnn")


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("tflight", "unknown format 'tflight'; did you mean 'tflite'?"),
        ("caffe", "Caffe is a format that is only read (written are: armnn, onnx, text, tflite)"),
    ],
)
def test_a_format_that_cannot_be_written_is_refused(name, message):
    with pytest.raises(InvalidArgumentError) as caught:
        quantize(image_network(), images(), output_format=name)
    assert str(caught.value).startswith(message)


def test_a_result_that_is_always_zero_can_be_quantized():
    network = Network("zeros")
    x = network.add_input_layer(0, TensorInfo((1, 4)), name="x")
    negative = network.add_layer(Activation(ActivationFunction.RELU), x, name="relu")
    network.add_output_layer(0, network.add_layer(Addition(), negative, negative, name="sum"))
    quantized = quantize(network, -np.ones((1, 4), np.float32))
    assert ip.load(quantized, ["CpuRef"]).run([-np.ones((1, 4))])[0].tolist() == [[0.0] * 4]


def test_arm_nns_algorithm_needs_no_data_and_uses_ranges_by_the_kind_of_layer():
    quantized = quantize(image_network(), algorithm="armnn", scheme="QAsymmU8")
    quantizations_by_name = quantizations(quantized)
    assert quantizations_by_name["first"] == ip.Quantization(float(np.float32(30 / 255)), 128)
    assert quantizations_by_name["activation"] == ip.Quantization(float(np.float32(15 / 255)), 0)
    assert quantizations_by_name["activation_1"] == ip.Quantization(float(np.float32(6 / 255)), 0)
    assert quantizations_by_name["total"] == ip.Quantization(float(np.float32(40 / 255)), 128)
    assert quantizations_by_name["probabilities"] == ip.Quantization(1 / 256, 0)
    assert quantized.report.outputs == ()


def test_networks_that_arm_nns_algorithm_makes_are_written_for_arm_nn_with_every_scheme():
    for scheme in SCHEMES:
        quantized = quantize(image_network(), images(), algorithm="armnn", scheme=scheme)
        again = ip.load(armnn.write(quantized), ["CpuRef"])
        np.testing.assert_array_equal(*(model.run([images(1)])[0] for model in (again, ip.load(quantized, ["CpuRef"]))))


def test_signed_weights_are_symmetric_also_by_arm_nns_algorithm():
    quantized = quantize(image_network(), images(), algorithm="armnn", scheme="int8")
    constants = [layer.output.known.quantization for layer in quantized.graph if layer.kind == "Constant"]
    assert {q.zero_point for q in constants if q is not None} == {0}


def test_data_refines_the_ranges_of_arm_nns_algorithm():
    [coarse, fine] = (quantize(image_network(), data, algorithm="armnn") for data in (None, images()))
    assert quantizations(fine)["first"].scale < quantizations(coarse)["first"].scale
    assert fine.report.outputs[0].snr > 15


def test_bias_correction_keeps_the_mean_of_each_channel():
    network, data = image_network(), images(32) + 2
    results = [quantize(network, data, correct_bias=correct, per_channel=False) for correct in (False, True)]
    expected = ip.load(network, ["CpuRef"])
    shifts = []
    for result in results:
        model, name = ip.load(result, ["CpuRef"]), "scores"
        q = result.graph.layer(name).output.known.quantization
        errors = [
            (model.run([image[None]], name)[0].astype(float) - q.zero_point) * q.scale
            - expected.run([image[None]], name)[0]
            for image in data
        ]
        shifts.append(float(np.abs(np.mean(errors, axis=0)).mean()))
    assert shifts[1] < shifts[0]


def test_layers_with_the_largest_errors_stay_in_float_until_a_target_is_reached():
    plain = quantize(image_network(), images()).report
    quantized = quantize(image_network(), images(), target=plain.outputs[0].snr + 6).report
    assert quantized.outputs[0].snr > plain.outputs[0].snr
    assert 0 < len(quantized.left) < len(quantized.layers)
    assert {layer.reason for layer in quantized.left} & {
        f"left in float for the target of {plain.outputs[0].snr + 6:g} dB"
    }
    assert quantize(image_network(), images(), target=5).report.left == ()


def test_the_report_is_json_compatible_and_readable():
    report = quantize(image_network(), images(2), float_layers=["Softmax"]).report
    plain = report.to_dict()
    assert (plain["samples"], plain["quantized"], len(plain["layers"])) == (2, 11, 12)
    assert sum(plain["layers"][0]["histogram"]) == 2 * 8 * 8 * 6
    text = str(report)
    assert text.startswith("images: 11 of 12 layers quantized (int8)\n  output 'classes': signal-to-noise ratio ")
    assert text.endswith("float: left in float as requested")


def test_progress_is_reported_for_each_sample():
    steps = []
    quantize(image_network(), images(2), progress=lambda *step: steps.append(step))
    assert steps == [(what, over, 2) for what in ("calibrating", "comparing") for over in (0, 1, 2)]


def product_network(depth: int = 70) -> Network:
    """Return two products and a convolution, all with more weights than the least number that is stored in few bits."""
    draw = np.random.default_rng(3)

    def constant(*shape: int) -> object:
        return network.add_constant_layer((draw.standard_normal(shape) / depth**0.5).astype(np.float32))

    network = Network("products")
    x = network.add_input_layer(0, TensorInfo((1, 4, 4, depth)), name="x")
    convolution = ip.ops.Convolution2d(data_layout=DataLayout.NHWC)
    image = network.add_layer(convolution, x, constant(40, 1, 1, depth), constant(40), name="convolution")
    rows = network.add_layer(ip.ops.Reshape((16, 40)), image, name="rows")
    dense = ip.ops.FullyConnected(transpose_weight_matrix=True)
    first = network.add_layer(dense, rows, constant(50, 40), constant(50), name="dense")
    network.add_output_layer(0, network.add_layer(ip.ops.BatchMatMul(), first, constant(50, 60), name="product"))
    return network


@pytest.mark.parametrize(
    ("scheme", "least"),
    [("float16", 60), ("bfloat16", 40), ("weights-int8", 35), ("weights-int4", 15), ("dynamic", 30)],
)
def test_constants_are_stored_in_fewer_bits_without_data(scheme, least):
    network = product_network()
    x = np.random.default_rng(0).standard_normal((1, 4, 4, 70)).astype(np.float32)
    blocks = {"block_size": 16} if scheme == "weights-int4" else {}
    quantized = quantize(network, scheme=scheme, **blocks)
    assert [layer.name for layer in quantized.report.left] == ["rows"]
    assert not any(
        layer.op.value.dtype == np.float32 and layer.op.value.size >= 1000
        for layer in quantized
        if isinstance(layer.op, ip.ops.Constant)
    )
    assert quantize(network, x, scheme=scheme).report.outputs[0].snr > least
    expected, found = (ip.load(item, ["CpuRef"]).run([x])[0] for item in (network, quantized))
    assert np.abs(found - expected).max() < 0.5


def test_the_native_backend_agrees_on_networks_with_constants_of_fewer_bits(cpuacc):
    x = np.random.default_rng(0).standard_normal((1, 4, 4, 70)).astype(np.float32)
    for scheme in STORAGE:
        blocks = {"block_size": 16} if scheme == "weights-int4" else {}
        quantized = quantize(product_network(), scheme=scheme, **blocks)
        first, second = (ip.load(quantized, [backend]).run([x])[0] for backend in ("CpuRef", "CpuAcc"))
        np.testing.assert_allclose(first, second, atol=1e-4)


def test_weights_of_four_bits_have_a_scale_for_each_block_and_the_last_block_may_be_shorter():
    quantized = quantize(product_network(), scheme="weights-int4", block_size=16)
    block = next(layer for layer in quantized if layer.kind == "BlockDequantize")
    weights, scales = block.values
    assert (str(weights.known), str(scales.known)) == ("int4[50, 40]", "float32[50, 3]")
    assert {layer.kind for layer in quantized if layer.outputs and layer.outputs[0].name.endswith(":dequantized")} == {
        "BlockDequantize", "Dequantize",
    }  # fmt: skip


def test_constants_that_float16_cannot_hold_stay_in_float32():
    network = Network("large")
    x = network.add_input_layer(0, TensorInfo((1, 2)), name="x")
    network.add_output_layer(
        0, network.add_layer(Addition(), x, network.add_constant_layer(np.float32([1e6, 1])), name="sum")
    )
    [left] = quantize(network, scheme="float16").report.left
    assert left.reason == "its constants are out of the range of float16"


def test_a_quantized_network_can_be_loaded_copied_and_printed():
    quantized = quantize(image_network(), images(2))
    again = Network.parse(quantized.text())
    first, second = (ip.load(item, ["CpuRef"]).run([images(1)]) for item in (quantized, again))
    np.testing.assert_array_equal(first[0], second[0])
    assert any(isinstance(layer.op, Quantize) for layer in again)
    assert any(isinstance(layer.op, Dequantize) for layer in again)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            {"scheme": "int7"},
            "unknown scheme 'int7'; did you mean 'int8'? (known: int8, uint8, int16, int8-symmetric, "
            "float16, bfloat16, weights-int8, weights-int4, dynamic)",
        ),
        (
            {"observer": "histogram"},
            "unknown observer 'histogram' (known: minmax, moving, percentile, entropy, mse)",
        ),
        ({"algorithm": "best"}, "unknown algorithm 'best' (known: calibrated, armnn)"),
        ({"observer": "percentile", "percentile": 20}, "the percentile must be above 50 and at most 100, not 20"),
        ({"float_layers": "first"}, "float_layers must be a list of names, not 'first'"),
        ({"float_layers": 5}, "float_layers must be a list of names, not 5"),
        ({"float_layers": [5]}, "float_layers must be a list of names, not [5]"),
        ({"target": float("nan")}, "target must be a number, not nan"),
        (
            {"float_layers": ["Softmin"]},
            "float_layers has 'Softmin', but no layer and no operator of the network has this name; "
            "did you mean 'Softmax'?",
        ),
        (
            {"algorithm": "armnn", "scheme": "float16"},
            "Arm NN's algorithm has no scheme 'float16' (it has: int8, uint8, int16, int8-symmetric)",
        ),
        ({"scheme": "weights-int4", "block_size": 0}, "the block size must be a positive integer, not 0"),
        ({"data": None}, "there is no calibration data; give at least one sample"),
    ],
)
def test_wrong_arguments_are_named(arguments, message):
    with pytest.raises(InvalidArgumentError) as caught:
        quantize(image_network(), **({"data": images(1)} | arguments))
    assert str(caught.value) == message


def test_an_iterator_of_layers_is_refused_because_it_would_be_used_up():
    with pytest.raises(InvalidArgumentError, match="float_layers must be a list of names, not <list_iterator"):
        quantize(image_network(), images(1), float_layers=iter(["first"]))
