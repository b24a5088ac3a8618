"""Profiling of backends: their counters, their intervals on the clocks of devices, and their contexts."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from operator import index
from threading import get_ident
from typing import Final

from interposer.core.errors import InvalidArgumentError
from interposer.core.records import dataclass
from interposer.profiling.events import Category, Counter, CounterClass, Site
from interposer.profiling.recorder import active, add_interval, note_lost, sample_at

__all__ = [
    "FIRST_COUNTER",
    "BackendProfiling",
    "BackendProfilingContext",
    "CounterRegistration",
    "CounterStatus",
    "CounterTimestamp",
    "DeviceClock",
]

FIRST_COUNTER: Final = 5
"""The least number of a backend's counter; lower numbers are reserved for the counters of the runtime."""
_MOST_COUNTERS: Final = 1 << 16


@dataclass(frozen=True, slots=True)
class CounterTimestamp:
    """Values of counters by number, at a moment `at` in nanoseconds of `time.perf_counter_ns` on the host."""

    at: int
    values: Mapping[int, float]


@dataclass(frozen=True, slots=True)
class CounterStatus:
    """Whether a counter is captured, and every how many microseconds; the period is 0 if it is not."""

    number: int
    is_active: bool
    capture_period: int


class BackendProfilingContext:
    """What a backend returns to take part in profiling.

    The runtime calls one method at a time, on any thread. The methods do nothing by default, so that a backend
    overrides those that it needs. If a method raises, this is logged, and runs are not affected.
    """

    def register_counters(self, current_max_counter_id: int) -> int:
        """Register the counters of the backend once, with numbers greater than this one; return the greatest number.

        `BackendProfiling.counter_registration` does it.
        """
        return current_max_counter_id

    def activate_counters(self, capture_period: int, counter_ids: Sequence[int]) -> str | None:
        """Begin to capture these counters about every `capture_period` microseconds, and no others.

        A period of 0 or no numbers end the capture. Returns an error, or None.
        """
        return None

    def report_counter_values(self) -> Iterable[CounterTimestamp]:
        """Return the values of the active counters since the previous call."""
        return ()

    def report_intervals(self) -> None:
        """Report the intervals that the backend has stored, by `BackendProfiling.interval`.

        Called about every 10 ms while the timeline is enabled, and before it ends. A backend that reports each interval
        at once does not need it.
        """

    def enable_profiling(self, enable: bool) -> bool:
        """Start measuring, or stop if `enable` is False; the runtime calls it while networks run.

        The result, whether the backend measures, is that of Arm NN's signature; the runtime ignores it.
        """
        return True

    def enable_timeline_reporting(self, enable: bool) -> bool:
        """Begin or end to report intervals by `BackendProfiling.interval`; return True if the backend does so."""
        return True


class DeviceClock:
    """Converts the times of a device to the host's clock, from pairs of times that were read at one moment.

    Thread-safe. The first and the latest pair give the offset and the drift of the device's clock.
    """

    def __init__(self) -> None:
        self._correlations: tuple[tuple[int, int, int], ...] = ()
        self._lock = threading.Lock()

    def correlate(self, device_ns: int, host_before_ns: int, host_after_ns: int) -> None:
        """Add a time of the device, and the host's times before and after it was read.

        Raises:
            InvalidArgumentError: the host's times are in the wrong order.
        """
        if host_after_ns < host_before_ns:
            raise InvalidArgumentError("host_after_ns is before host_before_ns; read the host's clock before and after")
        middle, error = (host_before_ns + host_after_ns) // 2, (host_after_ns - host_before_ns + 1) // 2
        with self._lock:
            self._correlations = (*self._correlations[:1], (device_ns, middle, error))

    def to_host(self, device_ns: int) -> int:
        """Return a time of the device in nanoseconds of the host's clock; unchanged if no pair was added."""
        if not self._correlations:
            return device_ns
        (first_device, first_host, _), (device, host, _) = self._correlations[0], self._correlations[-1]
        device_elapsed, host_elapsed = device - first_device, host - first_host
        rate = host_elapsed / device_elapsed if device_elapsed > 0 and host_elapsed > 0 else 1.0
        return host + round((device_ns - device) * rate)

    @property
    def error_ns(self) -> int:
        """By how many nanoseconds converted times may be off; 0 if no pair was added."""
        return max((error for _, _, error in self._correlations), default=0)


class CounterRegistration:
    """Registers the counters of one backend. The numbers are unique among all backends of a runtime."""

    def __init__(self, backend: str, current_max_counter_id: int, counters: dict[int, Counter]) -> None:
        self._backend, self._counters = backend, counters
        self.current_max_counter_id = current_max_counter_id
        self._categories: set[str] = set()
        self._devices: dict[int, str] = {}
        self._sets: dict[int, str] = {}

    def register_category(self, name: str) -> None:
        """Register a category, which groups counters.

        Raises:
            InvalidArgumentError: the name is empty or registered already.
        """
        _check_name("category", name)
        if name in self._categories:
            raise InvalidArgumentError(f"the category {name!r} is registered already")
        self._categories.add(name)

    def register_device(self, name: str) -> int:
        """Register a device, and return its number for `register_counter`."""
        _check_name("device", name)
        return _numbered(self._devices, name)

    def register_counter_set(self, name: str) -> int:
        """Register a set of counters that a device captures together, and return its number."""
        _check_name("counter set", name)
        return _numbered(self._sets, name)

    def register_counter(
        self,
        name: str,
        category: str,
        *,
        description: str = "",
        units: str = "",
        kind: CounterClass = CounterClass.EVENT,
        multiplier: float = 1.0,
        cores: int = 1,
        device: int = 0,
        counter_set: int = 0,
    ) -> int:
        """Register a counter and return its number; a counter of several cores has as many numbers, from this one on.

        Args:
            name: the name of the counter, unique in its category.
            category: a registered category.
            description: what is counted, for users.
            units: the unit, such as "bytes" or "cycles".
            kind: how its values are to be read.
            multiplier: the factor that converts a value to the unit.
            cores: the number of cores that are counted separately.
            device: the number of a registered device, or 0.
            counter_set: the number of a registered counter set, or 0.

        Raises:
            InvalidArgumentError: an argument is wrong, or 65,536 counters are registered already.
        """
        _check_name("counter", name)
        error = self._problem(name, category, multiplier, cores, device, counter_set)
        if error is not None:
            raise InvalidArgumentError(f"the counter {name!r} cannot be registered: {error}")
        first = self.current_max_counter_id + 1
        for core in range(cores):
            self._counters[first + core] = Counter(
                f"{name} of core {core}" if cores > 1 else name, units, CounterClass(kind), description, self._backend,
                self._devices.get(device, ""), category, first + core, multiplier,
                (("counter set", self._sets[counter_set]),) if counter_set else (), core, cores,
            )  # fmt: skip
        self.current_max_counter_id = first + cores - 1
        return first

    def _problem(
        self, name: str, category: str, multiplier: float, cores: int, device: int, counter_set: int
    ) -> str | None:
        if category not in self._categories:
            return f"the category {category!r} is not registered"
        if any(
            counter.name == name and counter.category == category
            for counter in self._counters.values()
            if self._owns(counter)
        ):
            return f"the category {category!r} has a counter of this name"
        if not multiplier:
            return "the multiplier is 0"
        if not 0 < cores <= _MOST_COUNTERS - 1 - self.current_max_counter_id:
            return f"it has {cores} cores, and numbers go to {_MOST_COUNTERS - 1}"
        if device and device not in self._devices:
            return f"there is no device {device}"
        return f"there is no counter set {counter_set}" if counter_set and counter_set not in self._sets else None

    def _owns(self, counter: Counter) -> bool:
        return counter.backend == self._backend


class BackendProfiling:
    """What the runtime gives a backend for profiling: counters, intervals on a device's clock, and the present state.

    Thread-safe. Times are in nanoseconds of `time.perf_counter_ns`, or of a `DeviceClock`.
    """

    def __init__(self, backend: str, counters: dict[int, Counter]) -> None:
        self.backend = backend
        self._counters = counters
        self._sites: dict[tuple[object, ...], Site] = {}
        self._status: Mapping[int, int] = {}
        self.is_timeline_enabled = False
        self.is_measuring = False  # True once `enable_profiling` and what follows it have been called

    @property
    def is_profiling_enabled(self) -> bool:
        """True while something records events; intervals and counters that are reported otherwise are dropped."""
        return bool(active)

    def counter_registration(self, current_max_counter_id: int) -> CounterRegistration:
        """Return what registers counters, for `BackendProfilingContext.register_counters`."""
        return CounterRegistration(self.backend, current_max_counter_id, self._counters)

    def adopt(self, greatest: int, counters: Iterable[Counter]) -> dict[int, Counter]:
        """Register counters that the backend has numbered in another process, and return them by number.

        Raises:
            InvalidArgumentError: the numbers do not follow each other from `greatest` on, or are too large.
        """
        adopted_counters: dict[int, Counter] = {}
        for number, counter in enumerate(counters, greatest + 1):
            if counter.number != number or number >= _MOST_COUNTERS or not counter.multiplier:
                raise InvalidArgumentError(f"the counter {counter.name!r} has the number {counter.number}")
            adopted_counters[number] = replace(counter, backend=self.backend)
        self._counters.update(adopted_counters)
        return adopted_counters

    def counter_status(self, number: int) -> CounterStatus:
        """Return whether a counter is captured now."""
        period = self._status.get(number, 0)
        return CounterStatus(number, period > 0, period)

    @property
    def active_counters(self) -> list[CounterStatus]:
        """The counters of the backend that are captured now."""
        return [self.counter_status(number) for number in self._status]

    def select(self, capture_period: int, numbers: Iterable[int]) -> None:
        """Set which counters are captured; the runtime calls it before `BackendProfilingContext.activate_counters`."""
        self._status = dict.fromkeys(numbers, capture_period) if capture_period else {}

    def report_counters(self, timestamps: Iterable[CounterTimestamp]) -> None:
        """Record values of counters, at any time and on any thread; unknown numbers are ignored.

        Raises:
            TypeError: a time or a value is not a number, or the values are not a mapping.
        """
        for stamp in timestamps:
            for number, value in stamp.values.items():
                counter = self._counters.get(number)
                if counter is not None and counter.backend == self.backend:
                    sample_at(counter, index(stamp.at), float(value * counter.multiplier))

    def report_lost(self, count: int) -> None:
        """Let recorders count intervals that the backend has lost, such as in a full buffer of its own."""
        note_lost(count)

    def interval(
        self,
        name: str,
        begin: int,
        end: int,
        *,
        clock: DeviceClock | None = None,
        category: Category = Category.KERNEL,
        kind: str = "",
        layer: str = "",
        device: str = "",
        bytes: int | None = None,
        flops: int | None = None,
        thread: int | None = None,
    ) -> None:
        """Record an interval that the backend has measured; do nothing if nothing records.

        If the calling thread executes a workload, the interval belongs to its run.

        Args:
            name: the name of the step, such as that of a kernel.
            begin: the begin in nanoseconds.
            end: the end in nanoseconds.
            clock: the clock of the device that measured the times; None for the host's.
            category: what the interval is about.
            kind: the operator of the step, as the backend calls it.
            layer: the name of the layer that it computes, if it is known.
            device: the device that it ran on; it gets a track of its own.
            bytes: the bytes that were moved.
            flops: the operations that were computed.
            thread: the id of the thread that did the work (`threading.get_ident`); None for the calling one.
        """
        if not active:
            return
        site = self.site(name, category, kind, layer, device, bytes, flops)
        if clock is not None:
            begin, end = clock.to_host(begin), clock.to_host(end)
        begin, end = int(begin), int(end)
        add_interval(site, begin, max(begin, end), 0 if device else get_ident() if thread is None else thread)

    def site(
        self,
        name: str,
        category: Category = Category.KERNEL,
        kind: str = "",
        layer: str = "",
        device: str = "",
        bytes: int | None = None,
        flops: int | None = None,
    ) -> Site:
        """Return the site of intervals with these facts; see `interval`."""
        key = category, name, kind, layer, device, bytes, flops
        site = self._sites.get(key)
        if site is None:
            num_bytes, num_operations = (
                None if amount is None else int(amount) for amount in (bytes, flops)
            )  # may be NumPy's
            new_site = Site(
                category, name, kind, None, layer, "", self.backend, device, (), (), num_bytes, num_operations
            )
            site = self._sites.setdefault(key, new_site)
        return site


def _check_name(subject: str, name: object) -> None:
    if not isinstance(name, str) or not name:
        raise InvalidArgumentError(f"the name of a {subject} must be a text that is not empty, not {name!r}")


def _numbered(names: dict[int, str], name: str) -> int:
    number = len(names) + 1
    names[number] = name
    return number
