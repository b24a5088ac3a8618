"""The process of one engine with one network: it answers requests over a socket, and sleeps in between."""

from __future__ import annotations

import os
import statistics
import sys
import tempfile
import time
import traceback
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, Final

import numpy as np

from benchmarks.engines import engine
from benchmarks.engines.engine import Call, Engine

TRIAL_SECONDS: Final = 0.15
FEWEST: Final = 3
"""Runs of which a round consists at least."""


class Worker:
    """The engine, and the requests that it answers; each request is a method with plain data as arguments."""

    def __init__(self, name: str, threads: int, cache: str) -> None:
        self._threads, self._cache = threads, Path(cache)
        self._engine: Engine = engine(name)
        self._engine.begin()
        self._call: Call = _nothing
        self._plain: Call = _nothing
        self._before = 0

    def warm_up(self, path: str) -> None:
        """Load and run the tiny network, so that one-time initialization is done."""
        with tempfile.TemporaryDirectory() as empty:
            self._first(path, [np.zeros(4, np.float32) for _ in range(2)], Path(empty))
            self._engine.close()

    def load(self, path: str, inputs: str, outputs: str) -> dict[str, Any]:
        """Load the network, run it once and write the result to a file; return milliseconds and bytes of memory."""
        with np.load(inputs) as file:
            arrays = [file[name] for name in file.files]
        self._before = _resident()
        start = time.perf_counter()
        self._first(path, arrays, self._cache)
        seconds = time.perf_counter() - start
        np.savez(outputs, *self._engine.outputs())
        return {"load_ms": seconds * 1000, "version": self._engine.version(), "note": self._engine.note()}

    def keep(self, path: str) -> None:
        """Fill the cache for a later process."""
        self._engine.keep(Path(path), self._threads, self._cache)

    def choose(self, outputs: str) -> str:
        """Try all ways of calling, choose the fastest beside the plain call, and write its results to a file."""
        ways = self._engine.ways()
        for call in ways.values():
            call()
        costs = {name: min(_times(call, TRIAL_SECONDS / len(ways))) for name, call in ways.items()}
        way = min(costs, key=lambda name: costs[name])
        self._plain, self._call = next(iter(ways.values())), ways[way]
        self._call()
        np.savez(outputs, *self._engine.outputs())
        return way

    def measure(self, seconds: float) -> dict[str, float]:
        """Return the milliseconds of one turn, after warm-up runs for a fifth of the time; plain calls take half."""
        cpu = time.process_time()
        _times(self._call, seconds / 5, fewest=1)
        times = _times(self._call, seconds)
        plain = times if self._plain is self._call else _times(self._plain, seconds / 2)
        figures = {
            "median_ms": statistics.median(times),
            "min_ms": min(times),
            "plain_ms": statistics.median(plain),
            "plain_min_ms": min(plain),
            "cpu_ms": time.process_time() - cpu,
        }
        return {name: value * 1000 for name, value in figures.items()} | {"runs": len(times)}

    def memory(self) -> int:
        """Return the resident bytes that were added since before the network was loaded."""
        return _resident() - self._before

    def _first(self, path: str, inputs: list[Any], cache: Path) -> None:
        self._engine.load(Path(path), self._threads, cache)
        self._engine.feed(inputs)
        next(iter(self._engine.ways().values()))()


def _nothing() -> None:
    """Do nothing; the call until a way of calling is chosen."""


def _times(call: Call, seconds: float, fewest: int = FEWEST) -> list[float]:
    """Return the seconds of each run during a time, but of a minimum number of runs."""
    times: list[float] = []
    end = time.perf_counter() + seconds
    while len(times) < fewest or time.perf_counter() < end:
        start = time.perf_counter()
        call()
        times.append(time.perf_counter() - start)
    return times


def _resident() -> int:
    with open("/proc/self/statm", encoding="ascii") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def main() -> None:
    """Answer requests, each a name with arguments, until the connection is closed."""
    connection = Connection(int(sys.argv[1]))
    worker: Worker | None = None
    while True:
        try:
            name, arguments = connection.recv()
        except EOFError:
            return
        try:
            if name == "start":
                worker, answer = Worker(*arguments), None
            else:
                answer = getattr(worker, name)(*arguments)
            connection.send((True, answer))
        except Exception as error:  # reported; the benchmark continues without the engine
            traceback.print_exc()
            connection.send((False, f"{type(error).__name__}: {error}"))


if __name__ == "__main__":
    main()
