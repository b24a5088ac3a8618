"""The cost of isolation: a backend in a child process compared with the same backend in this process."""

from __future__ import annotations

import logging
import os
import signal
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import interposer as ip
from interposer.backend import WorkloadInfo

SIZES = (16, 1 << 10, 1 << 14, 1 << 18, 1 << 22)
LAYERS = (1, 20)


def measure(folder: Path, repeat: int) -> dict[str, Any]:
    """Return the median microseconds in this process and isolated, interleaved, and the time of a restart.

    Print them.
    """
    if sys.platform != "linux":
        print("\nisolation: on Linux only")
        return {}
    logging.getLogger("interposer").setLevel(logging.ERROR)  # the errors below are meant
    print("\nisolation, microseconds (median)")
    with ip.Runtime() as here, ip.Runtime(ip.CreationOptions(isolate="CpuRef")) as there:
        figures = {f"part, {size} floats": _of_parts(here, there, size, repeat) for size in SIZES}
        figures |= {
            f"network, {size} floats, {layers} layers": _of_networks(here, there, size, layers, repeat)
            for size in SIZES
            for layers in LAYERS
        }
        figures["restart"] = {"seconds": _restart(there)}
    return figures


# --- a part whose tensors lie in shared memory ------------------------------------------------------------------------


def _of_parts(here: ip.Runtime, there: ip.Runtime, size: int, repeat: int) -> dict[str, float]:
    calls = {"here": _workload(here, size), "isolated": _workload(there, size)}
    return _compared(f"one Addition of {size} floats, tensors in place", calls, repeat)


def _workload(runtime: ip.Runtime, size: int) -> Callable[[], Any]:
    """Return a function that runs one workload and waits for its result; nothing is copied."""
    network = ip.Network()
    x = network.add_input_layer(0, ip.TensorInfo((size,)))
    layer = network.add_addition_layer(x, x)
    network.add_output_layer(0, layer)
    backend = runtime.registry.get("CpuRef")
    manager = backend.create_memory_manager()
    assert manager is not None
    factory = backend.create_workload_factory(manager, {})
    source, target = (factory.create_tensor_handle(layer.output.known) for _ in range(2))
    workload = factory.create_workload(layer, WorkloadInfo.of(layer))
    for handle in (source, target):
        handle.manage()
    for handle in (source, target):
        handle.allocate()
    workload.post_allocation_configure()
    manager.acquire()
    source.copy_in(np.ones(size, np.float32))
    inputs, outputs = (source, source), (target,)

    def run() -> Any:
        workload.execute(inputs, outputs)
        output = target.map()
        target.unmap()
        return output

    return run


# --- a network, whose inputs and outputs are copied -------------------------------------------------------------------


def _of_networks(here: ip.Runtime, there: ip.Runtime, size: int, layers: int, repeat: int) -> dict[str, float]:
    x = np.ones(size, np.float32)
    ready = {"here": _loaded(here, size, layers), "isolated": _loaded(there, size, layers)}
    calls = {
        name: lambda runtime=runtime, number=number, out=out: runtime.enqueue_workload(number, {0: x}, {0: out})
        for name, (runtime, number, out) in ready.items()
    }
    return _compared(f"network of {layers} layers, {size} floats in and out", calls, repeat)


def _loaded(runtime: ip.Runtime, size: int, layers: int) -> tuple[ip.Runtime, int, Any]:
    network = ip.Network()
    value = x = network.add_input_layer(0, ip.TensorInfo((size,)))
    for _ in range(layers):
        value = network.add_minimum_layer(value, x)
        x = value
    network.add_output_layer(0, value)
    options = ip.OptimizerOptions(rewrite=False)
    optimized = ip.optimize(network, ["CpuRef"], runtime.device_spec, options)
    return runtime, runtime.load_network(optimized), np.empty(size, np.float32)


# --- measuring --------------------------------------------------------------------------------------------------------


def _compared(title: str, calls: dict[str, Callable[[], Any]], repeat: int) -> dict[str, float]:
    times: dict[str, list[float]] = {name: [] for name in calls}
    for call in calls.values():
        for _ in range(3):
            call()
    for _ in range(max(repeat, 7)):
        for name, call in calls.items():
            times[name] += _some(call)
    medians = {name: statistics.median(values) * 1e6 for name, values in times.items()}
    medians["added"] = medians["isolated"] - medians["here"]
    columns = "".join(f"  {name} {value:9.1f} us" for name, value in medians.items())
    print(f"{title:48}{columns}")
    return medians


def _some(call: Callable[[], Any]) -> list[float]:
    seconds = []
    until = time.perf_counter() + 0.05
    while not seconds or (time.perf_counter() < until and len(seconds) < 200):
        begun = time.perf_counter()
        call()
        seconds.append(time.perf_counter() - begun)
    return seconds


def _restart(runtime: ip.Runtime) -> float:
    """Return the seconds from the kill of a process to the next answer.

    The answer comes from a new process, which has compiled everything again.
    """
    run = _workload(runtime, 16)
    backend: Any = runtime.registry.get("CpuRef")
    times = []
    for _ in range(3):
        run()
        os.kill(backend.supervisor.life.pid, signal.SIGKILL)
        begun = time.perf_counter()
        run()
        times.append(time.perf_counter() - begun)
    print(f"{'a fresh process after a crash':48}  {statistics.median(times):.3f} s")
    return statistics.median(times)
