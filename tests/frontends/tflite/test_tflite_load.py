"""Loading TFLite files: names, constants, shapes, and what is refused."""

from __future__ import annotations

import numpy as np
import pytest

import interposer as ip
from interposer.core.errors import (
    BindingError,
    InvalidArgumentError,
    ParseError,
    UnboundInputError,
    UnsupportedOperatorError,
)
from interposer.core.types import Quantization, TensorInfo
from interposer.frontends import tflite
from interposer.ir.network import Network
from tests.damage import damaged_variants
from tests.evaluation import run_network

pytest.importorskip("flatbuffers", reason="the package flatbuffers, which builds the files, is not installed")

from tests.frontends.tflite.build import code, convolution_model, encode, operator, tensor
from tests.frontends.tflite.one_operator import T, ints, one_operator

VALID = {"padding": 1, "stride_w": 1, "stride_h": 1}


def infos(network: Network) -> dict[str, TensorInfo]:
    return {layer.name: value.known for layer in network for value in layer.outputs}


def test_layers_are_called_after_operators_and_the_border_after_tensors(tmp_path):
    path = tmp_path / "net.tflite"
    path.write_bytes(encode(convolution_model()))
    network = tflite.load(path)
    assert network.name == "net.tflite"
    assert [layer.name for layer in network] == ["x", "w", "b", "CONV_2D:0:0", "CONV_2D:0:0:RELU6", "RESHAPE:0:1", "z"]
    assert network.graph.layer("CONV_2D:0:0:RELU6").source == "net.tflite, operators[0] CONV_2D"
    assert [layer.name for layer in network.inputs.values()] == ["x"]
    assert [layer.name for layer in network.outputs.values()] == ["z"]


def test_inputs_and_outputs_are_bound_in_the_order_of_the_file():
    model = {
        "version": 3,
        "operator_codes": [code("SUB")],
        "buffers": [{}],
        "subgraphs": [
            {
                "tensors": [tensor("a", [2]), tensor("b", [2]), tensor("c", [2])],
                "inputs": [1, 0],
                "outputs": [2, 0],
                "operators": [operator([0, 1], [2], opcode_index=0)],
            }
        ],
    }
    network = tflite.load(encode(model))
    assert {i: layer.name for i, layer in network.inputs.items()} == {0: "b", 1: "a"}
    assert {i: layer.name for i, layer in network.outputs.items()} == {0: "c", 1: "a_1"}
    result = run_network(network, {"a": np.float32([3, 5]), "b": np.float32([1, 2])})
    assert result["c"].tolist() == [2, 3]


def test_quantization_comes_with_the_tensors():
    result = infos(tflite.load(encode(convolution_model())))
    assert result["x"].quantization == Quantization(0.5, -3)
    assert result["w"].quantization == Quantization([0.25, 0.125], axis=0)
    assert result["CONV_2D:0:0"].quantization == Quantization(2.0, 7)
    assert result["CONV_2D:0:0:RELU6"].quantization == Quantization(2.0, 7)


def test_constants_are_views_of_the_file():
    data = encode(convolution_model())
    weights = tflite.load(data).graph.layer("w").op.value
    whole = np.frombuffer(data, np.uint8)
    assert np.shares_memory(weights, whole)


def test_a_bytes_like_source_may_be_any_buffer():
    data = encode(convolution_model())
    expected = [layer.name for layer in tflite.load(data)]
    for source in (bytearray(data), memoryview(data)):
        assert [layer.name for layer in tflite.load(source)] == expected


def test_quantized_weights_of_a_float_operator_are_dequantized():
    weights = T((2, 3), "int8", ([0.5, 0.25], [0, 0]), value=np.int8([[2, 4, 6], [4, 8, -8]]))
    network = tflite.load(one_operator("FULLY_CONNECTED", [T((1, 3)), weights, None], [T((1, 2))]))
    kinds = [layer.kind for layer in network]
    assert kinds == ["Input", "DynamicFakeQuantization", "Constant", "FullyConnected", "Output"]
    np.testing.assert_allclose(run_network(network, {"i0": np.ones((1, 3), np.float32)})["o0"], [[6, 1]], rtol=1e-6)


def test_dequantized_constants_are_computed_once():
    half = T((5000,), "float16", value=np.full(5000, 0.5, np.float16))
    network = tflite.load(one_operator("DEQUANTIZE", [half], [T((5000,))]))
    assert [layer.kind for layer in network] == ["Constant", "Output"]
    [output] = run_network(network, {}).values()
    assert output.dtype == np.float32


def test_four_bit_weights_are_unpacked():
    weights = T((2, 3), "int4", (1.0, 0), value=np.uint8([0xE1, 0x73, 0x08]))
    x = T((1, 3), "int8", (1.0, 0))
    network = tflite.load(one_operator("FULLY_CONNECTED", [x, weights, None], [T((1, 2), "int8", (1.0, 0))]))
    [constant] = [layer for layer in network if layer.kind == "Constant"]
    assert constant.op.value.tolist() == [[1, -2, 3], [7, -8, 0]]
    assert constant.op.value.dtype == np.int8


@pytest.mark.parametrize(
    ("dtype", "packed", "expected"),
    [("int2", [0b10_01_00_11, 0b11_01], [[-1, 0, 1], [-2, 1, -1]]), ("uint4", [0xE1, 0x73, 0x08], None)],
)
def test_weights_of_packed_integers_are_unpacked(dtype, packed, expected):
    weights = T((2, 3), dtype, (0.5, 0), value=np.uint8(packed))
    network = tflite.load(one_operator("DEQUANTIZE", [weights], [T((2, 3))]))
    [output] = run_network(network, {}).values()
    assert (output * 2).tolist() == (expected or [[1, 14, 3], [7, 8, 0]])


@pytest.mark.parametrize(
    ("dtype", "zero_point", "low", "high"), [("int4", -1, -8, 7), ("int2", -1, -2, 1), ("uint4", 1, 0, 15)]
)
def test_computed_packed_integers_saturate_in_their_range(dtype, zero_point, low, high):
    network = tflite.load(one_operator("QUANTIZE", [T((3,))], [T((3,), dtype, (0.5, zero_point))]))
    [output] = run_network(network, {"i0": np.float32([-100, 0.5, 100])}).values()
    assert output.tolist() == [low, zero_point + 1, high]


def test_packed_integers_are_only_computed_from_floats():
    data = one_operator("QUANTIZE", [T((3,), "int8", (0.5, 0))], [T((3,), "int4", (0.5, 0))])
    with pytest.raises(ParseError) as caught:
        tflite.load(data)
    assert str(caught.value) == (
        "operators[0] QUANTIZE: its output is int4, which is only supported for a float input and one scale"
    )


def test_shapes_that_are_computed_from_shapes_are_known_when_loading():
    """SHAPE, STRIDED_SLICE and PACK make the shape of RESHAPE."""
    tensors = [
        tensor("x", [2, 6]), tensor("shape", [2], "int32"), tensor("zero", [1], "int32", buffer=1),
        tensor("one", [1], "int32", buffer=2), tensor("n", [], "int32"), tensor("three", [], "int32", buffer=3),
        tensor("target", [3], "int32"), tensor("two", [], "int32", buffer=4), tensor("y", [2, 3, 2]),
    ]  # fmt: skip
    operators = [
        operator([0], [1], opcode_index=0, builtin_options=("ShapeOptions", {"out_type": 2})),
        operator([1, 2, 3, 3], [4], opcode_index=1, builtin_options=("StridedSliceOptions", {"shrink_axis_mask": 1})),
        operator([4, 5, 7], [6], opcode_index=2, builtin_options=("PackOptions", {"values_count": 3})),
        operator([0, 6], [8], opcode_index=3),
    ]
    values = [np.array(value, np.int32).tobytes() for value in (0, 1, 3, 2)]
    model = {
        "version": 3,
        "operator_codes": [code(name) for name in ("SHAPE", "STRIDED_SLICE", "PACK", "RESHAPE")],
        "buffers": [{}, *({"data": value} for value in values)],
        "subgraphs": [{"tensors": tensors, "inputs": [0], "outputs": [8], "operators": operators}],
    }
    network = tflite.load(encode(model))
    assert [repr(layer.op) for layer in network] == ["Input()", "Reshape(target_shape=(2, 3, 2))", "Output()"]


def dynamic_model() -> bytes:
    x = T((1, 4, 4, 2), signature=(-1, -1, 4, 2))
    weights = T((3, 3, 3, 2), value=np.ones((3, 3, 3, 2), np.float32))
    y = T((1, 2, 2, 3), signature=(-1, -1, 2, 3))
    return one_operator("CONV_2D", [x, weights, None], [y], ("Conv2DOptions", VALID))


def test_extents_are_those_the_file_was_made_with_unless_asked_for_open_ones():
    assert str(infos(tflite.load(dynamic_model()))["CONV_2D:0:0"]) == "float32[1, 2, 2, 3]"
    assert str(infos(tflite.load(dynamic_model(), dynamic=True))["CONV_2D:0:0"]) == "float32[?, ?, 2, 3]"


def test_inputs_can_be_given_other_shapes():
    result = infos(tflite.load(dynamic_model(), shapes={"i0": (5, 9, 4, 2)}))
    assert result["CONV_2D:0:0"].shape == (5, 7, 2, 3)


def test_an_extent_that_is_left_open_stays_open_in_what_follows():
    result = infos(tflite.load(dynamic_model(), shapes={"i0": (None, 9, 4, 2)}))
    assert str(result["CONV_2D:0:0"]) == "float32[?, 7, 2, 3]"


def test_bytes_may_lie_apart():
    data = dynamic_model()
    apart = memoryview(bytes(byte for item in data for byte in (item, 0)))[::2]
    assert infos(tflite.load(apart)) == infos(tflite.load(data))


def reshaping() -> bytes:
    return one_operator("RESHAPE", [T((2, 3)), T((2,), "int32")], [T((3, 2))])


def test_an_operand_that_is_an_input_must_be_given_a_value():
    with pytest.raises(UnboundInputError) as caught:
        tflite.load(reshaping())
    assert caught.value.inputs == ("i1",)
    assert caught.value.notes == {
        "RESHAPE": "operators[0] RESHAPE: the shape (input 1) is computed while running; "
        "give the value of 'i1' with values="
    }
    network = tflite.load(reshaping(), values={"i1": [6, 1]})
    assert [layer.name for layer in network.inputs.values()] == ["i0"]
    assert next(iter(network.outputs.values())).values[0].known.shape == (6, 1)


@pytest.mark.needs_cpuref
def test_an_operand_that_is_an_input_is_taken_from_every_call():
    model = ip.load(reshaping(), ["CpuRef"])
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    for shape in ([3, 2], [-1, 6]):
        np.testing.assert_array_equal(model.run([x, shape])[0], x.reshape(shape))


def test_padding_that_depends_on_an_open_extent_is_refused_with_advice():
    x = T((1, 4, 4, 2), signature=(1, -1, 4, 2))
    weights = T((3, 3, 3, 2), value=np.ones((3, 3, 3, 2), np.float32))
    options = ("Conv2DOptions", {"padding": 0, "stride_w": 2, "stride_h": 2})
    data = one_operator("CONV_2D", [x, weights, None], [T((1, 2, 2, 3))], options)
    with pytest.raises(UnboundInputError) as caught:
        tflite.load(data, dynamic=True)
    assert (caught.value.inputs, caught.value.shapes) == ((), True)
    assert str(caught.value) == (
        "operators that need to know more of the inputs:"
        "\n  - 1 x CONV_2D (operators[0] CONV_2D: the padding depends on the height, which is not known; "
        "give the inputs' shapes with shapes=)"
    )
    assert infos(tflite.load(data, dynamic=True, shapes={"i0": (1, 5, 5, 2)}))["CONV_2D:0:0"].shape == (1, 3, 3, 3)


@pytest.mark.parametrize(
    ("shapes", "message"),
    [
        ({"other": (1, 4, 4, 2)}, "shapes: the network has no input 'other' (it has: i0)"),
        ({"i0": (4, 4)}, "shapes: 'i0' has the shape [i0_0, i0_1, 4, 2]; [4, 4] was given, which has another rank"),
        ({"i0": 4}, "shapes: 'i0' is an input of the shape [i0_0, i0_1, 4, 2]; give all its dimensions, not 4"),
        ({"i0_2": 4}, "shapes: the network has no dimension 'i0_2'; did you mean 'i0_1'? (it has: i0_0, i0_1)"),
        ({"i0": (2, 4, 4, 2), "i0_0": 3}, "shapes: 'i0_0' is both 3 and 2"),
    ],
)
def test_shapes_that_cannot_be_meant_are_refused(shapes, message):
    with pytest.raises(InvalidArgumentError) as caught:
        tflite.load(dynamic_model(), shapes=shapes)
    assert str(caught.value) == message


def test_dimensions_that_the_file_leaves_open_have_names():
    result = infos(tflite.load(dynamic_model(), shapes={"i0_0": 5}))
    assert result["CONV_2D:0:0"].shape == (5, 2, 2, 3)
    result = infos(tflite.load(dynamic_model(), dynamic=True, shapes={"i0_1": 6}))
    assert str(result["CONV_2D:0:0"]) == "float32[?, 4, 2, 3]"


def test_a_dimension_that_the_file_fixes_can_be_resized():
    result = infos(tflite.load(dynamic_model(), shapes={"i0": (1, 4, 10, 2)}))
    assert result["CONV_2D:0:0"].shape == (1, 2, 8, 3)


def test_a_reshape_that_does_not_fit_a_resized_input_is_named():
    data = one_operator("RESHAPE", [T((2, 3)), ints([3, 2])], [T((3, 2))])
    with pytest.raises(ParseError) as caught:
        tflite.load(data, shapes={"i0": (2, 4)})
    assert caught.value.where == "operators[0] RESHAPE"


@pytest.mark.needs_cpuref
def test_a_model_is_made_for_the_shapes_of_each_call_where_the_file_leaves_them_open():
    model = ip.load(dynamic_model(), ["CpuRef"])
    assert str(model.inputs["i0"].shape) == "[i0_0, i0_1, 4, 2]"
    assert model.optimized.inputs[0].output.known.shape == (1, 4, 4, 2)
    for shape in ((1, 4, 4, 2), (3, 5, 4, 2), (2, 4, 4, 2)):
        [result] = model.run([np.ones(shape, np.float32)])
        np.testing.assert_array_equal(result, np.full((shape[0], shape[1] - 2, 2, 3), 18, np.float32))
    with pytest.raises(BindingError, match=r"input 'i0' has shape \[1, 4, 5, 2\]; expected \[i0_0, i0_1, 4, 2\]"):
        model.run([np.ones((1, 4, 5, 2), np.float32)])


@pytest.mark.needs_cpuref
def test_inner_values_of_a_model_with_open_shapes_have_the_names_of_the_file():
    model = ip.load(dynamic_model(), ["CpuRef"])
    assert list(model.values) == ["i0", "i1", "o0"]
    kernel, output = model.run([np.ones((2, 4, 4, 2), np.float32)], ["i1", "o0"])
    assert (kernel.shape, output.shape) == ((3, 3, 3, 2), (2, 2, 2, 3))


@pytest.mark.needs_cpuref
def test_padding_that_depends_on_an_open_height_is_settled_by_each_call():
    x = T((1, 4, 4, 2), signature=(1, -1, 4, 2))
    weights = T((3, 3, 3, 2), value=np.ones((3, 3, 3, 2), np.float32))
    options = ("Conv2DOptions", {"padding": 0, "stride_w": 2, "stride_h": 2})
    model = ip.load(one_operator("CONV_2D", [x, weights, None], [T((1, 2, 2, 3))], options), ["CpuRef"])
    assert model.optimized.outputs[0].values[0].known.shape == (1, 2, 2, 3)
    for height in (4, 5, 9, 4):
        [result] = model.run([np.ones((1, height, 4, 2), np.float32)])
        assert result.shape == (1, (height + 1) // 2, 2, 3)


def test_a_shape_in_the_file_that_does_not_follow_from_the_inputs_is_not_believed():
    result = infos(tflite.load(one_operator("ABS", [T((2, 3))], [T((7, 7))])))
    assert result["ABS:0:0"].shape == (2, 3)


def test_all_operators_that_are_not_supported_are_listed_with_their_counts(tmp_path):
    tensors = [tensor(name, [2]) for name in "abcde"]
    model = {
        "version": 3,
        "operator_codes": [
            code("CONCAT_EMBEDDINGS"), code("ABS"), code("CUSTOM", custom_code="Magic"), code("STABLEHLO_CBRT")
        ],
        "buffers": [{}],
        "subgraphs": [
            {
                "tensors": tensors,
                "inputs": [0],
                "outputs": [4],
                "operators": [operator([i], [i + 1], opcode_index=k) for i, k in enumerate((0, 1, 2, 0))],
            }
        ],
    }  # fmt: skip
    path = tmp_path / "net.tflite"
    path.write_bytes(encode(model))
    with pytest.raises(UnsupportedOperatorError) as caught:
        tflite.load(path)
    assert caught.value.operators == {"CONCAT_EMBEDDINGS": 2, "CUSTOM Magic": 1}
    assert str(caught.value) == (
        f"{path}: operators that are not supported:\n  - 2 x CONCAT_EMBEDDINGS (operators[0]: no version of TensorFlow "
        "Lite computes it, operators[3]: no version of TensorFlow Lite computes it)\n"
        "  - 1 x CUSTOM Magic (operators[2])"
    )


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (T((2,), "complex64"), "subgraphs[0].operators[0]: ABS of complex numbers is not supported"),
        (
            T((), "resource"),
            "inputs: tensors of type resource are not supported",
        ),
        (
            T((2,), value=np.zeros(2, np.float32), more={"sparsity": {}}),
            "operators[0] ABS: the sparse tensor 'i0' has the traversal order [] for 1 dimensions and 0 blocks",
        ),
        (
            T((2,), "string", value=np.zeros(2, np.int64)),
            "the file is truncated or damaged: operators[0] ABS: tensor 'i0' has 16 bytes for 2 strings",
        ),
    ],
)
def test_tensors_that_are_not_supported_are_named(given, message):
    with pytest.raises(ParseError) as caught:
        tflite.load(one_operator("ABS", [given], [T((2,))]))
    assert str(caught.value) == message


def test_a_file_that_cannot_be_read_is_named(tmp_path):
    missing = tmp_path / "missing.tflite"
    with pytest.raises(ParseError) as caught:
        tflite.load(missing)
    assert str(caught.value) == f"{missing}: the file cannot be read: No such file or directory"
    with pytest.raises(ParseError, match=f"^{tmp_path}: the file cannot be read: Is a directory$"):
        tflite.load(tmp_path)
    empty = tmp_path / "empty.tflite"
    empty.touch()
    with pytest.raises(ParseError) as caught:
        tflite.load(empty)
    assert str(caught.value) == (
        f"{empty}: the file is truncated or damaged: it has 0 bytes, and the head of a TFLite file has 8"
    )


@pytest.mark.parametrize("source", [None, 3, 2.5, ["net.tflite"]])
def test_a_source_that_is_no_source_is_refused(source):
    with pytest.raises(InvalidArgumentError, match="^a model must be a path or the bytes of a file, not "):
        tflite.load(source)


def test_what_is_wrong_with_an_operator_is_said_with_file_and_place(tmp_path):
    path = tmp_path / "net.tflite"
    path.write_bytes(one_operator("RESHAPE", [T((2, 3)), ints([5, 5])], [T((5, 5))]))
    with pytest.raises(ParseError) as caught:
        tflite.load(path)
    assert str(caught.value) == (f"{path}: operators[0] RESHAPE: an input of shape [2, 3] cannot be reshaped to (5, 5)")


LIARS = [
    one_operator("TILE", [T((1000, 1000)), ints([2**31 - 1, 2**31 - 1])], [T((1,))]),
    one_operator("BROADCAST_TO", [T((1,)), ints([2**31 - 1] * 4)], [T((1,))]),
    one_operator("BROADCAST_TO", [T((1,), value=np.zeros(1, np.float32)), ints([2**31 - 1] * 4)], [T((1,))]),
    one_operator("FILL", [ints([2**31 - 1] * 4), T((), value=np.float32(1))], [T((1,))]),
    one_operator("PAD", [T((1, 1), value=np.zeros((1, 1), np.float32)), ints([[2**31 - 1, 0], [0, 0]])], [T((1,))]),
    one_operator("RESIZE_BILINEAR", [T((1, 2, 2, 1)), ints([2**31 - 1] * 2)], [T((1, 1, 1, 1))]),
    one_operator(
        "CONV_2D",
        [T((1, 8, 8, 1)), T((1, 3, 3, 1), value=np.zeros((1, 3, 3, 1), np.float32)), None],
        [T((1, 8, 8, 1))],
        ("Conv2DOptions", VALID | {"padding": 0, "dilation_w_factor": 2**31 - 1, "dilation_h_factor": 2**31 - 1}),
    ),
    one_operator(
        "AVERAGE_POOL_2D",
        [T((1, 8, 8, 1))],
        [T((1, 8, 8, 1))],
        ("Pool2DOptions", {"stride_w": 1, "stride_h": 1, "filter_width": 2**31 - 1, "filter_height": 2**31 - 1}),
    ),
    one_operator("UNPACK", [T((2**31 - 1,))], [T(())], ("UnpackOptions", {"num": 2**31 - 1})),
]


@pytest.mark.parametrize("data", LIARS, ids=range(len(LIARS)))
def test_large_numbers_in_a_file_cost_nothing_when_it_is_loaded(data):
    try:
        network = tflite.load(data)
    except ParseError:
        return
    assert sum(layer.op.value.size for layer in network if layer.kind == "Constant") < 100


@pytest.mark.parametrize("seed", range(3))
def test_damaged_files_are_loaded_or_refused(seed):
    for name, data in damaged_variants(encode(convolution_model()), 100, seed):
        try:
            tflite.load(data)
        except ParseError:
            continue
        except Exception as error:
            raise AssertionError(name) from error
