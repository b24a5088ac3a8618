"""Networks and runtimes for tests of backends in child processes."""

from __future__ import annotations

import gc
import os
import select
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pytest

import interposer as ip
from interposer.isolation.backend import IsolatedBackend
from tests.faulty import Faulty
from tests.native import started_by

needs_linux = pytest.mark.skipif(sys.platform != "linux", reason="backends are isolated on Linux only")
C = np.float32([[1, -2, 3], [-4, 5, -6]])
X = np.float32([[1, 1, 1], [2, 2, 2]])


def sums_and_relu() -> ip.Network:
    """Return a network that computes relu(x + C) + x: on Faulty, CpuRef, and Faulty again."""
    network = ip.Network("sums")
    x = network.add_input_layer(0, ip.TensorInfo(C.shape), name="x")
    first = network.add_addition_layer(x, network.add_constant_layer(C, name="c"), name="first")
    relu = network.add_activation_layer(first, function=ip.ops.ActivationFunction.RELU, name="relu")
    network.add_output_layer(0, network.add_addition_layer(relu, x, name="last"), name="y")
    return network


def expected(x: Any) -> Any:
    return np.maximum(x + C, 0) + x


@contextmanager
def faulty_runtime(problems: dict[str, Any] | None = None, **isolation: Any) -> Iterator[ip.Runtime]:
    """Yield a runtime with `Faulty`, isolated; check at the end that no process or memory of it remains."""
    with no_trace_left():
        how = ip.Isolation(**isolation)
        with ip.Runtime(ip.CreationOptions(isolate={"Faulty": how})) as runtime:
            runtime.registry.register("Faulty", partial(Faulty, **(problems or {})))
            yield runtime


def limit_calls(runtime: ip.Runtime, seconds: float, backend: str = "Faulty") -> None:
    """Limit the calls of an isolated backend from now on.

    A test of a backend that hangs limits the call that hangs, but not the calls before it, which a busy machine may
    delay.
    """
    isolated = runtime.registry.get(backend)
    assert isinstance(isolated, IsolatedBackend)
    isolated.supervisor.how = replace(isolated.supervisor.how, deadline_seconds=seconds)


def process_of(runtime: ip.Runtime, backend: str = "Faulty") -> int:
    """The process that runs a backend."""
    result = runtime.registry.get(backend)
    assert isinstance(result, IsolatedBackend)
    life = result.supervisor.life
    assert life is not None
    return life.pid


def kill(runtime: ip.Runtime, backend: str = "Faulty") -> None:
    """Kill the process that runs a backend, and wait until it has ended."""
    process = process_of(runtime, backend)
    descriptor = os.pidfd_open(process)
    os.kill(process, signal.SIGKILL)
    select.select([descriptor], [], [])
    os.close(descriptor)


def children() -> set[int]:
    """The processes that this one has started and that are not waited for."""
    return started_by(os.getpid())


def descriptors() -> set[str]:
    """What this process has open of shared memory and sockets."""
    result = set()
    for fd in os.listdir("/proc/self/fd"):
        try:
            result.add(f"{fd} {os.readlink(f'/proc/self/fd/{fd}')}")
        except OSError:
            continue
    return {item for item in result if "interposer" in item or "socket" in item}


@contextmanager
def no_trace_left() -> Iterator[None]:
    """Soon afterwards there are no more processes, files and descriptors than before."""
    gc.collect()
    before = children(), descriptors()
    yield
    gc.collect()
    end = time.monotonic() + 300
    while children() - before[0] or descriptors() - before[1]:
        assert time.monotonic() < end, (children() - before[0], descriptors() - before[1])
        time.sleep(0.02)
    assert [name for name in os.listdir("/dev/shm") if "interposer" in name] == []
