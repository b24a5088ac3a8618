"""Models as pickles and copies: what travels, what does not, and what is refused."""

from __future__ import annotations

import copy
import io
import multiprocessing
import os
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import interposer as ip
from interposer import Limits, Network, OptimizerOptions, Runtime, TensorInfo
from interposer.core.errors import InvalidArgumentError, LoadError, ParseError
from interposer.ir.equality import same_graph
from interposer.session.placement import Plan

pytestmark = pytest.mark.needs_cpuref

TEXT = """graph "twice" {
  %x = Input : float32[n, 3]
  %double = Addition %x, %x
  Output %double as "y"
}
"""
X = np.arange(6, dtype=np.float32).reshape(2, 3)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    created = tmp_path / "twice.txt"
    created.write_text(TEXT)
    return created


def again(model: ip.Model) -> ip.Model:
    result: ip.Model = pickle.loads(pickle.dumps(model))
    return result


def work(model: ip.Model) -> Any:
    return model(X)


@pytest.mark.parametrize("of", [str, Path, Path.read_bytes, lambda path: io.BytesIO(path.read_bytes())])
def test_a_pickled_model_gives_the_same(of: Any, path: Path) -> None:
    np.testing.assert_array_equal(again(ip.load(of(path), ["CpuRef"]))(X), X * 2)


def test_a_pickle_of_a_path_has_no_content_and_holds_in_another_folder(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(path.parent)
    content = pickle.dumps(ip.load(path.name, ["CpuRef"]))
    assert b"Addition" not in content
    assert str(path).encode() in content
    monkeypatch.chdir("/")
    np.testing.assert_array_equal(pickle.loads(content)(X), X * 2)


def test_a_file_that_was_changed_is_refused_on_both_sides(path: Path) -> None:
    model = ip.load(path, ["CpuRef"])
    content = pickle.dumps(model)
    path.write_text(TEXT.replace("Addition", "Subtraction"))
    with pytest.raises(LoadError) as caught:
        pickle.loads(content)
    assert str(caught.value) == (
        f"the file {str(path)!r} has another content than when the model was pickled; load the model again"
    )
    with pytest.raises(InvalidArgumentError) as refused:
        pickle.dumps(model)
    assert str(refused.value) == (
        f"the file {str(path)!r} was changed or deleted since the model was loaded; load the model again"
    )
    path.unlink()
    with pytest.raises(ParseError, match="the file cannot be read: No such file or directory"):
        pickle.loads(content)


def test_a_file_that_was_only_touched_may_be_read(path: Path) -> None:
    content = pickle.dumps(ip.load(path, ["CpuRef"]))
    os.utime(path, (1, 1))
    np.testing.assert_array_equal(pickle.loads(content)(X), X * 2)


def test_options_shapes_limits_fallback_and_plan_travel(path: Path) -> None:
    options = OptimizerOptions(rewrite=False, exclude={"Softmax": ["CpuRef"]})
    model = ip.load(
        path, ["CpuRef"], options=options, limits=Limits(max_bytes=12345), shapes={"n": 2}, fallback=True, format="text"
    )
    result = again(model)
    assert result.inputs["x"].shape == (2, 3)
    assert result._limits == Limits(max_bytes=12345)
    assert result._choice.arguments == model._choice.arguments
    assert result._choice.arguments["options"] == options
    assert result.optimized.preferences == ("CpuRef",)
    plan = Plan("twice", ("CpuRef",), {"double": "CpuRef"})
    assert again(ip.load(path, plan=plan)).plan == plan


def test_values_of_inputs_travel(tmp_path: Path) -> None:
    path = tmp_path / "sum.txt"
    path.write_text(
        TEXT.replace("%x, %x", "%x, %b").replace("  %double", "  %b = Input(binding_id=1) : float32[3]\n  %double")
    )
    model = ip.load(path, ["CpuRef"], values={"b": np.float32([1, 2, 3])})
    np.testing.assert_array_equal(again(model)(X), X + [1, 2, 3])


@pytest.mark.parametrize("protocol", range(2, pickle.HIGHEST_PROTOCOL + 1))
def test_a_network_is_pickled_bit_for_bit(protocol: int) -> None:
    network = Network("deep")
    x = value = network.add_input_layer(0, TensorInfo((1, 3)), name="x")
    constant = network.add_constant_layer(np.float32([[np.nan, -0.0, 1e-42]]))
    for _ in range(3000):
        value = network.add_addition_layer(value, constant)
    network.add_output_layer(0, value, name="y")
    network.graph.layer("x").output.aliases = ("image",)
    result = pickle.loads(pickle.dumps(network, protocol))
    assert same_graph(result.graph, network.graph)
    [held] = [layer for layer in result.graph if layer.kind == "Constant"]
    assert held.output.constant is held.op.value
    assert result.graph.layer("x").output.aliases == ("image",)
    assert x.name == "x"


def test_a_model_on_a_runtime_of_its_own_cannot_be_pickled(path: Path) -> None:
    with Runtime() as runtime, pytest.raises(InvalidArgumentError) as caught:
        pickle.dumps(ip.load(path, ["CpuRef"], runtime=runtime))
    assert str(caught.value) == (
        "the model 'twice' is on a runtime of its own, which cannot be pickled; "
        "load it on the default runtime (no runtime=), or load it again in the other process"
    )


def test_a_closed_model_is_neither_pickled_nor_copied(path: Path) -> None:
    model = ip.load(path, ["CpuRef"])
    model.close()
    for way in (pickle.dumps, copy.copy, copy.deepcopy):
        with pytest.raises(InvalidArgumentError, match="the model 'twice' is closed"):
            way(model)


@pytest.mark.parametrize("way", [copy.copy, copy.deepcopy])
def test_a_copy_is_another_model_on_the_same_runtime(way: Any, path: Path) -> None:
    with Runtime() as runtime:
        model = ip.load(path, ["CpuRef"], runtime=runtime)
        other = way(model)
        assert other.runtime is runtime
        model.close()
        np.testing.assert_array_equal(other(X), X * 2)


def test_a_model_works_in_a_process_that_was_spawned(path: Path) -> None:
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        np.testing.assert_array_equal(pool.apply(work, (ip.load(path, ["CpuRef"]),)), X * 2)


def test_cloudpickle_takes_a_model(path: Path) -> None:
    cloudpickle = pytest.importorskip("cloudpickle")
    np.testing.assert_array_equal(pickle.loads(cloudpickle.dumps(ip.load(path, ["CpuRef"])))(X), X * 2)


def test_joblib_takes_a_model_to_its_workers(path: Path) -> None:
    joblib = pytest.importorskip("joblib")
    model = ip.load(path, ["CpuRef"])
    result = joblib.Parallel(n_jobs=2)(joblib.delayed(work)(model) for _ in range(2))
    for item in result:
        np.testing.assert_array_equal(item, X * 2)


def test_joblib_dumps_and_loads_a_model(path: Path, tmp_path: Path) -> None:
    joblib = pytest.importorskip("joblib")
    joblib.dump(ip.load(path, ["CpuRef"]), tmp_path / "model.joblib")
    np.testing.assert_array_equal(joblib.load(tmp_path / "model.joblib")(X), X * 2)
