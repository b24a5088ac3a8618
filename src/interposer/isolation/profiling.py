"""The host's side of the profiles of a child process: its events become events of the host's recorders.

A thread of the host reads the events, so that runs do not wait for them. Times are converted to the host's clock. The
events of a run of the child belong to the run of the network that the host was executing.
"""

from __future__ import annotations

import logging
import socket
import struct
import threading
import time
import weakref
from bisect import bisect_right
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from threading import get_ident
from time import perf_counter_ns
from typing import Any, Final, NamedTuple

from interposer.core.types import Array
from interposer.isolation import events
from interposer.isolation.life import Life
from interposer.profiling.backends import CounterTimestamp, DeviceClock
from interposer.profiling.children import Execution, waiting
from interposer.profiling.events import Category, Counter, CounterClass, ForeignThread, Site
from interposer.profiling.recorder import (
    Fields,
    RunTrace,
    active,
    asking_recorders,
    current,
    foreign_thread,
    note_lost,
    when_changed,
)

__all__ = ["CounterSamples", "Mark", "Stream", "counter_of", "mark"]

_log: Final = logging.getLogger("interposer.profiling")
_PATIENCE: Final = 4.0
"""Seconds without a byte from the child, which may wait for a processor, before profiling goes on without it."""
_LONGEST: Final = 20.0
"""Seconds to wait for the answer of a child that goes on sending."""
_NO_NATIVE_ID: Final = 1 << 22
"""The least number of a thread whose native id is not known; native ids are smaller."""
_MOST_WINDOWS: Final = 1 << 12
_MOST_PENDING: Final = 1 << 18
"""The number of events that wait for the end of their run; more are lost."""


class Mark(NamedTuple):
    """The moment at which a thread of the host sent a layer to the child, in a run that is recorded."""

    trace: RunTrace
    execution: Execution


def mark() -> Mark | None:
    """Return the mark of a layer that this thread sends now; None if it executes no recorded run."""
    thread = get_ident()
    trace = current.get(thread)
    return None if trace is None else Mark(trace, Execution(thread, perf_counter_ns()))


class _Window:
    """One message that lets the child run layers: the marks of these, and the times of the message on the host."""

    __slots__ = ("begin", "end", "marks", "trace")

    def __init__(self, marks: Sequence[Mark | None], trace: RunTrace | None) -> None:
        self.marks, self.trace = marks, trace
        self.begin, self.end = perf_counter_ns(), 0


class CounterSamples:
    """What a child process reports to one context: samples of its `counters`, which are known by their numbers."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.counters: dict[int, Counter] = {}
        self.samples: deque[CounterTimestamp] = deque(maxlen=1 << 16)


class Stream:
    """The events of a backend's child process, which are read while something records, or a context is enabled.

    Thread-safe.
    """

    def __init__(self, backend: str) -> None:
        self.backend = backend
        self._site = waiting(backend)
        self._connection: _Connection | None = None
        self._contexts: weakref.WeakValueDictionary[int, CounterSamples] = weakref.WeakValueDictionary()
        self._lock = threading.Lock()
        self._enabled_numbers: set[int] = set()
        self._num_recorders = 0
        when_changed(self._changed)
        self._num_recorders = asking_recorders()

    @property
    def is_wanted(self) -> bool:
        """True while something needs the events of the child."""
        return bool(self._num_recorders or self._enabled_numbers)

    def add_context(self, context: CounterSamples) -> None:
        """Let a context get the samples of its counters."""
        self._contexts[context.number] = context

    def connect(self, life: Life, seconds: float | None) -> None:
        """Let a child process send its events from now on; it does so only while something records.

        The caller has the right to use `life`. A failure is logged.
        """
        connection = self._connection
        if connection is not None and connection.is_on and connection.life() is life:
            return
        with self._lock:
            if self._connection is not None and self._connection.life() is life:
                self._switch()
                return
            try:
                host_end, child_end = socket.socketpair()
            except OSError as error:
                _log.warning("the events of backend %s are not recorded: %s", self.backend, error)
                return
            try:
                life.ask({"do": "profile"}, "the begin of profiling", seconds, fds=[child_end.fileno()])
            except BaseException:
                host_end.close()
                raise
            finally:
                child_end.close()
            self._connection = _Connection(self.backend, life, host_end, self._contexts)
            self._switch()

    def _switch(self) -> None:
        """Let the child send its events if they are needed now, or end it."""
        connection, is_wanted = self._connection, self.is_wanted
        if connection is not None and connection.is_on != is_wanted:
            connection.command(events.ON if is_wanted else events.OFF)
            connection.is_on = is_wanted
            if not is_wanted:
                connection.forget()

    @contextmanager
    def message(self, life: Life, marks: Sequence[Mark | None]) -> Iterator[None]:
        """Note that, in a ``with`` block, the child gets its next message and runs these layers, and its answer."""
        connection = self._connection
        if connection is None or not connection.is_on:
            yield
            return
        window = connection.begin(life.next_number, _Window(marks, current.get(get_ident())))
        try:
            yield
        finally:
            window.end = perf_counter_ns()
            if window.trace is not None:
                window.trace.fields += (self._site, window.begin, window.end, get_ident())

    def waited(self, begin: int) -> None:
        """Record that this thread has waited for another one that used the child."""
        thread = get_ident()
        trace = current.get(thread)
        if trace is not None:
            trace.fields += (self._site, begin, perf_counter_ns(), thread)

    def enable(self, number: int, profiling: bool, timeline: bool) -> None:
        """Start or stop measuring in the context with this number, and wait until it has reported everything so far.

        `profiling` says whether backends measure, and `timeline` whether they report intervals too.
        """
        with self._lock:
            if profiling:
                self._enabled_numbers.add(number)
                self._switch()
            if self._connection is not None:
                self._connection.command(events.ENABLE, [number, profiling, timeline])
            if not profiling:
                self._enabled_numbers.discard(number)
                self._switch()

    def select(self, number: int, period: int, counters: Sequence[int]) -> str | None:
        """Choose the counters that the context with this number captures, and return its error."""
        with self._lock:
            if self._connection is None:
                return None
            return self._connection.command(events.SELECT, [number, period, list(counters)])

    def _changed(self, recorders: int) -> None:
        """Begin or end recording when the number of recorders becomes `recorders`.

        This is called before a recorder stops, so that it gets all events of the child first.
        """
        with self._lock:
            are_fewer, self._num_recorders = recorders < self._num_recorders, recorders
            if self._connection is None:
                return
            if are_fewer and (recorders or self._enabled_numbers):
                self._connection.command(events.FLUSH)
            else:
                self._switch()

    def flush(self) -> None:
        """Wait until the recorders have all events of the child until now."""
        with self._lock:
            if self._connection is not None and self._connection.is_on:
                self._connection.command(events.FLUSH)

    def forked(self) -> None:
        """Forget the connection in a fork of the host: the child process belongs to the parent."""
        self._lock = threading.Lock()
        connection, self._connection = self._connection, None
        self._num_recorders = 0
        self._enabled_numbers = set()
        if connection is not None:
            connection.close()


class _Connection:
    """The connection to one child process, and the thread that reads from it."""

    def __init__(self, backend: str, life: Life, end: socket.socket, contexts: Mapping[int, CounterSamples]) -> None:
        self.backend, self.life, self.pid = backend, weakref.ref(life), life.pid
        self.is_on = False
        self._socket_end, self._contexts = end, contexts
        self._clock: DeviceClock | None = None
        self._sites: dict[int, Site] = {}
        self._counters: dict[int, tuple[Counter, CounterSamples | None]] = {}
        self._threads: dict[int, int] = {}
        self._windows: deque[tuple[int, _Window]] = deque(maxlen=_MOST_WINDOWS)
        self._steps: list[_Steps] = []
        self._pending: dict[RunTrace, list[Fields]] = {}
        self._pending_count = 0
        self._lock = threading.Lock()
        self._answered = threading.Event()
        self._command_times: deque[int] = deque()  # when commands were sent that are not answered yet
        self._received_count = 0
        self._is_late = False
        self._refusal: str | None = None
        self.is_over = False
        threading.Thread(target=self._read, name="interposer-events", daemon=True).start()

    def command(self, kind: int, body: bytes | list[Any] = b"") -> str | None:
        """Send a command and wait for the answer, so that all earlier events are in the recorders.

        If the child sends nothing for too long, this is logged. Nothing waits for it again until it answers. Returns
        the error with which the child answers.
        """
        if self.is_over:
            self._settle()
            return None
        self._refusal = None
        self._answered.clear()
        self._command_times.append(perf_counter_ns())
        try:
            events.send(self._socket_end, kind, body)
        except OSError:
            return None
        if not self._is_late and not self._wait_for_answer():
            self._is_late = True
            _log.warning("the child process of backend %s does not send its events in time", self.backend)
        self._settle()
        return self._refusal

    def _wait_for_answer(self) -> bool:
        """Return False if the child does not answer although it could have sent its events."""
        limit = time.monotonic() + _LONGEST
        while not self._answered.wait(_PATIENCE):
            received, self._received_count = self._received_count, 0
            if self.is_over or not received or time.monotonic() > limit:
                return self.is_over
        return True

    def begin(self, number: int, window: _Window) -> _Window:
        """Note a message of the host."""
        self._windows.append((number, window))
        return window

    def forget(self) -> None:
        """Drop runs, and the events of those that have not ended, when nothing records any more."""
        with self._lock:
            self._drop()
            self._steps.clear()
            self._windows.clear()

    def close(self) -> None:
        """Close the connection."""
        self.is_over = True
        self._socket_end.close()

    # --- reading ------------------------------------------------------------------------------------------------------

    def _read(self) -> None:
        try:
            while True:
                self._handle(events.receive(self._socket_end))
        except EOFError:
            pass
        except Exception as error:  # the child may send anything
            message = "the child process of backend %s sends events that make no sense (%s: %s); they are not recorded"
            _log.warning(message, self.backend, type(error).__name__, error)
        self.is_over = True
        self._answered.set()
        self._socket_end.close()

    def _handle(self, part: events.Part) -> None:
        self._received_count += 1
        match part.kind:
            case events.SITE:
                fields = dict(part.plain)
                number = int(fields.pop("number"))
                self._sites[number] = _site(fields)
            case events.COUNTER:
                self._add_counter(part.plain)
            case events.THREAD:
                self._add_thread(part.plain)
            case events.EVENTS:
                self._add_rows(part.numbers(events.WIDTH))
            case events.STEPS:
                number, thread, *times = part.numbers()[:, 0].tolist()
                self._steps.append(_Steps(number, thread, times))
            case events.LOST:
                note_lost(int(part.numbers()[0, 0]))
            case events.REFUSED:
                self._refusal = str(part.plain)
            case events.DONE:
                _, now = part.numbers()[:, 0].tolist()
                self._correlate(self._command_times.popleft(), now)
                if not self._command_times:
                    self._is_late = False
                    self._answered.set()
                return
            case _:
                raise events.WrongEventsError(f"a message of kind {part.kind}")
        self._settle()

    def _correlate(self, sent_at: int, now: int) -> None:
        """Relate the child's clock to the host's, by a time that it read after a command was sent, before its answer.

        Both normally read the same clock. Then the child's time is between the two of the host, and is used unchanged.
        """
        received = perf_counter_ns()
        if sent_at <= now <= received and self._clock is None:
            return
        if self._clock is None:
            self._clock = DeviceClock()
        self._clock.correlate(now, sent_at, received)

    def _to_host(self, time_ns: int) -> int:
        return time_ns if self._clock is None else self._clock.to_host(time_ns)

    def _add_counter(self, plain: Any) -> None:
        context = self._contexts.get(int(plain["context"]))
        counter = counter_of(plain["counter"])
        if context is not None:
            counter = context.counters.get(counter.number, counter)
        self._counters[int(plain["number"])] = counter, context

    def _add_thread(self, plain: Any) -> None:
        name, native_id = str(plain["name"]), int(plain["native"])
        index = len(self._threads)
        thread = ForeignThread(self.pid, f"child process of {self.backend}", name, native_id or _NO_NATIVE_ID + index)
        self._threads[int(plain["thread"])] = foreign_thread(thread, index)

    def _add_rows(self, rows: Array) -> None:
        windows = [window for _, window in _copied(self._windows)]
        with self._lock:
            for number, begin, value, thread in rows.tolist():
                if number in self._counters:
                    self._add_sample(*self._counters[number], begin, value)
                    continue
                end = None if value == events.INSTANT else self._to_host(value)
                begin = self._to_host(begin)
                fields = [self._sites[number], begin, end, self._threads[thread] if thread else 0]
                self._add_event(fields, _trace_at(begin, windows))

    def _add_sample(self, counter: Counter, context: CounterSamples | None, at: int, bits: int) -> None:
        [sample_value] = struct.unpack("<d", struct.pack("<q", bits))
        if context is not None:
            stamp = CounterTimestamp(self._to_host(at), {counter.number: sample_value / counter.multiplier})
            context.samples.append(stamp)
            return
        for recorder in tuple(active):
            if recorder.wants_all:
                recorder.add([counter, self._to_host(at), sample_value, get_ident()])

    # --- belonging to runs --------------------------------------------------------------------------------------------

    def _add_event(self, fields: Fields, trace: RunTrace | None) -> None:
        """Add an event to the recorders of its run, which may not have ended yet; else to all that want it."""
        if trace is not None:
            self._pending.setdefault(trace, []).append(fields)
            self._pending_count += 1
            if self._pending_count > _MOST_PENDING:
                note_lost(self._pending_count)
                self._drop()
            return
        for recorder in tuple(active):
            if recorder.wants(None, fields[3]):
                recorder.add(fields)

    def _drop(self) -> None:
        self._pending.clear()
        self._pending_count = 0

    def _settle(self) -> None:
        """Give all events whose runs have ended to the recorders of these runs."""
        with self._lock:
            for trace in [trace for trace in self._pending if trace.inference >= 0]:
                events_of_run = self._pending.pop(trace)
                self._pending_count -= len(events_of_run)
                for fields in events_of_run:
                    _add(trace, fields)
            if self._steps:
                windows = dict(_copied(self._windows))
                self._steps = [steps for steps in self._steps if not self._add_steps(steps, windows.get(steps.number))]

    def _add_steps(self, steps: _Steps, window: _Window | None) -> bool:
        """Add the layers that the child has run; return False if this has to wait for the end of the run."""
        if window is None:
            return True
        if not window.end or any(mark is not None and mark.trace.inference < 0 for mark in window.marks):
            return False
        times = [min(max(self._to_host(time_ns), window.begin), window.end) for time_ns in steps.times]
        for mark, begin, end in zip(window.marks, times, times[1:], strict=False):
            if mark is not None:
                _add(mark.trace, [mark.execution, begin, end, self._threads[steps.thread]])
        return True


def _add(trace: RunTrace, fields: Fields) -> None:
    for recorder in trace.recorders:
        recorder.add(fields, trace.run, trace.inference)


def _copied(windows: deque[tuple[int, _Window]]) -> list[tuple[int, _Window]]:
    while True:
        try:
            return list(windows)
        except RuntimeError:  # another thread has added a window concurrently
            continue


class _Steps(NamedTuple):
    """The begins of the layers that the child ran for one message, and the end of the last one, on its own clock."""

    number: int
    thread: int
    times: Sequence[int]


def _trace_at(moment: int, windows: Sequence[_Window]) -> RunTrace | None:
    """Return the run in which the child was at a moment, or None. The windows are in the order of their times."""
    index = bisect_right(windows, moment, key=lambda window: window.begin) - 1
    if index < 0 or windows[index].end and windows[index].end < moment:
        return None
    return windows[index].trace


def _site(plain: Mapping[str, Any]) -> Site:
    fields = {
        **plain,
        "category": Category(plain["category"]),
        "layers": tuple(map(str, plain["layers"])),
        "details": tuple((str(name), str(value)) for name, value in plain["details"]),
    }
    return Site(**fields)


def counter_of(plain: Mapping[str, Any]) -> Counter:
    """Return the counter that a child process has described."""
    details = tuple((str(name), str(value)) for name, value in plain["details"])
    return Counter(**{**plain, "kind": CounterClass(plain["kind"]), "details": details})
