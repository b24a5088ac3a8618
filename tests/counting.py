"""A backend for tests of profiles that counts and measures, and can be created in a child process."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Sequence
from time import perf_counter_ns
from typing import ClassVar

import numpy as np

from interposer.backend import (
    Backend,
    BackendProfiling,
    BackendProfilingContext,
    CounterClass,
    CounterTimestamp,
    DeviceClock,
    KernelTable,
    Options,
)
from interposer.core.types import Array, DataType
from interposer.ops import Addition, Multiplication

SKEW = 10**12
"""How far the clock of the device is ahead of the host's, in nanoseconds."""
table = KernelTable()


class Counts(BackendProfilingContext):
    """Counts additions, and reports each of them as an interval, on the clock of a device too."""

    def __init__(self, profiling: BackendProfiling) -> None:
        self.profiling, self.clock = profiling, DeviceClock()
        self.number = self.added = 0

    def register_counters(self, current_max_counter_id: int) -> int:
        registration = self.profiling.counter_registration(current_max_counter_id)
        registration.register_category("work")
        device = registration.register_device("unit 0")
        self.number = registration.register_counter(
            "additions", "work", units="additions", device=device, multiplier=0.5
        )
        return registration.current_max_counter_id

    def report_counter_values(self) -> Iterable[CounterTimestamp]:
        count, self.added = self.added, 0
        return [CounterTimestamp(perf_counter_ns(), {self.number: 2 * count})] if count else []

    def enable_profiling(self, enable: bool) -> bool:
        before = perf_counter_ns()
        self.clock.correlate(perf_counter_ns() + SKEW, before, perf_counter_ns())
        return True

    def worked(self, begin: int) -> None:
        self.added += 1
        end = perf_counter_ns()
        self.profiling.interval("add call", begin, end, bytes=72)
        self.profiling.interval("add kernel", begin + SKEW, end + SKEW, clock=self.clock, device="unit 0")


class Counting(Backend):
    """Adds and multiplies, and takes part in profiling."""

    id: ClassVar = "Counting"
    kernels: ClassVar = table
    contexts: ClassVar[list[Counts]] = []

    def create_backend_profiling_context(
        self, options: Options, profiling: BackendProfiling
    ) -> BackendProfilingContext | None:
        self.contexts.append(Counts(profiling))
        return self.contexts[-1]


@table(Addition, dtypes={DataType.FLOAT32})
def add(op: Addition, a: Array, b: Array, *, out: Array) -> None:
    begin = perf_counter_ns()
    np.add(a, b, out=out)
    for context in Counting.contexts:
        context.worked(begin)
    if a.flat[0] == 1000:  # reports many intervals
        for number in range(200_000):
            Counting.contexts[-1].profiling.interval("many", begin, begin + number)


@table(Multiplication, dtypes={DataType.FLOAT32})
def multiply(op: Multiplication, a: Array, b: Array, *, out: Array) -> None:
    worker = threading.Thread(target=_multiply, args=(a, b, out), name="multiplier")
    worker.start()
    worker.join()


def _multiply(a: Array, b: Array, out: Array) -> None:
    begin = perf_counter_ns()
    np.multiply(a, b, out=out)
    for context in Counting.contexts:
        context.profiling.interval("multiply call", begin, perf_counter_ns())


class Selecting(Counts):
    """Reports in a counter of its own the period in which its counters are captured, and refuses one of them."""

    def __init__(self, profiling: BackendProfiling) -> None:
        super().__init__(profiling)
        self.period, self.chosen, self.timelines = 0, list[int](), 0

    def register_counters(self, current_max_counter_id: int) -> int:
        self.number = super().register_counters(current_max_counter_id)
        registration = self.profiling.counter_registration(self.number)
        registration.register_category("selection")
        for name in ("period", "timelines", "refused"):
            registration.register_counter(name, "selection", units="us", kind=CounterClass.VALUE)
        return registration.current_max_counter_id

    def activate_counters(self, capture_period: int, counter_ids: Sequence[int]) -> str | None:
        self.period, self.chosen = capture_period, list(counter_ids)
        return "it has no register left" if self.number + 3 in counter_ids else None

    def enable_timeline_reporting(self, enable: bool) -> bool:
        self.timelines += enable
        return True

    def report_counter_values(self) -> Iterable[CounterTimestamp]:
        values = {self.number + 1: self.period, self.number + 2: self.timelines}
        chosen = {number: value for number, value in values.items() if number in self.chosen}
        return [CounterTimestamp(perf_counter_ns(), chosen)] if chosen else []


class Selected(Counting):
    """The same with a selection of counters."""

    def create_backend_profiling_context(
        self, options: Options, profiling: BackendProfiling
    ) -> BackendProfilingContext | None:
        return Selecting(profiling)
