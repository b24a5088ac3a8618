"""The sweep that finds slow operators: how samples grow, which networks are measured, and what the report says."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("onnx", reason="the benchmarks build their networks with onnx")

import interposer as ip
from benchmarks.cliffs.cases import FORMS, cases, network_of
from benchmarks.cliffs.command import main
from benchmarks.cliffs.families import FAMILIES, random_model
from benchmarks.cliffs.growing import bytes_of, grown
from benchmarks.cliffs.measured import OURS, Row
from interposer import ops
from interposer.testing import samples_of

KIB = 1024


GROWING = (
    ops.Addition,
    ops.BatchMatMul,
    ops.BroadcastTo,
    ops.Concat,
    ops.Convolution2d,
    ops.DepthwiseConvolution2d,
    ops.Gather,
    ops.LayerNormalization,
    ops.Pooling2d,
    ops.Reshape,
)


@pytest.mark.parametrize("op", GROWING)
def test_a_grown_sample_is_valid_and_as_large_as_asked(op: type[ops.Op]) -> None:
    sample = grown(samples_of(op)[0], 64 * KIB)
    assert sample is not None
    assert 32 * KIB < bytes_of(sample) < 128 * KIB
    network, feeds = sample.network()
    with ip.load(network, ["CpuRef"]) as model:
        outputs = model.run([feeds[index] for index in sorted(feeds)])
    assert all(np.asarray(output).size for output in outputs)


def test_a_convolution_grows_in_its_output_channels_too() -> None:
    sample = grown(samples_of(ops.Convolution2d)[0], 1024 * KIB)
    assert sample is not None
    image, weights = sample.inputs[0], sample.inputs[1]
    assert image is not None
    assert weights is not None
    before = samples_of(ops.Convolution2d)[0].inputs[1]
    assert before is not None
    assert weights.info.shape[0] > before.info.shape[0]
    assert weights.info.shape[1:3] == before.info.shape[1:3]  # the kernel stays


def test_an_operator_without_inputs_does_not_grow() -> None:
    assert grown(samples_of(ops.RandomFill)[0], 64 * KIB) is None


@pytest.mark.parametrize("form", FORMS)
def test_a_quantized_pooling_is_measured_alone_and_between_convolutions(form: str) -> None:
    [case] = cases(["Pooling2d"], ["quantized int8"], ["small"], [form], 1)
    network, inputs = network_of(case)
    kinds = [layer.op.op_name() for layer in network.graph.topological()]
    assert kinds.count("Convolution2d") == (2 if form == "between" else 0)
    with ip.load(network, ["CpuRef"]) as model:
        model.run(inputs)


def test_each_family_of_random_networks_runs_and_is_always_the_same(tmp_path: Path) -> None:
    missing = set(FAMILIES)
    for seed in range(40):
        family, model = random_model(seed)
        if family in missing:
            missing.remove(family)
            assert random_model(seed)[1].SerializeToString() == model.SerializeToString()
            (tmp_path / "random.onnx").write_bytes(model.SerializeToString())
            network = ip.frontends.onnx.load(tmp_path / "random.onnx")
            assert len(list(network.graph.topological())) > 5
    assert not missing


def test_the_ratio_is_that_of_the_format_in_which_cpuacc_is_slowest() -> None:
    times = {"onnx": {OURS: 1.0, "OpenVINO": 2.0}, "tflite": {OURS: 4.0, "LiteRT": 1.0, "OpenVINO": 3.0}}
    row = Row("Softmax", "small alone", times)
    assert row.worst == ("tflite", 0.25)
    assert row.ours == 4.0
    assert Row("Softmax", "small alone", {"onnx": {OURS: 1.0}}).ratio is None


def test_the_sweep_prints_a_row_for_each_case_and_a_summary(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    pytest.importorskip("onnxruntime", reason="the sweep compares with it")
    words = ["Softmax", "--types", "float32", "--sizes", "small", "--seconds", "0.001", "--engines", "ONNX Runtime"]
    assert main([*words, "--verbose", "--json", str(tmp_path / "rows.json")]) == 0
    text = capsys.readouterr().out
    assert "below 0.5:" in text
    assert "small alone" in text
    assert "ONNX Runtime" in text
    assert (tmp_path / "rows.json").stat().st_size > 100
