"""Models that are written: names, borders, layouts, refusals, opsets and files."""

from __future__ import annotations

from collections import Counter

import numpy as np
import onnx
import pytest

from interposer import Network, Quantization, TensorInfo
from interposer.core.errors import InvalidArgumentError, InvalidNetworkError, UnwritableError
from interposer.core.types import DataLayout, DataType
from interposer.frontends.onnx import load
from interposer.ir.subgraph import SubgraphView
from interposer.ops import (
    Activation,
    ActivationFunction,
    Addition,
    Attention,
    BlockDequantize,
    Concat,
    Convolution2d,
    Mean,
    Pad,
    Pooling2d,
    PoolingAlgorithm,
    Reshape,
    Resize,
    RnnSequence,
    Softmax,
    Splitter,
    StandIn,
    Svdf,
    Transpose,
)
from interposer.testing.oracle import reference_outputs
from interposer.writers.onnx import newest_opset, reasons, save, write

RELU = Activation(ActivationFunction.RELU)
SIGMOID = Activation(ActivationFunction.SIGMOID)
Q = Quantization(0.5, 3)


def image(shape=(1, 6, 6, 4), dtype=DataType.FLOAT32, q=None):
    network = Network("image")
    return network, network.add_input_layer(0, TensorInfo(shape, dtype, q), name="x")


def convolved(network, value, channels=4, name="conv"):
    weights = np.random.default_rng(1).normal(size=(channels, 3, 3, 4)).astype(np.float32)
    constant = network.add_constant_layer(weights, name=f"{name}/weights")
    op = Convolution2d(pad_left=1, pad_right=1, pad_top=1, pad_bottom=1, data_layout=DataLayout.NHWC)
    return network.add_layer(op, value, constant, name=name)


def kinds(model):
    return [node.op_type for node in model.graph.node]


def same_after_a_round_trip(network, model, *arrays):
    onnx.checker.check_model(model, full_check=True)
    feeds = dict(enumerate(arrays))
    expected, result = (reference_outputs(graph, feeds) for graph in (network.graph, load(model).graph))
    for key, array in expected.items():
        np.testing.assert_allclose(result[key], array, rtol=1e-5, atol=1e-6)


def numbers(*shape):
    return np.random.default_rng(0).normal(size=shape).astype(np.float32)


# --- names and borders ------------------------------------------------------------------------------------------------


def test_layers_inputs_and_outputs_keep_their_names_and_open_extents():
    network = Network("net")
    x = network.add_input_layer(0, TensorInfo(("batch", 3)), name="image")
    network.add_output_layer(0, network.add_layer(RELU, network.add_layer(Softmax(), x, name="a"), name="b"), name="y")
    model = write(network)
    assert [node.name for node in model.graph.node] == ["a", "b"]
    back = load(model)
    assert [str(layer.output.known) for layer in back.graph.inputs] == ["float32[batch, 3]"]
    assert [(layer.name, layer.kind) for layer in back.graph] == [
        ("image", "Input"), ("a", "Softmax"), ("b", "Activation"), ("y", "Output"),
    ]  # fmt: skip


def test_the_model_says_who_made_it_and_where_layers_came_from():
    network, x = image()
    layer = network.add_layer(RELU, x, name="a", source="operator 7")
    network.add_output_layer(0, layer, name="y")
    model = write(network, name="another", opset=17, ir_version=8)
    assert (model.producer_name, model.graph.name, model.ir_version) == ("interposer", "another", 8)
    assert model.graph.node[0].doc_string == "operator 7"
    assert model.opset_import[0].version == 17


def test_inputs_constants_and_values_with_two_names_may_be_outputs():
    network, x = image((2,))
    layer = network.add_layer(RELU, x, name="a")
    constant = network.add_constant_layer(np.float32([7.0]), name="c")
    for number, value in enumerate((x, layer, layer, constant)):
        network.add_output_layer(number, value, name=f"y{number}")
    model = write(network)
    assert [output.name for output in model.graph.output] == ["y0", "y1", "y2", "y3"]
    same_after_a_round_trip(network, model, np.float32([-1.0, 2.0]))


def test_the_quantization_of_inputs_and_outputs_survives():
    network, x = image((2, 3), DataType.INT8, Q)
    network.add_output_layer(0, network.add_layer(Reshape((3, 2)), x, name="a"), name="y")
    back = load(write(network))
    assert back.inputs[0].output.known.quantization == Q
    assert back.outputs[0].values[0].known.quantization == Q


def test_a_quantization_for_each_channel_survives():
    per_row = Quantization([0.5, 0.25], [1, 2], axis=0)
    network, x = image((2, 3), DataType.UINT8, per_row)
    network.add_output_layer(0, network.add_layer(Transpose((1, 0)), x, name="a"), name="y")
    back = load(write(network))
    assert back.inputs[0].output.known.quantization == per_row
    assert back.outputs[0].values[0].known.quantization == Quantization([0.5, 0.25], [1, 2], axis=1)


def test_a_part_of_a_graph_is_a_model_of_its_own():
    network, x = image((2,))
    first = network.add_layer(RELU, x, name="a")
    weights = network.add_constant_layer(np.float32([1.0, 2.0]), name="w")
    second = network.add_layer(Addition(), first, weights, name="b")
    network.add_output_layer(0, network.add_layer(Softmax(), second, name="c"), name="y")
    model = write(SubgraphView(network.graph, [second]))
    onnx.checker.check_model(model, full_check=True)
    assert [item.name for item in model.graph.input] == ["a"]
    assert [item.name for item in model.graph.output] == ["b"]
    assert [item.name for item in model.graph.initializer] == ["w"]


# --- layouts ----------------------------------------------------------------------------------------------------------


def test_transposes_cancel_out_between_layers_of_one_layout():
    network, x = image()
    value = network.add_layer(RELU, convolved(network, x, name="first"), name="relu")
    network.add_output_layer(0, convolved(network, value, name="second"), name="y")
    model = write(network)
    assert kinds(model) == ["Transpose", "Conv", "Relu", "Conv", "Transpose"]
    same_after_a_round_trip(network, model, numbers(1, 6, 6, 4))


def test_transposes_pass_sums_joins_pads_and_means():
    network, x = image()
    left, right = convolved(network, x, name="left"), convolved(network, x, name="right")
    total = network.add_layer(Addition(), left, right, name="sum")
    scaled = network.add_layer(Addition(), total, network.add_constant_layer(numbers(4), name="offset"), name="moved")
    merged = network.add_layer(Concat(3), scaled, right, name="joined")
    padded = network.add_layer(Pad(((0, 0), (1, 0), (0, 1), (0, 0))), merged, name="padded")
    network.add_output_layer(0, network.add_layer(Mean((1, 2)), padded, name="mean"), name="y")
    model = write(network)
    assert Counter(kinds(model))["Transpose"] == 1
    same_after_a_round_trip(network, model, numbers(1, 6, 6, 4))


def test_there_are_never_more_transposes_than_without_cancelling():
    network, x = image()
    left = convolved(network, x, name="left")
    network.add_output_layer(0, left, name="y0")
    network.add_output_layer(1, network.add_layer(RELU, left, name="relu"), name="y1")
    model = write(network)
    assert Counter(kinds(model))["Transpose"] == 2
    same_after_a_round_trip(network, model, numbers(1, 6, 6, 4))


# --- quantized layers -------------------------------------------------------------------------------------------------


def quantized_sigmoid():
    network, x = image((1, 4), DataType.INT8, Q)
    network.add_output_layer(0, network.add_layer(SIGMOID, x, name="scores"), name="y")
    return network


def test_quantized_arithmetic_that_onnx_cannot_express_is_refused_with_advice():
    with pytest.raises(UnwritableError) as caught:
        write(quantized_sigmoid())
    assert str(caught.value) == (
        "network 'image' cannot be written as ONNX:\n"
        "  - layer 'scores' (Activation): ONNX rounds a quantized SIGMOID otherwise; "
        "exact=False writes it with float values between DequantizeLinear and QuantizeLinear"
    )


def test_a_quantized_mean_in_another_scale_is_refused():
    network, x = image((1, 1, 2, 2), DataType.UINT8, Quantization(1.0, 0))
    pool = Pooling2d(PoolingAlgorithm.AVERAGE, pool_width=2, pool_height=2)
    mean = network.add_layer(
        pool, x, name="mean", outputs=TensorInfo((1, 1, 1, 1), DataType.UINT8, Quantization(0.1, 0))
    )
    network.add_output_layer(0, mean, name="y")
    with pytest.raises(UnwritableError, match=r"'mean' \(Pooling2d\): ONNX rounds a quantized pool otherwise"):
        write(network)


def test_it_is_written_with_real_numbers_where_that_is_asked_for():
    model = write(quantized_sigmoid(), exact=False)
    assert kinds(model) == ["DequantizeLinear", "Sigmoid", "QuantizeLinear"]
    assert load(model).inputs[0].output.known.quantization == Q


def test_weights_are_stored_as_integers_in_the_layout_of_onnx():
    network, x = image((1, 6, 6, 4), DataType.INT8, Q)
    codes = np.arange(144).astype(np.int8).reshape(4, 3, 3, 4)
    per_channel = Quantization([0.1, 0.2, 0.3, 0.4], axis=0)
    weights = network.add_constant_layer(codes, per_channel, name="weights")
    layer = network.add_layer(
        Convolution2d(data_layout=DataLayout.NHWC), x, weights, name="conv",
        outputs=TensorInfo((1, 4, 4, 4), DataType.INT8, Quantization(2.0)),
    )  # fmt: skip
    network.add_output_layer(0, layer, name="y")
    model = write(network, exact=False)
    onnx.checker.check_model(model, full_check=True)
    stored = {item.name: onnx.numpy_helper.to_array(item) for item in model.graph.initializer}
    np.testing.assert_array_equal(stored["weights/transposed"], codes.transpose(0, 3, 1, 2))


# --- refusals ---------------------------------------------------------------------------------------------------------


def test_all_layers_that_cannot_be_written_are_listed_and_nothing_is_saved(tmp_path):
    network, x = image((1, 4))
    first = network.add_layer(StandIn(description="Magic"), x, name="one", outputs=TensorInfo((1, 4)))
    second = network.add_layer(StandIn(), first, name="two", outputs=TensorInfo((1, 4)))
    network.add_output_layer(0, second, name="y")
    with pytest.raises(UnwritableError) as caught:
        save(network, tmp_path / "net.onnx")
    assert caught.value.layers == {
        "one": ("StandIn", "it stands in for Magic"),
        "two": ("StandIn", "it stands in for an operator that is not known"),
    }
    assert list(tmp_path.iterdir()) == []


def test_reasons_are_told_of_a_layer_without_writing():
    network, x = image((1, 4))
    good, bad = network.add_layer(RELU, x, name="a"), network.add_layer(StandIn(), x, name="b")
    assert reasons(good) == []
    assert reasons(bad) == ["the shapes and types of its tensors are not known"]
    assert len(reasons(quantized_sigmoid().graph.layer("scores"))) == 1
    assert reasons(quantized_sigmoid().graph.layer("scores"), exact=False) == []


@pytest.mark.parametrize(
    ("dtype", "alpha", "fits"), [("float32", 0.2, True), ("float64", 0.25, True), ("float64", 0.2, False)]
)
def test_parameters_of_functions_that_float32_lacks_are_refused_beside_float64(dtype, alpha, fits):
    network = Network("sequence")
    x = network.add_input_layer(0, TensorInfo((3, 1, 4), DataType(dtype)), name="x")
    weights = [network.add_constant_layer(np.ones((1, 2, size), dtype)) for size in (4, 2)]
    functions = {"activations": (ActivationFunction.HARD_SIGMOID,), "activation_a": (alpha,), "activation_b": (0.5,)}
    layer = network.add_layer(RnnSequence(**functions), x, *weights, name="rnn")
    expected = [] if fits else ["a parameter of its function HardSigmoid has more digits than an attribute holds"]
    assert reasons(layer) == expected


def test_an_operator_that_an_opset_lacks_is_refused_or_made_of_others():
    network, x = image((1, 4))
    network.add_output_layer(0, network.add_layer(Activation(ActivationFunction.GELU), x, name="a"), name="y")
    assert kinds(write(network)) == ["Gelu"]
    old = write(network, opset=17)
    assert "Erf" in kinds(old)
    same_after_a_round_trip(network, old, numbers(1, 4))


@pytest.mark.parametrize(("dtype", "opset"), [("float8_e5m2", 20), ("int4", 23), ("int2", newest_opset())])
def test_the_opset_is_one_that_engines_know_unless_the_network_needs_another(dtype, opset):
    network = Network()
    x = network.add_input_layer(0, TensorInfo((2,), dtype), name="x")
    network.add_output_layer(0, network.add_reshape_layer(x, target_shape=(1, 2)), name="y")
    assert write(network).opset_import[0].version == opset


def test_results_that_must_be_there_have_names_even_where_nobody_takes_them():
    network = Network()
    x = network.add_input_layer(0, TensorInfo((4, 3)), name="x")
    parts = network.add_layer(Splitter(axis=0, sizes=(1, 2, 1)), x, name="parts")
    network.add_output_layer(0, parts.outputs[1], name="y")
    [split] = write(network).graph.node
    assert len(split.output) == 3
    assert all(split.output)


def test_a_type_that_an_opset_lacks_is_refused():
    network, x = image((2,), DataType.INT4)
    network.add_output_layer(0, network.add_layer(Reshape((1, 2)), x, name="a"), name="y")
    with pytest.raises(UnwritableError, match="opset 17 has no type int4"):
        write(network, opset=17)


def test_an_operand_that_an_opset_lacks_is_refused():
    network = Network()
    parts = [network.add_input_layer(i, TensorInfo((1, 2, 3, 4)), name=name) for i, name in enumerate("qkv")]
    lengths = network.add_input_layer(3, TensorInfo((1,), "int64"), name="lengths")
    network.add_output_layer(0, network.add_layer(Attention(), *parts, None, None, None, lengths, name="a"), name="y")
    with pytest.raises(UnwritableError, match="Attention of opset 23 has no operand number 7"):
        write(network, opset=23)
    assert write(network).opset_import[0].version > 23


@pytest.mark.parametrize(("options", "message"), [
    ({"opset": 12}, f"the opset is 12; opsets 13 to {newest_opset()} can be written"),
    ({"opset": "new"}, "the opset must be a number, not 'new'"),
    ({"ir_version": 99}, "ir_version is 99; expected 7 to "),
])  # fmt: skip
def test_versions_that_cannot_be_meant_are_refused(options, message):
    network, x = image((2,))
    network.add_output_layer(0, x, name="y")
    with pytest.raises(InvalidArgumentError, match=message):
        write(network, **options)


def test_what_is_no_network_and_networks_with_faults_are_refused():
    with pytest.raises(InvalidArgumentError, match="a Network, a Graph or a SubgraphView can be written"):
        write("net")
    with pytest.raises(InvalidNetworkError, match="it has no output layer"):
        write(image()[0])


# --- files ------------------------------------------------------------------------------------------------------------


def test_a_file_is_written_whole_and_can_be_loaded(tmp_path):
    network, x = image()
    network.add_output_layer(0, convolved(network, x), name="y")
    save(network, tmp_path / "net.onnx", opset=17)
    assert [path.name for path in tmp_path.iterdir()] == ["net.onnx"]
    onnx.checker.check_model(tmp_path / "net.onnx", full_check=True)
    assert len(load(tmp_path / "net.onnx")) == len(load(write(network, opset=17)))


def test_weights_may_have_a_file_of_their_own(tmp_path):
    network, x = image((1, 1000))
    wide = network.add_constant_layer(numbers(1, 1000), name="w")
    network.add_output_layer(0, network.add_layer(Addition(), x, wide, name="a"), name="y")
    save(network, tmp_path / "net.onnx", external_data=True)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["net.onnx", "net.onnx.data"]
    assert (tmp_path / "net.onnx").stat().st_size < 1000
    feeds = {0: numbers(1, 1000)}
    result = reference_outputs(load(tmp_path / "net.onnx").graph, feeds)
    np.testing.assert_array_equal(result[0], reference_outputs(network.graph, feeds)[0])


def test_a_place_that_cannot_be_written_is_named(tmp_path):
    network, x = image((2,))
    network.add_output_layer(0, x, name="y")
    with pytest.raises(InvalidArgumentError, match=r"net\.onnx: the file cannot be written: No such file"):
        save(network, tmp_path / "no" / "net.onnx")


def test_the_free_place_of_a_filters_memory_is_zero_where_the_projection_is_not_finite():
    network, x = Network("svdf"), np.float32([[np.inf, 1], [np.nan, 2], [3, 4]])
    weights = [network.add_constant_layer(np.float32(array)) for array in ([[0, 0], [1, 1]], [[0.5, 2], [1, 3]])]
    layer = network.add_layer(Svdf(), network.add_input_layer(0, TensorInfo(x.shape, "float32")), *weights)
    for number, value in enumerate(layer.outputs):
        network.add_output_layer(number, value)
    same_after_a_round_trip(network, write(network), x)


@pytest.mark.parametrize("opset", [20, 23])
@pytest.mark.parametrize("scale", ["float32", "float16"])
@pytest.mark.parametrize("dtype", ["int16", "uint16", "int32", "uint32"])
def test_large_integers_with_scales_for_blocks_are_exact_until_they_are_multiplied(dtype, scale, opset):
    most = np.iinfo(dtype).max
    codes, points = np.array([[most, most - 1, most - 4, most - 7]], dtype), np.array([[most - 3, most - 8]], dtype)
    network = Network("blocks")
    x = network.add_input_layer(0, TensorInfo(codes.shape, dtype), name="x")
    scales = network.add_constant_layer(np.array([[0.5, 2]], scale), name="scale")
    zero = network.add_constant_layer(points, name="zero")
    layer = network.add_layer(BlockDequantize(2, 1, DataType.of(scale)), x, scales, zero, name="y")
    network.add_output_layer(0, layer, name="y")
    written = load(write(network, opset=opset).SerializeToString())
    assert reference_outputs(written.graph, {0: codes})[0].tolist() == [[1.5, 1.0, 8.0, 2.0]]


@pytest.mark.parametrize("layout", [DataLayout.NHWC, DataLayout.NCHW])
@pytest.mark.parametrize(("rows", "target", "centred", "aligned", "written"), [
    (2, 47, True, False, "Gather"),  # 23.5 * 2 / 47 is less than 1 in float32
    (4, 2, True, False, "Resize"),
    (3, 7, True, False, "Resize"),
    (5, 15, False, False, "Resize"),
    (3, 5, False, True, "Resize"),
])  # fmt: skip
def test_a_resized_image_takes_the_same_pixels_in_onnx(layout, rows, target, centred, aligned, written):
    shape = (1, rows, 1, 1) if layout is DataLayout.NHWC else (1, 1, rows, 1)
    network = Network("resized")
    x = network.add_input_layer(0, TensorInfo(shape, "float32"), name="x")
    op = Resize(3, target, data_layout=layout, half_pixel_centers=centred, align_corners=aligned)
    network.add_output_layer(0, network.add_layer(op, x))
    model = write(network)
    assert kinds(model).count(written) == (2 if written == "Gather" else 1)
    same_after_a_round_trip(network, model, np.arange(rows, dtype=np.float32).reshape(shape))


def test_a_convolution_with_an_integer_bias_that_rounds_half_to_even_is_written_between_dequantized_tensors():
    generator = np.random.default_rng(4)
    constants = {
        "x_scale": np.float32(0.0331), "x_zero": np.uint8(136),
        "w": generator.integers(-127, 128, (8, 3, 3, 3)).astype(np.int8),
        "w_scale": generator.uniform(0.002, 0.01, 8).astype(np.float32), "w_zero": np.zeros(8, np.int8),
        "y_scale": np.float32(0.0174), "y_zero": np.uint8(134),
        "b": generator.integers(-5000, 5000, 8).astype(np.int32),
    }  # fmt: skip
    node = onnx.helper.make_node("QLinearConv", ["x", *constants], ["y"])
    declared = [onnx.helper.make_tensor_value_info(name, onnx.TensorProto.UINT8, None) for name in "xy"]
    declared[0] = onnx.helper.make_tensor_value_info("x", onnx.TensorProto.UINT8, [1, 3, 40, 40])
    arrays = [onnx.numpy_helper.from_array(np.asarray(array), name) for name, array in constants.items()]
    graph = onnx.helper.make_graph([node], "net", declared[:1], declared[1:], arrays)
    network = load(onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 21)]))
    written = write(network)
    kinds = Counter(node.op_type for node in written.graph.node)
    assert kinds == {"DequantizeLinear": 3, "Conv": 1, "QuantizeLinear": 1}
    feeds = {0: generator.integers(0, 256, (1, 3, 40, 40)).astype(np.uint8)}
    for found, wanted in zip(
        reference_outputs(load(written).graph, feeds).values(),
        reference_outputs(network.graph, feeds).values(),
        strict=True,
    ):
        np.testing.assert_array_equal(found, wanted)
