"""The overhead of one call from Python with kernels that take almost no time, and the gain from a second thread.

The network is one Addition of two tensors of four numbers: on CpuRef; as a subgraph that a plug-in in C has compiled;
and in ONNX Runtime, LiteRT and OpenVINO, if they are installed. Rows that end in "in place" reuse objects of earlier
calls: arrays for the outputs, an `IOBinding`, or an inference request. Rows that end in "imported" use memory that was
checked before. The software layers of a call of Interposer are also timed separately, from the innermost to the
outermost. `plain_calls` measures small model files in the same way.
"""

from __future__ import annotations

import ctypes
import importlib.util
import shutil
import statistics
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

import numpy as np
import plain_calls
from designs import adding
from lite import has_litert, tflite_bytes

import interposer as ip
from interposer import include
from interposer.core.telemetry import without_openvino_telemetry
from interposer.ops import UnaryOperation
from interposer.plugins.capi.library.library import Library, open_library
from interposer.plugins.capi.running.backend import DynamicBackend

CALLS: Final = 2000
"""Calls of one round."""
PEERS: Final = {"ONNX Runtime": "onnxruntime", "LiteRT": "ai_edge_litert", "OpenVINO": "openvino"}

Calls = dict[str, Callable[[], Any]]


def measure(folder: Path, repeat: int) -> dict[str, dict[str, float]]:
    """Return the median microseconds of one call, interleaved, and the runs per second by number of threads.

    Print both.
    """
    with tempfile.TemporaryDirectory() as work:
        library = _plugin(Path(work))
        with ip.Runtime() as runtime:
            calls = _calls(runtime, "CpuRef") | _peers()
            if library is not None:
                runtime.registry.register(library.id, lambda: DynamicBackend(library))
                calls = _calls(runtime, library.id) | calls
            medians = _medians(calls, max(repeat, 7))
        if library is not None:
            library.close()
    print("\none call from Python, one Addition of four numbers, microseconds (median of interleaved rounds)")
    for name, value in medians.items():
        print(f"  {name:56} {value:8.2f}")
    for name in [name for name, module in PEERS.items() if importlib.util.find_spec(module) is None]:
        print(f"  {name} is not installed")
    rates = _throughput(max(repeat, 3))
    return {"microseconds": medians, "runs a second": rates, **plain_calls.measure(folder, max(repeat, 7))}


def _medians(calls: Mapping[str, Callable[[], Any]], repeat: int) -> dict[str, float]:
    times: dict[str, list[float]] = {name: [] for name in calls}
    for turn in range(repeat + 1):
        for name, call in calls.items():
            start = time.perf_counter()
            for _ in range(CALLS):
                call()
            if turn:
                times[name].append((time.perf_counter() - start) / CALLS)
    return {name: statistics.median(values) * 1e6 for name, values in times.items()}


# --- ours -------------------------------------------------------------------------------------------------------------


def _plugin(folder: Path) -> Library | None:
    """Return a plug-in that supports every layer and computes nothing; None if there is no C compiler."""
    compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    if compiler is None:
        print("\noverhead: there is no C compiler, so no plug-in")
        return None
    path = str(folder / "Interposer_Nothing_backend.so")
    source = Path(__file__).with_name("abi_plugin.c")
    words = [compiler, "-O2", "-fPIC", "-shared", f"-I{include.path()}", str(source), "-o", path]
    subprocess.run(words, check=True)
    return open_library(ctypes.CDLL(path), path)


def _calls(runtime: ip.Runtime, backend: str) -> Calls:
    model = ip.load(adding(), [backend], runtime=runtime)
    number = runtime.load_network(model.optimized)
    working = runtime.create_working_mem_handle(number)
    x = np.ones(4, np.float32)
    feeds, target = {0: x, 1: x}, {0: np.empty(4, np.float32)}
    calls: Calls = {
        **_layers(working, feeds, target),
        "execute, with working memory, in place": lambda: runtime.execute(number, working, feeds, target),
        "execute, with working memory": lambda: runtime.execute(number, working, feeds),
        **_imported(runtime, number, model, (x, target[0])),
        "enqueue_workload, in place": lambda: runtime.enqueue_workload(number, feeds, target),
        "enqueue_workload": lambda: runtime.enqueue_workload(number, feeds),
        **_plain(model, x, target[0]),
    }
    return {f"{backend}: {name}": call for name, call in calls.items()}


def _plain(model: Any, x: Any, y: Any) -> Calls:
    """Return plain calls of a model in all forms."""
    a, b = model.inputs
    return {
        "model.run": lambda: model.run([x, x]),
        "model.run, a mapping": lambda: model.run({a: x, b: x}),
        "model.run, keywords": lambda: model.run(**{a: x, b: x}),
        "model.run, in place": lambda: model.run([x, x], [y]),
        "model.run, names of outputs": lambda: model.run([x, x], list(model.outputs)),
        "model(...)": lambda: model({a: x, b: x}),
    }


def _imported(runtime: ip.Runtime, number: int, model: Any, memory: tuple[Any, Any]) -> Calls:
    """Return calls on imported memory, which was checked before."""
    x, y = memory
    inputs, outputs = runtime.import_inputs(number, {0: x, 1: x}), runtime.import_outputs(number, {0: y})
    read, written = model.import_inputs([x, x]), model.import_outputs([y])
    ids = {"imported_inputs": tuple(inputs), "imported_outputs": tuple(outputs)}
    return {
        "enqueue_workload, imported": lambda: runtime.enqueue_workload(number, **ids),
        "model.run, imported": lambda: model.run(read, written),
        "model.bind": model.bind([x, x], [y]),
    }


def _layers(working: Any, feeds: dict[int, Any], target: dict[int, Any]) -> Calls:
    """Return calls of the workload alone, on handles with memory, and of the workload within its working memory."""
    twin = type(working)(working.program, working._factories)
    steps = twin._steps
    for handle in steps.handles.values():
        handle.allocate()
    [(execute, value, created)] = steps._calls
    return {
        "the workload": lambda: execute(value, created),
        "the working memory": lambda: working.run(feeds, target),
    }


# --- peers ------------------------------------------------------------------------------------------------------------


def _peers() -> Calls:
    x = np.ones(4, np.float32)
    calls: Calls = {}
    if importlib.util.find_spec("onnxruntime"):
        calls |= _onnxruntime(x)
    if has_litert():
        calls |= _litert(x)
    if importlib.util.find_spec("openvino"):
        calls |= _openvino(x)
    return calls


def _onnx_bytes() -> bytes:
    from interposer.writers import onnx  # noqa: PLC0415 - needs the onnx package

    return bytes(onnx.write(adding()).SerializeToString())


def _onnxruntime(x: Any) -> Calls:
    import onnxruntime as ort  # noqa: PLC0415 - only where it is installed

    options = ort.SessionOptions()
    options.intra_op_num_threads = 1
    session = ort.InferenceSession(_onnx_bytes(), options, providers=["CPUExecutionProvider"])
    feeds = {get_input.name: x for get_input in session.get_inputs()}
    binding = session.io_binding()
    for name in feeds:
        binding.bind_cpu_input(name, x)
    binding.bind_ortvalue_output(session.get_outputs()[0].name, ort.OrtValue.ortvalue_from_numpy(x.copy()))
    return {
        "ONNX Runtime: run": lambda: session.run(None, feeds),
        "ONNX Runtime: run_with_iobinding, in place": lambda: session.run_with_iobinding(binding),
    }


def _litert(x: Any) -> Calls:
    from ai_edge_litert.interpreter import Interpreter  # noqa: PLC0415 - only where it is installed

    interpreter = Interpreter(model_content=tflite_bytes(adding()), num_threads=1)
    interpreter.allocate_tensors()
    inputs = [get_input_detail["index"] for get_input_detail in interpreter.get_input_details()]
    output = interpreter.get_output_details()[0]["index"]

    def run() -> Any:
        for index in inputs:
            interpreter.set_tensor(index, x)
        interpreter.invoke()
        return interpreter.get_tensor(output)

    return {"LiteRT: set_tensor, invoke, get_tensor": run, "LiteRT: invoke, in place": interpreter.invoke}


def _openvino(x: Any) -> Calls:
    with without_openvino_telemetry():
        import openvino  # noqa: PLC0415 - only where it is installed

    core = openvino.Core()
    compiled = core.compile_model(core.read_model(_onnx_bytes()), "CPU", {"INFERENCE_NUM_THREADS": 1})
    request = compiled.create_infer_request()
    for number in range(2):
        request.set_input_tensor(number, openvino.Tensor(x, shared_memory=True))
    return {"OpenVINO: call": lambda: compiled([x, x]), "OpenVINO: infer, in place": request.infer}


# --- threads ----------------------------------------------------------------------------------------------------------


def _throughput(repeat: int) -> dict[str, float]:
    """Return the runs per second of one loaded network by number of threads, and those of NumPy alone."""
    x = np.ones((1 << 17,), np.float32)
    with ip.Runtime() as runtime:
        number = runtime.load_network(ip.optimize(_busy(x.size), ["CpuRef"], runtime.device_spec))
        works: Calls = {"CpuRef": lambda: runtime.enqueue_workload(number, {0: x}), "NumPy": lambda: _by_numpy(x)}
        rates: dict[str, list[float]] = {f"{name}, {threads}": [] for name in works for threads in (1, 2)}
        for _ in range(repeat):
            for row, values in rates.items():
                name, _, threads = row.partition(", ")
                values.append(_rate(works[name], int(threads)))
    runs_per_second = {f"{row} threads": statistics.median(values) for row, values in rates.items()}
    print("\na network whose kernels cost much, loaded once, runs a second")
    for name in works:
        one, two = (runs_per_second[f"{name}, {threads} threads"] for threads in (1, 2))
        print(f"  {name:12} 1 thread {one:8.1f}   2 threads {two:8.1f} ({two / one:.2f} x)")
    return runs_per_second


def _busy(size: int) -> ip.Network:
    """Return a network of ten alternating sines and exponentials, one after the other."""
    network = ip.Network("busy")
    x: Any = network.add_input_layer(0, ip.TensorInfo((size,)))
    for _ in range(10):
        x = network.add_elementwise_unary_layer(x, operation=UnaryOperation.SIN)
        x = network.add_elementwise_unary_layer(x, operation=UnaryOperation.EXP)
    network.add_output_layer(0, x)
    return network


def _by_numpy(x: Any) -> Any:
    """Compute the same as `_busy` with NumPy alone, to see what a second thread gains on this machine."""
    for _ in range(10):
        x = np.exp(np.sin(x))
    return x


def _rate(run: Callable[[], Any], threads: int, count: int = 40) -> float:
    """Return the runs per second if every thread makes `count` runs."""
    started = threading.Barrier(threads + 1)

    def work() -> None:
        started.wait()
        for _ in range(count):
            run()

    workers = [threading.Thread(target=work) for _ in range(threads)]
    for worker in workers:
        worker.start()
    started.wait()
    begun = time.perf_counter()
    for worker in workers:
        worker.join()
    return threads * count / (time.perf_counter() - begun)
