"""Recordings as traces of Perfetto: its protobuf messages, written by their published schema without a library."""

from __future__ import annotations

import os
import struct
import time
from collections.abc import Iterator, Mapping
from enum import IntEnum
from itertools import count, starmap
from operator import itemgetter
from time import perf_counter_ns
from typing import Any, Final

from interposer.core.varint import encoded_varint
from interposer.profiling.events import Counter, Instant, Site
from interposer.profiling.processes import process_name
from interposer.profiling.recorder import Recording
from interposer.profiling.tracks import THREADS, Slice, Timeline, Track, timeline

__all__ = ["perfetto_trace"]

_SEQUENCE_ID: Final = 1
_STATE_CLEARED: Final = 1
"""``SEQ_INCREMENTAL_STATE_CLEARED``: the flag of the first packet of a sequence."""
_MONOTONIC: Final = 3
_CLOCKS: Final = ((_MONOTONIC, None), (6, "CLOCK_BOOTTIME"), (1, "CLOCK_REALTIME"))
"""The number of each clock in ``BuiltinClock``, and its name in the module `time`; None for `perf_counter_ns`."""
_BEGIN, _END, _INSTANT, _COUNTER = 1, 2, 3, 4
"""The values of ``TrackEvent.Type``."""
_BYTES: Final = 3
"""``CounterDescriptor.Unit.UNIT_SIZE_BYTES``."""

# --- the numbers of the fields of Perfetto's messages (protos/perfetto/trace) -----------------------------------------


class _TraceField(IntEnum):
    PACKET = 1


class _PacketField(IntEnum):
    CLOCK_SNAPSHOT = 6
    TIMESTAMP = 8
    TRUSTED_PACKET_SEQUENCE_ID = 10
    TRACK_EVENT = 11
    SEQUENCE_FLAGS = 13
    TIMESTAMP_CLOCK_ID = 58
    TRACK_DESCRIPTOR = 60


class _SnapshotField(IntEnum):
    CLOCKS = 1


class _ClockField(IntEnum):
    CLOCK_ID = 1
    TIMESTAMP = 2


class _TrackField(IntEnum):
    UUID = 1
    NAME = 2
    PROCESS = 3
    THREAD = 4
    PARENT_UUID = 5
    COUNTER = 8


class _ProcessField(IntEnum):
    PID = 1
    PROCESS_NAME = 6


class _ThreadField(IntEnum):
    PID = 1
    TID = 2
    THREAD_NAME = 5


class _CounterField(IntEnum):
    UNIT = 3
    UNIT_NAME = 6


class _EventField(IntEnum):
    DEBUG_ANNOTATIONS = 4
    TYPE = 9
    TRACK_UUID = 11
    CATEGORIES = 22
    NAME = 23
    DOUBLE_COUNTER_VALUE = 44
    FLOW_IDS = 47
    TERMINATING_FLOW_IDS = 48


class _AnnotationField(IntEnum):
    INT_VALUE = 4
    STRING_VALUE = 6
    NAME = 10


def perfetto_trace(recording: Recording) -> bytes:
    """Return a recording as a serialized ``perfetto.protos.Trace``, which https://ui.perfetto.dev shows.

    Times are on the clock CLOCK_MONOTONIC. The debug annotations of each event have the facts about its layer.
    """
    writer = _Writer(timeline(recording))
    packets = [_clock_snapshot(), *writer.descriptors(), *writer.events()]
    return b"".join(_field(_TraceField.PACKET, packet) for packet in packets)


# --- the wire format --------------------------------------------------------------------------------------------------


def _field(number: int, value: int | float | str | bytes) -> bytes:
    """Return one field; floats are doubles, and texts and bytes (messages) have their length in front."""
    match value:
        case int():
            return encoded_varint(number << 3) + encoded_varint(value)
        case float():
            return encoded_varint(number << 3 | 1) + struct.pack("<d", value)
        case str():
            return _field(number, value.encode("utf-8", "replace"))
    return encoded_varint(number << 3 | 2) + encoded_varint(len(value)) + value


def _fixed(number: int, value: int) -> bytes:
    return encoded_varint(number << 3 | 1) + struct.pack("<Q", value)


# --- packets ----------------------------------------------------------------------------------------------------------


def _clock_snapshot() -> bytes:
    """Return the packet that relates the clocks to each other, and begins the sequence."""
    clocks = b""
    for perfetto_id, name in _CLOCKS:
        system_id = getattr(time, name, None) if name else None
        now = perf_counter_ns() if system_id is None else time.clock_gettime_ns(system_id)
        clock = _field(_ClockField.CLOCK_ID, perfetto_id) + _field(_ClockField.TIMESTAMP, now)
        clocks += _field(_SnapshotField.CLOCKS, clock)
    return _packet(_field(_PacketField.CLOCK_SNAPSHOT, clocks) + _field(_PacketField.SEQUENCE_FLAGS, _STATE_CLEARED))


def _packet(content: bytes) -> bytes:
    return content + _field(_PacketField.TRUSTED_PACKET_SEQUENCE_ID, _SEQUENCE_ID)


class _Writer:
    """Gives each track a unique id, and writes its descriptor and events."""

    def __init__(self, timeline: Timeline) -> None:
        self._timeline = timeline
        self._ids = count(1)
        self._process_track_id = next(self._ids)
        self._id_of_group = {
            group: next(self._ids) for group in dict.fromkeys(track.group for track in timeline.tracks)
        }
        children = {track.foreign.process: track.foreign.process_name for track in timeline.tracks if track.foreign}
        self._children = {process: (next(self._ids), name) for process, name in children.items()}
        self._id_of_track = {track: next(self._ids) for track in timeline.tracks}
        self._id_of_thread = {track.thread: track_id for track, track_id in self._id_of_track.items() if track.thread}
        self._id_of_counter: dict[Counter, int] = {}
        for sample in timeline.samples:
            self._id_of_counter.setdefault(sample.counter, next(self._ids))

    def descriptors(self) -> Iterator[bytes]:
        """Yield the packets that describe the process, the tracks and the counters."""
        pid = os.getpid()
        yield _track_packet(self._process_track_id, _process(pid, process_name()))
        for process_id, (track_id, name) in self._children.items():
            yield _track_packet(track_id, _process(process_id, name))
        for group, track_id in self._id_of_group.items():
            if group != THREADS:
                yield _track_packet(track_id, _field(_TrackField.NAME, group), self._process_track_id)
        for track, track_id in self._id_of_track.items():
            name_field = _field(_TrackField.NAME, track.name)
            if track.foreign is not None:
                process_id = track.foreign.process
                thread = _thread(process_id, track.foreign.native_id, track.name)
                yield _track_packet(track_id, thread if track.thread else name_field, self._children[process_id][0])
            elif track.thread:
                yield _track_packet(track_id, _thread(pid, track.thread, track.name), self._process_track_id)
            else:
                yield _track_packet(track_id, name_field, self._id_of_group[track.group])
        for counter, track_id in self._id_of_counter.items():
            yield _track_packet(track_id, _counter_fields(counter), self._process_track_id)

    def events(self) -> list[bytes]:
        """Return the packets of all events, ordered by their times; equal times keep the order of their track."""
        timed_events = [event for track in self._timeline.tracks for event in self._of_track(track)]
        timed_events += [(instant.at, self._instant(instant)) for instant in self._timeline.instants]
        for sample in self._timeline.samples:
            value_field = _field(_EventField.DOUBLE_COUNTER_VALUE, float(sample.value))
            timed_events.append((sample.at, _event(_COUNTER, self._id_of_counter[sample.counter], value_field)))
        return [_timed(time_ns, event) for time_ns, event in sorted(timed_events, key=itemgetter(0))]

    def _of_track(self, track: Track) -> Iterator[tuple[int, bytes]]:
        track_id, enclosing_slices = self._id_of_track[track], list[Slice]()
        for slice in track.slices:
            while enclosing_slices and enclosing_slices[-1].end <= slice.begin:
                yield enclosing_slices.pop().end, _event(_END, track_id)
            yield slice.begin, _event(_BEGIN, track_id, _described(slice))
            enclosing_slices.append(slice)
        while enclosing_slices:
            yield enclosing_slices.pop().end, _event(_END, track_id)

    def _instant(self, instant: Instant) -> bytes:
        content = _site(instant.site, instant.site.to_dict())
        return _event(_INSTANT, self._id_of_thread.get(instant.thread, self._process_track_id), content)


def _track_packet(track_id: int, content: bytes, parent: int | None = None) -> bytes:
    """Return the packet that describes the track with this id; `content` says what it shows."""
    descriptor = _field(_TrackField.UUID, track_id) + content
    if parent is not None:
        descriptor += _field(_TrackField.PARENT_UUID, parent)
    return _packet(_field(_PacketField.TRACK_DESCRIPTOR, descriptor))


def _process(pid: int, name: str) -> bytes:
    return _field(_TrackField.PROCESS, _field(_ProcessField.PID, pid) + _field(_ProcessField.PROCESS_NAME, name))


def _thread(pid: int, thread: int, name: str) -> bytes:
    ids = _field(_ThreadField.PID, pid) + _field(_ThreadField.TID, thread)
    return _field(_TrackField.THREAD, ids + _field(_ThreadField.THREAD_NAME, name))


def _timed(time_ns: int, event: bytes) -> bytes:
    moment = _field(_PacketField.TIMESTAMP, time_ns) + _field(_PacketField.TIMESTAMP_CLOCK_ID, _MONOTONIC)
    return _packet(moment + _field(_PacketField.TRACK_EVENT, event))


def _event(kind: int, track_id: int, content: bytes = b"") -> bytes:
    return _field(_EventField.TYPE, kind) + _field(_EventField.TRACK_UUID, track_id) + content


def _described(slice: Slice) -> bytes:
    interval = slice.interval
    facts = interval.site.to_dict()
    if interval.run >= 0:
        facts |= {"run": interval.run, "inference": interval.inference}
    flows = b"".join(_fixed(_EventField.FLOW_IDS, number) for number in slice.leaving)
    flows += b"".join(_fixed(_EventField.TERMINATING_FLOW_IDS, number) for number in slice.arriving)
    return _site(interval.site, facts) + flows


def _site(site: Site, facts: Mapping[str, Any]) -> bytes:
    """Return the fields of an event that say what it is about."""
    category = _field(_EventField.CATEGORIES, str(site.category))
    return category + _field(_EventField.NAME, site.name) + b"".join(starmap(_annotation, facts.items()))


def _annotation(name: str, value: Any) -> bytes:
    if isinstance(value, int):
        content = _field(_AnnotationField.INT_VALUE, value)
    else:
        content = _field(_AnnotationField.STRING_VALUE, ", ".join(value) if isinstance(value, list) else str(value))
    return _field(_EventField.DEBUG_ANNOTATIONS, _field(_AnnotationField.NAME, name) + content)


def _counter_fields(counter: Counter) -> bytes:
    in_bytes = counter.units == "bytes"
    unit = _field(_CounterField.UNIT, _BYTES) if in_bytes else _field(_CounterField.UNIT_NAME, counter.units)
    name = f"{counter.backend} {counter.name}".lstrip()
    return _field(_TrackField.NAME, name) + _field(_TrackField.COUNTER, unit)
