"""`Profiler`: the profiler of one loaded network, with its events as text and in the JSON form of Arm NN's profiler."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import field
from itertools import count
from typing import Any, Final, Protocol

from interposer.core.errors import InvalidArgumentError
from interposer.core.records import dataclass
from interposer.profiling.events import Category, Interval, Site, TracedNetwork
from interposer.profiling.recorder import Recorder

__all__ = ["Profiler"]

PREFIXES: Final[Mapping[str, str]] = {
    "CpuRef": "Ref",
    "CpuAcc": "Neon",
    "GpuAcc": "Cl",
    "EthosNAcc": "EthosN",
}
"""The beginning of the names of Arm NN's workloads, by backend; tools guess the backend from it."""
_UNKNOWN: Final = "Unknown"
_EVENTS: Final = "Event Sequence - Name | Duration (ms) | Start (ms) | Stop (ms) | Device\n"
_STATISTICS: Final = "Event Stats - Name | Avg (ms) | Min (ms) | Max (ms) | Total (ms) | Count\n"
_NAMES: Final[Mapping[Category, str]] = {
    Category.RUN: "EnqueueWorkload",
    Category.EXECUTE: "Execute",
    Category.MEMORY: "Working Memory Allocation",
    Category.COPY: "CopyMemGeneric_Execute",
}


class _Writes(Protocol):
    def write(self, text: str, /) -> object: ...


class Profiler:
    """Records the runs of one network, and shows them as Arm NN's ``IProfiler`` does.

    `Runtime.get_profiler` returns it. It is disabled at first. Disabling it keeps the events, and enabling it again
    adds to them. All methods are thread-safe. The names of events are Arm NN's: a run is "EnqueueWorkload", its layers
    are in "Execute", and an addition on CpuRef is "RefAdditionWorkload_Execute".
    """

    def __init__(self, network: TracedNetwork) -> None:
        self._recorder = Recorder(network=network)

    def enable_profiling(self, enable: bool = True) -> None:
        """Record the runs that begin from now on, or no longer record them."""
        if not isinstance(enable, bool):
            raise InvalidArgumentError(f"enable_profiling takes True or False, not {enable!r}")
        if enable:
            self._recorder.start()
        else:
            self._recorder.stop()

    def is_profiling_enabled(self) -> bool:
        """Return True while runs are recorded."""
        return self._recorder.is_active

    @property
    def lost(self) -> int:
        """The number of events that were dropped, because more were recorded than a thread's buffer holds."""
        return self._recorder.lost

    def clear(self) -> None:
        """Drop all events."""
        self._recorder.clear()

    def event_log(self) -> str:
        """Return the events and their statistics as tables of text, in milliseconds.

        The start and stop are on the host's monotonic clock. The tables of all events are followed by those of each
        inference. The backend is "Unknown" for what the runtime itself does.
        """
        runs = _runs_of(self._recorder)
        all_intervals = [interval for run in runs for interval in run]
        sections = (
            f"> Begin Inference: {number}\n\n{_tables(run)}\n> End Inference: {number}\n"
            for number, run in enumerate(runs)
        )
        return f"{_tables(all_intervals)}\n***\n*** Per Inference Stats\n***\n\n{''.join(sections)}"

    def as_json(self) -> str:
        """Return the events in the JSON form of Arm NN's profiler, indented by tabs, in microseconds.

        Each event has three measurements: "Wall clock time", "Wall clock time (Start)" and "Wall clock time (Stop)". A
        measurement has one raw value per inference. Events that occur several times in an inference, such as layers of
        a loop, have one value for each occurrence. The number at the end of each key is unique for each event.
        """
        root = _Node(Site(Category.RUN, "inference_measurements"))
        for run in _runs_of(self._recorder):
            _nest(root, run)
        numbers = count(1)
        return f"{_json({'ArmNN': dict([_described(root, 'inference_measurements', numbers)])})}\n"

    def print(self, stream: _Writes) -> None:
        """Write the result of `as_json` to a text stream, such as ``sys.stdout``."""
        stream.write(self.as_json())

    def analyze_events_and_write_results(self, stream: _Writes) -> None:
        """Write the result of `event_log` to a text stream."""
        stream.write(self.event_log())


def event_name(site: Site) -> str:
    """Return the name that Arm NN gives such an event."""
    if site.category is Category.LAYER:
        return f"{PREFIXES.get(site.backend, site.backend)}{site.kind}Workload_Execute"
    return _NAMES.get(site.category, site.name)


def _runs_of(recorder: Recorder) -> list[list[Interval]]:
    """Return the intervals of each run that has ended, ordered by their begin, runs first."""
    runs: dict[int, list[Interval]] = {}
    for interval in recorder.recording().intervals:
        if interval.run >= 0:
            runs.setdefault(interval.run, []).append(interval)
    return [sorted(run, key=_outer_first) for run in runs.values()]


def _outer_first(interval: Interval) -> tuple[int, int, int]:
    order_of_category = {Category.RUN: 0, Category.EXECUTE: 1}
    return interval.begin, -interval.end, order_of_category.get(interval.site.category, 2)


# --- text -------------------------------------------------------------------------------------------------------------


def _tables(intervals: Sequence[Interval]) -> str:
    events = "".join(map(_row, intervals))
    return f"{_EVENTS}{events}\n{_STATISTICS}{''.join(_statistics(intervals))}\n"


def _row(interval: Interval) -> str:
    times = "".join(f"{nanoseconds / 1e6:>20.6f}" for nanoseconds in (interval.duration, interval.begin, interval.end))
    return f"{event_name(interval.site):>50}{times}{_device(interval.site):>20}\n"


def _device(site: Site) -> str:
    return site.backend if site.category is Category.LAYER and site.backend else _UNKNOWN


def _statistics(intervals: Sequence[Interval]) -> Iterator[str]:
    durations: dict[str, list[float]] = {}
    for interval in intervals:
        durations.setdefault(event_name(interval.site), []).append(interval.duration / 1e6)
    for name, values in sorted(durations.items()):
        statistics = sum(values) / len(values), min(values), max(values), sum(values)
        yield f"\t{name:>50}{''.join(f'{number:>12.6g}' for number in statistics)}{len(values):>10}\n"


# --- JSON -------------------------------------------------------------------------------------------------------------


@dataclass
class _Node:
    """An event in the JSON form: all intervals of one site inside those of another site."""

    site: Site
    items: list[Interval] = field(default_factory=list)
    children: dict[Site, _Node] = field(default_factory=dict)

    def child(self, site: Site) -> _Node:
        return self.children.setdefault(site, _Node(site))


def _nest(root: _Node, run: Sequence[Interval]) -> None:
    """Add the intervals of a run, which are ordered by their begin, to the nodes of the intervals that enclose them.

    Layers on other threads, which ran branches of the network, are directly in "Execute", also if the clock of their
    processor is ahead, so that they seem to end later.
    """
    open_nodes: list[tuple[_Node, int]] = [(root, run[0].end if run else 0)]
    enclosing_of_thread: dict[int, list[tuple[_Node, int]]] = {}
    shared_depth: dict[int, int] = {}
    for interval in run:
        if interval.site.category is Category.RUN:
            root.items.append(interval)
            continue
        enclosing_nodes = enclosing_of_thread.setdefault(interval.thread, list(open_nodes))
        while (
            len(enclosing_nodes) > shared_depth.setdefault(interval.thread, len(open_nodes))
            and enclosing_nodes[-1][1] < interval.end
        ):
            enclosing_nodes.pop()
        node = enclosing_nodes[-1][0].child(interval.site)
        node.items.append(interval)
        enclosing_nodes.append((node, interval.end))
        if interval.site.category is Category.EXECUTE:
            open_nodes.append(enclosing_nodes[-1])


def _described(node: _Node, name: str, numbers: Iterator[int]) -> tuple[str, dict[str, Any]]:
    number = next(numbers)
    event: dict[str, Any] = {"type": "Event"}
    if node.items:
        event[f"Wall clock time_#{number}"] = _measurement(interval.duration for interval in node.items)
        event[f"Wall clock time (Start)_#{number}"] = _measurement(interval.begin for interval in node.items)
        event[f"Wall clock time (Stop)_#{number}"] = _measurement(interval.end for interval in node.items)
    children = sorted(node.children.values(), key=lambda child: child.site.category is not Category.EXECUTE)
    event |= [_described(child, event_name(child.site), numbers) for child in children]
    return f"{name}_#{number}", event


def _measurement(values: Iterable[int]) -> dict[str, Any]:
    return {"type": "Measurement", "raw": [value / 1000 for value in values], "unit": "us"}


def _json(value: Any, indent: str = "") -> str:
    """Return JSON indented by tabs, in which all numbers have six decimals."""
    inner_indent = f"{indent}\t"
    match value:
        case float():
            return f"{value:.6f}"
        case str():
            return json.dumps(value)
        case list():
            members, brackets = [_json(member, inner_indent) for member in value], "[]"
        case _:
            members, brackets = (
                [f"{json.dumps(key)}: {_json(member, inner_indent)}" for key, member in value.items()],
                "{}",
            )
    lines = ",\n".join(f"{inner_indent}{member}" for member in members)
    return f"{brackets[0]}\n{lines}\n{indent}{brackets[1]}"
