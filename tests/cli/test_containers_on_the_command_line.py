"""``interposer run`` with networks that take and give what is no tensor."""

from __future__ import annotations

import json

import numpy as np
import pytest

pytest.importorskip("onnx")

from onnx import TensorProto, helper

from interposer.cli.main import main

pytestmark = pytest.mark.needs_cpuref

ROW = helper.make_tensor_type_proto(TensorProto.FLOAT, ("n",))


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    inputs = {"rows": helper.make_sequence_type_proto(ROW), "more": helper.make_optional_type_proto(ROW)}
    nodes = [
        helper.make_node("ConcatFromSequence", ["rows"], ["joined"], axis=0),
        helper.make_node("SequenceErase", ["rows"], ["others"]),
        helper.make_node("OptionalHasElement", ["more"], ["there"]),
    ]
    graph = helper.make_graph(
        nodes,
        "net",
        [helper.make_value_info(name, kind) for name, kind in inputs.items()],
        [helper.make_value_info(name, ROW) for name in ("joined", "others", "there")],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)])
    (tmp_path / "net.onnx").write_bytes(model.SerializeToString())
    np.savez("rows.npz", np.float32([1, 2]), np.float32([3]), np.float32([4, 5, 6]))
    np.save("more.npy", np.float32([1, 2]))
    return tmp_path


def outputs(capsys, *words):
    assert main(["run", "net.onnx", "--backends", "CpuRef", "--json", *words]) == 0
    return {load["name"]: load["info"] for load in json.loads(capsys.readouterr().out)["outputs"]}


def test_a_sequence_is_all_arrays_of_a_file(folder, capsys):
    arrays = outputs(capsys, "--input", "rows=rows.npz", "--save", "out.npz")
    assert arrays == {
        "joined": "float32[6]", "others.0": "float32[2]", "others.1": "float32[1]", "there": "bool[]"
    }  # fmt: skip
    saved = np.load("out.npz")
    assert saved["joined"].tolist() == [1, 2, 3, 4, 5, 6]
    assert saved["others.1"].tolist() == [3]
    assert not saved["there"]


def test_an_optional_is_there_where_a_file_gives_it(folder, capsys):
    outputs(capsys, "--input", "rows=rows.npz", "--input", "more=more.npy", "--save", "out.npz")
    assert np.load("out.npz")["there"]


def test_one_of_several_outputs_may_be_a_sequence(folder, capsys):
    assert list(outputs(capsys, "--input", "rows=rows.npz", "--output", "others")) == ["others.0", "others.1"]


def test_a_single_array_is_no_sequence(folder, capsys):
    assert main(["run", "net.onnx", "--backends", "CpuRef", "--input", "rows=more.npy"]) == 2
    assert "give a .npz file with an array for each element" in capsys.readouterr().err


def test_a_sequence_that_nothing_gives_is_missing(folder, capsys):
    assert main(["run", "net.onnx", "--backends", "CpuRef"]) == 2
    assert "'rows' sequence[rows_0] of float32[?]" in capsys.readouterr().err
