"""The interface of the package onnx for whatever runs its models."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from interposer.core.errors import BindingError, InvalidArgumentError, UnsupportedOperatorError

onnx = pytest.importorskip("onnx", reason="the package onnx is not installed")
from onnx import helper  # noqa: E402

from interposer.session import onnx_backend  # noqa: E402
from interposer.session.onnx_backend import InterposerBackend  # noqa: E402
from tests.frontends.onnx.models import model  # noqa: E402

pytestmark = pytest.mark.needs_cpuref

X = np.float32([[1, -2, 3]])
RELU = helper.make_node("Relu", ["x"], ["y"])


def relu() -> Any:
    return model([RELU], {"x": X})


def test_a_model_is_prepared_and_run() -> None:
    prepared = onnx_backend.prepare(relu(), "CPU")
    assert isinstance(prepared, onnx.backend.base.BackendRep)
    for value in ([X], (X,), X, {"x": X}):
        [y] = prepared.run(value)
        np.testing.assert_array_equal(y, [[1, 0, 3]])


def test_a_model_is_run_at_once_from_wherever_it_is(tmp_path: Path) -> None:
    path = tmp_path / "net.onnx"
    onnx.save(relu(), path)
    for source in (relu(), relu().SerializeToString(), str(path)):
        assert onnx_backend.run_model(source, [X], "CpuRef")[0].tolist() == [[1, 0, 3]]


def test_a_node_is_run_on_inputs_in_its_order() -> None:
    split = helper.make_node("Split", ["x", "sizes"], ["a", "b"], axis=1)
    a, b = onnx_backend.run_node(split, [X, np.int64([1, 2])])
    assert (a.tolist(), b.tolist()) == ([[1]], [[-2, 3]])
    clip = helper.make_node("Clip", ["x", "", "high"], ["y"])
    assert onnx_backend.run_node(clip, [X, np.float32(2)])[0].tolist() == [[1, -2, 2]]
    twice = helper.make_node("Add", ["x", "x"], ["y"])
    assert onnx_backend.run_node(twice, [X, X], opset_version=7)[0].tolist() == [[2, -4, 6]]


def test_a_node_without_its_inputs_is_refused() -> None:
    with pytest.raises(InvalidArgumentError, match="2 inputs were given; the node has 1"):
        onnx_backend.run_node(RELU, [X, X])
    with pytest.raises(BindingError, match="0 inputs were given"):
        onnx_backend.run_model(relu(), [])


def test_devices_are_the_cpu_and_backends() -> None:
    result = [onnx_backend.supports_device(device) for device in ("CPU", "CPU:0", "CpuRef", "CUDA", "CpuReff")]
    assert result == [True, True, True, False, False]


def test_what_is_no_device_or_no_node_is_refused() -> None:
    with pytest.raises(InvalidArgumentError, match='a device must be a text such as "CPU", not None'):
        onnx_backend.supports_device(None)  # type: ignore[arg-type]
    with pytest.raises(InvalidArgumentError, match=r"a node must be an onnx\.NodeProto, not str"):
        onnx_backend.run_node("Relu", [np.zeros(2)])


def test_what_cannot_be_run_is_not_compatible() -> None:
    odd = model([helper.make_node("Odd", ["x"], ["y"])], {"x": X})
    assert onnx_backend.is_compatible(relu())
    assert not onnx_backend.is_compatible(odd)
    with pytest.raises(UnsupportedOperatorError):
        onnx_backend.prepare(odd)


def test_arguments_are_those_of_load() -> None:
    prepared = onnx_backend.prepare(relu(), backends=["CpuRef"], values={"x": X}, rtol=1e-3)
    assert prepared.run([])[0].tolist() == [[1, 0, 3]]
    with pytest.raises(InvalidArgumentError, match="unknown argument 'backend'; did you mean 'backends'?"):
        onnx_backend.prepare(relu(), backend="CpuRef")


def test_the_interface_is_the_one_of_the_package() -> None:
    assert issubclass(InterposerBackend, onnx.backend.base.Backend)
    declared = {name for name in vars(onnx.backend.base.Backend) if not name.startswith("_")}
    assert declared <= vars(InterposerBackend).keys()


def test_without_onnx_it_is_said_what_to_install() -> None:
    code = """
import sys
sys.modules["onnx"] = None
from interposer.core.errors import MissingDependencyError
from interposer.session import onnx_backend
try:
    onnx_backend.prepare("net.onnx")
except MissingDependencyError as error:
    print(error)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "reading ONNX files needs the package 'onnx': pip install 'interposer-nn[onnx]'\n"
