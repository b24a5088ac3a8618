"""Recordings as a page: the data of the timeline, the flame graph, the tables and the drawings of the networks."""

from __future__ import annotations

import math
import statistics
from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, Protocol

from interposer.pages.profile import html
from interposer.profiling.events import Category, Interval, Sample, Site, TracedNetwork
from interposer.profiling.recorder import Recording
from interposer.profiling.summary import LayerTimes, counter_totals, is_step, layer_times, site_key, step_times
from interposer.profiling.tracks import THREADS, Timeline, Track, timeline

__all__ = ["Explained", "profile_page"]

_MOST_SLICES: Final = 60_000
"""The most slices of the timeline; the tables and the flame graph have all events."""
_MOST_FLOWS: Final = 20_000
_MOST_INSTANTS: Final = 20_000
_MOST_ROWS: Final = 2_000
_MOST_POINTS: Final = 4_000
_MOST_CHILDREN: Final = 400
_SLACK: Final = 2_000
"""Nanoseconds by which a step may be longer than its layer, as the clock was read later."""


class Explained(Protocol):
    """An explanation of a network: `interposer.report.Explanation`."""

    def to_dict(self) -> dict[str, Any]:
        """Return the network, its layers and its parts."""


def profile_page(recording: Recording, explanations: Iterable[Explained] = ()) -> str:
    """Return a recording as a self-contained HTML page.

    Args:
        recording: the events.
        explanations: the explanations of networks that are to be drawn with all facts about their layers. Their
            times become those that were recorded. The layers of other networks are drawn as they were recorded.
    """
    networks = _networks(recording)
    explained = [item.to_dict() for item in explanations]
    known = {str(item["network"]): item for item in explained}
    drawn = [
        _drawing(network, items) if network.name not in known else _timed(known[network.name], items)
        for network, items in networks.items()
    ]
    title = ", ".join(dict.fromkeys(network.name for network in networks)) or "profile"
    ranked = [backend for item in drawn for backend in item["backends"]]
    data = _data(recording)
    backends = list(dict.fromkeys([*ranked, *data["backends"]]))
    runs = _run_times(recording)
    for number, item in zip(networks, drawn, strict=True):
        item["times"] = {**item["times"], "whole_ms": runs.get(number, item["times"]["whole_ms"])}
        item["colours"] = backends
    return html({"title": title, **data, "backends": backends}, drawn)


def _run_times(recording: Recording) -> dict[TracedNetwork, float]:
    """Return the median time of a run of each network, in milliseconds."""
    durations: dict[TracedNetwork, list[int]] = {}
    for item in recording.intervals:
        if item.site.category is Category.RUN and item.site.network is not None:
            durations.setdefault(item.site.network, []).append(item.duration)
    return {network: statistics.median(values) / 1e6 for network, values in durations.items()}


def _data(recording: Recording) -> dict[str, Any]:
    line = timeline(recording)
    intervals, samples = recording.intervals, line.samples
    moments = [*(item.at for item in samples), *(item.at for item in line.instants)]
    origin = min([*(item.begin for item in intervals[:1]), *moments], default=0)
    sites = _Sites()
    tracks, left_out = _tracks(line.tracks, origin, sites)
    backends = sorted({item.site.backend for item in intervals if item.site.backend})
    layers, steps = layer_times(recording), step_times(recording)
    return {
        "backends": backends,
        "events": len(intervals),
        "lost": recording.lost,
        "left_out": left_out,
        "runs": sum(item.site.category is Category.RUN for item in intervals),
        "end": max([*(item.end for item in intervals), *moments], default=origin) - origin,
        "sites": sites.facts,
        "tracks": tracks,
        "flows": _flows(line, tracks),
        "instants": _instants(line, origin, sites),
        "counters": _counters(replace(recording, samples=tuple(samples)), origin),
        "run_time": sum(item.duration for item in intervals if item.site.category is Category.RUN),
        "rows": [_row(item) for item in [*layers, *steps][:_MOST_ROWS]],
        "all_rows": len(layers) + len(steps),
        "flame": _flame(intervals),
    }


# --- the timeline -----------------------------------------------------------------------------------------------------


def _tracks(tracks: Sequence[Track], origin: int, sites: _Sites) -> tuple[list[dict[str, Any]], int]:
    """Return the tracks, and how many slices are left out of them: those that begin last."""
    begins = sorted(item.begin for track in tracks for item in track.slices)
    last = begins[_MOST_SLICES - 1] if len(begins) > _MOST_SLICES else math.inf
    result = [
        {"group": track.group, "name": track.name, "slices": _slices(track, origin, last, sites)} for track in tracks
    ]
    shown = sum(len(item["slices"]) for item in result) // 5
    return result, len(begins) - shown


def _flows(line: Timeline, shown: Sequence[Mapping[str, Any]]) -> list[int]:
    """Return four numbers for each arrow: the track and the position of the slice at its begin, and those at its end.

    Arrows of slices that are left out are left out too.
    """
    places = {
        item: (number, place)
        for number, track in enumerate(line.tracks)
        for place, item in enumerate(track.slices[: len(shown[number]["slices"]) // 5])
        if item.leaving or item.arriving
    }
    flows = [item for item in line.flows if item.source in places and item.target in places]
    return [number for item in flows[:_MOST_FLOWS] for end in (item.source, item.target) for number in places[end]]


def _instants(line: Timeline, origin: int, sites: _Sites) -> list[int]:
    """Return three numbers for each instant: its track, or -1 if its thread has none, its site, and its time."""
    tracks = {track.thread: number for number, track in enumerate(line.tracks) if track.group == THREADS}
    result: list[int] = []
    for item in line.instants[:_MOST_INSTANTS]:
        result += [tracks.get(item.thread, -1), sites.number(item.site), item.at - origin]
    return result


def _slices(track: Track, origin: int, last: float, sites: _Sites) -> list[int]:
    """Return five numbers for each slice: its site, begin, duration, depth and inference."""
    result: list[int] = []
    path: list[int] = []
    for item in track.slices:
        if item.begin > last:
            break
        while path and path[-1] <= item.begin:
            path.pop()
        number = sites.number(item.interval.site)
        result += [number, item.begin - origin, item.end - item.begin, len(path), item.interval.inference]
        path.append(item.end)
    return result


class _Sites:
    """Numbers the sites of slices. Sites with the same facts have one number."""

    def __init__(self) -> None:
        self.facts: list[dict[str, Any]] = []
        self._equal: dict[tuple[object, ...], int] = {}
        self._numbers: dict[Site, int] = {}

    def number(self, site: Site) -> int:
        """Return the number of a site, which is the position of its facts."""
        if site not in self._numbers:
            self._numbers[site] = self._equal.setdefault(site_key(site), len(self.facts))
            if self._numbers[site] == len(self.facts):
                self.facts.append({"name": site.name, "category": str(site.category), **site.to_dict()})
        return self._numbers[site]


def _counters(recording: Recording, origin: int) -> list[dict[str, Any]]:
    samples: dict[object, list[Sample]] = {}
    for item in recording.samples:
        if math.isfinite(item.value):
            samples.setdefault(item.counter, []).append(item)
    return [
        item.to_dict() | {"points": _points(samples[item.counter], origin)}
        for item in counter_totals(recording)
        if item.counter in samples
    ]


def _points(samples: Sequence[Sample], origin: int) -> list[float]:
    """Return the times and values of samples in turn: of many ones, the greatest of each group."""
    size = -(-len(samples) // _MOST_POINTS)
    groups = [samples[at : at + size] for at in range(0, len(samples), size)]
    return [number for group in groups for number in _point(group, origin)]


def _point(group: Sequence[Sample], origin: int) -> tuple[float, float]:
    largest = max(group, key=lambda item: item.value)
    return largest.at - origin, largest.value


# --- the table --------------------------------------------------------------------------------------------------------


def _row(item: LayerTimes) -> dict[str, Any]:
    site = item.site
    return {
        "name": item.name,
        "what": "step" if site.category in (Category.KERNEL, Category.BACKEND) else str(site.category),
        "operator": site.kind,
        "network": "" if site.network is None else site.network.name,
        "backend": site.backend,
        "device": site.device,
        "count": item.count,
        "total": item.total,
        "median": item.median,
        "bytes": site.bytes,
        "flops": site.flops,
        "layers": list(site.layers),
    }


# --- the flame graph --------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class _Node:
    """A box of the flame graph: the time that all intervals of one name have taken, and what they contain."""

    name: str
    what: str
    backend: str = ""
    total: int = 0
    count: int = 0
    children: dict[object, _Node] = field(default_factory=dict)

    def child(self, key: object, name: str, what: str, backend: str = "") -> _Node:
        """Return the child with this key, which is created if it does not exist."""
        return self.children.setdefault(key, _Node(name, what, backend))

    def add(self, duration: int) -> None:
        """Add one interval."""
        self.total += duration
        self.count += 1

    def to_list(self) -> list[Any]:
        """Return the name, the kind, the backend, the time, the count and the children, the largest ones first."""
        rows = sorted((item.to_list() for item in self.children.values()), key=lambda row: -row[3])
        total = max(self.total, sum(row[3] for row in rows))
        rest = rows[_MOST_CHILDREN:]
        if rest:
            others = sum(row[3] for row in rest), sum(row[4] for row in rest)
            rows[_MOST_CHILDREN:] = [[f"{len(rest)} smaller ones", "others", "", *others, []]]
        return [self.name, self.what, self.backend, total, self.count, rows]


def _flame(intervals: Sequence[Interval]) -> list[Any]:
    """Return the boxes of networks, in them those of partitions, layers and steps, over all runs."""
    root = _Node("all networks", "root")
    finder = _Layers(intervals)
    networks = {item.run: item.site.network for item in intervals if item.site.network is not None and item.run >= 0}
    for item in intervals:
        network = item.site.network
        if network is not None and item.site.category is Category.RUN:
            root.child(network, network.name, "network").add(item.duration)
        elif network is not None and _is_layer(item):
            _layer_node(root, item).add(item.duration)
        elif item.site.category is Category.BACKEND and not item.site.backend and item.run in networks:
            known = networks[item.run]
            between = root.child(known, known.name, "network").child("", "between layers", "part")
            between.child(item.site.name, item.site.name, "wait").add(item.duration)
        elif is_step(item):
            _step_parent(root, finder.around(item)).child(
                (item.site.name, item.site.device), item.site.name, "step", item.site.backend
            ).add(item.duration)
    for network_node in root.children.values():
        for part in network_node.children.values():
            part.total = part.total or sum(layer.total for layer in part.children.values())
    return root.to_list()


def _is_layer(item: Interval) -> bool:
    return item.site.category in (Category.LAYER, Category.COPY) and bool(item.site.layer)


def _layer_node(root: _Node, item: Interval) -> _Node:
    site, network = item.site, item.site.network
    name = "" if network is None else network.name
    whole = root.child(network, name, "network")
    part = whole.child(_part(site), _part(site), "part", "" if site.category is Category.COPY else site.backend)
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
        self._items: dict[str, list[Interval]] = {}
        for item in intervals:  # which are ordered by their begin
            if item.site.network is not None and item.site.category is Category.LAYER:
                self._items.setdefault(item.site.backend, []).append(item)
        self._begins = {backend: [item.begin for item in items] for backend, items in self._items.items()}

    def around(self, step: Interval) -> Interval | None:
        """Return the latest layer of the backend that begins before the step and ends after it."""
        items = self._items.get(step.site.backend, [])
        place = bisect_right(self._begins.get(step.site.backend, []), step.begin + _SLACK)
        near = reversed(items[max(0, place - 8) : place])
        return next((item for item in near if step.end <= item.end + _SLACK), None)


# --- the drawings -----------------------------------------------------------------------------------------------------


def _networks(recording: Recording) -> dict[TracedNetwork, list[LayerTimes]]:
    """Return the times of the layers and copies of each network that has run."""
    result: dict[TracedNetwork, list[LayerTimes]] = {}
    for item in layer_times(recording):
        if item.site.network is not None:
            result.setdefault(item.site.network, []).append(item)
    return result


def _timed(explanation: dict[str, Any], items: Sequence[LayerTimes]) -> dict[str, Any]:
    """Return an explanation with the recorded times.

    The time of a compiled partition is divided among its layers as the explanation divides it.
    """
    units = {item.site.layer: item.median / 1e6 for item in items}
    layers = explanation["layers"]
    shares: dict[str, float] = {}
    for layer in layers:
        shares[layer["runs_in"]] = shares.get(layer["runs_in"], 0.0) + layer["time"]["share"]
    total = sum(units.get(name, 0.0) for name in shares) or 1.0
    timed = [layer | {"time": _time_of(layer, units, shares, total)} for layer in layers]
    parts = [part | {"time": _time_of_part(part, timed, total)} for part in explanation["parts"]]
    times = explanation["times"] | {"whole_ms": total, "source": "recorded", "runs": max(item.count for item in items)}
    crossings = [item | {"ms": units.get(item["layer"])} for item in explanation["crossings"]]
    return explanation | {"layers": timed, "parts": parts, "times": times, "crossings": crossings}


def _time_of(
    layer: Mapping[str, Any], units: Mapping[str, float], shares: Mapping[str, float], total: float
) -> dict[str, Any]:
    unit = layer["runs_in"]
    if unit not in units:
        return {"ms": None, "share": 0.0, "how": "estimated"}
    ms = units[unit] * (layer["time"]["share"] / shares[unit] if shares[unit] else 1.0)
    return {"ms": ms, "share": ms / total, "how": "measured" if unit == layer["layer"] else "estimated"}


def _time_of_part(part: Mapping[str, Any], layers: Sequence[Mapping[str, Any]], total: float) -> dict[str, Any]:
    ms = sum(layer["time"]["ms"] or 0.0 for layer in layers if layer["part"] == part["part"])
    return {"ms": ms, "share": ms / total, "how": "measured"}


def _drawing(network: TracedNetwork, items: Sequence[LayerTimes]) -> dict[str, Any]:
    """Return the layers of a network as they ran, with their median times, in the format of `Explanation.to_dict`."""
    items = [item for item in items if item.site.kind not in ("Input", "Output")]
    total = sum(item.median for item in items) or 1.0
    parts = _parts(items, total)
    numbers = {name: part["part"] for part in parts for name in part["layers"]}
    backends = list(dict.fromkeys(item.site.backend for item in items if item.site.backend))
    return {
        "explanation": 1,
        "network": network.name,
        "backends": backends,
        "absent": [],
        "times": {
            "whole_ms": total / 1e6, "source": "recorded", "runs": max((item.count for item in items), default=0),
            "estimated_by": "", "candidates_ms": {},
        },
        "inputs": [],
        "outputs": [],
        "layers": [_drawn(item, item.median / total, numbers.get(item.site.layer)) for item in items],
        "run by the runtime": [],
        "parts": parts,
        "counts": {name: sum(item.site.backend == name for item in items) for name in backends},
        "copies": [],
        "crossings": [],
        "messages": [],
    }  # fmt: skip


def _parts(items: Sequence[LayerTimes], total: float) -> list[dict[str, Any]]:
    groups: dict[str, list[LayerTimes]] = {}
    for item in items:
        if item.site.category is Category.LAYER and item.site.partition:
            groups.setdefault(item.site.partition, []).append(item)
    return [_drawn_part(number, group, total) for number, group in enumerate(groups.values(), 1)]


def _drawn_part(number: int, items: Sequence[LayerTimes], total: float) -> dict[str, Any]:
    names, time = [item.site.layer for item in items], sum(item.median for item in items)
    facts = {"part": number, "backend": items[0].site.backend, "layers": names, "runs_as": names}
    times = {"ms": time / 1e6, "share": time / total, "how": "measured"}
    return {**facts, "incoming": [], "outgoing": [], "time": times}


def _drawn(item: LayerTimes, share: float, part: int | None) -> dict[str, Any]:
    site = item.site
    return {
        "layer": site.layer,
        "kind": site.kind or str(site.category),
        "backend": site.backend,
        "runs_in": site.layer,
        "source": "",
        "replaced": list(site.layers),
        "others": {},
        "part": part,
        "time": {"ms": item.median / 1e6, "share": share, "how": "measured"},
        "attributes": dict(site.details),
        "inputs": [_tensor(name) for name in dict.fromkeys(site.sources)],
        "outputs": [],
        "operations": site.flops or 0,
        "bytes": site.bytes or 0,
    }


def _tensor(name: str) -> dict[str, Any]:
    facts = {"role": "", "name": name, "type": "", "shape": "", "bytes": 0, "quantization": "", "layer": name}
    return facts | {"value": "", "crossing": None}
