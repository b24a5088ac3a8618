"""Summaries of a recording: the times of layers and of the steps in them, the values of counters, and their tables."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from interposer.core.records import dataclass
from interposer.profiling.events import Category, Counter, CounterClass, Interval, Sample, Site
from interposer.profiling.recorder import Recording

__all__ = [
    "CounterTotal",
    "LayerTimes",
    "cell",
    "counter_totals",
    "is_layer",
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
    return _grouped(recording.intervals, is_layer)


def step_times(recording: Recording) -> list[LayerTimes]:
    """Return the times of the steps that backends and engines have measured, those with the largest total first."""
    return _grouped(recording.intervals, _is_shown)


def is_layer(interval: Interval) -> bool:
    """Return True for an interval of a named layer or copy."""
    return interval.site.category in (Category.LAYER, Category.COPY) and bool(interval.site.layer)


def is_step(interval: Interval) -> bool:
    """Return True for an interval that a backend or engine has measured: no layer, and no copy of the runtime."""
    if not interval.site.backend:
        return False
    return interval.site.category in (Category.KERNEL, Category.BACKEND) or (
        interval.site.category is Category.COPY and not interval.site.layer
    )


def _is_shown(interval: Interval) -> bool:
    """Return True for a step, and for a wait of the runtime for a backend in another process."""
    return is_step(interval) or interval.site.category is Category.BACKEND


def _grouped(intervals: Iterable[Interval], is_member: Callable[[Interval], bool]) -> list[LayerTimes]:
    """Return the times of the intervals that belong to the group, by their sites; equal sites count as one."""
    durations: dict[Site, list[int]] = {}
    for interval in intervals:
        if is_member(interval):
            durations.setdefault(interval.site, []).append(interval.duration)
    groups: dict[tuple[object, ...], tuple[Site, list[int]]] = {}
    for site, values in durations.items():
        groups.setdefault(site_key(site), (site, []))[1].extend(values)
    times = [_times(site, values) for site, values in groups.values()]
    return sorted(times, key=lambda layer: -layer.total)


def site_key(site: Site) -> tuple[object, ...]:
    """Return a value that is equal for sites with the same facts, as a backend may report a new site in each run."""
    network = None if site.network is None else site.network.number
    origin = site.category, site.name, site.kind, network, site.layer, site.partition, site.backend, site.device
    return *origin, site.layers, site.bytes, site.flops


def _times(site: Site, values: Sequence[int]) -> LayerTimes:
    return LayerTimes(site, len(values), sum(values), statistics.median(values), min(values), max(values))


def counter_totals(recording: Recording) -> list[CounterTotal]:
    """Return the totals of all counters that have samples, in the order of their first samples."""
    samples: dict[Counter, list[Sample]] = {}
    for sample in recording.samples:
        samples.setdefault(sample.counter, []).append(sample)
    return [
        _total(counter, [sample.value for sample in samples_of_counter])
        for counter, samples_of_counter in samples.items()
    ]


def _total(counter: Counter, values: Sequence[float]) -> CounterTotal:
    total_value = sum(values) if counter.kind is CounterClass.EVENT else values[-1]
    return CounterTotal(counter, len(values), total_value, min(values), max(values))


def summary_text(recording: Recording) -> str:
    """Return tables of the layers, of the steps of backends if there are any, and of the counters of backends."""
    lines = _table("layer", layer_times(recording))
    steps = step_times(recording)
    if steps:
        lines += ["", *_table("step", steps)]
    counters = [total for total in counter_totals(recording) if total.counter.backend]
    if counters:
        lines += ["", f"{'counter':40} {'class':24} {'backend':12} {'count':>6} {'value':>16} units"]
        lines += [_counter_line(total) for total in counters]
    if recording.lost:
        lines.append(f"{recording.lost} events were lost, because more were recorded than a thread's buffer holds")
    return "\n".join(lines)


def _table(title: str, times: Sequence[LayerTimes]) -> list[str]:
    total = sum(layer.total for layer in times) or 1
    second_title = "operator" if title == "layer" else "device"
    header = f"{title:40} {second_title:24} {'backend':12} {'count':>6} {'median us':>11} {'total us':>12} {'share':>6}"
    return [header, *(_line(layer, total) for layer in times)]


def _line(times: LayerTimes, total: int) -> str:
    site = times.site
    columns = f"{times.count:6} {times.median / 1000:11.2f} {times.total / 1000:12.2f} {times.total / total:6.1%}"
    return f"{cell(times.name, 40)} {cell(site.kind or site.device, 24)} {cell(site.backend, 12)} {columns}"


def _counter_line(counter_total: CounterTotal) -> str:
    counter = counter_total.counter
    description = f"{cell(counter.name, 40)} {counter.kind:24} {cell(counter.backend, 12)}"
    return f"{description} {counter_total.count:6} {counter_total.value:16,.6g} {cell(counter.units, 24)}".rstrip()


def cell(text: str, width: int) -> str:
    """Return a text of this width for a terminal; characters that cannot be printed become "?"."""
    return "".join(character if character.isprintable() else "?" for character in text[:width]).ljust(width)
