"""Backends whose hooks for profiling have one planted defect each, for the conformance kit to find.

`Measuring` does nothing wrong: it has a counter of events and one of values, and an interval for each kernel on its
thread and on a device. Every other backend here has one error.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Sequence
from time import perf_counter_ns
from typing import Any, ClassVar

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
from interposer.core.types import Array
from interposer.ops import Addition, Multiplication
from tests.testing.planted import Planted
from tests.testing.wrong import FLOAT, multiply

AHEAD = 10**12


class Context(BackendProfilingContext):
    """The profiling context of a backend in one runtime."""

    numbers: tuple[int, int]
    sampled_at: int = 0

    def __init__(self, backend: Measuring, profiling: BackendProfiling) -> None:
        self.backend, self.profiling, self.clock = backend, profiling, DeviceClock()
        self.requested: set[int] = set()

    def register_counters(self, current_max_counter_id: int) -> int:
        registration = self.profiling.counter_registration(current_max_counter_id)
        registration.register_category("work")
        events = registration.register_counter("sums", "work", units="sums")
        values = registration.register_counter("heat", "work", units="K", kind=CounterClass.VALUE)
        self.numbers = events, values
        return registration.current_max_counter_id

    def enable_profiling(self, enable: bool) -> bool:
        before = perf_counter_ns()
        self.clock.correlate(perf_counter_ns() + AHEAD, before, perf_counter_ns())
        self.backend.enable(self, enable)
        return True

    def activate_counters(self, capture_period: int, counter_ids: Sequence[int]) -> str | None:
        self.requested = set(counter_ids) if capture_period else set()
        return None

    def values(self) -> dict[int, float]:
        return dict(zip(self.numbers, (self.backend.taken(), 300.0), strict=True))

    def report_counter_values(self) -> Iterable[CounterTimestamp]:
        if not self.requested:
            return []
        values = self.values()
        return [CounterTimestamp(perf_counter_ns(), {n: values[n] for n in self.requested if n in values})]

    def report(self, begin: int, end: int) -> None:
        """Report the intervals of a kernel."""
        self.profiling.interval("add", begin, end)
        self.profiling.interval("on device", begin + AHEAD, end + AHEAD, clock=self.clock, device="unit 0")


class Measuring(Backend):
    """Adds and multiplies, and takes part in profiling without an error."""

    id: ClassVar = "Measuring"
    kernels: ClassVar = KernelTable()
    context: ClassVar[type[Context]] = Context

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.enabled: tuple[Context, ...] = ()
        self.sums = 0
        self.kernels = KernelTable()
        self.kernels(Addition, dtypes=FLOAT)(self.addition())
        self.kernels(Multiplication, dtypes=FLOAT)(multiply)

    def addition(self) -> Callable[..., None]:
        def add(op: Addition, a: Array, b: Array, *, out: Array) -> None:
            begin = perf_counter_ns()
            self.add(a, b, out)
            end = perf_counter_ns()
            for context in self.enabled:
                context.report(begin, end)
            self.count()

        return add

    def add(self, a: Array, b: Array, out: Array) -> None:
        np.add(a, b, out=out)

    def count(self) -> None:
        with self.lock:
            self.sums += bool(self.enabled)

    def taken(self) -> int:
        with self.lock:
            taken, self.sums = self.sums, 0
            return taken

    def enable(self, context: Context, enable: bool) -> None:
        with self.lock:
            remaining = tuple(other for other in self.enabled if other is not context)
            self.enabled = (*remaining, context) if enable else remaining
            self.sums = self.sums if remaining else 0

    def create_backend_profiling_context(
        self, options: Options, profiling: BackendProfiling
    ) -> BackendProfilingContext | None:
        return self.context(self, profiling)


def with_context(name: str, **members: Any) -> type[Measuring]:
    """Return a class of backends whose contexts have other methods or attributes."""
    context = type("Context", (Context,), members)
    return type(name, (Measuring,), {"context": context})


def with_backend(name: str, **members: Any) -> type[Measuring]:
    """Return a class of backends that has other methods itself."""
    return type(name, (Measuring,), members)


# --- counters ---------------------------------------------------------------------------------------------------------


def _from_zero(self: Context, current_max_counter_id: int) -> int:
    return Context.register_counters(self, 0)


def _one_less(self: Context, current_max_counter_id: int) -> int:
    return Context.register_counters(self, current_max_counter_id) - 1


def _numbered(self: Context, current_max_counter_id: int) -> int:
    registration = self.profiling.counter_registration(current_max_counter_id)
    registration.register_category("work")
    first = registration.register_counter(f"sums {current_max_counter_id}", "work", units="sums")
    self.numbers = first, registration.register_counter("heat", "work", units="K", kind=CounterClass.VALUE)
    return registration.current_max_counter_id


def _no_units(self: Context, current_max_counter_id: int) -> int:
    registration = self.profiling.counter_registration(current_max_counter_id)
    registration.register_category("work")
    first = registration.register_counter("sums", "work")
    self.numbers = first, registration.register_counter("heat", "work", units="K", kind=CounterClass.VALUE)
    return registration.current_max_counter_id


def _raises(self: Context, *args: Any) -> Any:
    raise OSError("the driver is gone")


def _all(self: Context) -> list[CounterTimestamp]:
    return [CounterTimestamp(perf_counter_ns(), self.values())] if self.requested else []


def _always(self: Context) -> list[CounterTimestamp]:
    return [CounterTimestamp(perf_counter_ns(), self.values())]


def _sampled(self: Context) -> list[CounterTimestamp]:
    """Capture values ten times as often as requested."""
    since, self.sampled_at = self.sampled_at, perf_counter_ns()
    times = range(since, self.sampled_at, 1_000_000) if self.requested and since else []
    return [CounterTimestamp(at, dict.fromkeys(self.requested, 0)) for at in times]


def _with_value(sums: Any) -> Callable[[Context], dict[int, Any]]:
    return lambda self: dict(zip(self.numbers, (sums, 300.0), strict=True))


def _in_microseconds(self: Context) -> list[CounterTimestamp]:
    return [CounterTimestamp(perf_counter_ns() // 1000, {n: 1 for n in self.requested})] if self.requested else []


def _half(self: Context) -> dict[int, float]:
    return {self.numbers[0]: self.backend.taken()}


# --- intervals --------------------------------------------------------------------------------------------------------


def _reports(report: Callable[[Context, int, int], None]) -> dict[str, Any]:
    return {"report": report}


def _overlapping(self: Context, begin: int, end: int) -> None:
    self.profiling.interval("first", begin, end - 10_000)
    self.profiling.interval("second", begin + 10_000, end)


class Overlapping(Measuring):
    """Reports two intervals of each addition: the second one begins inside the first one, and ends after it."""

    context = type("Context", (Context,), _reports(_overlapping))

    def add(self, a: Array, b: Array, out: Array) -> None:
        begin = perf_counter_ns()
        np.add(a, b, out=out)
        while perf_counter_ns() < begin + 30_000:  # both intervals must be longer than what the kit tolerates
            pass


def _other_thread(self: Context, begin: int, end: int) -> None:
    self.profiling.interval("add", begin, end, thread=12345)


def _without_clock(self: Context, begin: int, end: int) -> None:
    self.profiling.interval("on device", begin + AHEAD, end + AHEAD, device="unit 0")


def _others_while_enabled(self: Measuring, a: Array, b: Array, out: Array) -> None:
    np.add(a, b, out=out)
    if self.enabled:
        out += 1


# --- at run time ------------------------------------------------------------------------------------------------------


def _once(self: Measuring, context: Context, enable: bool) -> None:
    if enable and getattr(self, "used", False):
        return
    self.used = True
    Measuring.enable(self, context, enable)


def _raises_at_the_end(self: Context, enable: bool) -> bool:
    if not enable:
        raise OSError("the driver is gone")
    return Context.enable_profiling(self, enable)


def _always_counts(self: Measuring) -> None:
    with self.lock:
        self.sums += 1


def _does_not_clear(self: Measuring, context: Context, enable: bool) -> None:
    remaining = tuple(other for other in self.enabled if other is not context)
    self.enabled = (*remaining, context) if enable else remaining


def _late(self: Measuring) -> Callable[..., None]:
    """Return a kernel whose intervals are reported in the next run in which profiling is enabled."""
    waiting: list[tuple[int, int]] = []

    def add(op: Addition, a: Array, b: Array, *, out: Array) -> None:
        begin = perf_counter_ns()
        np.add(a, b, out=out)
        waiting.append((begin, perf_counter_ns()))
        for context in self.enabled:
            while waiting:
                context.report(*waiting.pop())
        self.count()

    return add


def _shared(self: Context) -> list[CounterTimestamp]:
    """Read a dictionary that kernels change without a lock."""
    total = 0
    for value in self.backend.__dict__.setdefault("seen", {}).values():
        time.sleep(0.0005)
        total += value
    return [CounterTimestamp(perf_counter_ns(), {n: total for n in self.requested})]


def _notes(self: Context, begin: int, end: int) -> None:
    seen = self.backend.__dict__.setdefault("seen", {})
    seen[begin] = 1
    if len(seen) > 16:  # each call changes the size
        for key in list(seen)[:8]:
            seen.pop(key, None)


_ROWS: tuple[tuple[str, type[Measuring], str, str], ...] = (
    ("Counters have the numbers of other backends", with_context("NumbersFromZero", register_counters=_from_zero),
     "ids", r"^the counter 'sums' has the number 1; expected more than 4"),
    ("The greatest number of a counter is wrong", with_context("ReturnsLess", register_counters=_one_less),
     "ids", r"^register_counters returned 5; the greatest number of a counter is 6"),
    ("Each runtime gets other counters", with_context("OtherNames", register_counters=_numbered),
     "ids", r"^another runtime gets other counters: \['sums 100', 'heat'\] instead of \['sums 4', 'heat'\]"),
    ("A counter has no units", with_context("NoUnits", register_counters=_no_units),
     "ids", r"^the counter 'sums' has no units"),
    ("Registering counters fails", with_context("CannotRegister", register_counters=_raises),
     "ids", r"^register_counters raised OSError: the driver is gone"),
    ("Events are counted twice", with_backend("CountsTwice", taken=lambda self: self.sums),
     "counters", r"^the counter 'sums' has \d+ events, and \d+ again in the next report without a run"),
    ("A counter of events is negative", with_context("Negative", values=_with_value(-1)),
     "counters", r"^the counter 'sums' of the class event has the value -1, which is negative"),
    ("A counter has no number as its value", with_context("NotANumber", values=_with_value(float("nan"))),
     "counters", r"^the counter 'sums' has the value nan; expected a finite number"),
    ("Values have times in microseconds", with_context("Microseconds", report_counter_values=_in_microseconds),
     "counters", r"^values have the time \d+; expected one between \d+ and \d+, when they were captured"),
    ("A counter that is active has no value", with_context("HalfOfThem", values=_half),
     "counters", r"^no value of the counter 'heat' was reported, which was active for two periods"),
    ("Counters that were not selected are reported", with_context("ReportsAll", report_counter_values=_all),
     "periods", r"^values of the counters \[6\] were reported, but only 5 \('sums'\) was selected"),
    ("The capture of counters does not end", with_context("NeverEnds", report_counter_values=_always),
     "periods", r"values were reported after activate_counters\(0, \[5, 6\]\), which ends the capture"),
    ("Values are captured more often than requested", with_context("TooOften", report_counter_values=_sampled),
     "periods", r"^\d+ values of the counter 'sums' were reported in [\d.]+ periods of 10000 us"),
    ("Known counters cannot be activated", with_context("Refuses", activate_counters=lambda *_: "no counters today"),
     "periods", r"^activate_counters returned the error 'no counters today' for known counters"),
    ("An interval ends before it begins",
     with_context("Backwards", **_reports(lambda self, begin, end: self.profiling.interval("add", end, begin - 9))),
     "intervals", r"^the interval 'add' ends before it begins, or has no end"),
    ("An interval has no end",
     with_context("Endless", **_reports(lambda self, begin, end: self.profiling.interval("add", begin, 0))),
     "intervals", r"^the interval 'add' ends before it begins, or has no end"),
    ("An interval has no name",
     with_context("Nameless", **_reports(lambda self, begin, end: self.profiling.interval("", begin, end))),
     "intervals", r"^an interval has the name ''; expected a text that is not empty"),
    ("Intervals of a thread overlap", Overlapping,
     "intervals", r"^the interval 'second' begins inside the interval 'first' on the same thread, but ends after it"),
    ("An interval is on an unknown thread", with_context("OtherThread", **_reports(_other_thread)),
     "intervals", r"^the interval 'add' names the thread 12345, which does not exist"),
    ("Times of a device are not converted", with_context("WithoutClock", **_reports(_without_clock)),
     "intervals", r"^the interval 'on device', on the clock of the device 'unit 0', is not inside a run"),
    ("Results are others while profiling is enabled", with_backend("OtherResults", add=_others_while_enabled),
     "intervals", r"^the results are others while profiling is enabled"),
    ("Disabling fails", with_context("CannotDisable", enable_profiling=_raises_at_the_end),
     "switching", r"^enable_profiling raised OSError: the driver is gone"),
    ("Profiling can be enabled only once", with_backend("OnlyOnce", enable=_once),
     "switching", r"^no intervals were reported after profiling was disabled and enabled again"),
    ("Enabling returns nothing", with_context("SaysNothing", enable_timeline_reporting=lambda self, enable: None),
     "switching", r"^enable_timeline_reporting returned None; expected True or False"),
    ("Events are counted while profiling is disabled",
     with_backend("AlwaysCounts", count=_always_counts, enable=_does_not_clear),
     "switching", r"^the counter 'sums' counts events of runs before profiling was enabled"),
    ("Intervals are measured while profiling is disabled", with_backend("Late", addition=_late),
     "switching", r"^the interval '.*' is from before profiling was enabled"),
    ("Counters are read while kernels change them",
     with_context("Shared", report_counter_values=_shared, report=_notes),
     "threads", r"^report_counter_values raised RuntimeError: dictionary (changed size|keys changed) during iteration"),
)  # fmt: skip

PLANTED: tuple[Planted, ...] = tuple(
    Planted(what, backend, f"profiling/{variant}", message, "profiling") for what, backend, variant, message in _ROWS
)
