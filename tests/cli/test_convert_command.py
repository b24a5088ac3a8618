"""``interposer convert``: what it writes, says and refuses."""

from __future__ import annotations

import numpy as np
import onnx
import pytest

import interposer as ip
from interposer import Quantization, TensorInfo
from interposer.cli import convert
from interposer.cli.main import main
from interposer.frontends.onnx import load
from interposer.ir.network import Network
from interposer.ops.activation import Activation
from interposer.types import DataType
from interposer.writers.onnx import save
from tests.cli.networks import doubler


def test_a_model_is_written_with_an_opset_that_engines_know(tmp_path, capsys):
    target = tmp_path / "out.onnx"
    assert main(["convert", doubler(tmp_path), str(target)]) == 0
    assert capsys.readouterr().out == f"{target}: 3 layers as ONNX, opset 20\n"
    assert [(one.domain, one.version) for one in onnx.load(target).opset_import] == [("", 20)]
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
                             "opset": None, "inexact": False, "external_data": False})  # fmt: skip
    with pytest.raises(Exception, match=r"layer 'layer' \(Activation\): .*--inexact writes it"):
        convert.execute(args)
    assert not (tmp_path / "y.onnx").exists()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["no.onnx", "out.onnx"], "no.onnx: the file cannot be read: No such file or directory"),
        (["no.onnx", "out.pb"], "the output is 'out.pb'; expected a file with the suffix .onnx or .tflite"),
        (["no.onnx", "out.tflite", "--opset", "17"], "--opset is for ONNX, but the output is 'out.tflite'"),
    ],
)
def test_wrong_arguments_end_with_a_message(words, message, capsys):
    assert main(["convert", *words]) == 2
    assert message in capsys.readouterr().err


def test_an_opset_that_cannot_be_written_is_refused(tmp_path, capsys):
    assert main(["convert", doubler(tmp_path), str(tmp_path / "out.onnx"), "--opset", "9"]) == 2
    assert "the opset is 9; opsets 13 to" in capsys.readouterr().err


def test_a_folder_that_is_not_there_is_named(tmp_path, capsys):
    assert main(["convert", doubler(tmp_path), str(tmp_path / "no" / "out.onnx")]) == 2
    assert "out.onnx: the file cannot be written: No such file or directory" in capsys.readouterr().err


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
    assert capsys.readouterr().out == f"{target}: 3 layers as TFLite, {target.stat().st_size:,} bytes\n"
    x = np.arange(4, dtype=np.float32).reshape(1, 4)
    with ip.load(str(target), backends=["CpuRef"]) as model:
        np.testing.assert_array_equal(model.run([x])[0], 2 * x)
