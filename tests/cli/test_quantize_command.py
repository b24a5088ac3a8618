"""``interposer quantize``: what it reads, writes and prints."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import interposer as ip
from interposer.cli.main import main

DIGITS = Path(__file__).parents[2] / "examples" / "digits"
MODEL = str(DIGITS / "digits.onnx")
pytestmark = pytest.mark.needs_cpuref
pytest.importorskip("onnx")


def lines(capsys: pytest.CaptureFixture[str]) -> list[str]:
    return capsys.readouterr().out.splitlines()


def test_a_folder_of_images_calibrates_a_network_and_the_result_is_written(tmp_path, capsys):
    pytest.importorskip("PIL")
    target = tmp_path / "digits.tflite"
    assert main(["quantize", MODEL, "--data", str(DIGITS), "-o", str(target), "--backends", "CpuRef"]) == 0
    first, output, data, written = lines(capsys)
    assert first == "10 of 10 layers quantized (int8)"
    assert output.startswith("output 'probabilities': signal-to-noise ratio ")
    assert (data, written) == (f"calibrated with 10 samples from {DIGITS}", f"written: {target}")
    seven = np.zeros((1, 1, 8, 8), np.float32)
    expected, result = (ip.load(file, ["CpuRef"]).run([seven])[0] for file in (MODEL, str(target)))
    assert np.abs(result - expected).max() < 0.1


def test_layers_in_float_are_listed_with_the_reason_and_the_report_is_written(tmp_path, capsys):
    np.save(tmp_path / "x.npy", np.random.default_rng(0).random((4, 1, 8, 8), np.float32))
    words = ["--data", str(tmp_path / "x.npy"), "-o", str(tmp_path / "d.txt"), "--float", "Softmax,conv1"]
    assert main(["quantize", MODEL, *words, "--report", str(tmp_path / "r.json"), "--samples", "2"]) == 0
    shown = "\n".join(lines(capsys))
    assert shown.count("left in float as requested") == 2
    assert "8 of 10 layers quantized (int8)" in shown
    assert "calibrated with 2 samples" in shown
    report = json.loads((tmp_path / "r.json").read_text())
    assert (report["quantized"], report["samples"], len(report["layers"])) == (8, 2, 10)
    assert ip.Network.parse((tmp_path / "d.txt").read_text()).inputs


@pytest.mark.parametrize(("name", "start"), [("r.html", "<!doctype html>"), ("r.TXT", "digits: 10 of 10 layers")])
def test_the_report_is_written_in_the_form_of_its_suffix(tmp_path, name, start):
    np.save(tmp_path / "x.npy", np.random.default_rng(0).random((2, 1, 8, 8), np.float32))
    words = ["--data", str(tmp_path / "x.npy"), "-o", str(tmp_path / "d.txt"), "--report", str(tmp_path / name)]
    assert main(["quantize", MODEL, *words]) == 0
    assert (tmp_path / name).read_text(encoding="utf-8").startswith(start)


def test_every_layer_can_be_listed_or_printed_as_json(tmp_path, capsys):
    np.save(tmp_path / "x.npy", np.random.default_rng(0).random((2, 1, 8, 8), np.float32))
    words = ["quantize", MODEL, "--data", str(tmp_path / "x.npy"), "-o", str(tmp_path / "d.onnx"), "--scheme", "uint8"]
    assert main([*words, "--all"]) == 0
    assert sum("Convolution2d" in line for line in lines(capsys)) == 2
    assert main([*words, "--json"]) == 0
    plain = json.loads(capsys.readouterr().out)
    assert (plain["scheme"], plain["written"]) == ("uint8", str(tmp_path / "d.onnx"))


def test_arm_nns_algorithm_needs_no_data_and_may_quantize_inputs_and_outputs(tmp_path, capsys):
    target = tmp_path / "d.tflite"
    words = ["--algorithm", "armnn", "--scheme", "QAsymmU8", "--quantize-types"]
    assert main(["quantize", MODEL, "-o", str(target), *words]) == 0
    assert lines(capsys) == ["10 of 10 layers quantized (uint8)", f"written: {target}"]
    model = ip.load(str(target), ["CpuRef"])
    assert {str(info.dtype) for info in (*model.inputs.values(), *model.outputs.values())} == {"uint8"}


def test_the_output_has_what_its_format_can_hold_and_few_samples_are_remarked_upon(tmp_path, capsys):
    pytest.importorskip("flatbuffers")
    network = ip.Network("negated")
    x = network.add_input_layer(0, ip.TensorInfo((1, 4)), name="x")
    double = network.add_addition_layer(x, x, name="double")
    negative = network.add_elementwise_unary_layer(double, operation=ip.ops.UnaryOperation.NEG, name="negative")
    network.add_output_layer(0, network.add_addition_layer(negative, x, name="sum"))
    source, target = tmp_path / "negated.txt", tmp_path / "negated.tflite"
    source.write_text(network.text())
    np.save(tmp_path / "x.npy", np.ones((3, 4), np.float32))
    assert main(["quantize", str(source), "--data", str(tmp_path / "x.npy"), "-o", str(target)]) == 0
    shown = lines(capsys)
    assert "2 of 3 layers quantized (int8)" in shown
    assert shown[-3].startswith("note: the ranges are those of 3 samples")
    assert ip.load(str(target), ["CpuRef"]).run([np.ones((1, 4), np.float32)])[0] == pytest.approx(-1, abs=0.05)
    assert main(["quantize", str(target), "--data", str(tmp_path / "x.npy"), "-o", str(source)]) == 2
    assert "the network is quantized already: 2 of its 3 layers compute with" in capsys.readouterr().err
