"""Temporarily loaded networks, for timing."""

from __future__ import annotations

import math
import time
from typing import Final

from interposer.core.config import thread_budget
from interposer.report.optimized import OptimizedNetwork
from interposer.runtime import MemoryReport, NetworkId, RunControl, Runtime
from interposer.session.fast_path import FastPath
from interposer.session.placement.cuts import example

__all__ = ["Loaded"]

_FEW: Final = 5
_LONG: Final = 0.1
_GLANCE: Final = 0.02
_MOST_RUNS: Final = 1000
"""A first measurement takes a few runs or `_LONG` seconds; for very short runs, `_GLANCE` seconds or this many runs. A
 network that seems far too slow then is not measured again."""


class Loaded:
    """A network that is loaded for measuring, with example inputs; use it in a ``with`` block, or call `close`.

    `first_seconds` is a first estimate of the seconds of a run, and `used` has the backends with layers.
    """

    def __init__(self, runtime: Runtime, optimized: OptimizedNetwork) -> None:
        self._runtime = runtime
        self._network_id: NetworkId = runtime.load_network(optimized)
        self.first_seconds = math.inf
        self.used = {placement.backend for placement in optimized.placements}
        binding_ids = [layer.op.binding_id for layer in optimized.inputs]  # type: ignore[attr-defined] # Inputs
        infos = [layer.output.known for layer in optimized.inputs]
        self._inputs = {
            binding_id: example(info, seed)
            for seed, (binding_id, info) in enumerate(zip(binding_ids, infos, strict=True))
        }
        self._units = {placement.runs_in for placement in optimized.placements}
        self._arrays = list(self._inputs.values())
        self._path = FastPath(runtime, self._network_id, tuple(layer.name for layer in optimized.inputs))

    def __enter__(self) -> Loaded:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def only_unit(self) -> str | None:
        """The name of the layer that runs the whole network, if a call of the model does nothing else; else None."""
        return next(iter(self._units)) if self._path.direct is not None and len(self._units) == 1 else None

    def run(self) -> None:
        """Run the network once, in the way in which a model runs it."""
        path = self._path
        if path.direct is not None and path.direct(self._arrays, None) is not None:
            return
        if path.run(self, self._arrays, None) is None:
            self._runtime.enqueue_workload(self._network_id, self._inputs)

    def watched(self, control: RunControl | None) -> None:
        """Run the network once; `control`, if it is not None, can stop the run and record the time of each layer."""
        self._runtime.enqueue_workload(self._network_id, self._inputs, control=control)

    def run_together(self) -> None:
        """Run the network once for each thread, concurrently."""
        count = thread_budget(self._runtime.options.num_threads)
        pending_runs = [self._runtime.submit(self._network_id, self._inputs) for _ in range(count)]
        for pending_run in pending_runs:
            pending_run.result()

    def seconds(self, patience: float, rest: float) -> float:
        """Return a low estimate of the seconds of one run, from a few runs after the first one.

        `patience` is the deadline of the first run in seconds, and `rest` a pause in seconds before it.

        Raises:
            DeadlineExceededError: the first run exceeded its deadline.
        """
        time.sleep(rest)
        self._runtime.enqueue_workload(self._network_id, self._inputs, deadline=patience)
        times: list[float] = []
        began = turn_start = time.perf_counter()
        while turn_start - began < (_LONG if len(times) < _FEW else _GLANCE) and len(times) < _MOST_RUNS:
            self.run()
            end = time.perf_counter()
            times.append(end - turn_start)
            turn_start = end
        return sorted(times)[len(times) // 4]

    @property
    def memory(self) -> MemoryReport:
        """The memory of the loaded network."""
        return self._runtime.memory(self._network_id)

    def close(self) -> None:
        """Unload the network."""
        self._runtime.unload_network(self._network_id)
