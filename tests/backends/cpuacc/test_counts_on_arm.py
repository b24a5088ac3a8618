"""The gate on executed instructions of tools/arm.py."""

from __future__ import annotations

import numpy as np
import pytest

from tools import arm_models
from tools.arm import compared, merged

RECORDED = {"cortex-a53": {"add": 1000, "exp": 500}, "neoverse-n1": {"add": 900, "exp": 400}}


def test_a_count_of_two_percent_more_passes_and_of_three_percent_fails(capsys):
    assert compared({"cortex-a53": {"add": 1020}}, RECORDED) == 0
    assert compared({"cortex-a53": {"add": 1030, "exp": 500}}, RECORDED) == 1
    assert "cortex-a53 add: 1030 instructions, 1000 recorded (+3.0%)" in capsys.readouterr().out


def test_a_layer_without_a_recorded_count_fails(capsys):
    assert compared({"cortex-a53": {"new": 10}}, RECORDED) == 1
    assert "cortex-a53 new: 10 instructions, 0 recorded (not recorded)" in capsys.readouterr().out


def test_lower_counts_pass_and_are_reported(capsys):
    assert compared({"cortex-a53": {"add": 900, "exp": 499}}, RECORDED) == 0
    assert "2 counts compared with counts.txt: 0 too high, 1 lower" in capsys.readouterr().out


def test_recording_one_processor_keeps_what_was_not_counted():
    result = merged(RECORDED, {"neoverse-n1": {"exp": 390, "new": 10}})
    assert result == {"cortex-a53": {"add": 1000, "exp": 500}, "neoverse-n1": {"add": 900, "exp": 390, "new": 10}}


def _save_network(folder, name):
    """Write a network that adds its input to itself as tools/arm.py does, without a TensorFlow Lite file."""
    onnx = pytest.importorskip("onnx")
    info = [onnx.helper.make_tensor_value_info(text, onnx.TensorProto.FLOAT, [3]) for text in ("x", "y")]
    graph = onnx.helper.make_graph([onnx.helper.make_node("Add", ["x", "x"], ["y"])], name, info[:1], info[1:])
    opset = onnx.helper.make_opsetid("", 17)
    onnx.save(onnx.helper.make_model(graph, ir_version=8, opset_imports=[opset]), folder / f"{name}-1-0123.onnx")
    np.savez(folder / f"{name}-1-0123.inputs.npz", np.ones(3, np.float32))
    return str(folder / f"{name}-1-0123.onnx")


def test_files_are_counted_by_the_names_of_their_networks(cpuacc, tmp_path, capsys):
    files = [_save_network(tmp_path, "double"), _save_network(tmp_path, "again_qdq")]
    assert arm_models.main("count", "interposer", *files) == 0
    assert capsys.readouterr().out == "NAME double\nNAME again_qdq\n"


def test_networks_that_a_format_cannot_express_are_not_counted(tmp_path, capsys):
    assert arm_models.main("count", "litert", _save_network(tmp_path, "double")) == 0
    assert capsys.readouterr().out == ""
