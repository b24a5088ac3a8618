"""Checks of the hooks for profiling: counters, intervals, and being enabled and disabled while networks run."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from itertools import pairwise
from time import perf_counter_ns
from typing import Any, Final

from interposer.backend import (
    BackendProfiling,
    BackendProfilingContext,
    CounterClass,
    CounterTimestamp,
    DeviceClock,
    Options,
)
from interposer.core.records import dataclass
from interposer.ir.network import Network
from interposer.optimizer import OptimizerOptions, optimize
from interposer.plugins import BackendRegistry, DeviceSpec
from interposer.profiling.backends import FIRST_COUNTER
from interposer.profiling.events import Category, Counter
from interposer.profiling.recorder import Recorder, Recording
from interposer.report.optimized import OptimizedNetwork
from interposer.runtime import Runtime
from interposer.testing.bench import Bench, Loaded
from interposer.testing.census import Census
from interposer.testing.contracts import grown, on_backend
from interposer.testing.oracle import Oracle
from interposer.testing.outcome import Refused
from interposer.testing.patterns import Growth
from interposer.testing.progress import note
from interposer.testing.stress import at_once, running
from interposer.testing.tolerances import same
from interposer.testing.watched import Watched, replace_method

__all__: list[str] = []

_PERIOD: Final = 10_000
"""Microseconds between two captures of counters."""
_SLACK: Final = 2_000
"""Nanoseconds by which the times of an interval may differ from those that the host has measured."""
_RUNS: Final = 4
_CHAIN: Final = "chain-0"


@on_backend("ids", "counters", "periods", "intervals", "switching", "threads")
def profiling(bench: Bench, variant: str) -> Iterator[str]:
    """Yield an error if the profiling context of the backend raises, or if its counters or intervals are wrong.

    Counters must have the same names and unique numbers in every runtime, values of their class, and be reported when
    they are selected. Intervals must end, nest in each thread, and be inside the host's interval of a run. Profiling
    may begin and end while networks run, and must not change their results.
    """
    if not _takes_part(bench):
        raise Refused("the backend takes no part in profiling")
    yield from dict.fromkeys(_CHECKS[variant](bench))


def _takes_part(bench: Bench) -> bool:
    context: object = _Driven(bench).context
    return context is not None


# --- a context that a check drives ------------------------------------------------------------------------------------


class _Driven:
    """A profiling context of the backend, whose methods a check calls as a runtime does.

    `problems` has a text for each error that a call has raised.
    """

    def __init__(self, bench: Bench, greatest: int = FIRST_COUNTER - 1) -> None:
        self.counters: dict[int, Counter] = {}
        self.problems: list[str] = []
        self.greatest = greatest
        self.profiling = BackendProfiling(bench.backend.id, self.counters)
        create = bench.backend.create_backend_profiling_context
        self.context: Any = create(bench.settings.options, self.profiling)
        self.returned = None if self.context is None else self.call("register_counters", greatest)

    def call(self, name: str, *arguments: Any) -> Any:
        """Return the result of a method of the context; None after an error, which is added to `problems`."""
        note(f"calling {name} of the profiling context")
        try:
            return getattr(self.context, name)(*arguments)
        except Exception as error:
            self.problems.append(_raised(name, error))
            return None

    def activate(self, period: int, numbers: Sequence[int]) -> None:
        self.profiling.select(period, [number for number in numbers if number in self.counters])
        error = self.call("activate_counters", period, numbers)
        if error:
            self.problems.append(f"activate_counters returned the error {error!r} for known counters")

    def report(self) -> list[CounterTimestamp]:
        return _listed(self.call("report_counter_values"))

    @contextmanager
    def enabled(self) -> Iterator[None]:
        """Enable profiling and the timeline, as a runtime does, for a ``with`` block."""
        self.call("enable_profiling", True)
        self.call("enable_timeline_reporting", True)
        try:
            yield
        finally:
            self.activate(0, [])
            self.call("enable_timeline_reporting", False)
            self.call("enable_profiling", False)


def _raised(name: str, error: Exception) -> str:
    return f"{name} raised {type(error).__name__}: {error}"


def _listed(stamps: Any) -> list[CounterTimestamp]:
    return [stamp for stamp in stamps or () if isinstance(stamp, CounterTimestamp)]


@contextmanager
def _loaded(bench: Bench) -> Iterator[Callable[[], object]]:
    """Give a function that runs a small network, in a runtime that takes no part in the profiling of the backend."""
    growth = grown(bench, _CHAIN)
    with bench.loaded(bench.optimize(growth.network)) as loaded_network:
        yield lambda: loaded_network.run(growth.feeds)


# --- counters ---------------------------------------------------------------------------------------------------------


def _ids(bench: Bench) -> Iterator[str]:
    first_driven, second_driven = _Driven(bench), _Driven(bench, 100)
    for driven in (first_driven, second_driven):
        yield from driven.problems
        yield from _number_problems(driven)
    counters, other_counters = (
        [_described(counter) for counter in driven.counters.values()] for driven in (first_driven, second_driven)
    )
    if counters != other_counters:
        yield f"another runtime gets other counters: {_shown(other_counters)} instead of {_shown(counters)}"


def _number_problems(driven: _Driven) -> Iterator[str]:
    for number, counter in driven.counters.items():
        if number <= driven.greatest:
            yield f"the counter {counter.name!r} has the number {number}; expected more than {driven.greatest}"
        if not counter.units:
            yield f"the counter {counter.name!r} has no units"
    greatest = max([driven.greatest, *driven.counters])
    if driven.returned != greatest and not driven.problems:
        yield f"register_counters returned {driven.returned!r}; the greatest number of a counter is {greatest}"


def _described(counter: Counter) -> tuple[object, ...]:
    return counter.name, counter.category, counter.units, counter.kind, counter.device, counter.multiplier


def _shown(counters: Sequence[tuple[object, ...]]) -> list[object]:
    return [description[0] for description in counters]


def _counters(bench: Bench) -> Iterator[str]:
    driven = _Driven(bench)
    if not driven.counters:
        raise Refused("the backend has no counters")
    with _loaded(bench) as run, driven.enabled():
        begin = perf_counter_ns()
        driven.activate(_PERIOD, list(driven.counters))
        for _ in range(_RUNS):
            run()
        time.sleep(2 * _PERIOD / 1e6)
        first_report, second_report = driven.report(), driven.report()
    yield from driven.problems
    yield from _stamp_problems(driven, first_report, begin)
    yield from _missing(driven, first_report)
    yield from _counted_again(driven, first_report, second_report)
    if driven.report():
        yield "report_counter_values returned values after profiling was disabled"


def _stamp_problems(driven: _Driven, stamps: Sequence[CounterTimestamp], begin: int) -> Iterator[str]:
    now = perf_counter_ns()
    for stamp in stamps:
        if not begin - _SLACK <= stamp.at <= now:
            yield f"values have the time {stamp.at}; expected one between {begin} and {now}, when they were captured"
        for number, value in stamp.values.items():
            yield from _value_problems(driven.counters.get(number), number, value)
    if any(later.at < earlier.at for earlier, later in pairwise(stamps)):
        yield "the times of values are not ascending"


def _value_problems(counter: Counter | None, number: int, value: object) -> Iterator[str]:
    if counter is None:
        yield f"values of the counter {number} were reported, which is not registered"
    elif isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        yield f"the counter {counter.name!r} has the value {value!r}; expected a finite number"
    elif counter.kind is not CounterClass.VALUE and value < 0:
        yield f"the counter {counter.name!r} of the class {counter.kind} has the value {value}, which is negative"


def _missing(driven: _Driven, stamps: Sequence[CounterTimestamp]) -> Iterator[str]:
    reported_numbers = {number for stamp in stamps for number in stamp.values}
    for number, counter in driven.counters.items():
        if number not in reported_numbers:
            yield f"no value of the counter {counter.name!r} was reported, which was active for two periods"


def _counted_again(
    driven: _Driven, first: Sequence[CounterTimestamp], repeated: Sequence[CounterTimestamp]
) -> Iterator[str]:
    for number, counter in driven.counters.items():
        count, repeated_count = (_sum(stamps, number) for stamps in (first, repeated))
        if counter.kind is CounterClass.EVENT and repeated_count >= count > 0:
            yield (
                f"the counter {counter.name!r} has {count:g} events, and {repeated_count:g} again in the next report "
                "without a "
                "run; a counter of events counts those since the previous report"
            )


def _sum(stamps: Sequence[CounterTimestamp], number: int) -> float:
    return sum(stamp.values.get(number, 0) for stamp in stamps)


def _periods(bench: Bench) -> Iterator[str]:
    driven = _Driven(bench)
    if not driven.counters:
        raise Refused("the backend has no counters")
    with _loaded(bench) as run_network, driven.enabled():
        for number in list(driven.counters)[:2]:
            for period in (_PERIOD, 4 * _PERIOD):
                yield from _captured(driven, run_network, number, period)
        for period, numbers in ((0, list(driven.counters)), (_PERIOD, [])):
            driven.activate(period, numbers)
            run_network()
            if driven.report():
                yield f"values were reported after activate_counters({period}, {numbers}), which ends the capture"
        driven.call("activate_counters", _PERIOD, [max(driven.counters) + 1000])
    yield from driven.problems


def _captured(driven: _Driven, run_network: Callable[[], object], number: int, period: int) -> Iterator[str]:
    """Yield an error if other counters than one are reported, or values more often than about every `period`."""
    driven.activate(period, [number])
    driven.report()
    begin = time.monotonic()
    while time.monotonic() - begin < 2.5 * period / 1e6:
        run_network()
    stamps = driven.report()
    periods = (time.monotonic() - begin) / period * 1e6
    name = driven.counters[number].name
    unselected = sorted({other_number for stamp in stamps for other_number in stamp.values} - {number})
    if unselected:
        yield f"values of the counters {unselected} were reported, but only {number} ({name!r}) was selected"
    if len(stamps) > 2 * periods + 2:
        yield f"{len(stamps)} values of the counter {name!r} were reported in {periods:.1f} periods of {period} us"


# --- intervals --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _ReportedInterval:
    """An interval as a backend has reported it, with times on the host's clock, which may be off by `error`."""

    name: object
    begin: int
    end: int
    thread: int
    device: str
    category: object
    error: int

    def __str__(self) -> str:
        return f"the interval {self.name!r}"


class _Hooks:
    """What the profiling context of a backend does while a runtime calls it."""

    def __init__(self) -> None:
        self.problems: list[str] = []
        self.intervals: list[_ReportedInterval] = []
        self.stamps: list[CounterTimestamp] = []
        self.enabled: list[int] = []

    def watch(self, profiling: BackendProfiling) -> None:
        """Note the intervals and values that are reported to `profiling`."""
        report_interval, report_counters = profiling.interval, profiling.report_counters

        def watched_interval(
            name: Any, begin: int, end: int, *, clock: DeviceClock | None = None, **facts: Any
        ) -> None:
            self.intervals.append(_on_host_clock(name, begin, end, clock, facts))
            report_interval(name, begin, end, clock=clock, **facts)

        def watched_report(timestamps: Any) -> None:
            stamps = list(timestamps)
            self.stamps += _listed(stamps)
            report_counters(stamps)

        replace_method(profiling, "interval", watched_interval)
        replace_method(profiling, "report_counters", watched_report)


def _on_host_clock(
    name: Any, begin: int, end: int, clock: DeviceClock | None, facts: dict[str, Any]
) -> _ReportedInterval:
    device, thread = facts.get("device", ""), facts.get("thread")
    error = _SLACK if clock is None else _SLACK + clock.error_ns
    if clock is not None:
        begin, end = clock.to_host(begin), clock.to_host(end)
    thread = 0 if device else threading.get_ident() if thread is None else thread
    return _ReportedInterval(name, begin, end, thread, device, facts.get("category", Category.KERNEL), error)


class _WatchedContext(BackendProfilingContext):
    """A context that forwards all calls, and notes those that raise or return something else than they should."""

    def __init__(self, inner: BackendProfilingContext, hooks: _Hooks) -> None:
        self._inner, self._hooks = inner, hooks

    def _call(self, name: str, *arguments: Any) -> Any:
        note(f"calling {name} of the profiling context")
        try:
            return getattr(self._inner, name)(*arguments)
        except Exception as error:
            self._hooks.problems.append(_raised(name, error))
            raise

    def _answer(self, name: str, enable: bool) -> bool:
        answer = self._call(name, enable)
        if not isinstance(answer, bool):
            self._hooks.problems.append(f"{name} returned {answer!r}; expected True or False")
        return bool(answer)

    def register_counters(self, current_max_counter_id: int) -> int:
        greatest: int = self._call("register_counters", current_max_counter_id)
        return greatest

    def activate_counters(self, capture_period: int, counter_ids: Sequence[int]) -> str | None:
        error: str | None = self._call("activate_counters", capture_period, counter_ids)
        return error

    def report_counter_values(self) -> list[CounterTimestamp]:
        try:
            return list(self._call("report_counter_values"))
        except TypeError as error:
            self._hooks.problems.append(_raised("report_counter_values", error))
            raise

    def report_intervals(self) -> None:
        self._call("report_intervals")

    def enable_profiling(self, enable: bool) -> bool:
        if enable:
            self._hooks.enabled.append(perf_counter_ns())
        return self._answer("enable_profiling", enable)

    def enable_timeline_reporting(self, enable: bool) -> bool:
        return self._answer("enable_timeline_reporting", enable)


class _WatchedBackend(Watched):
    """The backend under test, whose profiling context is watched."""

    def __init__(self, bench: Bench, hooks: _Hooks) -> None:
        super().__init__(bench.backend, Census())
        self._hooks, self._bench = hooks, bench

    def create_backend_profiling_context(
        self, options: Options, profiling: BackendProfiling
    ) -> BackendProfilingContext | None:
        self._hooks.watch(profiling)
        context = self.inner.create_backend_profiling_context(self._bench.settings.options, profiling)
        return None if context is None else _WatchedContext(context, self._hooks)


def _optimized(bench: Bench, network: Network, backend: Watched) -> OptimizedNetwork:
    registry = BackendRegistry()
    registry.register(backend.id, lambda: backend)
    registry.register(Oracle().id, Oracle)
    model_options = {backend.id: bench.settings.options} if bench.settings.options else {}
    options = OptimizerOptions(rewrite=False, model_options=model_options)
    return optimize(network, [backend.id], DeviceSpec(registry), options)


@contextmanager
def _recordable(bench: Bench, hooks: _Hooks) -> Iterator[tuple[Loaded, Growth]]:
    """Give a small network that is loaded in a runtime of its own, whose recorders the hooks of the backend follow."""
    growth = grown(bench, _CHAIN)
    with Runtime() as runtime:
        yield Loaded(runtime, _optimized(bench, growth.network, _WatchedBackend(bench, hooks))), growth


def _intervals(bench: Bench) -> Iterator[str]:
    hooks = _Hooks()
    with _recordable(bench, hooks) as (loaded, growth):
        expected = loaded.run(growth.feeds)
        with Recorder() as recorder:
            profiled = [loaded.run(growth.feeds) for _ in range(_RUNS)]
    yield from hooks.problems
    if not all(same(outputs[key], array) for outputs in profiled for key, array in expected.items()):
        yield "the results are others while profiling is enabled"
    recording = recorder.recording()
    runs = [interval for interval in recording.intervals if interval.site.category is Category.RUN]
    intervals = [*hooks.intervals, *_recorded(recording, bench.backend.id)]
    yield from _shape_problems(intervals)
    yield from _place_problems(intervals, [(interval.begin, interval.end) for interval in runs])
    yield from _nesting_problems(intervals)
    known_threads = {0, *recording.threads, *recording.foreign, *(thread.ident for thread in threading.enumerate())}
    for interval in intervals:
        if interval.thread not in known_threads:
            yield f"{interval} names the thread {interval.thread}, which does not exist"


def _recorded(recording: Recording, backend: str) -> list[_ReportedInterval]:
    """Return the kernels of a backend on the host, which plug-ins deliver as tables that hooks do not see."""
    return [
        _ReportedInterval(
            interval.site.name, interval.begin, interval.end, interval.thread, "", Category.KERNEL, _SLACK
        )
        for interval in recording.intervals
        if interval.site.category is Category.KERNEL and interval.site.backend == backend and not interval.site.device
    ]


def _shape_problems(intervals: Sequence[_ReportedInterval]) -> Iterator[str]:
    for interval in intervals:
        if not isinstance(interval.name, str) or not interval.name:
            yield f"an interval has the name {interval.name!r}; expected a text that is not empty"
        if interval.end < interval.begin:
            yield f"{interval} ends before it begins, or has no end"


def _place_problems(intervals: Sequence[_ReportedInterval], runs: Sequence[tuple[int, int]]) -> Iterator[str]:
    """Yield an error for each kernel that is not inside a run, as the host has measured it."""
    for interval in intervals:
        if interval.category is not Category.KERNEL or interval.end < interval.begin:
            continue
        if not any(
            begin - interval.error <= interval.begin and interval.end <= end + interval.error for begin, end in runs
        ):
            where = f"the clock of the device {interval.device!r}" if interval.device else "the host's clock"
            yield f"{interval}, on {where}, is not inside a run of the network, as the host has measured it"


def _nesting_problems(intervals: Sequence[_ReportedInterval]) -> Iterator[str]:
    """Yield an error for each two intervals of one thread of which one begins inside the other and ends after it."""
    enclosing_intervals: list[_ReportedInterval] = []
    for interval in sorted(intervals, key=lambda interval: (interval.thread, interval.begin, -interval.end)):
        if not interval.thread:
            continue
        while enclosing_intervals and (
            enclosing_intervals[-1].thread != interval.thread or enclosing_intervals[-1].end <= interval.begin
        ):
            enclosing_intervals.pop()
        if enclosing_intervals and interval.end > enclosing_intervals[-1].end + _SLACK:
            yield f"{interval} begins inside {enclosing_intervals[-1]} on the same thread, but ends after it"
            continue
        enclosing_intervals.append(interval)


# --- at run time ------------------------------------------------------------------------------------------------------


def _switching(bench: Bench) -> Iterator[str]:
    hooks, reported_counts = _Hooks(), list[tuple[int, int]]()
    with _recordable(bench, hooks) as (loaded, growth):
        for _ in range(2):
            counts_before = len(hooks.intervals), len(hooks.stamps)
            for recorder in (Recorder(), None):
                with ExitStack() as stack:
                    if recorder is not None:
                        stack.enter_context(recorder)
                    for _ in range(_RUNS):
                        loaded.run(growth.feeds)
            reported_counts.append((len(hooks.intervals) - counts_before[0], len(hooks.stamps) - counts_before[1]))
    yield from hooks.problems
    for kind, first, second in zip(("intervals", "values of counters"), *reported_counts, strict=True):
        if first and not second:
            yield f"no {kind} were reported after profiling was disabled and enabled again"
    second_round = hooks.intervals[reported_counts[0][0] :]
    enabled_at = hooks.enabled[1] if len(hooks.enabled) > 1 else 0
    for interval in second_round:
        if interval.category is Category.KERNEL and interval.begin + interval.error < enabled_at:
            yield f"{interval} is from before profiling was enabled"
    yield from _counted_before(bench)


def _counted_before(bench: Bench) -> Iterator[str]:
    """Yield an error for each counter that has counted events of runs before profiling was enabled."""
    driven = _Driven(bench)
    reports: list[list[CounterTimestamp]] = []
    with _loaded(bench) as run:
        for run_count in (0, 0, _RUNS):
            for _ in range(run_count):
                run()
            with driven.enabled():
                driven.activate(_PERIOD, list(driven.counters))
                reports.append(driven.report())
    yield from driven.problems
    for number, counter in driven.counters.items():
        _, before_runs, after_runs = (_sum(stamps, number) for stamps in reports)
        if counter.kind is CounterClass.EVENT and after_runs > before_runs == 0:
            yield f"the counter {counter.name!r} counts events of runs before profiling was enabled"


def _threads(bench: Bench) -> Iterator[str]:
    hooks = _Hooks()
    growth = grown(bench, _CHAIN)
    with Runtime() as runtime:
        watched_backend = _WatchedBackend(bench, hooks)
        networks = [Loaded(runtime, _optimized(bench, growth.network, watched_backend)) for _ in range(2)]
        expected = networks[0].run(growth.feeds)
        is_over = threading.Event()
        jobs = [_until(is_over, running(loaded_network, growth.feeds, expected)) for loaded_network in networks]
        yield from at_once([*jobs, lambda: _attach(is_over)])
    yield from hooks.problems
    yield from _shape_problems(hooks.intervals)


def _until(is_over: threading.Event, job: Callable[[], None]) -> Callable[[], None]:
    def repeated() -> None:
        while not is_over.is_set():
            job()

    return repeated


def _attach(is_over: threading.Event) -> None:
    """Attach and detach a recorder several times, for longer than a period of captures each, and set `is_over`."""
    try:
        for _ in range(10):
            with Recorder():
                time.sleep(1.5 * _PERIOD / 1e6)
            note("detaching a recorder while networks run")
    finally:
        is_over.set()


_CHECKS: Final[dict[str, Callable[[Bench], Iterator[str]]]] = {
    "ids": _ids,
    "counters": _counters,
    "periods": _periods,
    "intervals": _intervals,
    "switching": _switching,
    "threads": _threads,
}
