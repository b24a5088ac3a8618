"""The ways to run a program: each prepares a function that runs it on the arguments of its calls."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

import torch
from torch.utils import _pytree as pytree

import interposer as ip
from benchmarks.pytorch.programs import Program
from interposer.core.telemetry import without_openvino_telemetry

__all__ = ["FIRST", "WAYS", "Way", "results"]

Way = Callable[[Program, int], Callable[[], Any]]
"""Takes a program and the number of threads."""
BACKENDS: Final = ("CpuAcc", "CpuRef")


def _options(threads: int) -> Any:
    return ip.OptimizerOptions(model_options={"CpuAcc": {"NumberOfThreads": threads}})


def load(program: Program, threads: int) -> Callable[[], Any]:
    """Export the program and load it."""
    exported = torch.export.export(program.module, program.args, dict(program.kwargs))
    model = ip.load(exported, backends=BACKENDS, options=_options(threads))
    return lambda: model(*program.args, **program.kwargs)


def compiled(program: Program, threads: int) -> Callable[[], Any]:
    """Compile the module with the backend of Interposer; a graph that is left to PyTorch is an error."""
    options = {"backends": list(BACKENDS), "options": _options(threads), "strict": True}
    function = torch.compile(program.module, backend="interposer", options=options)
    return lambda: function(*program.args, **program.kwargs)


def onnx(program: Program, threads: int) -> Callable[[], Any]:
    """Export the program to an ONNX file and load that; calls take and return arrays."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "program.onnx"
        torch.onnx.export(program.module, program.args, path, kwargs=dict(program.kwargs), verbose=False)
        model = ip.load(path, backends=BACKENDS, options=_options(threads))
    arrays = [tensor.numpy() for tensor in _tensors((program.args, dict(program.kwargs)))]
    return lambda: model.run(arrays)


def eager(program: Program, threads: int) -> Callable[[], Any]:
    """Call the module."""
    return lambda: program.module(*program.args, **program.kwargs)


def inductor(program: Program, threads: int) -> Callable[[], Any]:
    """Compile the module with PyTorch's own compiler."""
    function = torch.compile(program.module)
    return lambda: function(*program.args, **program.kwargs)


def openvino_compile(program: Program, threads: int) -> Callable[[], Any]:
    """Compile the module with the backend of OpenVINO."""
    with without_openvino_telemetry():
        import openvino.torch  # noqa: F401, PLC0415 - it registers the backend

    options = {"device": "CPU", "config": _config(threads)}
    function = torch.compile(program.module, backend="openvino", options=options)
    return lambda: function(*program.args, **program.kwargs)


def openvino(program: Program, threads: int) -> Callable[[], Any]:
    """Export the program and convert it with OpenVINO; calls take and return arrays."""
    with without_openvino_telemetry():
        import openvino  # noqa: PLC0415 - it is optional

    exported = torch.export.export(program.module, program.args, dict(program.kwargs))
    model = openvino.compile_model(openvino.convert_model(exported), "CPU", _config(threads))
    arrays = [tensor.numpy() for tensor in _tensors((program.args, dict(program.kwargs)))]
    request = model.create_infer_request()
    return lambda: list(request.infer(arrays, share_inputs=True).values())


def _config(threads: int) -> dict[str, Any]:
    return {"INFERENCE_NUM_THREADS": threads, "INFERENCE_PRECISION_HINT": "f32", "PERFORMANCE_HINT": "LATENCY"}


WAYS: Final[Mapping[str, Way]] = {
    "load": load,
    "compile": compiled,
    "onnx": onnx,
    "eager": eager,
    "inductor": inductor,
    "openvino": openvino,
    "openvino-compile": openvino_compile,
}
"""The functions by the names of the ways."""
FIRST: Final = ("load", "onnx", "compile", "inductor", "openvino")
"""The ways whose time to the first answer is measured."""


def results(value: Any) -> list[Any]:
    """Return the tensors and arrays of a result in order, as tensors."""
    return [torch.as_tensor(leaf) for leaf in pytree.tree_leaves(_plain(value)) if leaf is not None]


def _plain(value: Any) -> Any:
    return tuple(value.values()) if hasattr(value, "to_tuple") else value


def _tensors(value: Any) -> list[Any]:
    return [leaf for leaf in pytree.tree_leaves(value) if isinstance(leaf, torch.Tensor)]
