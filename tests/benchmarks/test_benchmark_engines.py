"""The benchmark of whole networks: processes, comparison, figures. Nothing here says how long anything takes."""

import json
from xml.etree import ElementTree

import numpy as np
import pytest

onnx = pytest.importorskip("onnx")

import interposer as ip  # noqa: E402
from benchmarks.engines import ENGINES, engine  # noqa: E402 - they need onnx
from benchmarks.engines.cases import prepare, tiny  # noqa: E402
from benchmarks.engines.command import main  # noqa: E402
from benchmarks.engines.measure import Plan, deviation, measure  # noqa: E402
from benchmarks.engines.process import EngineError, Process  # noqa: E402
from interposer.writers import onnx as writer  # noqa: E402

pytestmark = pytest.mark.usefixtures("warm_python")


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    """Return a folder with one model file: a fully connected layer and an activation."""
    folder = tmp_path_factory.mktemp("models")
    network = ip.Network("small")
    x = network.add_input_layer(0, ip.TensorInfo((1, 8)), name="x")
    weights = network.add_constant_layer(np.random.default_rng(1).standard_normal((8, 4)).astype(np.float32))
    product = network.add_fully_connected_layer(x, weights)
    network.add_output_layer(
        0, network.add_activation_layer(product, function=ip.ops.ActivationFunction.RELU), name="y"
    )
    writer.save(network, folder / "small.onnx")
    return folder


def figures(models, folder, engines, loads=0):
    case = prepare("small.onnx", 1, models, folder, {".onnx", ".tflite"})
    plan = Plan(engines, rounds=2, seconds=0.01, loads=loads, tiny=tiny(folder))
    return measure(case, threads=1, plan=plan)


@pytest.mark.needs_cpuref
@pytest.mark.usefixtures("new_interpreter")
def test_one_command_writes_figures_a_table_and_a_plot(models, tmp_path, capsys):
    words = ["--models", models, "--networks", "small", "--engines", "CpuRef", "--threads", "1", "--rounds", "2"]
    words += ["--seconds", "0.01", "--cache", tmp_path / "cache", "--output", tmp_path / "results"]

    assert main([str(word) for word in words]) == 0

    facts = json.loads((tmp_path / "results/engines.json").read_text())
    [row] = facts["rows"]
    assert (row["network"], row["threads"], row["operations"], row["quantized"]) == ("small", 1, 64, False)
    assert row["kind"] == "tiny"
    assert {"median_ms", "min_ms", "plain_ms", "load_cold_ms", "memory_bytes"} <= {*row["engines"]["CpuRef"]}
    assert len(row["engines"]["CpuRef"]["rounds_ms"]) == 2
    assert (tmp_path / "results/engines.txt").read_text() in capsys.readouterr().out
    assert (tmp_path / "results/engines.md").read_text().startswith("| networks | 1 thread, mean | least |\n|---|")
    assert ElementTree.parse(tmp_path / "results/engines.svg").getroot().tag.endswith("svg")


def test_a_folder_of_models_that_does_not_exist_is_refused(capsys, monkeypatch):
    monkeypatch.setenv("INTERPOSER_BENCHMARK_MODELS", "/nowhere/models")
    with pytest.raises(SystemExit, match="2"):
        main(["--networks", "small"])

    assert capsys.readouterr().err.endswith("error: argument --models: there is no folder /nowhere/models\n")


@pytest.mark.needs_cpuref
def test_the_time_of_a_load_with_a_cache_is_measured_on_request(models, tmp_path):
    assert "load_warm_ms" not in figures(models, tmp_path, ["CpuRef"])["engines"]["CpuRef"]
    assert "load_warm_ms" in figures(models, tmp_path, ["CpuRef"], loads=1)["engines"]["CpuRef"]


def test_a_name_that_no_network_has_is_told_with_those_there_are(models, capsys):
    assert main(["--models", str(models), "--networks", "nothing"]) == 2

    said = capsys.readouterr().err
    assert said.startswith("no such network: nothing; there are mobilenet_v1, ")
    assert said.endswith("small.onnx\n")


@pytest.mark.needs_cpuref
@pytest.mark.parametrize("name", ENGINES)
def test_a_peer_gives_what_the_reference_gives(name, models, tmp_path, request):
    if absent := engine(name).absent():
        pytest.skip(absent)
    if name == "tinygrad":
        request.getfixturevalue("gpuacc")  # a driver of OpenCL
    if name == "LiteRT":
        pytest.importorskip("flatbuffers", reason="the TFLite writer needs it")

    row = figures(models, tmp_path, ["CpuRef", name])

    assert row["engines"]["CpuRef"]["compared_with"] == name
    assert row["engines"]["CpuRef"]["deviation"] < 1e-5
    assert row["engines"][name]["median_ms"] > 0


@pytest.mark.needs_cpuref
def test_an_engine_that_is_not_here_is_left_out_with_its_reason(models, tmp_path):
    row = figures(models, tmp_path, ["CpuRef", "CpuNowhere"])

    assert row["engines"]["CpuNowhere"] == {"failed": "CpuNowhere: not known"}
    assert "median_ms" in row["engines"]["CpuRef"]


@pytest.mark.needs_cpuref
def test_what_an_engine_raises_is_told(tmp_path):
    with Process("CpuRef", 1, tmp_path) as process, pytest.raises(EngineError) as raised:
        process.ask("load", str(tmp_path / "none.onnx"), str(tmp_path / "none.npz"), "")

    assert str(raised.value).startswith("FileNotFoundError: ")


@pytest.mark.needs_cpuref
def test_an_engine_that_takes_too_long_is_given_up(tmp_path):
    with Process("CpuRef", 1, tmp_path, patience=60) as process:
        process._patience = 0.01
        with pytest.raises(EngineError, match=r"^measure took more than 0\.01 s$"):
            process.ask("measure", 2.0)


@pytest.mark.needs_cpuref
@pytest.mark.usefixtures("new_interpreter")
def test_a_process_that_dies_is_told_with_its_status(tmp_path):
    with Process("CpuRef", 1, tmp_path) as process:
        process._child.kill()
        with pytest.raises(EngineError, match=r"^the process died at memory: status -9"):
            process.ask("memory")


def test_engines_are_named_by_peer_by_backend_or_by_several():
    assert engine("onnxruntime").name == "ONNX Runtime"
    assert engine("CpuAcc").backends == ["CpuAcc", "CpuRef"]
    assert engine("Interposer[OnnxRuntime, CpuAcc]").name == "Interposer[OnnxRuntime,CpuAcc]"
    assert engine("auto").backends == ["auto"]
    assert (engine("CpuAcc (fast math)").name, engine("CpuAcc (fast math)").backends[0]) == (
        "CpuAcc (fast math)",
        "CpuAcc",
    )


@pytest.mark.needs_cpuref
@pytest.mark.parametrize("words", [["--fast-math", "--engines"], ["--engines"]])
@pytest.mark.parametrize("name", ["OpenVINO", "auto", "CpuRef", "Interposer[CpuRef,CpuAcc]"])
def test_fast_math_is_refused_for_engines_that_do_not_have_it(name, words, capsys):
    with pytest.raises(SystemExit, match="2"):
        main(["--networks", "nothing", *words, name if len(words) == 2 else f"{name} (fast math)"])
    assert f"{name} has no option FastMathEnabled" in capsys.readouterr().err


@pytest.mark.usefixtures("cpuacc")
def test_fast_math_is_a_column_of_its_own_where_it_is_asked_for(models, tmp_path):
    words = ["--models", models, "--networks", "small", "--engines", "CpuAcc", "--fast-math", "--threads", "1"]
    words += ["--rounds", "2", "--seconds", "0.01", "--cache", tmp_path / "cache", "--output", tmp_path / "results"]

    assert main([str(word) for word in words]) == 0

    [row] = json.loads((tmp_path / "results/engines.json").read_text())["rows"]
    assert list(row["engines"]) == ["CpuAcc", "CpuAcc (fast math)"]
    assert all("median_ms" in figures for figures in row["engines"].values())


@pytest.mark.parametrize(
    ("found", "expected", "worst"),
    [
        ([np.float32([1, 2])], [np.float32([1, 4])], 0.5),
        ([np.uint8([0, 200])], [np.uint8([3, 199])], 3),
        ([np.float32([1, np.nan])], [np.float32([1, 2])], np.inf),
        ([np.float32([1])], [np.float32([[1]])], np.inf),
        ([np.float32([1])], [np.float64([1])], np.inf),
        ([], [np.float32([1])], np.inf),
        ([np.float32([])], [np.float32([])], 0),
        ([np.float32([0])], [np.float32([0])], 0),
    ],
    ids=["floats", "steps", "nan", "shape", "type", "fewer", "empty", "zeros"],
)
def test_deviation_is_in_steps_or_a_part_of_the_largest_number(found, expected, worst):
    assert deviation(found, expected) == worst
