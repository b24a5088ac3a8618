"""Recordings as a page: the data of the timeline, the flame graph, the tables and the drawings of the networks."""

from __future__ import annotations

import math
import statistics
from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field, replace
from typing import Any, Final, NamedTuple

from interposer.core.records import dataclass
from interposer.pages.profile import html
from interposer.profiling.events import Category, Interval, Sample, Site, TracedNetwork
from interposer.profiling.profiles import Explained
from interposer.profiling.recorder import Recording
from interposer.profiling.summary import (
    LayerTimes,
    counter_totals,
    is_layer,
    is_step,
    layer_times,
    site_key,
    step_times,
)
from interposer.profiling.tracks import THREADS, Timeline, Track, timeline

__all__ = ["profile_page"]

_MOST_SLICES: Final = 60_000
"""The most slices of the timeline; the tables and the flame graph have all events."""
_MOST_FLOWS: Final = 20_000
_MOST_INSTANTS: Final = 20_000
_MOST_ROWS: Final = 2_000
_MOST_POINTS: Final = 4_000
_MOST_CHILDREN: Final = 400
_LISTED: Final = 16
"""The largest number of layers of a compiled part that are listed with the share of each, as in explanations."""
_SLACK: Final = 2_000
"""Nanoseconds by which a step may be longer than its layer, as the clock was read later."""


def profile_page(recording: Recording, explanations: Iterable[Explained] = ()) -> str:
    """Return a recording as a self-contained HTML page.

    Args:
        recording: the events.
        explanations: the explanations of networks that are to be drawn with all facts about their layers. Their
            times become those that were recorded. The layers of other networks are drawn as they were recorded.
    """
    networks = _networks(recording)
    plain_explanations = (explanation.to_dict() for explanation in explanations)
    explanation_of = {str(explanation["network"]): explanation for explanation in plain_explanations}
    drawings = [
        _drawing(network, times) if network.name not in explanation_of else _timed(explanation_of[network.name], times)
        for network, times in networks.items()
    ]
    title = ", ".join(dict.fromkeys(network.name for network in networks)) or "profile"
    ranked_backends = [backend for drawing in drawings for backend in drawing["backends"]]
    page_data = _data(recording)
    backends = list(dict.fromkeys([*ranked_backends, *page_data["backends"]]))
    run_times = _run_times(recording)
    for network, drawing in zip(networks, drawings, strict=True):
        drawing["times"] = {**drawing["times"], "whole_ms": run_times.get(network, drawing["times"]["whole_ms"])}
        drawing["colours"] = backends
    return html({"title": title, **page_data, "backends": backends}, drawings)


def _run_times(recording: Recording) -> dict[TracedNetwork, float]:
    """Return the median time of a run of each network, in milliseconds."""
    durations: dict[TracedNetwork, list[int]] = {}
    for interval in recording.intervals:
        if interval.site.category is Category.RUN and interval.site.network is not None:
            durations.setdefault(interval.site.network, []).append(interval.duration)
    return {
        network: statistics.median(durations_of_network) / 1e6 for network, durations_of_network in durations.items()
    }


def _data(recording: Recording) -> dict[str, Any]:
    recorded_timeline = timeline(recording)
    intervals, samples = recording.intervals, recorded_timeline.samples
    moments = [*(event.at for event in samples), *(event.at for event in recorded_timeline.instants)]
    origin = min([*(event.begin for event in intervals[:1]), *moments], default=0)
    sites = _Sites()
    tracks, left_out = _tracks(recorded_timeline.tracks, origin, sites)
    backends = sorted({event.site.backend for event in intervals if event.site.backend})
    layers, steps = layer_times(recording), step_times(recording)
    return {
        "backends": backends,
        "events": len(intervals),
        "lost": recording.lost,
        "left_out": left_out,
        "runs": sum(event.site.category is Category.RUN for event in intervals),
        "end": max([*(event.end for event in intervals), *moments], default=origin) - origin,
        "sites": sites.facts,
        "tracks": tracks,
        "flows": _flows(recorded_timeline, tracks),
        "instants": _instants(recorded_timeline, origin, sites),
        "counters": _counters(replace(recording, samples=tuple(samples)), origin),
        "run_time": sum(event.duration for event in intervals if event.site.category is Category.RUN),
        "rows": [_row(event) for event in [*layers, *steps][:_MOST_ROWS]],
        "all_rows": len(layers) + len(steps),
        "flame": _flame(intervals),
    }


# --- the timeline -----------------------------------------------------------------------------------------------------


def _tracks(tracks: Sequence[Track], origin: int, sites: _Sites) -> tuple[list[dict[str, Any]], int]:
    """Return the tracks, and how many slices are left out of them: those that begin last."""
    begins = sorted(drawn_slice.begin for track in tracks for drawn_slice in track.slices)
    last_begin = begins[_MOST_SLICES - 1] if len(begins) > _MOST_SLICES else math.inf
    drawn_tracks = [
        {"group": track.group, "name": track.name, "slices": _slices(track, origin, last_begin, sites)}
        for track in tracks
    ]
    shown_slices = sum(len(drawn_slice["slices"]) for drawn_slice in drawn_tracks) // 5
    return drawn_tracks, len(begins) - shown_slices


def _flows(timeline: Timeline, shown_tracks: Sequence[Mapping[str, Any]]) -> list[int]:
    """Return four numbers for each arrow: the track and the position of the slice at its begin, and those at its end.

    Arrows of slices that are left out are left out too.
    """
    places = {
        flow: (number, index)
        for number, track in enumerate(timeline.tracks)
        for index, flow in enumerate(track.slices[: len(shown_tracks[number]["slices"]) // 5])
        if flow.leaving or flow.arriving
    }
    flows = [flow for flow in timeline.flows if flow.source in places and flow.target in places]
    return [number for flow in flows[:_MOST_FLOWS] for end in (flow.source, flow.target) for number in places[end]]


def _instants(timeline: Timeline, origin: int, sites: _Sites) -> list[int]:
    """Return three numbers for each instant that is drawn: track (-1 if its thread has none), site and time."""
    tracks = {track.thread: number for number, track in enumerate(timeline.tracks) if track.group == THREADS}
    numbers: list[int] = []
    for instant in timeline.instants[:_MOST_INSTANTS]:
        numbers += [tracks.get(instant.thread, -1), sites.number(instant.site), instant.at - origin]
    return numbers


def _slices(track: Track, origin: int, last: float, sites: _Sites) -> list[int]:
    """Return five numbers for each slice: its site, begin, duration, depth and inference."""
    numbers: list[int] = []
    enclosing_ends: list[int] = []
    for slice in track.slices:
        if slice.begin > last:
            break
        while enclosing_ends and enclosing_ends[-1] <= slice.begin:
            enclosing_ends.pop()
        site_number = sites.number(slice.interval.site)
        numbers += [
            site_number,
            slice.begin - origin,
            slice.end - slice.begin,
            len(enclosing_ends),
            slice.interval.inference,
        ]
        enclosing_ends.append(slice.end)
    return numbers


class _Sites:
    """Numbers the sites of slices. Sites with the same facts have one number."""

    def __init__(self) -> None:
        self.facts: list[dict[str, Any]] = []
        self._number_of_key: dict[tuple[object, ...], int] = {}
        self._numbers: dict[Site, int] = {}

    def number(self, site: Site) -> int:
        """Return the number of a site, which is the position of its facts."""
        if site not in self._numbers:
            self._numbers[site] = self._number_of_key.setdefault(site_key(site), len(self.facts))
            if self._numbers[site] == len(self.facts):
                self.facts.append({"name": site.name, "category": str(site.category), **site.to_dict()})
        return self._numbers[site]


def _counters(recording: Recording, origin: int) -> list[dict[str, Any]]:
    samples: dict[object, list[Sample]] = {}
    for entry in recording.samples:
        if math.isfinite(entry.value):
            samples.setdefault(entry.counter, []).append(entry)
    return [
        entry.to_dict() | {"points": _points(samples[entry.counter], origin)}
        for entry in counter_totals(recording)
        if entry.counter in samples
    ]


def _points(samples: Sequence[Sample], origin: int) -> list[float]:
    """Return the times and values of samples in turn: of many ones, the greatest of each group."""
    size = -(-len(samples) // _MOST_POINTS)
    groups = [samples[start : start + size] for start in range(0, len(samples), size)]
    return [number for group in groups for number in _point(group, origin)]


def _point(group: Sequence[Sample], origin: int) -> tuple[float, float]:
    largest = max(group, key=lambda sample: sample.value)
    return largest.at - origin, largest.value


# --- the table --------------------------------------------------------------------------------------------------------


def _row(times: LayerTimes) -> dict[str, Any]:
    site = times.site
    return {
        "name": times.name,
        "what": "step" if site.category in (Category.KERNEL, Category.BACKEND) else str(site.category),
        "operator": site.kind,
        "network": "" if site.network is None else site.network.name,
        "backend": site.backend,
        "device": site.device,
        "count": times.count,
        "total": times.total,
        "median": times.median,
        "bytes": site.bytes,
        "flops": site.flops,
        "layers": list(site.layers),
    }


# --- the flame graph --------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class _Node:
    """A box of the flame graph: the time that all intervals of one name have taken, and what they contain."""

    name: str
    kind: str
    backend: str = ""
    total: int = 0
    count: int = 0
    children: dict[object, _Node] = field(default_factory=dict)

    def child(self, key: object, name: str, kind: str, backend: str = "") -> _Node:
        """Return the child with this key, which is created if it does not exist."""
        return self.children.setdefault(key, _Node(name, kind, backend))

    def add(self, duration: int) -> None:
        """Add one interval."""
        self.total += duration
        self.count += 1

    def to_list(self) -> list[Any]:
        """Return the name, the kind, the backend, the time, the count and the children, the largest ones first."""
        rows = sorted((child.to_list() for child in self.children.values()), key=lambda row: -row[3])
        total = max(self.total, sum(row[3] for row in rows))
        smaller_rows = rows[_MOST_CHILDREN:]
        if smaller_rows:
            sums = sum(row[3] for row in smaller_rows), sum(row[4] for row in smaller_rows)
            rows[_MOST_CHILDREN:] = [[f"{len(smaller_rows)} smaller ones", "others", "", *sums, []]]
        return [self.name, self.kind, self.backend, total, self.count, rows]


def _flame(intervals: Sequence[Interval]) -> list[Any]:
    """Return the boxes of networks, in them those of partitions, layers and steps, over all runs."""
    root = _Node("all networks", "root")
    finder = _Layers(intervals)
    networks = {
        interval.run: interval.site.network
        for interval in intervals
        if interval.site.network is not None and interval.run >= 0
    }
    for interval in intervals:
        network = interval.site.network
        if network is not None and interval.site.category is Category.RUN:
            root.child(network, network.name, "network").add(interval.duration)
        elif network is not None and is_layer(interval):
            _layer_node(root, interval).add(interval.duration)
        elif interval.site.category is Category.BACKEND and not interval.site.backend and interval.run in networks:
            network_of_run = networks[interval.run]
            between_layers = root.child(network_of_run, network_of_run.name, "network").child(
                "", "between layers", "part"
            )
            between_layers.child(interval.site.name, interval.site.name, "wait").add(interval.duration)
        elif is_step(interval):
            _step_parent(root, finder.around(interval)).child(
                (interval.site.name, interval.site.device), interval.site.name, "step", interval.site.backend
            ).add(interval.duration)
    for network_node in root.children.values():
        for part in network_node.children.values():
            part.total = part.total or sum(layer.total for layer in part.children.values())
    return root.to_list()


def _layer_node(root: _Node, interval: Interval) -> _Node:
    site, network = interval.site, interval.site.network
    name = "" if network is None else network.name
    network_node = root.child(network, name, "network")
    part = network_node.child(_part(site), _part(site), "part", "" if site.category is Category.COPY else site.backend)
    return part.child(site, site.name, str(site.category), site.backend)


def _part(site: Site) -> str:
    if site.category is Category.COPY:
        return "copies"
    return site.partition or f"on {site.backend or 'the runtime'}"


def _step_parent(root: _Node, layer: Interval | None) -> _Node:
    return root.child("", "steps outside of layers", "network") if layer is None else _layer_node(root, layer)


class _Layers:
    """Finds the layer that a step is in: by its backend and its time."""

    def __init__(self, intervals: Iterable[Interval]) -> None:
        self._layers_of_backend: dict[str, list[Interval]] = {}
        for interval in intervals:  # which are ordered by their begin
            if interval.site.network is not None and interval.site.category is Category.LAYER:
                self._layers_of_backend.setdefault(interval.site.backend, []).append(interval)
        self._begins = {
            backend: [interval.begin for interval in layers] for backend, layers in self._layers_of_backend.items()
        }

    def around(self, step: Interval) -> Interval | None:
        """Return the latest layer of the backend that begins before the step and ends after it."""
        layers = self._layers_of_backend.get(step.site.backend, [])
        end = bisect_right(self._begins.get(step.site.backend, []), step.begin + _SLACK)
        candidates = reversed(layers[max(0, end - 8) : end])
        return next((layer for layer in candidates if step.end <= layer.end + _SLACK), None)


# --- the drawings -----------------------------------------------------------------------------------------------------


def _networks(recording: Recording) -> dict[TracedNetwork, list[LayerTimes]]:
    """Return the times of the layers and copies of each network that has run."""
    times_of_network: dict[TracedNetwork, list[LayerTimes]] = {}
    for times in layer_times(recording):
        if times.site.network is not None:
            times_of_network.setdefault(times.site.network, []).append(times)
    return times_of_network


def _timed(explanation: dict[str, Any], times_of_layers: Sequence[LayerTimes]) -> dict[str, Any]:
    """Return an explanation with the recorded times.

    The time of a compiled partition is divided among its layers as the explanation divides it.
    """
    ms_of_unit = {layer.site.layer: layer.median / 1e6 for layer in times_of_layers}
    layers = explanation["layers"]
    names: dict[str, list[str]] = {}
    shares: dict[str, float] = {}
    for layer in layers:
        unit = layer["runs_in"]
        names.setdefault(unit, []).append(layer["layer"])
        shares[unit] = shares.get(unit, 0.0) + layer["time"]["share"]
    total = sum(ms_of_unit.get(unit, 0.0) for unit in names) or 1.0
    units = {unit: _Unit(ms_of_unit.get(unit), names[unit], shares[unit]) for unit in names}
    timed_layers = [layer | {"time": _time_of(layer, units[layer["runs_in"]], total)} for layer in layers]
    parts = [part | {"time": _time_of_part(part, timed_layers, total)} for part in explanation["parts"]]
    times = {name: figure for name, figure in explanation["times"].items() if name != "spread"} | {
        "whole_ms": total,
        "source": "recorded",
        "runs": max(layer.count for layer in times_of_layers),
    }
    crossings = [crossing | {"ms": ms_of_unit.get(crossing["layer"])} for crossing in explanation["crossings"]]
    return explanation | {"layers": timed_layers, "parts": parts, "times": times, "crossings": crossings}


class _Unit(NamedTuple):
    """A layer that ran, such as a compiled partition: its milliseconds, and its layers with the sum of their shares."""

    ms: float | None
    layers: Sequence[str]
    shares: float


def _time_of(layer: Mapping[str, Any], unit: _Unit, total: float) -> dict[str, Any]:
    """Return the time of a layer that runs in a unit."""
    count = len(unit.layers)
    if unit.ms is None:
        return {"ms": None, "share": 0.0, "how": "estimated"}
    if count == 1:
        return {"ms": unit.ms, "share": unit.ms / total, "how": "measured"}
    ms = unit.ms * (layer["time"]["share"] / unit.shares if unit.shares else 1 / count)
    group = {"layers": list(unit.layers[:_LISTED]), "count": count, "ms": unit.ms}
    return {"ms": ms, "share": ms / total, "how": "estimated", "group": group}


def _time_of_part(part: Mapping[str, Any], layers: Sequence[Mapping[str, Any]], total: float) -> dict[str, Any]:
    ms = sum(layer["time"]["ms"] or 0.0 for layer in layers if layer["part"] == part["part"])
    return {"ms": ms, "share": ms / total, "how": "measured"}


def _drawing(network: TracedNetwork, times_of_layers: Sequence[LayerTimes]) -> dict[str, Any]:
    """Return the layers of a network as they ran, with their median times, in the format of `Explanation.to_dict`."""
    times_of_layers = [times for times in times_of_layers if times.site.kind not in ("Input", "Output")]
    total = sum(times.median for times in times_of_layers) or 1.0
    parts = _parts(times_of_layers, total)
    part_of = {name: part["part"] for part in parts for name in part["layers"]}
    backends = list(dict.fromkeys(times.site.backend for times in times_of_layers if times.site.backend))
    return {
        "explanation": 1,
        "network": network.name,
        "backends": backends,
        "absent": [],
        "times": {
            "whole_ms": total / 1e6, "source": "recorded",
            "runs": max((times.count for times in times_of_layers), default=0),
            "estimated_by": "", "candidates_ms": {},
        },
        "inputs": [],
        "outputs": [],
        "layers": [_drawn(times, times.median / total, part_of.get(times.site.layer)) for times in times_of_layers],
        "run by the runtime": [],
        "parts": parts,
        "counts": {name: sum(times.site.backend == name for times in times_of_layers) for name in backends},
        "copies": [],
        "crossings": [],
        "messages": [],
    }  # fmt: skip


def _parts(times_of_layers: Sequence[LayerTimes], total: float) -> list[dict[str, Any]]:
    groups: dict[str, list[LayerTimes]] = {}
    for times in times_of_layers:
        if times.site.category is Category.LAYER and times.site.partition:
            groups.setdefault(times.site.partition, []).append(times)
    return [_drawn_part(number, group, total) for number, group in enumerate(groups.values(), 1)]


def _drawn_part(number: int, times_of_layers: Sequence[LayerTimes], total: float) -> dict[str, Any]:
    names, time = [layer.site.layer for layer in times_of_layers], sum(layer.median for layer in times_of_layers)
    description = {"part": number, "backend": times_of_layers[0].site.backend, "layers": names, "runs_as": names}
    times = {"ms": time / 1e6, "share": time / total, "how": "measured"}
    return {**description, "incoming": [], "outgoing": [], "time": times}


def _drawn(times: LayerTimes, share: float, part: int | None) -> dict[str, Any]:
    site = times.site
    return {
        "layer": site.layer,
        "kind": site.kind or str(site.category),
        "backend": site.backend,
        "runs_in": site.layer,
        "source": "",
        "replaced": list(site.layers),
        "others": {},
        "part": part,
        "time": {"ms": times.median / 1e6, "share": share, "how": "measured"},
        "attributes": dict(site.details),
        "inputs": [_tensor(name) for name in dict.fromkeys(site.sources)],
        "outputs": [],
        "operations": site.flops or 0,
        "bytes": site.bytes or 0,
    }


def _tensor(name: str) -> dict[str, Any]:
    description = {"role": "", "name": name, "type": "", "shape": "", "bytes": 0, "quantization": "", "layer": name}
    return description | {"value": "", "crossing": None}
