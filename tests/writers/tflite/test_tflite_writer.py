"""Files that are written: names, borders, layouts, padding, activations, scales, refusals and files."""

from __future__ import annotations

import math
import sys

import numpy as np
import pytest

import interposer as ip
from interposer import Network, Quantization, TensorInfo
from interposer.core.errors import InvalidArgumentError, InvalidNetworkError, MissingDependencyError, UnwritableError
from interposer.core.types import DataLayout, DataType
from interposer.frontends.tflite import load
from interposer.frontends.tflite.container import read_model
from interposer.ir.subgraph import SubgraphView
from interposer.ops import (
    Activation,
    ActivationFunction,
    Addition,
    BinaryOperation,
    ChannelShuffle,
    Concat,
    Convolution2d,
    ElementwiseBinary,
    ElementwiseUnary,
    FullyConnected,
    Gather,
    Mean,
    Pad,
    Pooling2d,
    PoolingAlgorithm,
    Reshape,
    Softmax,
    Splitter,
    StandIn,
    Transpose,
    UnaryOperation,
)
from interposer.testing.oracle import reference_outputs
from interposer.writers.tflite import reasons, save, traced, write

RELU = Activation(ActivationFunction.RELU)
NHWC, NCHW = DataLayout.NHWC, DataLayout.NCHW
Q = Quantization(0.5, 3)


def image(shape=(1, 4, 6, 6), dtype=DataType.FLOAT32, q=None):
    network = Network("image")
    return network, network.add_input_layer(0, TensorInfo(shape, dtype, q), name="x")


def convolved(network, value, *, channels=4, name="conv", layout=NCHW, groups=1, bias=None, **attributes):
    shape = (channels, 4 // groups, 3, 3) if layout is NCHW else (channels, 3, 3, 4 // groups)
    weights = np.random.default_rng(1).normal(size=shape).astype(np.float32)
    operands = [network.add_constant_layer(weights, name=f"{name}/weights")]
    if bias is not None:
        operands.append(network.add_constant_layer(np.float32(bias), name=f"{name}/bias"))
    op = Convolution2d(data_layout=layout, groups=groups, **attributes)
    return network.add_layer(op, value, *operands, name=name)


SAME = {"pad_left": 1, "pad_right": 1, "pad_top": 1, "pad_bottom": 1}


def finished(network, *values):
    for number, value in enumerate(values):
        network.add_output_layer(number, value, name=f"y{number}" if number else "y")
    return write(network)


def operators(content):
    return list(read_model(content).subgraphs[0].operators)


def kinds(content):
    return [operator.name for operator in operators(content)]


def same_after_a_round_trip(network, content, *arrays):
    feeds = dict(enumerate(arrays))
    expected, result = (reference_outputs(graph, feeds) for graph in (network.graph, load(content, dynamic=True).graph))
    assert expected.keys() == result.keys()
    for key, array in expected.items():
        np.testing.assert_allclose(result[key], array, rtol=1e-5, atol=1e-5)


def drawn(*shape):
    return np.random.default_rng(2).normal(size=shape).astype(np.float32)


# --- names and borders ------------------------------------------------------------------------------------------------


def test_inputs_and_outputs_keep_names_order_and_types_and_are_a_signature():
    network = Network("sum")
    b = network.add_input_layer(1, TensorInfo((2, 3), "int32"), name="b")
    a = network.add_input_layer(0, TensorInfo((2, 3), "int32"), name="a")
    content = finished(network, network.add_addition_layer(a, b), network.add_subtraction_layer(a, b))
    model = read_model(content)
    [signature] = model.signatures
    assert (signature.key, list(signature.inputs), list(signature.outputs)) == (
        "serving_default",
        ["a", "b"],
        ["y", "y1"],
    )
    assert [layer.name for layer in load(content).graph.inputs] == ["a", "b"]
    assert [layer.name for layer in load(content).graph.outputs] == ["y", "y1"]
    assert model.description.startswith("interposer ")


def test_an_input_or_a_constant_may_go_out_under_another_name():
    network, x = image((2, 3))
    constant = network.add_constant_layer(np.float32([1, 2]), name="c")
    content = finished(network, x, constant, x)
    assert kinds(content) == ["RESHAPE"] * 3
    same_after_a_round_trip(network, content, drawn(2, 3))


def test_a_part_is_written_with_the_names_of_the_layers_around_it():
    network, x = image((2, 3))
    before = network.add_layer(RELU, x, name="before")
    inside = network.add_layer(Softmax(), before, name="inside")
    network.add_output_layer(0, network.add_layer(RELU, inside, name="after"))
    view = SubgraphView(network.graph, [network.graph.layer("inside")])
    back = load(write(view))
    assert [layer.name for layer in back.graph.inputs] == ["before"]
    assert [layer.name for layer in back.graph.outputs] == ["inside"]


def test_every_operator_is_traced_to_its_layer():
    network, x = image()
    pooled = network.add_layer(Mean(axis=(2, 3)), convolved(network, x), name="mean")
    network.add_output_layer(0, pooled)
    result = traced(network)
    assert dict(zip(kinds(result.content), result.layers, strict=True)) == {
        "TRANSPOSE": "conv", "CONV_2D": "conv", "MEAN": "mean",
    }  # fmt: skip


def test_open_extents_stay_open():
    network = Network("open")
    x = network.add_input_layer(0, TensorInfo((None, 3)), name="x")
    content = finished(network, network.add_layer(RELU, x))
    [tensor, *_] = read_model(content).subgraphs[0].tensors
    assert (tensor.shape, tensor.shape_signature) == ((1, 3), (-1, 3))
    same_after_a_round_trip(network, content, drawn(5, 3))


# --- bytes ------------------------------------------------------------------------------------------------------------


def test_constants_begin_at_multiples_of_16_bytes_and_equal_small_ones_are_one():
    network, x = image((2, 5))
    once = network.add_addition_layer(x, network.add_constant_layer(np.float32([1, 2, 3, 4, 5]), name="c"))
    twice = network.add_layer(ElementwiseBinary(BinaryOperation.MAXIMUM), once, network.add_constant_layer(drawn(2, 5)))
    content = finished(network, network.add_reshape_layer(network.add_reshape_layer(twice, target_shape=(10,)),
                                                          target_shape=(2, 5)), twice)  # fmt: skip
    model, start = read_model(content), np.frombuffer(content, np.uint8).ctypes.data
    places = [np.frombuffer(buffer, np.uint8).ctypes.data - start for buffer in model.buffers if buffer is not None]
    assert len(places) == 4
    assert {place % 16 for place in places} == {0}


def test_the_same_network_gives_the_same_bytes():
    assert finished(*_two()) == finished(*_two())


def _two():
    network, x = image()
    return network, convolved(network, x, **SAME)


def test_a_model_of_two_gibibytes_is_refused():
    network, x = image((1, 1))
    huge = network.add_constant_layer(np.broadcast_to(np.float32(1), (2**15, 2**15)), name="huge")
    network.add_output_layer(0, network.add_layer(Addition(), x, huge))
    with pytest.raises(
        InvalidArgumentError,
        match=r"the constants have 4,294,967,\d+ bytes, and a TFLite file must have less than 2 GiB",
    ):
        write(network)


def test_weights_of_four_bits_are_packed():
    network, x = image((1, 3), DataType.INT8, Quantization(0.5))
    q = Quantization([0.25, 0.5], 0, axis=0)
    codes = np.array([[1, -8, 7], [3, -2, 5]], DataType.INT4.numpy)
    weights = network.add_constant_layer(codes, q, name="w")
    op = FullyConnected(transpose_weight_matrix=True)
    product = network.add_layer(op, x, weights, outputs=[TensorInfo((1, 2), DataType.INT8, Quantization(1.0))])
    content = finished(network, product)
    tensors = {tensor.name: tensor for tensor in read_model(content).subgraphs[0].tensors}
    assert tensors["w"].dtype == "int4"
    assert bytes(read_model(content).buffer_data(tensors["w"].buffer)) == bytes([0x81, 0x37, 0x5E])
    [read] = [layer.op.value for layer in load(content).graph if layer.name == "w"]
    np.testing.assert_array_equal(read, codes.astype(np.int8))


# --- layouts ----------------------------------------------------------------------------------------------------------


def test_images_with_channels_first_are_transposed_once_on_each_side():
    network, x = image()
    first = network.add_layer(RELU, convolved(network, x, name="one", **SAME), name="relu")
    pooled = network.add_pooling2d_layer(convolved(network, first, name="two", **SAME), pool_width=2, pool_height=2,
                                         stride_x=2, stride_y=2, name="pool")  # fmt: skip
    scale = network.add_constant_layer(drawn(4, 1, 1), name="scale")
    content = finished(network, network.add_multiplication_layer(pooled, scale, name="scaled"))
    assert kinds(content) == ["TRANSPOSE", "CONV_2D", "CONV_2D", "MAX_POOL_2D", "MUL", "TRANSPOSE"]
    same_after_a_round_trip(network, content, drawn(1, 4, 6, 6))


def test_joins_means_pads_and_splits_move_to_the_other_layout():
    network, x = image()
    a, b = (convolved(network, x, name=name, **SAME) for name in "ab")
    merged = network.add_layer(Concat(axis=1), a, b, name="joined")
    item, two = network.add_layer(Splitter(axis=1, sizes=(4, 4)), merged, name="cut").outputs
    padded = network.add_layer(Pad(pad_list=((0, 0), (0, 0), (1, 0), (0, 2))), item, name="padded")
    mean = network.add_layer(Mean(axis=(2, 3), keep_dims=True), two, name="mean")
    last = convolved(network, network.add_addition_layer(padded, mean, name="sum"), name="last")
    content = finished(network, network.add_layer(Mean(axis=(2, 3)), last, name="end"))
    assert kinds(content).count("TRANSPOSE") == 1
    same_after_a_round_trip(network, content, drawn(1, 4, 6, 6))


def test_shuffled_channels_take_one_transpose():
    network, x = image((1, 8, 4, 4))
    shuffled = network.add_layer(ChannelShuffle(num_groups=2, axis=1), x, name="shuffled")
    split = network.add_layer(Reshape((1, 2, 4, 4, 4)), shuffled, name="split")
    swapped = network.add_layer(Transpose((0, 2, 1, 3, 4)), split, name="swapped")
    merged = network.add_layer(Reshape((1, 8, 4, 4)), swapped, name="merged")
    pool = network.add_pooling2d_layer(merged, pool_width=2, pool_height=2, stride_x=2, stride_y=2, name="pool")
    content = finished(network, pool)
    same_after_a_round_trip(network, content, drawn(1, 8, 4, 4))


def test_weights_of_rows_are_turned_instead_of_the_image():
    network, x = image()
    rows = network.add_layer(Reshape((1, 144)), convolved(network, x, **SAME), name="rows")
    weights = network.add_constant_layer(drawn(5, 144), name="w")
    product = network.add_layer(FullyConnected(transpose_weight_matrix=True), rows, weights, name="product")
    content = finished(network, product)
    assert kinds(content) == ["TRANSPOSE", "CONV_2D", "RESHAPE", "FULLY_CONNECTED"]
    same_after_a_round_trip(network, content, drawn(1, 4, 6, 6))


# --- windows ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("attributes", "wanted"),
    [
        (SAME, ["CONV_2D"]),
        ({}, ["CONV_2D"]),
        ({"stride_x": 2, "stride_y": 2, "pad_right": 1, "pad_bottom": 1}, ["CONV_2D"]),
        ({"stride_x": 2, "stride_y": 2, **SAME}, ["PAD", "CONV_2D"]),
        ({"pad_top": 2}, ["PAD", "CONV_2D"]),
        ({"dilation_x": 2, "pad_left": 2, "pad_right": 2, "pad_top": 1, "pad_bottom": 1}, ["CONV_2D"]),
    ],
)
def test_padding_is_same_or_valid_or_added_before(attributes, wanted):
    network, x = image((1, 6, 6, 4))
    content = finished(network, convolved(network, x, layout=NHWC, **attributes))
    assert kinds(content) == wanted
    same_after_a_round_trip(network, content, drawn(1, 6, 6, 4))


def test_a_convolution_of_each_channel_by_itself_is_depthwise():
    network, x = image((1, 6, 6, 4))
    content = finished(network, convolved(network, x, layout=NHWC, channels=8, groups=4))
    [operator] = operators(content)
    assert (operator.name, operator.attributes["depth_multiplier"]) == ("DEPTHWISE_CONV_2D", 2)
    same_after_a_round_trip(network, content, drawn(1, 6, 6, 4))


@pytest.mark.parametrize("pool", list(PoolingAlgorithm))
def test_pooling_with_padding_of_its_own_kind(pool):
    network, x = image((1, 5, 5, 2))
    op = Pooling2d(pool, 2, 0, 1, 1, 3, 3, 2, 2, data_layout=NHWC)
    content = finished(network, network.add_layer(op, x))
    same_after_a_round_trip(network, content, np.abs(drawn(1, 5, 5, 2)) * -1)


# --- activations and scales -------------------------------------------------------------------------------------------


def test_a_clamp_is_fused_with_what_only_it_uses():
    network, x = image((1, 6, 6, 4))
    conv = convolved(network, x, layout=NHWC)
    clamped = network.add_layer(Activation(ActivationFunction.BOUNDED_RELU, a=6.0), conv, name="clamped")
    shared = network.add_addition_layer(clamped, clamped, name="shared")
    content = finished(network, network.add_layer(RELU, shared, name="relu"), shared)
    assert kinds(content) == ["CONV_2D", "ADD", "RELU"]
    assert operators(content)[0].attributes["fused_activation_function"] == 3
    same_after_a_round_trip(network, content, drawn(1, 6, 6, 4))


def test_a_quantized_clamp_is_fused_only_where_the_scale_stays():
    for q, expected in ((Q, ["ADD"]), (Quantization(0.25, 3), ["ADD", "RELU"])):
        network, x = image((2, 3), DataType.INT8, Q)
        total = network.add_layer(Addition(), x, x, outputs=[TensorInfo((2, 3), DataType.INT8, Q)])
        content = finished(network, network.add_layer(RELU, total, outputs=[TensorInfo((2, 3), DataType.INT8, q)]))
        assert kinds(content) == expected
        same_after_a_round_trip(network, content, np.arange(6, dtype=np.int8).reshape(2, 3))


def test_a_convolution_whose_weights_are_an_input_gets_a_bias_of_zeros():
    network, x = image((1, 5, 5, 4))
    weights = network.add_input_layer(1, TensorInfo((2, 3, 3, 4)), name="weights")
    content = finished(network, network.add_layer(Convolution2d(data_layout=NHWC), x, weights))
    (convolution,) = operators(content)
    tensors = read_model(content).subgraphs[0].tensors
    assert [tuple(tensors[index].shape) for index in convolution.inputs] == [(1, 5, 5, 4), (2, 3, 3, 4), (2,)]


def test_a_bias_has_the_scale_of_the_products():
    network, x = image((1, 3), DataType.INT8, Quantization(0.5))
    weights = network.add_constant_layer(np.int8([[1, 2, 3]]), Quantization(0.25), name="w")
    bias = network.add_constant_layer(np.int32([7]), name="b")
    op = FullyConnected(transpose_weight_matrix=True)
    product = network.add_layer(op, x, weights, bias, outputs=[TensorInfo((1, 1), DataType.INT8, Quantization(1.0))])
    tensors = {tensor.name: tensor for tensor in read_model(finished(network, product)).subgraphs[0].tensors}
    assert tensors["b"].quantization.scales == (0.125,)


def test_narrow_floats_are_computed_in_32_bits_and_rounded_once():
    network, x = image((2, 3), DataType.FLOAT16)
    content = finished(network, network.add_layer(Activation(ActivationFunction.MISH), x))
    assert (kinds(content).count("CAST"), kinds(content)[0], kinds(content)[-1]) == (2, "CAST", "CAST")


def test_versions_say_what_old_runtimes_lack():
    network, x = image((1, 3), DataType.INT8, Quantization(0.5))
    weights = network.add_constant_layer(np.int8([[1, 2, 3]]), Quantization(0.25), name="w")
    op = FullyConnected(transpose_weight_matrix=True)
    info = TensorInfo((1, 1), DataType.INT8, Quantization(1.0))
    [operator] = operators(finished(network, network.add_layer(op, x, weights, outputs=[info])))
    assert operator.version == 4


@pytest.mark.parametrize("half_first", [True, False])
def test_a_gelu_of_several_layers_is_one_operator(half_first):
    network, x = image((2, 3))
    half, item, root = (network.add_constant_layer(np.float32(number)) for number in (0.5, 1, np.sqrt(2)))
    scaled = network.add_division_layer(x, root)
    raised = network.add_addition_layer(item, network.add_layer(ElementwiseUnary(UnaryOperation.ERF), scaled))
    if half_first:
        product = network.add_multiplication_layer(network.add_multiplication_layer(x, half), raised)
    else:
        product = network.add_multiplication_layer(network.add_multiplication_layer(raised, x), half)
    content = finished(network, product)
    assert kinds(content) == ["GELU"]
    same_after_a_round_trip(network, content, drawn(2, 3))


# --- refusals ---------------------------------------------------------------------------------------------------------


def test_every_layer_that_cannot_be_written_is_named_with_the_reason():
    network, x = image((2, 3))
    odd = network.add_layer(StandIn(), x, name="odd")
    network.graph.layer("odd").output.declared = TensorInfo((2, 3))
    wide = network.add_layer(ip.ops.Cast(dtype=DataType.FLOAT8_E5M2), x, name="wide")
    network.add_output_layer(0, odd)
    network.add_output_layer(1, wide)
    with pytest.raises(UnwritableError) as caught:
        write(network)
    assert caught.value.layers["odd"] == ("StandIn", "TFLite has no operators to make it of")
    assert caught.value.layers["wide"] == ("Cast", "CAST gives no float8_e5m2")


@pytest.mark.parametrize(
    ("op", "infos", "reason"),
    [
        (Gather(), [TensorInfo((3,), "float64"), TensorInfo((2,), "int32")], "GATHER takes no float64"),
        (Addition(), [TensorInfo((3,), "int32", Q)] * 2, "ADD takes no quantized int32"),
        (Softmax(), [TensorInfo((3,), "int8", Q)], None),
        (
            ElementwiseBinary(BinaryOperation.FLOOR_DIV),
            [TensorInfo((3,), "int32")] * 2,
            "it may divide integers by 0, which TFLite refuses while running",
        ),
        (ElementwiseBinary(BinaryOperation.SHIFT_LEFT), [TensorInfo((3,), "int32")] * 2,
         "TFLite has no operator for SHIFT_LEFT"),
        (ip.ops.Dequantize(dtype=DataType.FLOAT64), [TensorInfo((3,), "int8", Q)],
         "DEQUANTIZE gives float32, which has fewer digits than float64"),
        (ip.ops.Dequantize(), [TensorInfo((3,), "int16", Q)], "DEQUANTIZE takes int16 with the zero point 0 only"),
        (Addition(), [TensorInfo((3,), "int16", Q)] * 2, "ADD takes int16 with the zero point 0 only"),
        (Concat(0), [TensorInfo((3,), "int16", Q)] * 2, "CONCATENATION takes int16 with the zero point 0 only"),
        (Transpose((0,)), [TensorInfo((3,), "int16", Q)], None),
    ],
)  # fmt: skip
def test_reasons_tell_it_of_one_layer(op, infos, reason):
    network = Network("one")
    values = [network.add_input_layer(number, info) for number, info in enumerate(infos)]
    layer = network.add_layer(op, *values, name="layer")
    assert reasons(layer) == ([] if reason is None else [reason])


@pytest.mark.parametrize(
    ("given", "result", "reason"),
    [
        (TensorInfo((3,), "int16", Q), TensorInfo((3,), "int16", Quantization(0.5)), "with the zero point 0 only"),
        (TensorInfo((3,), "int16", Quantization(0.25)), TensorInfo((3,), "int16", Q), "with the zero point 0 only"),
        (TensorInfo((3,), "int16", Q), TensorInfo((3,), "int8", Quantization(0.25)), ""),
        (TensorInfo((3,)), TensorInfo((3,), "int16", Q), ""),
    ],
)
def test_int16_with_a_zero_point_is_not_quantized_to_int16(given, result, reason):
    network = Network("one")
    op = ip.ops.Quantize(dtype=result.dtype, rounding=ip.ops.RoundingMethod.HALF_AWAY_FROM_ZERO)
    layer = network.add_layer(op, network.add_input_layer(0, given), outputs=[result])
    assert [text.removeprefix("QUANTIZE takes int16 ") for text in reasons(layer)] == [reason] * bool(reason)


def test_far_ends_of_slices_are_cut_and_constant_texts_refused():
    network, x = image((4,))
    cut = network.add_strided_slice_layer(x, begin=(1,), end=(2**40,), stride=(1,), name="cut")
    same_after_a_round_trip(network, finished(network, cut), drawn(4))
    network = Network("texts")
    texts = network.add_constant_layer(np.array(["a", "b"], object), name="texts")
    network.add_output_layer(0, network.add_reshape_layer(texts, target_shape=(1, 2), name="shaped"))
    with pytest.raises(UnwritableError, match=r"layer 'shaped' \(Reshape\): it takes constant texts, which are not"):
        write(network)


def test_a_network_without_outputs_or_with_faults_is_refused():
    network, x = image((2, 3))
    with pytest.raises(InvalidNetworkError, match="it has no output layer"):
        write(network)
    network.add_output_layer(0, network.add_reshape_layer(x, target_shape=(5,)))
    with pytest.raises(InvalidNetworkError, match="cannot be reshaped to"):
        write(network)
    with pytest.raises(InvalidArgumentError, match="a Network, a Graph or a SubgraphView can be written, not 3"):
        write(3)


def test_a_missing_package_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "flatbuffers", None)
    network, x = image((2, 3))
    network.add_output_layer(0, network.add_layer(RELU, x))
    with pytest.raises(MissingDependencyError, match=r"'flatbuffers': pip install 'interposer-nn\[tflite\]'"):
        write(network)


# --- files ------------------------------------------------------------------------------------------------------------


def test_a_file_is_written_whole_or_not_at_all(tmp_path):
    network, x = image((2, 3))
    network.add_output_layer(0, network.add_layer(RELU, x))
    target = tmp_path / "net.tflite"
    assert save(network, target) == len(target.read_bytes()) == len(write(network))
    assert [path.name for path in tmp_path.iterdir()] == ["net.tflite"]
    with pytest.raises(InvalidArgumentError, match="the file cannot be written: No such file or directory"):
        save(network, tmp_path / "no" / "net.tflite")
    lstm = Network("lstm")
    y = lstm.add_input_layer(0, TensorInfo((2, 3), "uint64", Quantization(1.0)), name="x")
    lstm.add_output_layer(0, lstm.add_layer(RELU, y))
    with pytest.raises(UnwritableError):
        save(lstm, target)
    assert target.read_bytes() == write(network)


def test_a_negative_index_that_is_one_number_takes_its_axis_away():
    network = Network("gather")
    x = network.add_input_layer(0, TensorInfo((2, 3, 4), "int8", Q))
    layer = network.add_layer(Gather(axis=1), x, network.add_constant_layer(np.int32(-2)))
    network.add_output_layer(0, layer)
    array = np.arange(24, dtype=np.int8).reshape(2, 3, 4)
    results = reference_outputs(load(write(network)).graph, {0: array})
    assert results[0].tolist() == array[:, 1].tolist()


@pytest.mark.parametrize("border", [-200.0, 200.0])
def test_a_border_beyond_the_range_of_a_quantized_tensor_saturates(border):
    network = Network("pad")
    layer = network.add_layer(Pad(((0, 1),), pad_value=border), network.add_input_layer(0, TensorInfo((1,), "int8", Q)))
    network.add_output_layer(0, layer)
    results = reference_outputs(load(write(network)).graph, {0: np.int8([5])})
    assert results[0].tolist() == [5, 127 if border > 0 else -128]


def test_int8_weights_of_a_convolution_must_have_the_zero_point_0():
    network = Network("offset")
    x = network.add_input_layer(0, TensorInfo((1, 2, 2, 1), DataType.INT8, Quantization(0.5)), name="x")
    weights = network.add_constant_layer(np.ones((1, 1, 1, 1), np.int8), Quantization(0.25, 10))
    info = TensorInfo((1, 2, 2, 1), DataType.INT8, Quantization(1.0))
    op = Convolution2d(data_layout=DataLayout.NHWC)
    network.add_output_layer(0, network.add_layer(op, x, weights, name="conv", outputs=[info]), name="y")
    with pytest.raises(UnwritableError, match=r"its weights are int8 with the zero point 10; TFLite's convolutions"):
        write(network)


@pytest.mark.parametrize(("dtype", "q"), [("int8", (0.1, 3)), ("uint8", (0.05, 120)), ("int16", (0.001, 0))])
@pytest.mark.parametrize("result", [None, 1.5])
@pytest.mark.parametrize(("a", "b"), [(2.9, -1.3), (20.0, 0.0), (math.inf, -0.5)])
def test_a_quantized_clamp_with_any_bounds_is_a_maximum_and_a_minimum(dtype, q, result, a, b):
    network, given = ip.Network(), ip.TensorInfo((256,), dtype, ip.Quantization(*q))
    info = given if result is None else given.with_quantization(ip.Quantization(q[0] * result, q[1]))
    clamp = Activation(ActivationFunction.BOUNDED_RELU, a, b)
    layer = network.add_layer(clamp, network.add_input_layer(0, given, name="x"), outputs=[info])
    network.add_output_layer(0, layer, name="y")
    low, high = np.iinfo(dtype).min, np.iinfo(dtype).max
    values = np.linspace(low, high, 256).astype(dtype)
    written = ip.load(write(network), ["CpuRef"]).run([values])[0]
    np.testing.assert_array_equal(written, ip.load(network, ["CpuRef"]).run([values])[0])


@pytest.mark.parametrize(("mean", "variance", "gamma"), [
    (np.inf, 1, 1), (-np.inf, 1, -2), (1, np.inf, 1), (1, 1, np.inf), (1e30, 1e-20, 1e30), (2, 0, 1e38),
])  # fmt: skip
def test_a_batch_normalization_with_extreme_parameters_keeps_its_infinite_results(mean, variance, gamma):
    network, x = image((1, 2, 1, 3))
    parameters = [network.add_constant_layer(np.float32([value, 1])) for value in (mean, variance, 0.5, gamma)]
    content = finished(network, network.add_batch_normalization_layer(x, *parameters, eps=0.0))
    array = np.float32([[[[-3, 0, 3]], [[1, 2, -np.inf]]]])
    [expected] = reference_outputs(network.graph, {0: array}).values()
    [result] = reference_outputs(load(content).graph, {0: array}).values()
    np.testing.assert_allclose(result, expected, 1e-5)
