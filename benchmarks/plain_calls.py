"""What plain calls of small model files cost on CpuAcc, LiteRT and ONNX Runtime, from one thread and from two.

A plain call takes arrays and returns new ones: `Model.run`, `set_tensor`, `invoke` and `get_tensor`, and `session.run`.
All engines compute with one thread. LiteRT gets an interpreter for each calling thread, because one cannot be shared.
"""

from __future__ import annotations

import importlib.util
import statistics
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import numpy as np
from lite import has_litert

import interposer as ip

MODELS: Final = ("ad01_int8.tflite", "kws_ref_model.tflite")
SECONDS: Final = 0.1
"""How long the calls of one round take."""

Call = Callable[[], Any]


def measure(folder: Path, repeat: int) -> dict[str, dict[str, float]]:
    """Return microseconds of one call and calls in a second by threads, for each model file; print both."""
    return {path.stem: _of_model(path, repeat) for path in map(folder.joinpath, MODELS) if path.exists()}


def _of_model(path: Path, repeat: int) -> dict[str, float]:
    with _interposer(path) as (model, inputs):
        forms = _forms(model, inputs)
        makers: dict[str, Callable[[], Call]] = {"Interposer": lambda: forms["Interposer: run, a list"]}
        makers |= _peers(path, model, inputs)
        calls = forms | {f"{name}: a plain call": maker() for name, maker in makers.items() if name != "Interposer"}
        result = _medians(calls, repeat)
        rates = _rates(makers, repeat)
    print(f"\nplain calls of {path.name}, one thread, microseconds")
    for name, value in result.items():
        print(f"  {name:40} {value:8.2f}")
    for name in makers:
        single, double = rates[f"{name}, 1 threads"], rates[f"{name}, 2 threads"]
        print(f"  {name:24} 1 thread {single:9.0f} calls a second   2 threads {double:9.0f} ({double / single:.2f} x)")
    return result | rates


@contextmanager
def _interposer(path: Path) -> Iterator[tuple[ip.Model, list[Any]]]:
    with ip.Runtime(ip.CreationOptions(num_threads=1)) as runtime:
        model = ip.load(path, ["CpuAcc"], runtime=runtime, options=_one_thread())
        infos = [item.output.known for item in model.optimized.inputs]
        yield model, [np.zeros(tuple(map(int, info.shape)), info.dtype.numpy) for info in infos]


def _one_thread() -> ip.OptimizerOptions:
    return ip.OptimizerOptions(model_options={"CpuAcc": {"NumberOfThreads": 1}})


def _forms(model: ip.Model, inputs: list[Any]) -> dict[str, Call]:
    """Return the forms of a plain call, and a bound one."""
    by_name = dict(zip(model.inputs, inputs, strict=True))
    outputs = model.run(inputs)
    bound = model.bind(inputs)
    return {
        "Interposer: run, a list": lambda: model.run(inputs),
        "Interposer: run, a mapping": lambda: model.run(by_name),
        "Interposer: run, given outputs": lambda: model.run(inputs, outputs),
        "Interposer: the model itself": lambda: model(by_name),
        "Interposer: bound": bound,
    }


# --- peers ------------------------------------------------------------------------------------------------------------


def _peers(path: Path, model: ip.Model, inputs: list[Any]) -> dict[str, Callable[[], Call]]:
    """Return what makes a plain call for one thread, by the name of the engine."""
    peers: dict[str, Callable[[], Call]] = {}
    if has_litert():
        peers["LiteRT"] = lambda: _litert(path, inputs)
    if importlib.util.find_spec("onnxruntime"):
        call = _onnxruntime(model, inputs)
        peers["ONNX Runtime"] = lambda: call
    return peers


def _litert(path: Path, inputs: list[Any]) -> Call:
    from ai_edge_litert.interpreter import Interpreter  # noqa: PLC0415 - only where it is installed

    interpreter = Interpreter(str(path), num_threads=1)
    interpreter.allocate_tensors()
    indexed = [(item["index"], array) for item, array in zip(interpreter.get_input_details(), inputs, strict=True)]
    taken = [item["index"] for item in interpreter.get_output_details()]

    def run() -> list[Any]:
        for index, array in indexed:
            interpreter.set_tensor(index, array)
        interpreter.invoke()
        return [interpreter.get_tensor(index) for index in taken]

    return run


def _onnxruntime(model: ip.Model, inputs: list[Any]) -> Call:
    import onnxruntime as ort  # noqa: PLC0415 - only where it is installed

    from interposer.writers import onnx  # noqa: PLC0415 - needs the onnx package

    options = ort.SessionOptions()
    options.intra_op_num_threads = 1
    file = onnx.write(model.network, exact=False).SerializeToString()
    session = ort.InferenceSession(file, options, providers=["CPUExecutionProvider"])
    feeds = {item.name: array for item, array in zip(session.get_inputs(), inputs, strict=True)}
    return lambda: session.run(None, feeds)


# --- times ------------------------------------------------------------------------------------------------------------


def _medians(calls: Mapping[str, Call], repeat: int) -> dict[str, float]:
    times: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(repeat):
        for name, call in calls.items():
            times[name].append(1e6 / _calls_a_second([call]))
    return {name: statistics.median(values) for name, values in times.items()}


def _rates(makers: Mapping[str, Callable[[], Call]], repeat: int) -> dict[str, float]:
    """Return the calls in a second of one and two threads."""
    calls = {name: [maker(), maker()] for name, maker in makers.items()}
    rates: dict[str, list[float]] = {f"{name}, {count} threads": [] for name in makers for count in (1, 2)}
    for _ in range(repeat):
        for row, values in rates.items():
            name, _, count = row.partition(", ")
            values.append(_calls_a_second(calls[name][: int(count[0])]))
    return {row: statistics.median(values) for row, values in rates.items()}


def _calls_a_second(calls: list[Call]) -> float:
    """Return how often these functions return in a second, each in a thread of its own."""
    counts = [0] * len(calls)
    started = threading.Barrier(len(calls))

    def work(number: int, call: Call) -> None:
        started.wait()
        end = time.perf_counter() + SECONDS
        while time.perf_counter() < end:
            for _ in range(10):
                call()
            counts[number] += 10

    workers = [threading.Thread(target=work, args=item) for item in enumerate(calls)]
    begun = time.perf_counter()
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    return sum(counts) / (time.perf_counter() - begun)
