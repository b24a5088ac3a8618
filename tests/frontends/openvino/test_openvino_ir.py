"""Networks of OpenVINO's IR: what is read, how OpenVino runs it, and what is refused and why."""

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import interposer as ip
from interposer.errors import (
    InvalidArgumentError,
    MissingDependencyError,
    ParseError,
    UnsupportedLayerError,
    UnsupportedOperatorError,
)
from interposer.frontends.openvino import network as reading

openvino = pytest.importorskip("openvino", reason="OpenVINO is not installed")

X = np.random.default_rng(1).standard_normal((2, 3, 8, 8)).astype(np.float32)


def written(folder: Path, *, batch: int = -1) -> Path:
    """Write a convolution with two outputs, "scores" and "maps", to net.xml and net.bin."""
    op = openvino.opset13
    x = op.parameter([batch, 3, 8, 8], np.float32, name="image")
    x.output(0).set_names({"image"})
    weights = np.random.default_rng(0).standard_normal((4, 3, 3, 3)).astype(np.float32)
    maps = op.relu(op.convolution(x, weights, [1, 1], [1, 1], [1, 1], [1, 1]))
    scores = op.softmax(op.reduce_mean(maps, [2, 3], keep_dims=False), 1)
    model = openvino.Model([scores, maps], [x], "small")
    for port, name in zip(model.outputs, ("scores", "maps"), strict=True):
        port.set_names({name})
    openvino.save_model(model, folder / "net.xml", compress_to_fp16=False)
    return folder / "net.xml"


def expected(path: Path, x: Any) -> list[Any]:
    compiled = openvino.Core().compile_model(path, "CPU", {"INFERENCE_PRECISION_HINT": "f32"})
    return [compiled([x])[index] for index in range(2)]


def test_a_network_runs_on_openvino_if_no_backend_is_named(tmp_path: Path) -> None:
    path = written(tmp_path, batch=2)
    model = ip.load(path)
    assert {name: str(info.shape) for name, info in model.outputs.items()} == {
        "scores": "[2, 4]",
        "maps": "[2, 4, 8, 8]",
    }
    for result, wanted in zip(model.run({"image": X}), expected(path, X), strict=True):
        np.testing.assert_allclose(result, wanted, rtol=1e-5, atol=1e-6)


def test_open_sizes_are_those_of_each_call(tmp_path: Path) -> None:
    path = written(tmp_path)
    model = ip.load(path)
    for x in (X, X[:1], X):
        for result, wanted in zip(model.run([x]), expected(path, x), strict=True):
            np.testing.assert_allclose(result, wanted, rtol=1e-5, atol=1e-6)


def test_shapes_values_and_outputs_apply(tmp_path: Path) -> None:
    path = written(tmp_path)
    scores, maps = expected(path, X)
    resized = ip.load(path, shapes={"image": (1, 3, 16, 8)})
    assert str(resized.outputs["maps"].shape) == "[1, 4, 16, 8]"
    np.testing.assert_allclose(ip.load(path, values={"image": X}).run([])[0], scores, rtol=1e-5)
    np.testing.assert_allclose(ip.load(path, outputs=["maps"]).run([X])[0], maps, rtol=1e-5, atol=1e-6)


def test_bytes_are_read_with_the_bytes_of_the_weights(tmp_path: Path) -> None:
    path = written(tmp_path)
    model = ip.load(path.read_bytes(), weights=path.with_suffix(".bin").read_bytes())
    np.testing.assert_allclose(model.run([X])[0], expected(path, X)[0], rtol=1e-5)


def test_weights_may_have_another_name(tmp_path: Path) -> None:
    path = written(tmp_path)
    wanted = expected(path, X)[0]
    weights = shutil.move(path.with_suffix(".bin"), tmp_path / "weights.of.net")
    np.testing.assert_allclose(ip.load(path, weights=weights).run([X])[0], wanted, rtol=1e-5)


def test_explain_shows_one_layer_that_openvino_runs(tmp_path: Path) -> None:
    lines = str(ip.load(written(tmp_path, batch=2)).explain()).splitlines()
    assert lines[:2] == ["network 'small': 1 layer", "  OpenVino: 1 layer"]
    assert lines[-1].split() == ["small", "StandIn", "OpenVino", "part", "1"]


def test_a_saved_network_runs_without_the_files(tmp_path: Path) -> None:
    path = written(tmp_path, batch=2)
    wanted = expected(path, X)[0]
    ip.load(path).save(tmp_path / "net.ipr")
    path.unlink()
    path.with_suffix(".bin").unlink()
    np.testing.assert_allclose(ip.load(tmp_path / "net.ipr").run([X])[0], wanted, rtol=1e-5)


def test_another_backend_does_not_take_the_layer(tmp_path: Path) -> None:
    with pytest.raises(UnsupportedLayerError, match="CpuRef says: no kernel for StandIn"):
        ip.load(written(tmp_path, batch=2), ["CpuRef"])


def test_missing_weights_are_named(tmp_path: Path) -> None:
    path = written(tmp_path)
    path.with_suffix(".bin").unlink()
    with pytest.raises(ParseError) as caught:
        ip.load(path)
    text = str(caught.value)
    assert text.startswith(f"{path}: OpenVINO cannot read the network: ")
    assert text.endswith("; its weights, a file of the same name that ends with .bin, must be beside it")


def test_shapes_that_do_not_fit_are_refused(tmp_path: Path) -> None:
    path = written(tmp_path)
    with pytest.raises(InvalidArgumentError, match="imag"):
        ip.load(path, shapes={"imag": (1, 3, 8, 8)})
    with pytest.raises(ParseError) as caught:
        ip.load(path, shapes={"image": (1, 4, 8, 8)})
    assert str(caught.value).startswith(f"{path}: OpenVINO cannot give the network these shapes of inputs: ")


def test_states_are_refused(tmp_path: Path) -> None:
    op = openvino.opset13
    x = op.parameter([1, 4], np.float32, name="x")
    state = op.read_value(np.zeros((1, 4), np.float32), "memory")
    total = op.add(x, state)
    model = openvino.Model([op.result(total)], [op.assign(total, "memory")], [x], "counter")
    openvino.save_model(model, tmp_path / "net.xml")
    with pytest.raises(UnsupportedOperatorError) as caught:
        ip.load(tmp_path / "net.xml")
    assert str(caught.value) == (
        f"{tmp_path / 'net.xml'}: operators that are not supported:\n"
        "  - 1 x Assign (it has a state, which lasts from run to run; make the state an input and an output)"
    )


def test_without_openvino_the_message_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = written(tmp_path)
    monkeypatch.setattr(reading, "find_spec", lambda name: None)
    with pytest.raises(MissingDependencyError) as caught:
        ip.load(path)
    assert str(caught.value) == (
        f"reading the network in OpenVINO's IR {path} needs the package 'openvino': "
        "pip install 'interposer-nn[openvino]'"
    )


def test_a_folder_with_a_network_names_it(tmp_path: Path) -> None:
    path = written(tmp_path)
    with pytest.raises(ParseError) as caught:
        ip.load(tmp_path)
    assert str(caught.value) == f"{tmp_path}: this is a folder; give the path of the network in it, '{path}'"
