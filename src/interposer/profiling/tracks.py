"""The tracks of a timeline: the intervals of a recording by thread, backend and device, and the flows between them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import field
from types import MappingProxyType
from typing import Final, NamedTuple

from interposer.core.records import dataclass
from interposer.profiling.events import Category, ForeignThread, Instant, Interval, Sample
from interposer.profiling.memory import memory_samples
from interposer.profiling.recorder import Recording

__all__ = ["BACKENDS", "DEVICES", "THREADS", "Flow", "Slice", "Timeline", "Track", "timeline"]

THREADS: Final = "Threads"
BACKENDS: Final = "Backends"
DEVICES: Final = "Devices"
_ON_BACKENDS: Final = {Category.LAYER, Category.COPY, Category.KERNEL, Category.BACKEND, Category.OPTIMIZE}


@dataclass(eq=False)
class Slice:
    """An interval on a track; slices on one track are nested or disjoint, so `end` may be that of the outer slice.

    `leaving` and `arriving` are the numbers of the flows that begin or end here.
    """

    interval: Interval
    begin: int
    end: int
    leaving: list[int] = field(default_factory=list)
    arriving: list[int] = field(default_factory=list)


@dataclass(eq=False)
class Track:
    """A row of the timeline. `group` is `THREADS`, `BACKENDS` or `DEVICES`.

    `thread` is the id of the thread for a track of `THREADS`, and `foreign` describes a thread of another process.
    `slices` are ordered, the outer ones first.
    """

    group: str
    name: str
    slices: list[Slice]
    thread: int = 0
    foreign: ForeignThread | None = None


@dataclass(frozen=True, slots=True)
class Flow:
    """An arrow along a tensor from the slice of the layer that computed it to a layer on another backend."""

    number: int
    source: Slice
    target: Slice


@dataclass(frozen=True)
class Timeline:
    """The tracks of a recording, its flows, instants and samples."""

    tracks: Sequence[Track]
    flows: Sequence[Flow]
    instants: Sequence[Instant]
    samples: Sequence[Sample]
    threads: Mapping[int, str]


def timeline(recording: Recording) -> Timeline:
    """Arrange the events of a recording on tracks.

    Every interval is on the track of its thread. The intervals of backends are also on the track of the backend, and
    those of devices on that of the device. Concurrent intervals of one backend are on several tracks.
    """
    tracks = [
        *_tracks(THREADS, _by_thread(recording), recording.foreign),
        *_tracks(BACKENDS, _by_backend(recording)),
        *_tracks(DEVICES, _by_device(recording)),
    ]
    flows = tuple(_flows(slice for track in tracks if track.group == BACKENDS for slice in track.slices))
    samples = [*recording.samples, *memory_samples(recording)]
    return Timeline(tracks, flows, recording.instants, samples, recording.threads)


def _by_thread(recording: Recording) -> dict[tuple[str, int], list[Interval]]:
    intervals_of_thread: dict[tuple[str, int], list[Interval]] = {}
    for interval in recording.intervals:
        if interval.thread:
            foreign_thread = recording.foreign.get(interval.thread)
            name = (
                foreign_thread.name
                if foreign_thread
                else recording.threads.get(interval.thread) or f"thread {interval.thread}"
            )
            intervals_of_thread.setdefault((name, interval.thread), []).append(interval)
    return intervals_of_thread


def _by_backend(recording: Recording) -> dict[tuple[str, int], list[Interval]]:
    intervals_of_backend: dict[tuple[str, int], list[Interval]] = {}
    for interval in recording.intervals:
        if interval.site.backend and interval.site.category in _ON_BACKENDS:
            intervals_of_backend.setdefault((interval.site.backend, 0), []).append(interval)
    return dict(sorted(intervals_of_backend.items()))


def _by_device(recording: Recording) -> dict[tuple[str, int], list[Interval]]:
    intervals_of_device: dict[tuple[str, int], list[Interval]] = {}
    for interval in recording.intervals:
        if interval.site.device:
            intervals_of_device.setdefault((interval.site.device, 0), []).append(interval)
    return dict(sorted(intervals_of_device.items()))


def _tracks(
    group: str,
    intervals: Mapping[tuple[str, int], Sequence[Interval]],
    foreign_threads: Mapping[int, ForeignThread] = MappingProxyType({}),
) -> Iterator[Track]:
    for (name, thread), intervals_of_row in intervals.items():
        for number, slices in enumerate(_lanes(intervals_of_row)):
            title = f"{name} ({number + 1})" if number else name
            yield Track(group, title, slices, thread if not number else 0, foreign_threads.get(thread))


def _lanes(intervals: Sequence[Interval]) -> list[list[Slice]]:
    """Divide intervals, which are ordered by their begin, into the fewest rows of nested or disjoint slices.

    An interval that ends less than a microsecond after the one around it, because the clock was read later, is
    shortened.
    """
    lanes: list[_Lane] = []
    for interval in intervals:
        lane = next((lane for lane in lanes if lane.fits(interval)), None)
        if lane is None:
            lane = _Lane([], [])
            lanes.append(lane)
        lane.add(interval)
    return [lane.slices for lane in lanes]


class _Lane(NamedTuple):
    """The slices of one row, and the path of those that have not ended at the begin of the latest interval."""

    slices: list[Slice]
    path: list[Slice]

    def fits(self, interval: Interval) -> bool:
        path = self.path
        while path and path[-1].end <= interval.begin:
            path.pop()
        return not path or interval.end <= path[-1].end + _ROUNDING

    def add(self, interval: Interval) -> None:
        end = min(interval.end, self.path[-1].end) if self.path else interval.end
        slice = Slice(interval, interval.begin, max(interval.begin, end))
        self.slices.append(slice)
        self.path.append(slice)


_ROUNDING: Final = 1000
"""Nanoseconds by which an interval may be longer than the one around it."""


def _flows(slices: Iterable[Slice]) -> Iterator[Flow]:
    """Yield the flows from layers to the layers of the same run that read their outputs on another backend."""
    layers = [layer for layer in slices if layer.interval.site.layer and layer.interval.run >= 0]
    latest: dict[tuple[int, str], Slice] = {}
    number = 0
    for layer in sorted(layers, key=lambda layer: (layer.begin, layer.end)):
        site, run = layer.interval.site, layer.interval.run
        for source in (latest.get((run, name)) for name in site.sources):
            if source is not None and _crosses(source, layer):
                number += 1
                source.leaving.append(number)
                layer.arriving.append(number)
                yield Flow(number, source, layer)
        if site.category is not Category.KERNEL:
            latest[run, site.layer] = layer


def _crosses(source: Slice, target: Slice) -> bool:
    source_site, target_site = source.interval.site, target.interval.site
    return source_site.backend != target_site.backend or Category.COPY in (source_site.category, target_site.category)
