"""`ITfLiteParser` and its options."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarmnn as ann
import pyarmnn._generated.pyarmnn_tfliteparser as generated
import pytest

import interposer as ip
from compat.pyarmnn.tests import small_models
from compat.pyarmnn.tests.running import run


@pytest.fixture(scope="session")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    return small_models.tflite(tmp_path_factory.mktemp("tflite") / "mock.tflite")


@pytest.fixture
def parser(model: str) -> Any:
    parser = ann.ITfLiteParser()
    parser.CreateNetworkFromBinaryFile(model)
    return parser


def test_the_destructor_of_the_parser_has_the_name_of_the_wrapped_function():
    assert generated.ITfLiteParser.__swig_destroy__.__name__ == "delete_ITfLiteParser"


def test_python_owns_a_parser():
    assert ann.ITfLiteParser().thisown
    assert ann.ITfLiteParser is generated.ITfLiteParser


def test_options_are_off_by_default():
    options = ann.TfLiteParserOptions()
    assert (options.m_StandInLayerForUnsupported, options.m_InferAndValidate) == (False, False)


def test_an_option_that_is_no_bool_is_refused():
    with pytest.raises(TypeError) as caught:
        ann.TfLiteParserOptions().m_InferAndValidate = 1
    assert str(caught.value) == "in method 'TfLiteParserOptions_m_InferAndValidate_set', argument 2 of type 'bool'"


def test_a_parser_can_be_created_with_options_or_none():
    assert ann.ITfLiteParser(ann.TfLiteParserOptions()).thisown
    assert ann.ITfLiteParser(None).thisown
    assert ann.ITfLiteParser(options=None).thisown


def test_a_parser_refuses_other_arguments():
    with pytest.raises(
        TypeError, match="^Wrong number or type of arguments for overloaded function 'new_ITfLiteParser'"
    ):
        ann.ITfLiteParser(3)


def test_a_parser_keeps_its_options_after_the_options_object_is_gone(model: str):
    def created() -> Any:
        options = ann.TfLiteParserOptions()
        options.m_StandInLayerForUnsupported = True
        return ann.ITfLiteParser(options)

    network = created().CreateNetworkFromBinaryFile(model)
    runtime = ann.IRuntime(ann.CreationOptions())
    optimized, messages = ann.Optimize(
        network, [ann.BackendId("CpuRef")], runtime.GetDeviceSpec(), ann.OptimizerOptions()
    )
    assert messages == ()
    assert runtime.LoadNetwork(optimized) == (0, "")


def test_an_operator_that_is_not_supported_is_refused_with_its_place(tmp_path: Path):
    path = small_models.tflite_with_custom_operator(tmp_path / "custom.tflite")
    with pytest.raises(RuntimeError) as caught:
        ann.ITfLiteParser().CreateNetworkFromBinaryFile(path)
    assert str(caught.value) == (
        "Failed to parse operator #0 within subgraph #0 error: Operator not supported. subgraph:0 operator:0 "
        f"/ CUSTOM MyOp\n{path}: operators that are not supported:\n  - 1 x CUSTOM MyOp (operators[0])"
    )


def test_an_operator_that_is_not_supported_becomes_a_stand_in_that_no_backend_runs(tmp_path: Path):
    options = ann.TfLiteParserOptions()
    options.m_StandInLayerForUnsupported = True
    parser = ann.ITfLiteParser(options)
    path = small_models.tflite_with_custom_operator(tmp_path / "custom.tflite")
    network = parser.CreateNetworkFromBinaryFile(path)
    assert parser.GetNetworkOutputBindingInfo(0, "y")[0] == 256
    spec = ann.IRuntime(ann.CreationOptions()).GetDeviceSpec()
    with pytest.raises(RuntimeError, match="Layer of type StandIn is not supported on any preferred backend"):
        ann.Optimize(network, [ann.BackendId("CpuRef")], spec, ann.OptimizerOptions())


def test_the_file_has_one_subgraph_with_the_names_of_its_tensors(parser: Any):
    assert parser.GetSubgraphCount() == 1
    assert parser.GetSubgraphInputTensorNames(0) == ("input_1",)
    assert parser.GetSubgraphOutputTensorNames(0) == ("dense/Softmax",)


def test_an_input_has_the_id_type_shape_and_quantization_of_its_tensor(parser: Any):
    number, info = parser.GetNetworkInputBindingInfo(0, "input_1")
    assert (number, info.GetDataType(), info.GetNumElements()) == (0, ann.DataType_QAsymmU8, 784)
    assert (info.GetNumDimensions(), list(info.GetShape())) == (4, [1, 28, 28, 1])
    assert (info.GetQuantizationScale(), info.GetQuantizationOffset()) == (small_models.STEP, small_models.ZERO)


def test_the_id_of_an_output_is_the_index_of_its_tensor_shifted_by_eight_bits(parser: Any):
    number, info = parser.GetNetworkOutputBindingInfo(0, "dense/Softmax")
    assert (number & 255, number >> 8 > 0) == (0, True)
    assert (info.GetDataType(), info.GetNumElements(), info.GetNumDimensions()) == (ann.DataType_QAsymmU8, 10, 2)
    assert (info.GetQuantizationScale(), info.GetQuantizationOffset()) == (0.00390625, 0)


@pytest.mark.parametrize("kind", ["input", "output"])
def test_an_unknown_binding_is_refused_with_the_known_names(parser: Any, kind: str):
    get = {"input": parser.GetNetworkInputBindingInfo, "output": parser.GetNetworkOutputBindingInfo}[kind]
    name = {"input": "input_1", "output": "dense/Softmax"}[kind]
    with pytest.raises(RuntimeError) as caught:
        get(0, "other")
    assert str(caught.value) == (
        f"No {kind} binding found for subgraph:0 and name:other. Possible {kind}s are: ['{name}' ]"
    )


def test_a_subgraph_that_the_file_does_not_have_is_refused(parser: Any):
    with pytest.raises(RuntimeError) as caught:
        parser.GetSubgraphInputTensorNames(1)
    assert str(caught.value) == "GetSubgraphInputTensorNames was called with an invalid subgraph index. subgraph:1"
    with pytest.raises(OverflowError) as overflow:
        parser.GetSubgraphOutputTensorNames(-1)
    assert str(overflow.value) == "in method 'ITfLiteParser_GetSubgraphOutputTensorNames', argument 2 of type 'size_t'"
    with pytest.raises(TypeError):
        parser.GetSubgraphOutputTensorNames("0")


@pytest.mark.parametrize(
    ("method", "arguments"),
    [
        ("GetSubgraphCount", ()),
        ("GetSubgraphInputTensorNames", (0,)),
        ("GetSubgraphOutputTensorNames", (0,)),
        ("GetNetworkInputBindingInfo", (0, "x")),
        ("GetNetworkOutputBindingInfo", (0, "x")),
    ],
)
def test_a_parser_without_a_network_says_what_to_call_first(method: str, arguments: tuple[Any, ...]):
    with pytest.raises(RuntimeError) as caught:
        getattr(ann.ITfLiteParser(), method)(*arguments)
    assert str(caught.value) == (
        f"{method} was called with invalid (null) model. Possible reason is that the model is not yet loaded and "
        "Unpack(ed). subgraph:0; call CreateNetworkFromBinaryFile first"
    )


def test_a_missing_file_is_refused():
    with pytest.raises(RuntimeError) as caught:
        ann.ITfLiteParser().CreateNetworkFromBinaryFile("some_unknown_network.tflite")
    assert (
        str(caught.value) == "Cannot find the file (some_unknown_network.tflite) errorCode: No such file or directory"
    )


def test_a_file_of_another_format_is_refused_with_its_size(tmp_path: Path):
    path = tmp_path / "text.tflite"
    path.write_text("no model")
    with pytest.raises(RuntimeError, match="conform to the expected Tensorflow Lite flatbuffers format. size:8: "):
        ann.ITfLiteParser().CreateNetworkFromBinaryFile(str(path))


def test_a_path_that_is_no_text_is_refused():
    with pytest.raises(TypeError) as caught:
        ann.ITfLiteParser().CreateNetworkFromBinaryFile(5)
    expected = "in method 'ITfLiteParser_CreateNetworkFromBinaryFile', argument 2 of type 'char const *'"
    assert str(caught.value) == expected


def test_the_parsed_network_computes_what_arm_nn_computes(model: str):
    parser = ann.ITfLiteParser()
    network = parser.CreateNetworkFromBinaryFile(model)
    image, scores = (
        parser.GetNetworkInputBindingInfo(0, "input_1"),
        parser.GetNetworkOutputBindingInfo(0, "dense/Softmax"),
    )
    [output] = run(network, [image], [scores], [small_models.IMAGE.copy()])
    assert output.tolist() == small_models.QUANTIZED_SCORES


def test_layers_have_the_names_that_arm_nn_gives_them(model: str, tmp_path: Path):
    network = ann.ITfLiteParser().CreateNetworkFromBinaryFile(model)
    spec = ann.IRuntime(ann.CreationOptions()).GetDeviceSpec()
    optimized, _ = ann.Optimize(network, [ann.BackendId("CpuRef")], spec, ann.OptimizerOptions())
    optimized.SerializeToDot(str(tmp_path / "net.dot"))
    drawing = (tmp_path / "net.dot").read_text()
    for name in ("input_1", "Reshape:0:0", "FullyConnected:0:1", "Softmax:0:2", "dense/Softmax"):
        assert f"LayerName : {name}\\l" in drawing


def test_several_inputs_and_outputs_are_bound_by_their_tensors(tmp_path: Path):
    network, info = ip.Network("two"), ip.TensorInfo((2,), "float32")
    a, b = (network.add_input_layer(number, info, name=name) for number, name in enumerate("ab"))
    network.add_output_layer(0, network.add_subtraction_layer(a, b), name="difference")
    network.add_output_layer(1, network.add_addition_layer(a, b), name="sum")
    ip.writers.tflite.save(network, tmp_path / "two.tflite")
    parser = ann.ITfLiteParser()
    parsed = parser.CreateNetworkFromBinaryFile(str(tmp_path / "two.tflite"))
    inputs = [parser.GetNetworkInputBindingInfo(0, name) for name in "ab"]
    outputs = [parser.GetNetworkOutputBindingInfo(0, name) for name in ("sum", "difference")]
    assert len({number for number, _ in [*inputs, *outputs]}) == 4
    arrays = [np.array([5, 7], np.float32), np.array([1, 2], np.float32)]
    total, difference = run(parsed, inputs, outputs, arrays)
    assert (total.tolist(), difference.tolist()) == ([6, 9], [4, 5])


def test_a_scalar_has_one_dimension_and_an_int64_has_a_type_of_later_releases(tmp_path: Path):
    network = ip.Network("scalar")
    x = network.add_input_layer(0, ip.TensorInfo((), "float32"), name="x")
    n = network.add_input_layer(1, ip.TensorInfo((3,), "int64"), name="n")
    network.add_output_layer(0, network.add_addition_layer(x, x), name="twice")
    network.add_output_layer(1, network.add_addition_layer(n, n), name="sum")
    ip.writers.tflite.save(network, tmp_path / "scalar.tflite")
    parser = ann.ITfLiteParser()
    parsed = parser.CreateNetworkFromBinaryFile(str(tmp_path / "scalar.tflite"))
    inputs = [parser.GetNetworkInputBindingInfo(0, name) for name in ("x", "n")]
    outputs = [parser.GetNetworkOutputBindingInfo(0, name) for name in ("twice", "sum")]
    assert list(inputs[0][1].GetShape()) == [1]
    assert inputs[1][1].GetDataType() == ann.DataType_Signed64
    twice, total = run(parsed, inputs, outputs, [np.float32([4]), np.int64([1, 2, 2**40])])
    assert (twice.tolist(), total.tolist(), total.dtype) == ([8.0], [2, 4, 2**41], np.int64)


def test_layers_can_be_added_beside_those_of_a_parsed_network(model: str):
    parser = ann.ITfLiteParser()
    network = parser.CreateNetworkFromBinaryFile(model)
    image, scores = (
        parser.GetNetworkInputBindingInfo(0, "input_1"),
        parser.GetNetworkOutputBindingInfo(0, "dense/Softmax"),
    )
    with pytest.raises(RuntimeError) as caught:
        network.AddInputLayer(image[0])
    assert str(caught.value) == "A layer already exists with the specified id"
    source, floor, output = (
        network.AddInputLayer(1, "x"),
        network.AddFloorLayer("floor"),
        network.AddOutputLayer(2, "y"),
    )
    info = ann.TensorInfo(ann.TensorShape((2,)), ann.DataType_Float32)
    for layer, target in ((source, floor), (floor, output)):
        layer.GetOutputSlot(0).Connect(target.GetInputSlot(0))
        layer.GetOutputSlot(0).SetTensorInfo(info)
    arrays = [small_models.IMAGE.copy(), np.float32([1.5, -1.5])]
    chances, floors = run(network, [image, (1, info)], [scores, (2, info)], arrays)
    assert chances.tolist() == small_models.QUANTIZED_SCORES
    assert floors.tolist() == [1, -2]
