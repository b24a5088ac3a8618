"""Inference of whole models on CpuRef and on the installed engines, on the same random input."""

from __future__ import annotations

import importlib.util
import statistics
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

import interposer as ip

Runner = Callable[[], Any]


def measure(folder: Path, repeat: int) -> dict[str, dict[str, float]]:
    """Return the median milliseconds of one inference for each model and engine, interleaved.

    Print a table with ratios.
    """
    figures = {}
    print(f"\nmodels of {folder}, milliseconds an inference (median of {repeat} interleaved runs)")
    for path in sorted([*folder.glob("*.tflite"), *folder.glob("*.onnx")]):
        figures[path.name] = _times(path, repeat)
        ours = figures[path.name]["CpuRef"]
        cells = [f"{name} {ms:9.2f}" + ("" if name == "CpuRef" else f" (CpuRef takes {ours / ms:.1f} x)")
                 for name, ms in figures[path.name].items()]  # fmt: skip
        print(f"  {path.name:40} {'   '.join(cells)}", flush=True)
    return figures


def _times(path: Path, repeat: int) -> dict[str, float]:
    model = ip.load(path, backends=["CpuRef"])
    inputs = [_random(info) for info in model.inputs.values()]
    runners = dict(_runners(path, model, inputs))
    times: dict[str, list[float]] = {name: [] for name in runners}
    for turn in range(repeat + 1):
        for name, run in runners.items():
            start = time.perf_counter()
            run()
            if turn:
                times[name].append((time.perf_counter() - start) * 1000)
    return {name: statistics.median(values) for name, values in times.items()}


def _random(info: ip.TensorInfo) -> np.ndarray[Any, Any]:
    generator = np.random.default_rng(0)
    if info.dtype.is_float:
        return generator.standard_normal(tuple(info.shape)).astype(info.dtype.numpy)
    limits = np.iinfo(info.dtype.numpy)
    return generator.integers(limits.min, limits.max, tuple(info.shape), info.dtype.numpy, endpoint=True)


def _runners(path: Path, model: ip.Model, inputs: list[Any]) -> Iterator[tuple[str, Runner]]:
    yield "CpuRef", lambda: model.run(inputs)
    if path.suffix == ".tflite" and importlib.util.find_spec("ai_edge_litert"):
        yield "LiteRT", _litert(path, inputs)
    if path.suffix == ".onnx" and importlib.util.find_spec("onnxruntime"):
        yield "ONNX Runtime", _onnxruntime(path, inputs)


def _litert(path: Path, inputs: list[Any]) -> Runner:
    from ai_edge_litert.interpreter import Interpreter  # noqa: PLC0415 - only where it is installed

    interpreter = Interpreter(model_path=str(path), num_threads=2)
    interpreter.allocate_tensors()

    def run() -> None:
        for detail, array in zip(interpreter.get_input_details(), inputs, strict=True):
            interpreter.set_tensor(detail["index"], array)
        interpreter.invoke()

    return run


def _onnxruntime(path: Path, inputs: list[Any]) -> Runner:
    import onnxruntime  # noqa: PLC0415 - only where it is installed

    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    names = [get_input.name for get_input in session.get_inputs()]
    return lambda: session.run(None, dict(zip(names, inputs, strict=True)))
