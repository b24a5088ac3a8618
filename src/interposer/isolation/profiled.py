"""The child's side of profiles: it records what its backend reports, and sends it to the host now and then."""

from __future__ import annotations

import logging
import select
import socket
import struct
import threading
from collections import deque
from collections.abc import Mapping
from threading import get_ident
from time import perf_counter_ns
from typing import Any, Final

from interposer.backend.base import Backend
from interposer.isolation import events
from interposer.profiling.backends import BackendProfiling, BackendProfilingContext
from interposer.profiling.children import Execution
from interposer.profiling.events import Counter, Holding, Site
from interposer.profiling.recorder import Recorder
from interposer.profiling.service import ProfilingService

__all__ = ["ServedProfiling"]

_log: Final = logging.getLogger("interposer.profiling")
_CAPACITY: Final = 1 << 16
"""The number of events for each thread, and of runs, that wait to be sent; later ones replace the oldest."""
_PERIOD: Final = 0.01
"""Seconds between two messages while the host records."""
_ROWS: Final = 1 << 14
"""The number of events in one message."""
_SAMPLE: Final = struct.Struct("<d")
_INTEGER: Final = struct.Struct("<q")


class ServedProfiling:
    """The profile of a child process. A thread of its own sends it to the host while the host records."""

    def __init__(self, backend: Backend, end: socket.socket) -> None:
        self._backend, self._socket_end = backend, end
        self._recorder = Recorder(_CAPACITY)
        self.is_on = False
        self._services: dict[int, ProfilingService] = {}
        self._waiting: dict[int, tuple[BackendProfiling, BackendProfilingContext, dict[int, Counter]]] = {}
        self._numbers: dict[Site | Counter, int] = {}
        self._threads: dict[int, None] = {}
        self._steps: deque[tuple[int, int, tuple[int, ...]]] = deque(maxlen=_CAPACITY)
        self._lost_count = 0
        self._previous_recorder = Recorder()
        threading.Thread(target=self._serve, name="interposer-events", daemon=True).start()

    # --- contexts of backends -----------------------------------------------------------------------------------------

    def create_context(self, number: int, options: Mapping[str, Any]) -> bool:
        """Create a profiling context of the backend under this number; return False if the backend has none."""
        counters: dict[int, Counter] = {}
        profiling = BackendProfiling(self._backend.id, counters)
        context: object = self._backend.create_backend_profiling_context(options, profiling)
        if context is None:
            return False
        if not isinstance(context, BackendProfilingContext):
            raise TypeError(f"its profiling context is a {type(context).__name__}")
        self._waiting[number] = profiling, context, counters
        return True

    def register_counters(self, number: int, greatest: int) -> list[dict[str, Any]]:
        """Let a context register its counters, with numbers above `greatest`, and return their descriptions."""
        profiling, context, counters = self._waiting.pop(number)
        service = self._services[number] = ProfilingService(counters, greatest, is_driven=True)
        service.attach(profiling, context)
        return [_counter_to_dict(counter) for counter in counters.values()]

    def drop_context(self, number: int) -> None:
        """Forget a context that the host does not use any more."""
        self._waiting.pop(number, None)
        service = self._services.pop(number, None)
        if service is not None:
            service.close()

    # --- what is recorded ---------------------------------------------------------------------------------------------

    def ran(self, number: int, times: tuple[int, ...]) -> None:
        """Add the begin of each step of a message of the host, and the end of the last one."""
        if len(self._steps) == _CAPACITY:
            self._lost_count += 1
        self._steps.append((number, get_ident(), times))

    def _serve(self) -> None:
        while True:
            ready, _, _ = select.select([self._socket_end], [], [], _PERIOD if self.is_on else None)
            try:
                if self.is_on:
                    self._send_all()
                if ready:
                    self._obey(events.receive(self._socket_end))
            except Exception as error:
                if not isinstance(error, EOFError | OSError):  # else the host has ended, or does not listen any more
                    _log.exception("events are not recorded any more")
                self.is_on = False
                self._recorder.stop()
                self._socket_end.close()
                return

    def _obey(self, command: events.Part) -> None:
        if command.kind == events.ON:
            self._recorder.start()
            self.is_on = True
        elif command.kind == events.OFF:
            self._recorder.stop()
            self.is_on = False
        elif command.kind == events.SELECT:
            number, period, counter_ids = command.plain
            errors = self._services[number].select(period, counter_ids) if number in self._services else {}
            for error in errors.values():
                events.send(self._socket_end, events.REFUSED, error)
        elif command.kind == events.ENABLE:
            number, profiling, timeline = command.plain
            if number in self._services:
                self._services[number].enable(profiling, timeline)
        elif command.kind == events.FLUSH:
            for service in tuple(self._services.values()):
                service.capture()
        self._send_all()
        self._send_all()  # what threads have added to buffers that were just taken
        events.send(self._socket_end, events.DONE, events.integers([command.kind, perf_counter_ns()]))

    # --- sending ------------------------------------------------------------------------------------------------------

    def _send_all(self) -> None:
        while self._steps:
            number, thread, times = self._steps.popleft()
            self._know_thread(thread)
            events.send(self._socket_end, events.STEPS, events.integers([number, thread, *times]))
        events_taken, self._previous_recorder = self._previous_recorder, self._recorder.taken()
        rows: list[int] = []
        for fields, _, _ in events_taken.batches:
            for row in zip(*[iter(fields)] * events.WIDTH, strict=True):
                try:
                    self._add_rows(rows, *row)
                except (TypeError, ValueError, OverflowError):  # a name that is no text, or a value that is no number
                    self._lost_count += 1
            if len(rows) >= _ROWS * events.WIDTH:
                self._send_rows(rows)
                rows = []
        self._send_rows(rows)
        num_lost, self._lost_count = self._lost_count + events_taken.lost, 0
        if num_lost:
            events.send(self._socket_end, events.LOST, events.integers([num_lost]))

    def _send_rows(self, rows: list[int]) -> None:
        """Send events, without those whose times are no integers of 64 bits."""
        try:
            body = events.integers(rows)
        except (OverflowError, TypeError, ValueError):
            valid_rows = [row for row in zip(*[iter(rows)] * events.WIDTH, strict=True) if all(map(_is_integer, row))]
            self._lost_count += len(rows) // events.WIDTH - len(valid_rows)
            body = events.integers([number for row in valid_rows for number in row])
        if body:
            events.send(self._socket_end, events.EVENTS, body)

    def _add_rows(self, rows: list[int], source: Any, begin: int, value: Any, thread: int) -> None:
        if isinstance(source, Execution | Holding):  # of a child of this process, or of a network in it
            return
        if thread:
            self._know_thread(thread)
        rows += (self._number(source), begin, _integer(source, value), thread)

    def _number(self, source: Site | Counter) -> int:
        number = self._numbers.get(source)
        if number is None:
            number = len(self._numbers)
            if isinstance(source, Site):
                events.send(self._socket_end, events.SITE, {"number": number} | _site_to_dict(source))
            else:
                owner = next(
                    (
                        context
                        for context, service in list(self._services.items())
                        if source in service.counters.values()
                    ),
                    0,
                )
                description = {"number": number, "context": owner, "counter": _counter_to_dict(source)}
                events.send(self._socket_end, events.COUNTER, description)
            self._numbers[source] = number
        return number

    def _know_thread(self, ident: int) -> None:
        if ident in self._threads:
            return
        self._threads[ident] = None
        thread = next((alive_thread for alive_thread in threading.enumerate() if alive_thread.ident == ident), None)
        name = "worker" if thread is None else thread.name
        native = 0 if thread is None else thread.native_id or 0
        events.send(self._socket_end, events.THREAD, {"thread": ident, "name": name, "native": native})


def _integer(source: Site | Counter, value: Any) -> int:
    """Return the end of an event as an integer of 64 bits; a sample's value is a double."""
    if isinstance(source, Counter):
        [bits] = _INTEGER.unpack(_SAMPLE.pack(float(value)))
        return int(bits)
    return events.INSTANT if value is None else value  # checked when it is sent


def _is_integer(value: object) -> bool:
    return isinstance(value, int) and -(1 << 63) <= value < 1 << 63


def _site_to_dict(site: Site) -> dict[str, Any]:
    return {
        "category": str(site.category),
        "name": site.name,
        "kind": site.kind,
        "layer": site.layer,
        "backend": site.backend,
        "device": site.device,
        "layers": site.layers,
        "bytes": site.bytes,
        "flops": site.flops,
        "details": site.details,
    }


def _counter_to_dict(counter: Counter) -> dict[str, Any]:
    return {
        "name": counter.name,
        "units": counter.units,
        "kind": str(counter.kind),
        "description": counter.description,
        "backend": counter.backend,
        "device": counter.device,
        "category": counter.category,
        "number": counter.number,
        "multiplier": counter.multiplier,
        "details": counter.details,
    }
