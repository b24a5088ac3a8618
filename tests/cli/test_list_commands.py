"""``interposer backends`` and ``interposer ops``."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import ClassVar

import pytest

from interposer import process_registry
from interposer.backend import Backend, LayerSupport, Options, Support
from interposer.cli.main import main
from interposer.core.schema import registered_ops
from interposer.core.types import DataType
from interposer.ir.graph import Layer
from interposer.ops import Shape, Softmax


@pytest.fixture
def shown(capsys):
    """Runs a command and gives what it prints."""

    def shown(*words: str) -> str:
        assert main(list(words)) == 0
        captured = capsys.readouterr()
        assert captured.err == ""
        return captured.out

    return shown


def line_of(text: str, start: str) -> str:
    return next(line for line in text.splitlines() if line.startswith(start))


def words(line: str) -> str:
    return " ".join(line.split())


# --- backends ---------------------------------------------------------------------------------------------------------


@pytest.mark.needs_cpuref
def test_backends_are_listed_with_what_they_can_or_why_they_are_absent(shown, more_backends):
    out = shown("backends")
    assert words(line_of(out, "backend ")) == "backend available version source capabilities, or why not"
    assert line_of(out, "CpuRef").split()[1] == "yes"
    assert "NonConstWeights, ConstantTensorsAsInputs" in line_of(out, "CpuRef")
    assert words(line_of(out, "Gone")) == "Gone no registered by a test there is no such device"


@pytest.mark.needs_cpuref
def test_backends_as_json(shown, more_backends):
    records = {record["id"]: record for record in json.loads(shown("backends", "--json"))}
    assert records["Gone"] == {
        "id": "Gone", "available": False, "source": "registered by a test", "reason": "there is no such device",
        "version": "", "capabilities": {},
    }  # fmt: skip
    assert records["CpuRef"]["capabilities"]["HasFp16"] is True


# --- operators --------------------------------------------------------------------------------------------------------


def test_every_operator_is_listed_with_operands_and_attributes(shown):
    lines = shown("ops").splitlines()
    assert [line.split()[0] for line in lines[1:]] == list(registered_ops())
    softmax = line_of("\n".join(lines), "Softmax")
    assert softmax.split(maxsplit=3) == ["Softmax", "activation", "input", "beta=1.0, axis=-1"]
    assert " inputs... " in line_of("\n".join(lines), "Concat")
    assert " input, weights, bias? " in line_of("\n".join(lines), "Convolution2d")


def test_operators_as_json(shown):
    operators = {operator["op"]: operator for operator in json.loads(shown("ops", "--json"))}
    convolution = operators["Convolution2d"]
    assert convolution["family"] == "convolution"
    assert [(item["name"], item["optional"]) for item in convolution["operands"]] == [
        ("input", False), ("weights", False), ("bias", True),
    ]  # fmt: skip
    stride = next(item for item in convolution["attributes"] if item["name"] == "stride_x")
    assert (stride["type"], stride["required"], stride["default"]) == ("an integer >= 1", False, 1)
    assert "default" not in next(item for item in operators["Reshape"]["attributes"] if item["name"] == "target_shape")


def test_one_operator_is_described(shown):
    out = shown("ops", "Gather")
    assert out.startswith("Gather (gather)\n\n")
    assert "Source:" in out
    assert line_of(out, "operand    indices").split(maxsplit=2)[2] == "int32, int64"
    assert line_of(out, "attribute  axis=0").split(maxsplit=2)[2].startswith("an integer")
    assert json.loads(shown("ops", "Gather", "--json"))["op"] == "Gather"


def test_the_kernels_of_a_backend_are_listed_with_their_types_and_conditions(shown, more_backends):
    assert shown("ops", "--backend", "Device") == (
        "operator    types    conditions\n"
        "Activation  float32  only relu\n"
    )  # fmt: skip
    assert json.loads(shown("ops", "--backend", "Sums", "--json")) == [
        {"op": "Addition", "quantized": None, "types": {"*": ["float32"]}, "conditions": []},
        {"op": "Multiplication", "quantized": None, "types": {"*": ["float32"]}, "conditions": []},
    ]


class Asked(LayerSupport):
    """Takes softmax of float32, unless beta is 1, and all shapes."""

    def is_layer_supported(self, layer: Layer) -> Support:
        if isinstance(layer.op, Softmax) and layer.input_infos[0].dtype is DataType.FLOAT32 and layer.op.beta == 1:
            return Support.yes()
        return Support.yes() if isinstance(layer.op, Shape) else Support.no("another layer")


class Untabled(Backend):
    """A backend without a table of kernels."""

    id: ClassVar = "Untabled"

    def layer_support(self, options: Options) -> LayerSupport:
        return Asked()


@pytest.fixture
def untabled() -> Iterator[None]:
    process_registry().register("Untabled", Untabled, source="registered by a test")
    yield
    process_registry().deregister("Untabled")


def test_a_backend_without_a_table_of_kernels_is_asked_what_it_takes(shown, untabled):
    lines = shown("ops", "--backend", "Untabled").splitlines()
    assert lines[0] == "Untabled has no table of kernels; it was asked about every sample of the conformance kit"
    assert lines[1].split() == ["operator", "tensors", "types", "samples"]
    assert [line.split()[0] for line in lines[2:]] == ["Shape", "Shape", "Softmax"]
    assert lines[2].split()[-1] == "all"
    assert re.fullmatch(r"Softmax +not quantized +float32 +\d+ of \d+", lines[4])


def test_what_a_backend_without_a_table_of_kernels_takes_as_json(shown, untabled):
    shape, quantized_shape, softmax = json.loads(shown("ops", "--backend", "Untabled", "--json"))
    assert (softmax["op"], softmax["quantized"], softmax["types"]) == ("Softmax", False, {"*": ["float32"]})
    assert 0 < softmax["taken"] < softmax["asked"]
    assert (shape["taken"], quantized_shape["quantized"]) == (shape["asked"], True)


@pytest.mark.needs_cpuref
def test_groups_of_types_go_by_their_names(shown):
    out = shown("ops", "--backend", "CpuRef")
    assert line_of(out, "Dequantize").split() == ["Dequantize", "integers"]
    assert line_of(out, "Cast").split(maxsplit=1) == ["Cast", "any"]


def test_what_a_backend_that_is_absent_has_is_not_known(capsys, more_backends):
    assert main(["ops", "--backend", "Gone"]) == 2
    assert capsys.readouterr().err == "interposer: backend 'Gone' is not available: there is no such device\n"


@pytest.mark.parametrize(("name", "line"), [
    ("Gemm", "Gemm of ONNX is here: FullyConnected"),
    ("gemm", "Gemm of ONNX is here: FullyConnected"),
    ("CONV_2D", "CONV_2D of TFLite, NNAPI is here: Convolution2d"),
    ("FULLY_CONNECTED", "FULLY_CONNECTED of TFLite, NNAPI is here: FullyConnected"),
    ("Conv", "Conv of ONNX is here: Convolution2d, Convolution3d, DepthwiseConvolution2d"),
])  # fmt: skip
def test_the_name_of_another_format_leads_to_the_operator(shown, name, line):
    said = shown("ops", name).splitlines()
    assert said[0] == line
    assert any(item.startswith(("FullyConnected (", "Convolution2d (", "Convolution2d ")) for item in said[1:])


def test_the_name_of_another_format_gives_the_operators_as_json(shown):
    assert json.loads(shown("ops", "Gemm", "--json"))["op"] == "FullyConnected"
    assert [load["op"] for load in json.loads(shown("ops", "Conv", "--json"))] == [
        "Convolution2d", "Convolution3d", "DepthwiseConvolution2d",
    ]  # fmt: skip


@pytest.mark.parametrize(("name", "text"), [
    ("Gem", "unknown operator 'Gem'; did you mean 'Gemm'?"),
    ("QLinearConv", "'QLinearConv' of ONNX is read, but has no operator of its own here: others replace it"),
    ("", "unknown operator ''; interposer ops lists all operators"),
])  # fmt: skip
def test_an_operator_that_nobody_has_is_told(name, text, capsys):
    assert main(["ops", name]) == 2
    assert capsys.readouterr().err == f"interposer: {text}\n"
