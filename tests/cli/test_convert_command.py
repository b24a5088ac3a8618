"""``interposer convert``: what it writes, says and refuses."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import interposer as ip
from interposer import Quantization, TensorInfo
from interposer.cli import convert
from interposer.cli.main import main
from interposer.core.types import DataLayout, DataType
from interposer.frontends.onnx import load
from interposer.ir.network import Network
from interposer.ops.activation import Activation
from interposer.ops.pooling import PoolingAlgorithm
from interposer.session.source import read_network
from interposer.writers import tflite
from interposer.writers.onnx import save
from tests.cli.networks import doubler


def test_a_model_is_written_with_an_opset_that_engines_know(tmp_path, capsys):
    target = tmp_path / "out.onnx"
    assert main(["convert", doubler(tmp_path), str(target)]) == 0
    assert capsys.readouterr().out == f"{target}: 1 layer as ONNX, opset 20\n"
    assert [(opset.domain, opset.version) for opset in onnx.load(target).opset_import] == [("", 20)]
    assert [layer.name for layer in load(target).graph.inputs] == ["x"]


def test_the_opset_and_a_file_for_the_weights_may_be_asked_for(tmp_path):
    target = tmp_path / "out.onnx"
    assert main(["convert", doubler(tmp_path), str(target), "--opset", "17", "--external-data"]) == 0
    assert onnx.load(target).opset_import[0].version == 17


def test_a_newer_opset_is_taken_where_the_network_needs_it(tmp_path, capsys):
    network = Network("narrow")
    x = network.add_input_layer(0, TensorInfo((2,), DataType.INT4), name="x")
    network.add_output_layer(0, network.add_reshape_layer(x, target_shape=(1, 2)), name="y")
    save(network, tmp_path / "in.onnx")
    assert main(["convert", str(tmp_path / "in.onnx"), str(tmp_path / "out.onnx")]) == 0
    assert capsys.readouterr().out.endswith("opset 23\n")


def test_what_cannot_be_written_is_told_in_the_words_of_the_command_line(tmp_path, capsys):
    network = Network("quantized")
    x = network.add_input_layer(0, TensorInfo((1, 4), DataType.INT8, Quantization(0.5)), name="x")
    network.add_output_layer(0, network.add_layer(Activation(), x, name="layer"), name="y")
    args = type("Args", (), {"network": network, "output": str(tmp_path / "y.onnx"), "format": None, "shape": [],
                             "opset": None, "inexact": False, "external_data": False, "signature": None,
                             "release": None, "stand_in": False, "weights": None, "inputs": [], "outputs": [],
                             "subgraph": 0, "trusted_key": [], "value": []})  # fmt: skip
    with pytest.raises(Exception, match=r"layer 'layer' \(Activation\): .*--inexact writes it"):
        convert.execute(args)
    assert not (tmp_path / "y.onnx").exists()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["no.onnx", "out.onnx"], "no.onnx: the file cannot be read: No such file or directory"),
        (
            ["no.onnx", "out.pb"],
            "the output is 'out.pb'; expected a file with the suffix .armnn, .onnx, .txt or .tflite",
        ),
        (["no.onnx", "out.tflite", "--opset", "17"], "--opset is for ONNX, but the output is 'out.tflite'"),
    ],
)
def test_wrong_arguments_end_with_a_message(words, message, capsys):
    assert main(["convert", *words]) == 2
    assert message in capsys.readouterr().err


def test_a_value_that_decides_the_layers_may_be_given(tmp_path, capsys):
    axes = helper.make_tensor_value_info("axes", TensorProto.INT64, [1])
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [2, 3])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, [3])
    node = helper.make_node("ReduceSum", ["x", "axes"], ["y"], keepdims=0)
    source, target = str(tmp_path / "sums.onnx"), str(tmp_path / "sums.tflite")
    opsets = [helper.make_opsetid("", 17)]
    onnx.save(helper.make_model(helper.make_graph([node], "sums", [x, axes], [y]), opset_imports=opsets), source)
    assert main(["convert", source, target]) == 2
    assert "give the value of 'axes' with --value" in capsys.readouterr().err
    assert main(["convert", source, target, "--value", "axes=0"]) == 0
    assert ip.load(target, ["CpuRef"]).run([np.float32([[1, 2, 3], [4, 5, 6]])])[0].tolist() == [5, 7, 9]


def test_an_opset_that_cannot_be_written_is_refused(tmp_path, capsys):
    assert main(["convert", doubler(tmp_path), str(tmp_path / "out.onnx"), "--opset", "9"]) == 2
    assert "the opset is 9; opsets 13 to" in capsys.readouterr().err


def test_a_folder_that_is_not_there_is_named(tmp_path, capsys):
    assert main(["convert", doubler(tmp_path), str(tmp_path / "no" / "out.onnx")]) == 2
    assert "there is no folder" in capsys.readouterr().err


@pytest.mark.needs_cpuref
def test_numbers_are_the_same_afterwards(tmp_path):
    source, target = doubler(tmp_path), tmp_path / "out.onnx"
    assert main(["convert", source, str(target)]) == 0
    x = np.arange(4, dtype=np.float32).reshape(1, 4)
    with ip.load(str(target), backends=["CpuRef"]) as model:
        np.testing.assert_array_equal(model.run([x])[0], 2 * x)


@pytest.mark.needs_cpuref
def test_the_ending_of_the_output_says_the_format(tmp_path, capsys):
    source, target = doubler(tmp_path), tmp_path / "out.tflite"
    assert main(["convert", source, str(target)]) == 0
    assert capsys.readouterr().out == f"{target}: 1 layer as TFLite, {target.stat().st_size:,} bytes\n"
    x = np.arange(4, dtype=np.float32).reshape(1, 4)
    with ip.load(str(target), backends=["CpuRef"]) as model:
        np.testing.assert_array_equal(model.run([x])[0], 2 * x)


def tflite_file(path, shape, make, **info):
    """A TFLite file with one layer, which `make` adds to a network after its input `x`."""
    network = Network("open")
    x = network.add_input_layer(0, TensorInfo(shape, **info), name="x")
    network.add_output_layer(0, make(network, x), name="y")
    tflite.save(network, path)
    return path


@pytest.mark.parametrize("suffix", ["onnx", "tflite"])
def test_an_open_batch_stays_open(suffix, tmp_path):
    source = tflite_file(tmp_path / "in.tflite", (None, 4), lambda network, x: network.add_softmax_layer(x))
    target = tmp_path / f"out.{suffix}"
    assert main(["convert", str(source), str(target)]) == 0
    with ip.Runtime() as runtime:
        model = ip.load(target, ["CpuRef"], runtime=runtime)
        assert str(model.inputs["x"]) == "float32[x_0, 4]"
        assert model(np.zeros((3, 4), np.float32)).tolist() == [[0.25] * 4] * 3


def test_a_shape_may_be_given_for_an_open_batch(tmp_path):
    source = tflite_file(tmp_path / "in.tflite", (None, 4), lambda network, x: network.add_softmax_layer(x))
    for argument, expected in (("x=2x4", "float32[2, 4]"), ("x_0=3", "float32[3, 4]")):
        assert main(["convert", str(source), str(tmp_path / "out.onnx"), "--shape", argument]) == 0
        assert str(load(tmp_path / "out.onnx").graph.layer("x").output.known) == expected


def test_an_open_dimension_that_cannot_be_written_gets_its_size_in_the_file(tmp_path, capsys):
    source = tflite_file(
        tmp_path / "in.tflite", (1, None, 6, 2),
        lambda network, x: network.add_pooling2d_layer(
            x, pool_type=PoolingAlgorithm.AVERAGE, pool_height=1, pool_width=2, stride_x=2, stride_y=1,
            data_layout=DataLayout.NHWC,
        ),
        dtype="int8", quantization=Quantization(0.5, 3),
    )  # fmt: skip
    target = tmp_path / "out.onnx"
    assert main(["convert", str(source), str(target)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith(f"{target}: 1 layer as ONNX, opset")
    assert lines[1:] == [f"open dimensions cannot be written; they have the sizes in {source}: x [1, 1, 6, 2]"]
    assert load(target).graph.layer("x").output.known.shape == (1, 1, 6, 2)


def open_chain(path):
    """A TFLite file with an open batch, whose values are "x", "first", "second" and "y"."""
    network = Network("chain")
    value = network.add_input_layer(0, TensorInfo((None, 4)), name="x")
    for name in ("first", "second"):
        value = network.add_layer(Activation(), value, name=name)
    network.add_output_layer(0, value, name="y")
    tflite.save(network, path)
    return str(path)


@pytest.mark.parametrize(
    ("words", "shape"),
    [
        (["-i", "first"], "first [1, 4]"),
        (["-o", "first"], "x [1, 4]"),
        (["-i", "first", "-o", "y"], "first [1, 4]"),
        (["-i", "first", "-s", "x=3x4"], "first [3, 4]"),
    ],
)
def test_a_part_of_a_network_with_an_open_batch_gets_its_sizes_in_the_file(words, shape, tmp_path, capsys):
    source, target = open_chain(tmp_path / "chain.tflite"), tmp_path / "part.armnn"
    assert main(["convert", source, str(target), *words]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[1:] == [f"open dimensions cannot be written; they have the sizes in {source}: {shape}"]
    name, _, sizes = shape.partition(" ")
    assert str(read_network(target).graph.layer(name).output.known.shape) == sizes


def test_the_error_about_open_dimensions_says_how_to_give_sizes(tmp_path, capsys):
    network = Network("open")
    x = network.add_input_layer(0, TensorInfo((None, 4)), name="x")
    network.add_output_layer(0, network.add_layer(Activation(), x, name="relu"), name="y")
    save(network, tmp_path / "open.onnx")
    assert main(["convert", str(tmp_path / "open.onnx"), str(tmp_path / "out.armnn")]) == 2
    shape = read_network(tmp_path / "open.onnx").graph.layer("x").output.known.shape
    assert capsys.readouterr().err.splitlines()[-1] == (
        f"open dimensions (x {shape}) may be the reason; give the sizes of the inputs, such as: -s x=1x4"
    )
    assert main(["convert", str(tmp_path / "open.onnx"), str(tmp_path / "out.armnn"), "-s", "x=1x4"]) == 0


def test_a_network_is_cut_at_the_named_values(tmp_path, capsys):
    network = Network("chain")
    value = network.add_input_layer(0, TensorInfo((1, 4)), name="x")
    for name in ("first", "second", "third", "fourth"):
        value = network.add_layer(Activation(), value, name=name)
    network.add_output_layer(0, value, name="y")
    save(network, tmp_path / "chain.onnx")
    target = tmp_path / "middle.onnx"
    words = ["convert", str(tmp_path / "chain.onnx"), str(target), "-i", "first", "-o", "third", "-s", "first=1x7"]
    assert main(words) == 0
    graph = load(target).graph
    assert [layer.name for layer in graph.topological()] == ["first", "second", "third/layer", "third"]
    assert graph.inputs[0].output.known.shape == (1, 7)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["-i", "sceond"], "inputs: the model has no value 'sceond'; did you mean 'second'?"),
        (["-i", "first"], "the outputs also need the input 'x', which layer 'sum' (Addition) takes; name it too"),
        (["-i", "x,x"], "--inputs gives 'x' more than once"),
        (["-i", "x,first:0,first"], "inputs: 'first:0' and 'first' are one value; name it once"),
        (["-i", ","], "--inputs takes names with commas between them, not ','"),
        (["-o", "zero"], "outputs: the model has no value 'zero'"),
    ],
)
def test_wrong_cuts_end_with_a_message(words, message, tmp_path, capsys):
    network = Network("chain")
    x = network.add_input_layer(0, TensorInfo((1, 4)), name="x")
    first = network.add_layer(Activation(), x, name="first")
    second = network.add_layer(Activation(), first, name="second")
    network.add_output_layer(0, network.add_addition_layer(second, x, name="sum"), name="y")
    save(network, tmp_path / "chain.onnx")
    assert main(["convert", str(tmp_path / "chain.onnx"), str(tmp_path / "out.onnx"), *words]) == 2
    assert message in capsys.readouterr().err
