"""Summaries of a recording: the times of layers and of the steps in them, the values of counters, and their tables."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from interposer.profiling.events import Category, Counter, CounterClass, Interval, Sample, Site
from interposer.profiling.recorder import Recording

__all__ = [
    "CounterTotal",
    "LayerTimes",
    "cell",
    "counter_totals",
    "is_step",
    "layer_times",
    "site_key",
    "step_times",
    "summary_text",
]


@dataclass(frozen=True, slots=True)
class LayerTimes:
    """The times of one layer, copy or step in all recorded runs, in nanoseconds; `count` is how often it ran."""

    site: Site
    count: int
    total: int
    median: float
    least: int
    most: int

    @property
    def name(self) -> str:
        """The name of the layer or step."""
        return self.site.name

    def to_dict(self) -> dict[str, Any]:
        """Return the times in microseconds and the facts about the layer, as JSON-compatible data."""
        times = {"total": self.total, "median": self.median, "least": self.least, "most": self.most}
        return {
            "name": self.name,
            **self.site.to_dict(),
            "count": self.count,
            **{f"{name}_us": value / 1000 for name, value in times.items()},
        }


@dataclass(frozen=True, slots=True)
class CounterTotal:
    """The samples of one counter. `value` is their sum for a counter of events, and the latest sample for others."""

    counter: Counter
    count: int
    value: float
    least: float
    most: float

    def to_dict(self) -> dict[str, Any]:
        """Return the values and the facts about the counter, as JSON-compatible data; numbers beyond JSON are None."""
        counter = self.counter
        values = {"value": self.value, "least": self.least, "most": self.most}
        return {
            "name": counter.name,
            "units": counter.units,
            "class": str(counter.kind),
            "backend": counter.backend,
            "device": counter.device,
            "count": self.count,
            **{name: value if math.isfinite(value) else None for name, value in values.items()},
        }


def layer_times(recording: Recording) -> list[LayerTimes]:
    """Return the times of the layers and copies of all networks, those with the largest total first."""
    return _grouped(recording.intervals, _is_layer)


def step_times(recording: Recording) -> list[LayerTimes]:
    """Return the times of the steps that backends and engines have measured, those with the largest total first."""
    return _grouped(recording.intervals, _is_shown)


def _is_layer(item: Interval) -> bool:
    return item.site.category in (Category.LAYER, Category.COPY) and bool(item.site.layer)


def is_step(item: Interval) -> bool:
    """Return True for an interval that a backend or engine has measured: no layer, and no copy of the runtime."""
    if not item.site.backend:
        return False
    return item.site.category in (Category.KERNEL, Category.BACKEND) or (
        item.site.category is Category.COPY and not item.site.layer
    )


def _is_shown(item: Interval) -> bool:
    """Return True for a step, and for a wait of the runtime for a backend in another process."""
    return is_step(item) or item.site.category is Category.BACKEND


def _grouped(intervals: Iterable[Interval], belongs: Callable[[Interval], bool]) -> list[LayerTimes]:
    """Return the times of the intervals that belong to the group, by their sites; equal sites count as one."""
    durations: dict[Site, list[int]] = {}
    for item in intervals:
        if belongs(item):
            durations.setdefault(item.site, []).append(item.duration)
    equal: dict[tuple[object, ...], tuple[Site, list[int]]] = {}
    for site, values in durations.items():
        equal.setdefault(site_key(site), (site, []))[1].extend(values)
    result = [_times(site, values) for site, values in equal.values()]
    return sorted(result, key=lambda item: -item.total)


def site_key(site: Site) -> tuple[object, ...]:
    """Return a value that is equal for sites with the same facts, as a backend may report a new site in each run."""
    network = None if site.network is None else site.network.number
    place = site.category, site.name, site.kind, network, site.layer, site.partition, site.backend, site.device
    return *place, site.layers, site.bytes, site.flops


def _times(site: Site, values: Sequence[int]) -> LayerTimes:
    return LayerTimes(site, len(values), sum(values), statistics.median(values), min(values), max(values))


def counter_totals(recording: Recording) -> list[CounterTotal]:
    """Return the totals of all counters that have samples, in the order of their first samples."""
    samples: dict[Counter, list[Sample]] = {}
    for item in recording.samples:
        samples.setdefault(item.counter, []).append(item)
    return [_total(counter, [item.value for item in items]) for counter, items in samples.items()]


def _total(counter: Counter, values: Sequence[float]) -> CounterTotal:
    value = sum(values) if counter.kind is CounterClass.EVENT else values[-1]
    return CounterTotal(counter, len(values), value, min(values), max(values))


def summary_text(recording: Recording) -> str:
    """Return tables of the layers, of the steps of backends if there are any, and of the counters of backends."""
    lines = _table("layer", layer_times(recording))
    steps = step_times(recording)
    if steps:
        lines += ["", *_table("step", steps)]
    counters = [item for item in counter_totals(recording) if item.counter.backend]
    if counters:
        lines += ["", f"{'counter':40} {'class':24} {'backend':12} {'count':>6} {'value':>16} units"]
        lines += [_counter_line(item) for item in counters]
    if recording.lost:
        lines.append(f"{recording.lost} events were lost, because more were recorded than a thread's buffer holds")
    return "\n".join(lines)


def _table(title: str, items: Sequence[LayerTimes]) -> list[str]:
    total = sum(item.total for item in items) or 1
    second = "operator" if title == "layer" else "device"
    head = f"{title:40} {second:24} {'backend':12} {'count':>6} {'median us':>11} {'total us':>12} {'share':>6}"
    return [head, *(_line(item, total) for item in items)]


def _line(item: LayerTimes, total: int) -> str:
    site = item.site
    numbers = f"{item.count:6} {item.median / 1000:11.2f} {item.total / 1000:12.2f} {item.total / total:6.1%}"
    return f"{cell(item.name, 40)} {cell(site.kind or site.device, 24)} {cell(site.backend, 12)} {numbers}"


def _counter_line(item: CounterTotal) -> str:
    counter = item.counter
    facts = f"{cell(counter.name, 40)} {counter.kind:24} {cell(counter.backend, 12)}"
    return f"{facts} {item.count:6} {item.value:16,.6g} {cell(counter.units, 24)}".rstrip()


def cell(text: str, width: int) -> str:
    """Return a text of this width for a terminal; characters that cannot be printed become "?"."""
    return "".join(letter if letter.isprintable() else "?" for letter in text[:width]).ljust(width)
