"""`ProfilingService`: lets backends measure what recorders and a collector ask for, and captures their counters."""

from __future__ import annotations

import logging
import threading
import weakref
from collections.abc import Callable, Iterable
from time import monotonic
from typing import Final, TypeVar

from interposer.core.errors import OptionError
from interposer.core.records import dataclass
from interposer.profiling.backends import FIRST_COUNTER, BackendProfiling, BackendProfilingContext, CounterTimestamp
from interposer.profiling.events import Counter
from interposer.profiling.recorder import asking_recorders, when_changed

__all__ = ["CAPTURE_PERIOD", "ProfilingService"]

CAPTURE_PERIOD: Final = 10_000
"""Every how many microseconds the counters of backends are captured while something records."""
_T = TypeVar("_T")
_log: Final = logging.getLogger("interposer.profiling")


@dataclass(frozen=True)
class _Orders:
    """What a backend measures: anything at all, intervals, and these counters in a period of microseconds."""

    profiling: bool = False
    timeline: bool = False
    period: int = 0
    counters: tuple[int, ...] = ()


class ProfilingService:
    """The counters of a runtime, and the profiling contexts of its backends.

    While something records, backends measure intervals and all counters. Besides, a collector, or the host of a child
    process, chooses what they measure by `enable` and `select`. Thread-safe.

    Args:
        counters: gets the registered counters by number.
        greatest: the numbers of counters are above it.
        is_driven: recorders of this process have no influence. The counters that `select` chooses are captured in their
            period.
    """

    def __init__(
        self,
        counters: dict[int, Counter] | None = None,
        greatest: int = FIRST_COUNTER - 1,
        is_driven: bool = False,
    ) -> None:
        self.counters: dict[int, Counter] = {} if counters is None else counters
        self._contexts: dict[str, tuple[BackendProfiling, BackendProfilingContext]] = {}
        self._orders: dict[str, _Orders] = {}
        self._requested = _Orders()
        self._greatest_counter_id, self._is_driven = greatest, is_driven
        self._lock = threading.RLock()
        self._failures_seen: set[str] = set()
        self._num_recorders = 0
        self._next_capture = 0.0
        self._polling_stopped: threading.Event | None = None
        if not is_driven:
            when_changed(self._changed)
            self._num_recorders = asking_recorders()

    # --- the backends -------------------------------------------------------------------------------------------------

    def add(self, backend: str, create: Callable[[BackendProfiling], object]) -> None:
        """Ask a backend for its profiling context and its counters; failures are logged.

        Raises:
            OptionError: an option of the backend has a wrong value.
        """
        profiling = BackendProfiling(backend, self.counters)
        try:
            context = create(profiling)
        except OptionError:
            raise
        except Exception as error:
            _log.warning(
                "backend %s could not make its profiling context: %s: %s", backend, type(error).__name__, error
            )
            return
        if not isinstance(context, BackendProfilingContext):
            if context is not None:
                _log.warning("backend %s: its profiling context is a %s", backend, type(context).__name__)
            return
        self.attach(profiling, context)

    def attach(self, profiling: BackendProfiling, context: BackendProfilingContext) -> None:
        """Let a context register its counters, and measure what is asked for now."""
        with self._lock:
            self._register(profiling.backend, profiling, context)
            self._update()

    def _register(self, backend: str, profiling: BackendProfiling, context: BackendProfilingContext) -> None:
        numbers_before = set(self.counters)
        greatest = _called(backend, "register_counters", lambda: context.register_counters(self._greatest_counter_id))
        new_numbers = self.counters.keys() - numbers_before
        self._greatest_counter_id = max([self._greatest_counter_id, *new_numbers])
        if greatest is not None and greatest != self._greatest_counter_id:
            message = "backend %s: register_counters returned %r, but the greatest number of a counter is %d"
            _log.warning(message, backend, greatest, self._greatest_counter_id)
        self._contexts[backend] = profiling, context

    def close(self) -> None:
        """End the profiling of all backends, and forget them and their counters."""
        with self._lock:
            self._num_recorders, self._requested = 0, _Orders()
            self.capture()
            self._update()
            self._contexts.clear()
            self.counters.clear()

    def own_counters(self, backend: str) -> list[int]:
        """Return the numbers of a backend's counters."""
        return [number for number, counter in self.counters.items() if counter.backend == backend]

    # --- what they measure --------------------------------------------------------------------------------------------

    def enable(self, profiling: bool, timeline: bool) -> None:
        """Let backends measure, and report intervals, also while nothing records; False ends it."""
        with self._lock:
            requested_orders = self._requested
            if requested_orders.profiling > profiling or requested_orders.timeline > timeline:
                self.capture()
            self._requested = _Orders(profiling, timeline, requested_orders.period, requested_orders.counters)
            self._update()

    def select(self, capture_period: int, numbers: Iterable[int]) -> dict[str, str]:
        """Begin to capture these counters of all backends every `capture_period` microseconds, and no others.

        Unknown numbers are ignored. While something records, backends capture all counters. Returns the errors of
        backends by id.
        """
        selected_numbers = tuple(dict.fromkeys(numbers)) if capture_period else ()
        with self._lock:
            requested_orders = self._requested
            self._requested = _Orders(
                requested_orders.profiling,
                requested_orders.timeline,
                capture_period if selected_numbers else 0,
                selected_numbers,
            )
            self._next_capture = monotonic()
            errors = {backend: self._apply(backend, selects=True) for backend in self._contexts}
            self._poll_if_needed()
        return {backend: error for backend, error in errors.items() if error}

    def _changed(self, recorders: int) -> None:
        """Follow the recorders; called before one of them stops, which gets all events first."""
        with self._lock:
            is_fewer, self._num_recorders = recorders < self._num_recorders, recorders
            if is_fewer:
                self.capture()
            self._update()

    def _update(self) -> None:
        for backend in self._contexts:
            error = self._apply(backend)
            if error and self._orders[backend].period:
                _log.warning("backend %s does not capture its counters: %s", backend, error)
        self._poll_if_needed()

    def _orders_for(self, backend: str) -> _Orders:
        own_numbers, requested_orders = self.own_counters(backend), self._requested
        if self._num_recorders:
            return _Orders(True, True, CAPTURE_PERIOD if own_numbers else 0, tuple(own_numbers))
        selected_numbers = frozenset(requested_orders.counters)
        selected_own = tuple(number for number in own_numbers if number in selected_numbers)
        return _Orders(
            requested_orders.profiling,
            requested_orders.timeline,
            requested_orders.period if selected_own else 0,
            selected_own,
        )

    def _apply(self, backend: str, selects: bool = False) -> str | None:
        """Let a backend measure what is asked for now, and return the error of its selection of counters.

        Its counters are passed on if they have changed, or in any case if `selects`.
        """
        (profiling, context), error = self._contexts[backend], None
        previous_orders, orders = self._orders.get(backend, _Orders()), self._orders_for(backend)
        self._orders[backend] = orders
        if orders.profiling and not previous_orders.profiling:
            _called(backend, "enable_profiling", lambda: context.enable_profiling(True))
        if orders.timeline and not previous_orders.timeline:
            profiling.is_timeline_enabled = _reports_timeline(backend, context, True)
        if self.own_counters(backend) and (
            selects or (orders.period, orders.counters) != (previous_orders.period, previous_orders.counters)
        ):
            error = _selected(profiling, context, orders.period, list(orders.counters))
        if previous_orders.timeline and not orders.timeline:
            profiling.is_timeline_enabled = False
            _reports_timeline(backend, context, False)
        if previous_orders.profiling and not orders.profiling:
            _called(backend, "enable_profiling", lambda: context.enable_profiling(False))
        profiling.is_measuring = orders.profiling
        return error

    # --- captures -----------------------------------------------------------------------------------------------------

    def capture(self) -> list[CounterTimestamp]:
        """Return the values of the active counters of all backends since the previous call, and record them.

        The backends report their intervals first.
        """
        with self._lock:
            self._collect()
            return self._capture()

    def _capture(self) -> list[CounterTimestamp]:
        stamps: list[CounterTimestamp] = []
        for backend, (profiling, context) in self._contexts.items():
            values = self._call_logged(backend, "report_counter_values", lambda: _reported(profiling, context))  # noqa: B023
            stamps += values or ()
        return stamps

    def _collect(self) -> None:
        """Let backends report the intervals that they have measured."""
        for backend, (_, context) in self._contexts.items():
            if self._orders[backend].timeline:
                self._call_logged(backend, "report_intervals", context.report_intervals)

    def _call_logged(self, backend: str, method: str, call: Callable[[], _T]) -> _T | None:
        """Return the result of a backend's method, or None if it fails; the first of failures in a row is logged."""
        failure = f"{backend} {method}"
        try:
            answer = call()
        except Exception as error:
            if failure not in self._failures_seen:
                _warn(backend, method, error)
            self._failures_seen.add(failure)
            return None
        self._failures_seen.discard(failure)
        return answer

    def _poll_if_needed(self) -> None:
        """Start or end the thread that captures counters and collects intervals."""
        is_needed = any(self._is_polled(backend) for backend in self._contexts)
        if not is_needed and self._polling_stopped is not None:
            self._polling_stopped.set()
            self._polling_stopped = None
        elif is_needed and self._polling_stopped is None:
            self._polling_stopped = threading.Event()
            arguments = weakref.ref(self), self._polling_stopped
            threading.Thread(target=_poll, args=arguments, name="interposer-counters", daemon=True).start()

    def _is_polled(self, backend: str) -> bool:
        orders, (_, context) = self._orders[backend], self._contexts[backend]
        captures = orders.profiling and (bool(self._num_recorders) or self._is_driven and orders.period > 0)
        return (
            captures
            and _has(context, "report_counter_values")
            or (orders.timeline and _has(context, "report_intervals"))
        )

    def poll(self) -> None:
        """Take the intervals of the backends, and the values of their counters if these are due."""
        with self._lock:
            self._collect()
            if self._is_due():
                self._capture()

    def _is_due(self) -> bool:
        if self._num_recorders:
            return True
        period = self._requested.period / 1e6
        if not self._is_driven or not period or monotonic() < self._next_capture:
            return False
        self._next_capture = max(self._next_capture + period, monotonic())
        return True


def _poll(reference: weakref.ref[ProfilingService], stopped: threading.Event) -> None:
    while not stopped.wait(CAPTURE_PERIOD / 1e6):
        service = reference()
        if service is None:
            return
        service.poll()
        del service  # so that a runtime that nobody refers to ends


def _has(context: BackendProfilingContext, name: str) -> bool:
    return getattr(type(context), name) is not getattr(BackendProfilingContext, name)


def _reports_timeline(backend: str, context: BackendProfilingContext, enable: bool) -> bool:
    call = "enable_timeline_reporting"
    return bool(_called(backend, call, lambda: context.enable_timeline_reporting(enable)))


def _selected(
    profiling: BackendProfiling, context: BackendProfilingContext, period: int, numbers: list[int]
) -> str | None:
    profiling.select(period, numbers)
    return _called(profiling.backend, "activate_counters", lambda: context.activate_counters(period, numbers))


def _reported(profiling: BackendProfiling, context: BackendProfilingContext) -> list[CounterTimestamp]:
    stamps = list(context.report_counter_values())
    for stamp in stamps:
        if not isinstance(stamp, CounterTimestamp):
            raise TypeError(f"it returned {stamp!r}, which is not a CounterTimestamp")
    profiling.report_counters(stamps)
    return stamps


def _called(backend: str, method: str, call: Callable[[], _T]) -> _T | None:
    """Return the result of a backend's method, or None after logging the exception that it raised."""
    try:
        return call()
    except Exception as error:
        _warn(backend, method, error)
        return None


def _warn(backend: str, method: str, error: Exception) -> None:
    _log.warning("backend %s: %s raised %s: %s", backend, method, type(error).__name__, error)
