"""``interposer explain``: who gets which layer, and why the others do not."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import interposer as ip
from interposer import Network, TensorInfo
from interposer.cli.main import main
from interposer.report.times import Times
from interposer.writers import tflite
from tests.cli import networks

pytestmark = pytest.mark.needs_cpuref

THREE = ("--backends", "Device,Sums,CpuRef")


@pytest.fixture
def explain(capsys):
    """Runs the command and gives what it prints."""

    def explain(*words: object, status: int = 0) -> str:
        assert main(["explain", *map(str, words)]) == status
        captured = capsys.readouterr()
        assert (captured.err if status == 0 else captured.out) == ""
        return captured.out if status == 0 else captured.err

    return explain


def test_reasons_stand_once_and_layers_refer_to_them(explain, tmp_path, more_backends):
    assert (
        explain(networks.alternating(tmp_path), *THREE)
        == """\
network 'alternating': 4 layers, 2 copies between backends
  Device: 1 layer, refuses 3
    [1] Addition (1): no kernel for Addition
    [2] Multiplication (1): no kernel for Multiplication
    [3] Activation (1): TANH is not RELU
  Sums: 2 layers, refuses 2
    [4] Activation (2): no kernel for Activation
  CpuRef: 1 layer, could run 3 more
  copied from Sums to Device (16 bytes): twice
  copied from Device to Sums (16 bytes): positive
  passed from Sums to CpuRef without a copy (16 bytes): product

part  backend  layers    work  comes in         goes out
   1  Sums     twice     ~22%                   16 bytes copied
   2  Device   positive  ~22%  16 bytes copied  16 bytes copied
   3  Sums     product   ~33%  16 bytes copied  16 bytes passed
   4  CpuRef   bounded   ~22%  16 bytes passed

layer     operator        backend  refused by
twice     Addition        Sums     Device [1]
positive  Activation      Device   Sums [4]
product   Multiplication  Sums     Device [2]
bounded   Activation      CpuRef   Device [3], Sums [4]
"""
    )


def test_an_absent_backend_is_named(explain, tmp_path, more_backends):
    out = explain(networks.doubler(tmp_path), "--backends", "Gone,CpuRef")
    assert out.startswith("""\
network 'doubler': 1 layer
  CpuRef: 1 layer
  backend 'Gone' is skipped: there is no such device
""")


def test_without_a_choice_backends_that_are_not_available_are_named(explain, tmp_path, more_backends):
    [line] = [line for line in explain(networks.doubler(tmp_path)).splitlines() if "not available" in line]
    assert line.startswith("  not available here: ")
    assert line.endswith(" (interposer backends says why)")
    assert "Gone" in line


def test_the_explanation_as_json(explain, tmp_path, more_backends):
    explanation = json.loads(explain(networks.alternating(tmp_path), *THREE, "--json"))
    assert explanation["backends"] == ["Device", "Sums", "CpuRef"]
    assert explanation["counts"] == {"Device": 1, "Sums": 2, "CpuRef": 1}
    assert [(layer["layer"], layer["backend"]) for layer in explanation["layers"]] == [
        ("twice", "Sums"), ("positive", "Device"), ("product", "Sums"), ("bounded", "CpuRef"),
    ]  # fmt: skip
    assert explanation["layers"][0]["others"] == {
        "Device": ["no kernel for Addition"],
        "CpuRef": ["could, ranked lower"],
    }
    assert explanation["copies"][0]["bytes"] == 16


def test_a_layer_that_nobody_takes_is_an_error_with_all_reasons(explain, tmp_path, more_backends):
    err = explain(networks.alternating(tmp_path), "--backends", "Sums", status=2)
    assert err.startswith("interposer: 2 layers cannot be run\nno backend in ['Sums'] can run layer 'positive'")
    assert "  Sums says: no kernel for Activation\n" in err
    assert err.endswith("\nthe reference backend runs every operator; name it last, as in --backends Sums,CpuRef\n")


def test_open_shapes_must_be_given(explain, tmp_path):
    model = networks.brightness(tmp_path, ("batch", 3, "height", "width"))
    assert explain(model, status=2) == (
        "interposer: the shapes of these inputs are not all known: 'image' float32[batch, 3, height, width]; "
        "give them, as in --shape batch=1 --shape height=1 --shape width=1\n"
    )


def test_open_dimensions_of_a_tflite_file_have_the_sizes_in_the_file(explain, tmp_path):
    network = Network("open")
    x = network.add_input_layer(0, TensorInfo((None, 4)), name="x")
    network.add_output_layer(0, network.add_softmax_layer(x), name="y")
    tflite.save(network, tmp_path / "open.tflite")
    assert "CpuRef: 1 layer" in explain(tmp_path / "open.tflite", "--backends", "CpuRef")


@pytest.mark.parametrize(
    "words",
    [
        ["--shape", "image=1x3x8x8"],
        ["--shape", "image=1,3,8,8"],
        ["--shape", "batch=1", "--shape", "height=8", "--shape", "width=8"],
    ],
)
def test_shapes_are_given_by_input_or_by_extent(explain, tmp_path, words):
    model = networks.brightness(tmp_path, ("batch", 3, "height", "width"))
    assert explain(model, *words, "--backends", "CpuRef").startswith("network 'brightness': 1 layer\n")


def summed(tmp_path):
    onnx = pytest.importorskip("onnx", reason="the package onnx is not installed")
    node = onnx.helper.make_node("ReduceSum", ["x", "axes"], ["y"])
    x = onnx.helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, [2, 3])
    axes = onnx.helper.make_tensor_value_info("axes", onnx.TensorProto.INT64, [1])
    y = onnx.helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, None)
    onnx.save(onnx.helper.make_model(onnx.helper.make_graph([node], "g", [x, axes], [y])), tmp_path / "sum.onnx")
    return tmp_path / "sum.onnx"


@pytest.mark.parametrize("value", ["axes=1", "axes=1,"])
def test_values_that_layers_depend_on_are_given(explain, tmp_path, value):
    assert "Reduce" in explain(summed(tmp_path), "--value", value)


def test_values_that_layers_depend_on_must_be_given(explain, tmp_path):
    assert explain(summed(tmp_path), status=2).endswith(
        "the layers depend on the values of these inputs: 'axes' int64[1]; give them, as in --value axes=0,1\n"
    )
    assert "'axes' has shape [2]; expected [1]" in explain(summed(tmp_path), "--value", "axes=0,1", status=2)


def test_names_out_of_files_cannot_steer_the_terminal(explain, tmp_path):
    nodes = [networks.node("Relu", "x", "y")]
    nodes[0].name = "\x1b[31mred\nline"
    model = networks.written(Path(tmp_path / "hostile.onnx"), nodes, {"x": (1, 4)}, {"y": (1, 4)})
    assert "\n\\x1b[31mred\\nline  Activation" in explain(model)


def test_measured_times_are_printed(explain, tmp_path, more_backends):
    out = explain(networks.alternating(tmp_path), *THREE, "--measure", "--random", "--budget", "0.01")
    assert "\n  one run takes " in out
    assert " (measured, " in out
    assert "\npart  backend  layers " in out
    [row] = [line.split() for line in out.splitlines() if line.startswith("positive ")]
    assert row[3][0] != "~"
    assert row[4] in {"ms", "µs"}


def test_what_is_measured_may_run_on_given_arrays(explain, tmp_path, more_backends):
    np.save(tmp_path / "x.npy", np.ones((1, 4), np.float32))
    network, words = networks.alternating(tmp_path), ("--input", tmp_path / "x.npy", "--json")
    explanation = json.loads(explain(network, *THREE, "--measure", "--budget", "0.01", *words))
    assert explanation["times"]["source"] == "measured"
    assert explain(network, *words, status=2) == (
        "interposer: --input is what the network runs on to be measured; give --measure too\n"
    )


def test_open_shapes_may_be_those_of_the_given_arrays(explain, tmp_path):
    model = networks.brightness(tmp_path, ("batch", 3, "height", "width"))
    np.save(tmp_path / "image.npy", np.ones((2, 3, 4, 5), np.float32))
    words = ("--backends", "CpuRef", "--measure", "--budget", "0.01", "--input", tmp_path / "image.npy", "--json")
    assert json.loads(explain(model, *words))["inputs"][0]["shape"] == "[2, 3, 4, 5]"


@pytest.mark.parametrize("budget", ["0", "-1", "nan", "soon"])
def test_a_budget_is_a_time(explain, tmp_path, budget):
    err = explain(networks.doubler(tmp_path), "--measure", f"--budget={budget}", status=2)
    assert f"argument --budget: expected seconds, more than 0, not '{budget}'" in err


def test_the_page_is_written_beside_what_is_printed(explain, tmp_path, more_backends):
    page = tmp_path / "page.html"
    assert explain(networks.alternating(tmp_path), *THREE, "--html", page).startswith("network 'alternating'")
    text = page.read_text(encoding="utf-8")
    assert text.startswith("<!doctype html>")
    assert "TANH is not RELU" in text


def test_a_page_that_cannot_be_written_is_an_error(explain, tmp_path):
    err = explain(networks.doubler(tmp_path), "--html", tmp_path / "no" / "page.html", status=2)
    assert err.endswith(f"page.html': there is no folder {str(tmp_path / 'no')!r}\n")


def test_the_layers_as_they_run_are_drawn_for_graphviz(explain, tmp_path, more_backends):
    drawing = tmp_path / "net.dot"
    assert explain(networks.alternating(tmp_path), *THREE, "--dot", drawing).startswith("network 'alternating'")
    text = drawing.read_text(encoding="utf-8")
    assert text.startswith('digraph "alternating" {\n    node [shape="record"];\n')
    assert "LayerName : positive\\lLayerType : Activation\\lBackendID : Device\\l" in text
    assert "[label=< [1,4] >];" in text


def test_a_drawing_and_a_page_are_two_files(explain, tmp_path):
    path = tmp_path / "net"
    err = explain(networks.doubler(tmp_path), "--dot", path, "--html", path, status=2)
    assert err.endswith(f"--html and --dot name the same file, {str(path)!r}; name two\n")
    assert not path.exists()


def test_a_drawing_never_replaces_the_network(explain, tmp_path):
    path = networks.doubler(tmp_path)
    err = explain(path, "--dot", path, status=2)
    assert err.endswith(f"--dot would overwrite {str(path)!r}, which the command reads; name another file\n")


def test_layers_that_are_compiled_refer_to_their_part(explain, cpuacc):
    result = explain(Path(__file__).parents[2] / "examples" / "digits" / "digits.onnx", "--backends", "CpuAcc,CpuRef")
    assert "PreCompiled" not in result
    assert sum(line.endswith("  part 1") for line in result.splitlines()) == 10


def test_what_is_measured_is_made_up_only_with_random(explain, tmp_path):
    network = networks.doubler(tmp_path)
    words = ("--measure", "--budget", "0.01", "--backends", "CpuRef")
    assert explain(network, *words, status=2).endswith("give a file for each with --input NAME=FILE, or use --random\n")
    assert explain(network, *words, "--random").endswith("measured on: random numbers, seed 0\n")
    assert explain(network, "--random", status=2) == (
        "interposer: --random is what the network runs on to be measured; give --measure too\n"
    )


def test_layers_that_took_longer_than_the_whole_are_remarked():
    network = ip.Network("net")
    x = network.add_input_layer(0, ip.TensorInfo((1, 4)), name="x")
    network.add_output_layer(0, network.add_addition_layer(x, x, name="sum"), name="y")
    optimized = ip.optimize(network, ["CpuRef"])
    busy = optimized.explain(Times(2.39, {"sum": 36.1}, "measured", 5))
    assert (
        "  the layers took 36.1 ms together when each was timed, more than a whole run: the machine was busy, "
        "or layers ran concurrently; measure again on an idle machine"
    ) in busy.lines()
    assert not any("the machine was busy" in line for line in optimized.explain(Times(40, {"sum": 36.1})).lines())
