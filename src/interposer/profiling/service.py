"""`ProfilingService`: begins and ends the profiling of backends, and captures their counters periodically."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable
from typing import Final, TypeVar

from interposer.core.errors import OptionError
from interposer.profiling.backends import FIRST_COUNTER, BackendProfiling, BackendProfilingContext, CounterTimestamp
from interposer.profiling.events import Counter
from interposer.profiling.recorder import active, when_changed

__all__ = ["CAPTURE_PERIOD", "ProfilingService"]

CAPTURE_PERIOD: Final = 10_000
"""Every how many microseconds the counters of backends are captured while something records."""
_T = TypeVar("_T")
_log: Final = logging.getLogger("interposer.profiling")


class ProfilingService:
    """The counters of a runtime, and the profiling contexts of its backends, which recorders begin and end.

    `counters` gets the registered counters by number; the numbers are above `greatest`.
    """

    def __init__(self, counters: dict[int, Counter] | None = None, greatest: int = FIRST_COUNTER - 1) -> None:
        self.counters: dict[int, Counter] = {} if counters is None else counters
        self._contexts: dict[str, tuple[BackendProfiling, BackendProfilingContext]] = {}
        self._greatest = greatest
        self._lock = threading.RLock()
        self._failing: set[str] = set()
        self._enabled = self._is_polling = False
        self._recorders = 0
        self._over = threading.Event()
        when_changed(self._changed)

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
        """Let a context register its counters, and begin its profiling if something records."""
        backend = profiling.backend
        with self._lock:
            self._register(backend, profiling, context)
            if self._enabled:
                self._begin(backend)

    def _register(self, backend: str, profiling: BackendProfiling, context: BackendProfilingContext) -> None:
        known = set(self.counters)
        greatest = _called(backend, "register_counters", lambda: context.register_counters(self._greatest))
        created = self.counters.keys() - known
        self._greatest = max([self._greatest, *created])
        if greatest is not None and greatest != self._greatest:
            text = "backend %s: register_counters returned %r, but the greatest number of a counter is %d"
            _log.warning(text, backend, greatest, self._greatest)
        self._contexts[backend] = profiling, context
        if active and not self._enabled:
            self._changed(len(active))

    def close(self) -> None:
        """End the profiling of all backends, and forget them and their counters."""
        with self._lock:
            self._changed(0)
            self._contexts.clear()
            self.counters.clear()

    def own_counters(self, backend: str) -> list[int]:
        """Return the numbers of a backend's counters."""
        return [number for number, counter in self.counters.items() if counter.backend == backend]

    def select(self, capture_period: int, numbers: Iterable[int]) -> dict[str, str]:
        """Begin to capture these counters of all backends every `capture_period` microseconds, and no others.

        Unknown numbers are ignored. Returns the errors of backends by id.
        """
        requested = set(numbers) if capture_period else set()
        errors: dict[str, str] = {}
        with self._lock:
            for backend, (profiling, context) in self._contexts.items():
                own = [number for number in self.own_counters(backend) if number in requested]
                error = _selected(profiling, context, capture_period if own else 0, own)
                if error:
                    errors[backend] = error
        return errors

    def capture(self) -> list[CounterTimestamp]:
        """Return the values of the active counters of all backends since the previous call, and record them."""
        result: list[CounterTimestamp] = []
        with self._lock:
            for backend, (profiling, context) in self._contexts.items():
                result += self._captured(backend, profiling, context)
        return result

    def _captured(
        self, backend: str, profiling: BackendProfiling, context: BackendProfilingContext
    ) -> list[CounterTimestamp]:
        """Record and return the values of a backend's counters; the first of failures in a row is logged."""
        try:
            stamps = _reported(profiling, context)
        except Exception as error:
            if backend not in self._failing:
                _warn(backend, "report_counter_values", error)
            self._failing.add(backend)
            return []
        self._failing.discard(backend)
        return stamps

    def _changed(self, recorders: int) -> None:
        """Begin or end the profiling of all backends; called before a recorder stops, which gets all events first."""
        with self._lock:
            fewer, self._recorders = recorders < self._recorders, recorders
            if fewer and recorders and self._enabled:
                self.capture()
            if bool(recorders) == self._enabled or not self._contexts:
                return
            if recorders:
                self._enabled, self._over = True, threading.Event()
                for backend in self._contexts:
                    self._begin(backend)
                return
            self._enabled = self._is_polling = False
            self._over.set()
            self.capture()
            for backend in self._contexts:
                self._end(backend)

    def _poll(self, over: threading.Event) -> None:
        while not over.wait(CAPTURE_PERIOD / 1e6):
            self.capture()

    def _begin(self, backend: str) -> None:
        profiling, context = self._contexts[backend]
        _called(backend, "enable_profiling", lambda: context.enable_profiling(True))
        profiling.is_timeline_enabled = bool(
            _called(backend, "enable_timeline_reporting", lambda: context.enable_timeline_reporting(True))
        )
        own = self.own_counters(backend)
        if not self._is_polling and _reports(context):
            self._is_polling = True
            threading.Thread(target=self._poll, args=(self._over,), name="interposer-counters", daemon=True).start()
        error = _selected(profiling, context, CAPTURE_PERIOD, own) if own else None
        if error:
            _log.warning("backend %s does not capture its counters: %s", backend, error)

    def _end(self, backend: str) -> None:
        profiling, context = self._contexts[backend]
        profiling.is_timeline_enabled = False
        if self.own_counters(backend):
            _selected(profiling, context, 0, [])
        _called(backend, "enable_timeline_reporting", lambda: context.enable_timeline_reporting(False))
        _called(backend, "enable_profiling", lambda: context.enable_profiling(False))


def _reports(context: BackendProfilingContext) -> bool:
    return type(context).report_counter_values is not BackendProfilingContext.report_counter_values


def _selected(
    profiling: BackendProfiling, context: BackendProfilingContext, period: int, numbers: list[int]
) -> str | None:
    profiling.select(period, numbers)
    return _called(profiling.backend, "activate_counters", lambda: context.activate_counters(period, numbers))


def _reported(profiling: BackendProfiling, context: BackendProfilingContext) -> list[CounterTimestamp]:
    stamps = list(context.report_counter_values())
    for item in stamps:
        if not isinstance(item, CounterTimestamp):
            raise TypeError(f"it returned {item!r}, which is not a CounterTimestamp")
    profiling.report_counters(stamps)
    return stamps


def _called(backend: str, what: str, call: Callable[[], _T]) -> _T | None:
    """Return the result of a backend's method, or None after logging the exception that it raised."""
    try:
        return call()
    except Exception as error:
        _warn(backend, what, error)
        return None


def _warn(backend: str, what: str, error: Exception) -> None:
    _log.warning("backend %s: %s raised %s: %s", backend, what, type(error).__name__, error)
