"""Recordings in the JSON form of Chrome's trace viewer, which Perfetto's and Speedscope's user interfaces read too."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterator
from typing import Any, Final

from interposer.profiling.events import Counter, Instant, Sample
from interposer.profiling.recorder import Recording
from interposer.profiling.tracks import BACKENDS, DEVICES, THREADS, Flow, Slice, Timeline, timeline

__all__ = ["chrome_trace"]

_PROCESSES: Final = {THREADS: 1, BACKENDS: 2, DEVICES: 3}
"""The numbers of the processes that stand for the groups of tracks."""
_COUNTERS: Final = 4
_FOREIGN: Final = 1 << 22
"""Is added to the ids of child processes that are numbers of groups; no process has an id above."""


def chrome_trace(recording: Recording) -> str:
    """Return a recording as a JSON text of Chrome's trace event format.

    Times are in microseconds since the first event. The arguments of each event have the facts about its layer.
    """
    events = list(_events(timeline(recording)))
    origin = min((event["ts"] for event in events if "ts" in event), default=0)
    for event in events:
        if "ts" in event:
            event["ts"] = (event["ts"] - origin) / 1000
    counters = [_declared(counter) for counter in dict.fromkeys(sample.counter for sample in recording.samples)]
    other_data = {"origin_ns": origin, "lost_events": recording.lost, "writer": "interposer", "counters": counters}
    return json.dumps({"traceEvents": events, "displayTimeUnit": "ns", "otherData": other_data}, indent=None)


def _events(timeline: Timeline) -> Iterator[dict[str, Any]]:
    """Yield the events with times in nanoseconds."""
    for group, process in _PROCESSES.items():
        title = f"{group} of process {os.getpid()}" if group == THREADS else group
        if any(track.group == group for track in timeline.tracks):
            yield _named("process_name", title, process)
    children = {track.foreign.process: track.foreign.process_name for track in timeline.tracks if track.foreign}
    for process, title in children.items():
        yield _named("process_name", f"{title}, {process}", _foreign(process))
    places: dict[Slice, tuple[int, int]] = {}
    for number, track in enumerate(timeline.tracks, 1):
        place = _foreign(track.foreign.process) if track.foreign else _PROCESSES[track.group], number
        yield _named("thread_name", track.name, *place)
        places |= dict.fromkeys(track.slices, place)
        yield from (_slice(slice, *place) for slice in track.slices)
    for flow in timeline.flows:
        yield from _arrow(flow, places)
    threads = {track.thread: number for number, track in enumerate(timeline.tracks, 1) if track.thread}
    yield from (_instant(instant, threads.get(instant.thread, 0)) for instant in timeline.instants)
    if timeline.samples:
        yield _named("process_name", "Counters", _COUNTERS)
    yield from (
        _counter(sample) for sample in timeline.samples if math.isfinite(sample.value)
    )  # JSON has no other numbers


def _foreign(process: int) -> int:
    return process if process > _COUNTERS else process + _FOREIGN


def _named(metadata_name: str, name: str, process: int, thread: int = 0) -> dict[str, Any]:
    return {"ph": "M", "name": metadata_name, "pid": process, "tid": thread, "args": {"name": name}}


def _slice(slice: Slice, process: int, thread: int) -> dict[str, Any]:
    interval = slice.interval
    return {
        "ph": "X",
        "name": interval.site.name,
        "cat": str(interval.site.category),
        "ts": slice.begin,
        "dur": (slice.end - slice.begin) / 1000,
        "pid": process,
        "tid": thread,
        "args": {**interval.site.to_dict(), **_numbers(interval.run, interval.inference)},
    }


def _numbers(run: int, inference: int) -> dict[str, int]:
    return {} if run < 0 else {"run": run, "inference": inference}


def _arrow(flow: Flow, places: dict[Slice, tuple[int, int]]) -> Iterator[dict[str, Any]]:
    for phase, end in (("s", flow.source), ("f", flow.target)):
        process, thread = places[end]
        time = min(end.end, flow.target.begin) if phase == "s" else end.begin
        event = {"ph": phase, "id": flow.number, "name": "tensor", "cat": "tensor", "ts": max(time, end.begin)}
        yield {**event, "pid": process, "tid": thread, **({"bp": "e"} if phase == "f" else {})}


def _instant(instant: Instant, thread: int) -> dict[str, Any]:
    site = instant.site
    event = {"ph": "i", "name": site.name, "cat": str(site.category), "ts": instant.at, "pid": _PROCESSES[THREADS]}
    return {**event, "tid": thread, "s": "t", "args": {**site.to_dict(), **_numbers(instant.run, instant.inference)}}


def _declared(counter: Counter) -> dict[str, Any]:
    facts = {"name": _title(counter), "units": counter.units, "class": str(counter.kind), "backend": counter.backend}
    return facts | {"device": counter.device, "description": counter.description}


def _title(counter: Counter) -> str:
    return f"{counter.backend} {counter.name}".lstrip()


def _counter(sample: Sample) -> dict[str, Any]:
    name, values = _title(sample.counter), {sample.counter.units: sample.value}
    return {"ph": "C", "name": name, "ts": sample.at, "pid": _COUNTERS, "tid": 0, "args": values}
