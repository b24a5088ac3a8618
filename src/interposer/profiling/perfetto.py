"""Recordings as traces of Perfetto: its protobuf messages, written by their published schema without a library."""

from __future__ import annotations

import os
import struct
import time
from collections.abc import Iterator
from itertools import count
from time import perf_counter_ns
from typing import Any, Final

from interposer.profiling.events import Counter, Instant
from interposer.profiling.processes import process_name
from interposer.profiling.recorder import Recording
from interposer.profiling.tracks import THREADS, Slice, Timeline, Track, timeline

__all__ = ["perfetto_trace"]

_SEQUENCE: Final = 1
_MONOTONIC: Final = 3
_CLOCKS: Final = ((_MONOTONIC, None), (6, "CLOCK_BOOTTIME"), (1, "CLOCK_REALTIME"))
_BEGIN, _END, _INSTANT, _COUNTER = 1, 2, 3, 4
_BYTES: Final = 3


def perfetto_trace(recording: Recording) -> bytes:
    """Return a recording as a serialized ``perfetto.protos.Trace``, which https://ui.perfetto.dev shows.

    Times are on the clock CLOCK_MONOTONIC. The debug annotations of each event have the facts about its layer.
    """
    writer = _Writer(timeline(recording))
    packets = [_clock_snapshot(), *writer.descriptors(), *writer.events()]
    return b"".join(_field(1, packet) for packet in packets)


# --- the wire format --------------------------------------------------------------------------------------------------


def _varint(value: int) -> bytes:
    value &= (1 << 64) - 1  # negative numbers have ten bytes
    result = bytearray()
    while value > 0x7F:
        result.append(value & 0x7F | 0x80)
        value >>= 7
    result.append(value)
    return bytes(result)


def _field(number: int, value: int | float | str | bytes) -> bytes:
    """Return one field; floats are doubles, and texts and bytes (messages) have their length in front."""
    match value:
        case int():
            return _varint(number << 3) + _varint(value)
        case float():
            return _varint(number << 3 | 1) + struct.pack("<d", value)
        case str():
            return _field(number, value.encode("utf-8", "replace"))
    return _varint(number << 3 | 2) + _varint(len(value)) + value


def _fixed(number: int, value: int) -> bytes:
    return _varint(number << 3 | 1) + struct.pack("<Q", value)


# --- packets ----------------------------------------------------------------------------------------------------------


def _clock_snapshot() -> bytes:
    """Return the packet that relates the clocks to each other, and begins the sequence."""
    clocks = b""
    for number, name in _CLOCKS:
        identifier = getattr(time, name, None) if name else None
        now = perf_counter_ns() if identifier is None else time.clock_gettime_ns(identifier)
        clocks += _field(1, _field(1, number) + _field(2, now))
    return _packet(_field(6, clocks) + _field(13, 1))


def _packet(content: bytes) -> bytes:
    return content + _field(10, _SEQUENCE)


class _Writer:
    """Gives each track a unique id, and writes its descriptor and events."""

    def __init__(self, line: Timeline) -> None:
        self._line = line
        self._ids = count(1)
        self._process = next(self._ids)
        self._groups = {group: next(self._ids) for group in dict.fromkeys(track.group for track in line.tracks)}
        children = {track.foreign.process: track.foreign.process_name for track in line.tracks if track.foreign}
        self._children = {process: (next(self._ids), name) for process, name in children.items()}
        self._tracks = {track: next(self._ids) for track in line.tracks}
        self._threads = {track.thread: number for track, number in self._tracks.items() if track.thread}
        self._counters: dict[Counter, int] = {}
        for sample in line.samples:
            self._counters.setdefault(sample.counter, next(self._ids))

    def descriptors(self) -> Iterator[bytes]:
        """Yield the packets that describe the process, the tracks and the counters."""
        pid = os.getpid()
        process = _field(1, pid) + _field(6, process_name())
        yield _packet(_field(60, _field(1, self._process) + _field(3, process)))
        for process_id, (number, name) in self._children.items():
            child = _field(1, process_id) + _field(6, name)
            yield _packet(_field(60, _field(1, number) + _field(3, child)))
        for group, number in self._groups.items():
            if group != THREADS:
                yield self._descriptor(number, _field(2, group), self._process)
        for track, number in self._tracks.items():
            if track.foreign is not None:
                owner = track.foreign.process
                thread = _field(1, owner) + _field(2, track.foreign.native_id) + _field(5, track.name)
                content = _field(4, thread) if track.thread else _field(2, track.name)
                yield self._descriptor(number, content, self._children[owner][0])
            elif track.thread:
                thread = _field(1, pid) + _field(2, track.thread) + _field(5, track.name)
                yield self._descriptor(number, _field(4, thread), self._process)
            else:
                yield self._descriptor(number, _field(2, track.name), self._groups[track.group])
        for counter, number in self._counters.items():
            yield self._descriptor(number, _counter_fields(counter), self._process)

    def _descriptor(self, number: int, content: bytes, parent: int) -> bytes:
        return _packet(_field(60, _field(1, number) + content + _field(5, parent)))

    def events(self) -> list[bytes]:
        """Return the packets of all events, ordered by their times; equal times keep the order of their track."""
        timed = [item for track in self._line.tracks for item in self._of_track(track)]
        timed += [(item.at, self._instant(item)) for item in self._line.instants]
        for sample in self._line.samples:
            value = _field(44, float(sample.value))
            timed.append((sample.at, _event(_COUNTER, self._counters[sample.counter], value)))
        return [_timed(at, event) for at, event in sorted(timed, key=lambda item: item[0])]

    def _of_track(self, track: Track) -> Iterator[tuple[int, bytes]]:
        number, path = self._tracks[track], list[Slice]()
        for item in track.slices:
            while path and path[-1].end <= item.begin:
                yield path.pop().end, _event(_END, number)
            yield item.begin, _event(_BEGIN, number, _described(item))
            path.append(item)
        while path:
            yield path.pop().end, _event(_END, number)

    def _instant(self, item: Instant) -> bytes:
        fields = _field(22, str(item.site.category)) + _field(23, item.site.name) + _annotations(item.site.to_dict())
        return _event(_INSTANT, self._threads.get(item.thread, self._process), fields)


def _timed(at: int, event: bytes) -> bytes:
    return _packet(_field(8, at) + _field(58, _MONOTONIC) + _field(11, event))


def _event(kind: int, track: int, content: bytes = b"") -> bytes:
    return _field(9, kind) + _field(11, track) + content


def _described(item: Slice) -> bytes:
    interval, site = item.interval, item.interval.site
    facts = site.to_dict()
    if interval.run >= 0:
        facts |= {"run": interval.run, "inference": interval.inference}
    flows = b"".join(_fixed(47, number) for number in item.leaving)
    flows += b"".join(_fixed(48, number) for number in item.arriving)
    return _field(22, str(site.category)) + _field(23, site.name) + _annotations(facts) + flows


def _annotations(facts: dict[str, Any]) -> bytes:
    return b"".join(_field(4, _field(10, name) + _annotated(value)) for name, value in facts.items())


def _annotated(value: Any) -> bytes:
    if isinstance(value, int):
        return _field(4, value)
    return _field(6, ", ".join(value) if isinstance(value, list) else str(value))


def _counter_fields(counter: Counter) -> bytes:
    unit = _field(3, _BYTES) if counter.units == "bytes" else _field(6, counter.units)
    return _field(2, f"{counter.backend} {counter.name}".lstrip()) + _field(8, unit)
