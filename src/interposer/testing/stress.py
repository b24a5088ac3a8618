"""Checks that load and run networks many times: nothing may leak, and threads may not disturb each other."""

from __future__ import annotations

import ctypes
import gc
import logging
import os
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from itertools import pairwise
from pathlib import Path
from typing import ClassVar, Final

import numpy as np

from interposer.core.schema import Op
from interposer.core.types import Array, TensorInfo
from interposer.ir.network import Network
from interposer.ops import Activation, ActivationFunction, Addition, BatchMatMul, FullyConnected, Multiplication
from interposer.runtime import Runtime
from interposer.testing.bench import Bench, Loaded
from interposer.testing.census import Census
from interposer.testing.contracts import grown, on_backend
from interposer.testing.outcome import Refused, Skipped
from interposer.testing.patterns import VARIANTS
from interposer.testing.tolerances import same
from interposer.testing.trial import Outputs

__all__ = ["at_once", "running"]

_MEMORY_FILE: Final = Path("/proc/self/statm")
_MEBIBYTE: Final = 1 << 20
_WARM_UP: Final = 5
_ROUNDS: Final = 15

# --- leaks ------------------------------------------------------------------------------------------------------------


@on_backend("objects", "memory", "small")
def leaks(bench: Bench, variant: str) -> Iterator[str]:
    """Yield an error for everything that leaks when networks are loaded, run and unloaded repeatedly.

    The check looks for leaked managers, factories, handles and workloads, for leaked native memory, and for a few bytes
    leaked per load of a small network.
    """
    with _only_new_objects(), _no_log_records():
        yield from {"objects": _objects_left, "memory": _memory_left, "small": _bytes_left}[variant](bench)


@contextmanager
def _only_new_objects() -> Iterator[None]:
    """Exclude the objects that exist now from garbage collection, so that it does not scan thousands of samples."""
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()


@contextmanager
def _no_log_records() -> Iterator[None]:
    """Disable logging, as a handler may retain every record: pytest's does, and its memory would count as leaked."""
    previous_level = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        yield
    finally:
        logging.disable(previous_level)


def _objects_left(bench: Bench) -> Iterator[str]:
    loads, census = bench.settings.loads, Census()
    _load_chains(bench, census, loads)
    gc.collect()
    for class_name, count in census.alive().items():
        if count >= loads // 10:
            yield f"{count} objects of the class {class_name} are still alive after {loads} networks were unloaded"


def _load_chains(bench: Bench, census: Census, loads: int) -> None:
    growths = [grown(bench, f"chain-{number}") for number in range(VARIANTS)]
    for number in range(loads):
        growth = growths[number % len(growths)]
        with bench.loaded(bench.optimize(growth.network, census)) as loaded_network:
            loaded_network.run(growth.feeds)


_LARGE_OPS: Final[tuple[Op, ...]] = (
    Addition(),
    Multiplication(),
    Activation(ActivationFunction.RELU),
    BatchMatMul(),
    FullyConnected(),
)


def _memory_left(bench: Bench) -> Iterator[str]:
    """Yield an error if the process grows while networks with tensors of 1 MiB are loaded and unloaded."""
    if not _MEMORY_FILE.exists():
        raise Skipped(f"{_MEMORY_FILE} is missing, which reports the memory of a process")
    networks = [network for network in map(_large, _LARGE_OPS) if bench.takes_all(network.graph)]
    if not networks:
        raise Refused("the backend takes none of the layers that are tried with large tensors")
    loads = bench.settings.loads
    for network in networks:
        _load_often(bench, network, _WARM_UP)
        bytes_before = _resident()
        _load_often(bench, network, loads)
        growth = (_resident() - bytes_before) / _MEBIBYTE
        if growth > loads / 4:
            title = f"{network.name}, on tensors of 1 MiB"
            yield f"the process grew by {growth:.0f} MiB while a network of {title}, was loaded {loads} times"


def _large(op: Op) -> Network:
    """Return a network of one layer with tensors of 1 MiB; all required operands of the operator are the same input."""
    network, shape = Network(op.op_name()), (64, 64, 64) if isinstance(op, BatchMatMul) else (512, 512)
    shared_input = network.add_input_layer(0, TensorInfo(shape))
    operand_count = sum(not operand.optional for operand in op.operands)
    network.add_output_layer(0, network.add_layer(op, *[shared_input] * operand_count, name="layer"))
    return network


def _load_often(bench: Bench, network: Network, times: int) -> None:
    [output_layer] = network.graph.outputs
    zeros, output_array = (_zeros(value.known) for value in (network.inputs[0].output, output_layer.values[0]))
    for _ in range(times):
        with bench.loaded(bench.optimize(network)) as loaded_network:
            loaded_network.run({0: zeros}, {0: output_array})
    gc.collect()


def _zeros(info: TensorInfo) -> Array:
    return np.zeros(tuple(info.shape), np.float32)


_WINDOWS: Final = 5
_LEAST_BYTES: Final = 64
_LEAST_BLOCKS: Final = 2
"""The growth per load, in bytes or in blocks of Python's allocator, from which on it counts as a leak."""


def _bytes_left(bench: Bench) -> Iterator[str]:
    """Yield an error if a small network leaks: memory grows in every series of loads, even by a few bytes."""
    loads = max(10, bench.settings.loads // _WINDOWS)
    growth = grown(bench, "chain-0")
    counts = []
    with Runtime() as runtime:  # in the bench's own runtime, an earlier recording watches the context and grows
        for window in range(_WINDOWS + 2):
            for _ in range(loads):
                loaded_network = Loaded(runtime, bench.optimize(growth.network))
                loaded_network.run(growth.feeds)
                loaded_network.unload()
            gc.collect()
            if window:  # the first one warms up
                counts.append((sys.getallocatedblocks(), _native_bytes()))
    blocks, sizes = ([after - before for before, after in pairwise(series)] for series in zip(*counts, strict=True))
    if min(blocks) >= loads * _LEAST_BLOCKS:
        yield f"about {min(blocks) // loads} Python objects leak for every small network that is loaded"
    elif min(sizes) >= loads * _LEAST_BYTES:
        yield f"about {min(sizes) // loads} bytes leak for every small network that is loaded"


class _MallocStatistics(ctypes.Structure):
    """The C struct ``mallinfo2`` of the GNU C library: statistics about memory from `malloc`."""

    _fields_: ClassVar = [(f"field_{number}", ctypes.c_size_t) for number in range(10)]


def _native_bytes() -> int:
    """Return the number of bytes allocated with `malloc` and not freed; 0 if the C library does not report it."""
    try:
        mallinfo2 = ctypes.CDLL(None).mallinfo2
    except (OSError, AttributeError):
        return 0
    mallinfo2.restype = _MallocStatistics
    statistics = mallinfo2()
    return int(statistics.field_4 + statistics.field_7)  # hblkhd, in mappings of their own, and uordblks, in arenas


def _resident() -> int:
    """Return the resident set size of the process, in bytes."""
    return int(_MEMORY_FILE.read_text(encoding="ascii").split()[1]) * os.sysconf("SC_PAGE_SIZE")


# --- threads ----------------------------------------------------------------------------------------------------------

Job = Callable[[], None]


@on_backend("networks", "one-network", "optimizing")
def threads(bench: Bench, variant: str) -> Iterator[str]:
    """Yield an error if results of concurrent runs differ from those of a single thread.

    Different networks run concurrently; runs of one network wait for each other; networks are optimized and loaded
    while others run.
    """
    with ExitStack() as stack:
        jobs = {"networks": _networks, "one-network": _one_network, "optimizing": _optimizing}[variant](bench, stack)
        yield from at_once(jobs)


class _Different(Exception):  # noqa: N818 - found, not raised by an error of the kit
    pass


def _networks(bench: Bench, stack: ExitStack) -> list[Job]:
    network_jobs = []
    for number in range(VARIANTS):
        growth = grown(bench, f"chain-{number}")
        loaded_network = stack.enter_context(bench.loaded(bench.optimize(growth.network)))
        network_jobs.append(running(loaded_network, growth.feeds, loaded_network.run(growth.feeds)))
    return network_jobs


def _one_network(bench: Bench, stack: ExitStack) -> list[Job]:
    growth = grown(bench, "chain-0")
    loaded_network = stack.enter_context(bench.loaded(bench.optimize(growth.network)))
    feeds_of_runs = [{key: np.roll(array, number) for key, array in growth.feeds.items()} for number in range(4)]
    return [running(loaded_network, feeds, loaded_network.run(feeds)) for feeds in feeds_of_runs]


def running(loaded: Loaded, feeds: Outputs, expected: Outputs) -> Job:
    """Return a job that runs a network several times and compares its outputs with the expected ones."""

    def job() -> None:
        for _ in range(_ROUNDS):
            _compare(loaded.run(feeds), expected)

    return job


def _optimizing(bench: Bench, stack: ExitStack) -> list[Job]:
    jobs = _networks(bench, stack)[:2]
    for number in range(3):
        growth = grown(bench, f"chain-{number}")
        jobs.append(_loading(bench, growth.network, growth.feeds, bench.run(growth.network, growth.feeds)))
    return jobs


def _loading(bench: Bench, network: Network, feeds: Outputs, expected: Outputs) -> Job:
    def job() -> None:
        with Runtime() as runtime:
            for _ in range(_ROUNDS // 5):
                loaded_network = Loaded(runtime, bench.optimize(network))
                _compare(loaded_network.run(feeds), expected)
                loaded_network.unload()

    return job


def _compare(outputs: Outputs, expected: Outputs) -> None:
    for key, array in expected.items():
        if not same(outputs[key], array):
            raise _Different(f"output {key} is not what it is when nothing else runs")


def at_once(jobs: Sequence[Job]) -> Iterator[str]:
    """Run all jobs concurrently, switching between threads as often as possible; yield the errors."""
    barrier, errors = threading.Barrier(len(jobs)), list[str]()

    def work(job: Job) -> None:
        barrier.wait()
        try:
            job()
        except _Different as different:
            errors.append(str(different))
        except Exception as error:
            errors.append(f"a thread that ran concurrently with others raised {type(error).__name__}: {error}")

    with _frequent_changes():
        workers = [threading.Thread(target=work, args=(job,)) for job in jobs]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
    yield from dict.fromkeys(errors)


@contextmanager
def _frequent_changes() -> Iterator[None]:
    previous_interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        yield
    finally:
        sys.setswitchinterval(previous_interval)
