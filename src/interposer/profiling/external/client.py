"""The client of Arm NN's external profiling protocol: a thread that sends counters and timelines to a collector."""

from __future__ import annotations

import logging
import os
import threading
import weakref
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from enum import Enum
from time import monotonic, perf_counter_ns
from typing import ClassVar, Final

from interposer.core.errors import ParseError
from interposer.profiling.events import Category, Counter, Interval, Site, TracedNetwork
from interposer.profiling.external.connections import Connection, open_connection
from interposer.profiling.external.counting import (
    BACKENDS_REGISTERED,
    BACKENDS_UNREGISTERED,
    INFERENCES,
    NETWORK_LOADS,
    NETWORK_UNLOADS,
    Counting,
)
from interposer.profiling.external.messages import (
    Selection,
    StreamMetadata,
    decode_selection,
    encode_capture,
    encode_directory,
    encode_metadata,
    encode_selection,
)
from interposer.profiling.external.options import LEAST_PERIOD, ExternalProfilingOptions
from interposer.profiling.external.packets import HEADER, Kind, Packet, PacketReader
from interposer.profiling.external.structure import NetworkOutline, Structure
from interposer.profiling.external.timeline import Message, encode_messages, timeline_directory, well_known_labels
from interposer.profiling.processes import process_name
from interposer.profiling.recorder import Fields, Record, Recorder, Shape, active, expanded
from interposer.profiling.rows import Rows
from interposer.profiling.service import ProfilingService
from interposer.profiling.summary import is_step

__all__ = ["ProfilingClient", "State"]

_log: Final = logging.getLogger("interposer.profiling")
_PACKET: Final = 4096
"""The most bytes of a packet with messages of the timeline, header included."""
_LARGEST_COMMAND: Final = 1 << 18
_NAME: Final = 60
"""The most characters of the name of a process."""
_RESEND: Final = 1.0
_RETRY: Final = 1.0
_IDLE: Final = 0.05
_MOST_RUNS: Final = 1 << 12
"""The most runs that wait for being sent; later ones are dropped and counted, which the log says at the end."""


_MOST_SHOWN: Final = 10
"""The most numbers of counters in a log message."""
_STEPS: Final = (Category.KERNEL, Category.BACKEND, Category.COPY)
"""What backends report by themselves, outside of runs."""

_clients: Final[weakref.WeakSet[ProfilingClient]] = weakref.WeakSet()


class State(Enum):
    """The states of a client. Only an active client sends counters and timelines."""

    UNINITIALISED = "Uninitialised"
    NOT_CONNECTED = "NotConnected"
    WAITING_FOR_ACK = "WaitingForAck"
    ACTIVE = "Active"


class ProfilingClient(Recorder):
    """Connects to a collector, and sends what it asks for until `close`, in a thread of its own.

    A collector that is absent, ends the connection or sends damaged packets never stops a run. The client then connects
    again, once in a second. It is a recorder, which is active all the time and passes on the runs of the networks that
    `network_loaded` names. All methods are thread-safe, and return without waiting.

    Args:
        options: what to send, and where to.
        backends: returns the number of backends that are registered, which may change at any time.
        service: has the counters of backends, and lets backends measure what a collector asks for.
    """

    asks_backends: ClassVar[bool] = False

    def __init__(
        self,
        options: ExternalProfilingOptions,
        backends: Callable[[], int] = lambda: 0,
        service: ProfilingService | None = None,
    ) -> None:
        super().__init__()
        self.wants_all = False
        self.options, self.service = options, service or ProfilingService(is_driven=True)
        self.counting = Counting(self.service.counters)
        self._backends, self._num_registered = backends, 0
        self.count_backends()
        self._structure = Structure(perf_counter_ns)
        self._state = State.UNINITIALISED
        self._active = threading.Event()
        self._closing = threading.Event()
        self._loaded: dict[int, NetworkOutline] = {}
        self._events: deque[tuple[str, object]] = deque()
        self._lost_runs = 0
        self._thread = threading.Thread(target=self._work, name="interposer-profiling", daemon=True)
        self._timeline = False
        self._selection = Selection(0)
        self._next_capture = 0.0
        self._connection: Connection | None = None
        _clients.add(self)
        if options.file_format != "binary":
            _log.warning("the file format %r of profiling files is not implemented; it is binary", options.file_format)
        self.start()
        self._thread.start()

    # --- what the runtime reports -------------------------------------------------------------------------------------

    def wait_until_active(self, seconds: float) -> bool:
        """Wait until a collector has accepted the client, for at most so many seconds; return True if one has."""
        return self._active.wait(seconds)

    @property
    def state(self) -> State:
        """The state of the connection."""
        return self._state

    def count_backends(self) -> None:
        """Count the backends that have been registered or unregistered since the previous call."""
        previous_backends, self._num_registered = self._num_registered, self._backends()
        difference = self._num_registered - previous_backends
        if difference:
            self.counting.count(BACKENDS_REGISTERED if difference > 0 else BACKENDS_UNREGISTERED, abs(difference))

    def network_loaded(self, outline: NetworkOutline) -> None:
        """Report a network that has been loaded."""
        self._loaded[outline.number] = outline
        self.counting.count(NETWORK_LOADS)
        self._events.append(("load", outline))

    def network_unloaded(self, number: int) -> None:
        """Report that a network has been unloaded."""
        if self._loaded.pop(number, None) is not None:
            self.counting.count(NETWORK_UNLOADS)
            self._events.append(("unload", number))

    def wants(self, network: TracedNetwork | None, thread: int) -> bool:
        """Return True for runs of the networks that were reported, and for events of no network."""
        return network is None or network.number in self._loaded

    def add_record(self, shape: Shape, record: Record, fields: Fields) -> None:
        """Pass the times and fields of a whole run, which a recorder stored as `record`, to `add`."""
        _, thread, run, inference, *times = record
        self.add([*shape.fields(times, thread), *fields], run, inference)

    def add(self, fields: Fields | Rows, run: int = -1, inference: int = -1) -> None:
        """Count a run that has ended, and pass its events on to the timeline; or take the value of a counter.

        Steps that a backend has measured come without their run, if it reports them later.
        """
        rows = fields.fields if isinstance(fields, Rows) else fields
        is_run = run >= 0 and any(_is_run(site) for site in rows[::4])
        if is_run:
            self.counting.count(INFERENCES)
            self._add_events(rows, run, inference)
            return
        for start in range(0, len(rows), 4):
            self._add_single(rows[start : start + 4])

    def _add_single(self, fields: Fields) -> None:
        """Take the value of a counter, or pass a step on that a backend measured and reports later."""
        origin, begin, end, thread = fields
        if isinstance(origin, Counter):
            self.counting.sampled(origin, begin, end, captured=thread == self._thread.ident)
        elif isinstance(origin, Site) and end is not None and origin.category in _STEPS:
            self._add_events(fields, -1, -1)

    def _add_events(self, fields: Fields, run: int, inference: int) -> None:
        if not self._timeline or self._state is not State.ACTIVE:
            return
        if len(self._events) > (_MOST_RUNS if run >= 0 else _MOST_RUNS // 2):
            self._lost_runs += run >= 0
            return
        self._events.append(("run", (fields, run, inference)))

    def close(self, seconds: float = 1.0) -> None:
        """Send what is left, and end the connection; wait for at most so many seconds."""
        self.stop()
        if not self._closing.is_set():
            for number in list(self._loaded):  # of a runtime that was not closed
                self.network_unloaded(number)
            self.count_backends()
            self.counting.count(BACKENDS_UNREGISTERED, self._num_registered)
        self._closing.set()
        if threading.current_thread() is not self._thread:  # in which the garbage collector can end a runtime
            self._thread.join(seconds + _IDLE)
        lost_runs, self._lost_runs = self._lost_runs, 0
        if lost_runs:
            _log.warning("the timeline lacks %s runs, which came faster than they could be sent", f"{lost_runs:,}")

    def _forked(self) -> None:
        """Take no part in a child process, which has the recorder but not the thread."""
        if self in active:
            active.remove(self)
        self._closing.set()
        self.counting = Counting()
        if self._connection is not None:
            with suppress(OSError):
                self._connection.close()

    # --- the thread ---------------------------------------------------------------------------------------------------

    def _work(self) -> None:
        is_reported = is_reconnecting = False
        while not self._closing.is_set():
            self._state = State.NOT_CONNECTED
            attempt_begin = monotonic()
            try:
                self._connection = open_connection(self.options, again=is_reconnecting)
            except (OSError, ValueError) as error:
                if not is_reported:
                    _log.warning("%s; trying again", _failure(error))
                is_reported = True
                self._structure_only()
            else:
                is_reported, is_reconnecting = False, True
                self._converse(self._connection)
            self._closing.wait(max(attempt_begin + _RETRY - monotonic(), _IDLE))

    def _structure_only(self) -> None:
        """Take in the networks that were loaded and unloaded while there is no collector."""
        while self._events:
            self._take(self._events.popleft()[1])

    def _take(self, subject: object) -> None:
        if isinstance(subject, NetworkOutline):
            self._structure.add(subject)
        elif isinstance(subject, int):
            self._structure.remove(subject)

    def _select(self, selection: Selection) -> None:
        """Let backends capture these counters and no others; errors are logged."""
        self._selection = selection
        counters = selection.counters if selection.period else ()
        self.counting.select(counters)
        for backend, error in self.service.select(selection.period, counters).items():
            _log.warning("backend %s does not capture the counters that the collector selected: %s", backend, error)

    def _converse(self, connection: Connection) -> None:
        """Talk to a collector until one side ends the connection."""
        try:
            _Conversation(self, connection).run()
        except (OSError, ParseError) as error:
            _log.warning("the connection to the collector of profiles ended: %s", error)
        except Exception:  # runs must go on, and the next connection may work
            _log.exception("the connection to the collector of profiles ended")
        finally:
            self._active.clear()
            self._timeline = False
            self._select(Selection(0))
            self.service.enable(False, False)
            self._state = State.NOT_CONNECTED
            with suppress(OSError):
                connection.close(_RETRY if self._closing.is_set() else 0)
            self._connection = None


class _Conversation:
    """One connection of a client, from its metadata to its end. Only the thread of the client uses it."""

    def __init__(self, client: ProfilingClient, connection: Connection) -> None:
        self._client, self._connection = client, connection
        self._reader = PacketReader("<", _LARGEST_COMMAND)
        self._listed_counters = 0
        self._answers = {
            Kind.CONNECTION_ACKNOWLEDGED: self._acknowledged,
            Kind.REQUEST_COUNTER_DIRECTORY: self._requested,
            Kind.COUNTER_SELECTION: self._selected,
            Kind.ACTIVATE_TIMELINE: self._activated,
            Kind.DEACTIVATE_TIMELINE: self._deactivated,
        }

    def run(self) -> None:
        client = self._client
        client._state = State.WAITING_FOR_ACK
        metadata_time = -_RESEND
        while True:
            if client._state is State.WAITING_FOR_ACK and monotonic() - metadata_time >= _RESEND:
                self._send(Kind.STREAM_METADATA, encode_metadata(StreamMetadata(os.getpid(), process_name()[:_NAME])))
                metadata_time = monotonic()
            received_bytes = self._connection.receive(self._patience())
            if received_bytes == b"":
                _log.info("the collector of profiles has ended the connection")
                return
            for packet in self._reader.feed(received_bytes or b""):
                self._answer(packet)
            self._list_new_counters()
            self._capture_if_due()
            self._report()
            if client._closing.is_set() and not client._events:
                self._capture()  # what has been counted since the last one
                return

    def _patience(self) -> float:
        """Return how long to wait for a command: until the next capture, or the next look at the events."""
        client = self._client
        if client._events or client._closing.is_set():
            return 0
        seconds_due = client._next_capture - monotonic() if _captures(client._selection) else _IDLE
        return min(max(seconds_due, 0), _IDLE)

    def _send(self, kind: Kind, body: bytes) -> None:
        self._connection.send(Packet(kind, body).encode())

    def _answer(self, packet: Packet) -> None:
        kind = packet.kind
        if kind is None or kind not in self._answers:
            return
        if self._client._state is not State.ACTIVE and kind is not Kind.CONNECTION_ACKNOWLEDGED:
            _log.warning("the collector of profiles sent %s before it accepted the connection", kind.name)
            return
        try:
            self._answers[kind](packet.body)
        except ParseError as error:
            _log.warning("a command of the collector of profiles is damaged: %s", error)

    def _acknowledged(self, body: bytes) -> None:
        client = self._client
        if client._state is State.ACTIVE:
            return
        client._state = State.ACTIVE
        client.service.enable(True, False)
        self._send_directory()
        if client.options.timeline_enabled:
            self._begin_timeline()
        client._active.set()

    def _requested(self, body: bytes) -> None:
        self._send_directory()
        self._send(Kind.TIMELINE_DIRECTORY, timeline_directory())

    def _send_directory(self) -> None:
        self._listed_counters = self._client.counting.size
        self._send(Kind.COUNTER_DIRECTORY, encode_directory(self._client.counting.directory))

    def _list_new_counters(self) -> None:
        """Send the directory again if a backend has registered counters, as the first one of a runtime may do later."""
        if self._client._state is State.ACTIVE and self._client.counting.size > self._listed_counters:
            self._send_directory()

    def _selected(self, body: bytes) -> None:
        client, selection = self._client, decode_selection(body)
        known_counters = client.counting.known(selection.counters)
        unknown_counters = sorted(set(selection.counters).difference(known_counters))
        if unknown_counters:
            numbers_text = ", ".join(map(str, unknown_counters[:_MOST_SHOWN])) + (
                ", ..." if len(unknown_counters) > _MOST_SHOWN else ""
            )
            _log.warning("the collector of profiles selected counters that do not exist: %s", numbers_text)
        period = max(selection.period, LEAST_PERIOD) if selection.period and known_counters else selection.period
        client._select(Selection(period, known_counters))
        self._send(Kind.COUNTER_SELECTION, encode_selection(client._selection))
        client._next_capture = monotonic()

    def _activated(self, body: bytes) -> None:
        if self._client._timeline:
            return
        self._begin_timeline()
        structure = self._client._structure
        for number in structure.networks:
            self._send_messages(structure.network(number, begins=False))

    def _begin_timeline(self) -> None:
        """Send the directory of the timeline and its labels, and after them all runs that end from now on.

        A collector that has received the labels does not miss a run that begins then.
        """
        self._report()
        self._client._timeline = True
        self._client.service.enable(True, True)
        self._send(Kind.TIMELINE_DIRECTORY, timeline_directory())
        self._send_messages(well_known_labels())

    def _deactivated(self, body: bytes) -> None:
        self._client.service.enable(True, False)
        self._client._timeline = False

    def _capture_if_due(self) -> None:
        client = self._client
        if not _captures(client._selection) or monotonic() < client._next_capture:
            return
        self._capture()
        period = client._selection.period / 1e6
        client._next_capture = max(client._next_capture + period, monotonic() - period)

    def _capture(self) -> None:
        """Send the values of the selected counters, if there are any: the runtime's own first, then each backend's."""
        client = self._client
        if not _captures(client._selection):
            return
        client.count_backends()
        own_capture = client.counting.capture(perf_counter_ns(), client._selection.counters)
        client.service.capture()  # which this thread records
        for capture in (*([own_capture] if own_capture else ()), *client.counting.captures_of_backends()):
            self._send(Kind.COUNTER_CAPTURE, encode_capture(capture))

    # --- the timeline -------------------------------------------------------------------------------------------------

    def _report(self) -> None:
        """Send what has been reported of networks and runs, or drop it while there is no timeline."""
        events, structure = self._client._events, self._client._structure
        for _ in range(len(events)):
            _, subject = events.popleft()
            self._client._take(subject)
            if isinstance(subject, NetworkOutline) and self._client._timeline:
                self._send_messages(structure.network(subject.number, begins=True))
            elif self._client._timeline and isinstance(subject, tuple):
                self._report_run(expanded(*subject))

    def _report_run(self, intervals: Sequence[Interval]) -> None:
        structure = self._client._structure
        run = next((step for step in intervals if step.site.category is Category.RUN), None)
        if run is None:
            for step in filter(is_step, intervals):
                self._send_messages(structure.step(step))
            return
        if run.site.network is None:
            return
        for messages in structure.run(run.site.network.number, intervals):
            self._send_messages(messages)

    def _send_messages(self, messages: Iterable[Message]) -> None:
        """Send messages in as few packets as their size allows."""
        body = b""
        for encoded_message in encode_messages(list(messages)):
            if body and HEADER + len(body) + len(encoded_message) > _PACKET:
                self._send(Kind.TIMELINE_MESSAGE, body)
                body = b""
            body += encoded_message
        if body:
            self._send(Kind.TIMELINE_MESSAGE, body)


def _is_run(origin: object) -> bool:
    """Return True for the site of a whole run."""
    return isinstance(origin, Site) and origin.category is Category.RUN


def _captures(selection: Selection) -> bool:
    return selection.period > 0 and bool(selection.counters)


def _failure(error: Exception) -> str:
    reason_text = getattr(error, "strerror", None) or str(error)
    path = getattr(error, "filename", None)  # that of a file; errors of sockets have none
    return (
        f"the file {path} for profiles cannot be written: {reason_text}"
        if path
        else f"there is no collector of profiles: {reason_text}"
    )


def _after_fork() -> None:
    for client in list(_clients):
        client._forked()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
