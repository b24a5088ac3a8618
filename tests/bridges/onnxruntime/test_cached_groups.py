"""Compiled groups of sessions of ONNX Runtime in a folder, which the option ``cache-dir`` names."""

from __future__ import annotations

import logging

import numpy as np
import pytest

from interposer.bridges import reports

pytestmark = pytest.mark.needs_cpuref
X = np.float32([[1, -2], [3, 4]])
WEIGHTS = np.float32([[1, 2], [3, 4]])


def network(weights=WEIGHTS, rows=2, trans=0):
    from onnx import TensorProto, helper, numpy_helper

    nodes = [
        helper.make_node("Gemm", ["x", "w"], ["h"], "product", transB=trans),
        helper.make_node("Relu", ["h"], ["y"], "relu"),
    ]
    infos = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [rows, 2]) for name in "xy"]
    graph = helper.make_graph(nodes, "net", infos[:1], infos[1:], [numpy_helper.from_array(weights, "w")])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9).SerializeToString()


@pytest.fixture
def ran(host, tmp_path):
    """A function that runs a model in a new session with the folder, and returns the output."""

    def ran(model, x=X, **more):
        options = host.SessionOptions()
        options.log_severity_level = 4
        devices = [device for device in host.get_ep_devices() if device.ep_name == "InterposerExecutionProvider"]
        options.add_provider_for_devices(devices, {"backends": "CpuRef", "cache-dir": str(tmp_path / "cache"), **more})
        made = host.InferenceSession(model, options)
        assert len(reports()[-1].taken) == 2
        return made.run(None, {"x": x})[0]

    return ran


def files(folder):
    return {path.name: path.stat().st_mtime_ns for path in (folder / "cache").iterdir()}


@pytest.mark.parametrize("rows", [2, "n"])
def test_a_group_is_compiled_once_and_then_found(ran, tmp_path, rows):
    model = network(rows=rows)
    np.testing.assert_array_equal(ran(model), np.maximum(X @ WEIGHTS, 0))
    written = files(tmp_path)
    assert sorted(name.partition(".")[2] for name in written) == ["1.ipn", "json"]
    np.testing.assert_array_equal(ran(model), np.maximum(X @ WEIGHTS, 0))
    assert files(tmp_path) == written
    assert [node.backends for node in reports()[-1].taken] == [("CpuRef",)] * 2
    if rows == "n":
        np.testing.assert_array_equal(ran(model, X[:1]), np.maximum(X[:1] @ WEIGHTS, 0))


@pytest.mark.parametrize(
    ("model", "more"), [({"weights": 2 * WEIGHTS}, {}), ({"trans": 1}, {}), ({}, {"min-nodes": "2"})],
    ids=["weights", "attribute", "option"],
)  # fmt: skip
def test_another_network_or_option_has_files_of_its_own(ran, tmp_path, model, more):
    ran(network())
    weights = model.get("weights", WEIGHTS.T if "trans" in model else WEIGHTS)
    np.testing.assert_array_equal(ran(network(**model), **more), np.maximum(X @ weights, 0))
    assert len(files(tmp_path)) == 4


def test_a_damaged_file_is_compiled_again(ran, tmp_path, caplog):
    ran(network())
    [path] = (tmp_path / "cache").glob("*.ipn")
    path.write_bytes(b"damaged")
    with caplog.at_level(logging.WARNING, "interposer.bridges"):
        np.testing.assert_array_equal(ran(network()), np.maximum(X @ WEIGHTS, 0))
    assert caplog.messages[0].startswith("the stored network cannot be used: ")
    assert path.read_bytes() != b"damaged"


def test_a_folder_that_cannot_be_written_is_only_logged(ran, tmp_path, caplog):
    (tmp_path / "cache").write_text("no folder")
    with caplog.at_level(logging.WARNING, "interposer.bridges"):
        np.testing.assert_array_equal(ran(network()), np.maximum(X @ WEIGHTS, 0))
    assert caplog.messages[0].startswith("the compiled network cannot be stored: ")
