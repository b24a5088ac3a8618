"""The times of a network's layers and parts: measured, or estimated from measurements and the amount of work."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import field
from typing import Any, Final

from interposer.core.records import dataclass
from interposer.report.facts import OPERATIONS_PER_BYTE, Facts, Part
from interposer.report.steps import fused_layers, leading_layers

__all__ = ["BASIS", "Clock", "Group", "Time", "Times", "time_text"]

BASIS: Final = f"bytes read and written, {OPERATIONS_PER_BYTE} operations as one"


@dataclass(frozen=True, slots=True)
class Times:
    """The measured times of one run, as medians in milliseconds.

    `whole` is the time of a run from input arrays to output arrays. `units` has the times of the running layers, copies
    included, by name; it is empty if only the whole run was measured, as for a plan. `source` says what measured them,
    and `runs` how many runs were measured. `candidates` has the times of whole runs with other placements, by name, and
    `unmeasured` the reasons why others were not timed; `notes` are sentences about both.
    `layers` has the times of layers that backends measured inside of running layers, by name, and `others` the times of
    the steps in a running layer that belong to no layer of the network. `spread` is half the distance between the lower
    and the upper quartile of the whole runs, relative to their median; None if it is unknown. `overlap` is by how much
    the running layers, each measured alone, take longer together than a whole run; None if no layers are submitted to
    queues. `devices` has the milliseconds that the kernels and copies of each device take in a run, by the clock of the
    device.
    """

    whole: float | None = None
    units: Mapping[str, float] = field(default_factory=dict)
    source: str = ""
    runs: int = 0
    candidates: Mapping[str, float] = field(default_factory=dict)
    unmeasured: Mapping[str, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    layers: Mapping[str, float] = field(default_factory=dict)
    others: Mapping[str, float] = field(default_factory=dict)
    spread: float | None = None
    overlap: float | None = None
    devices: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Group:
    """Layers whose time was measured together, because they run as one step or unit: their names and milliseconds."""

    layers: tuple[str, ...]
    ms: float

    def __str__(self) -> str:
        count = len(self.layers)
        names = " + ".join(self.layers) if count <= _NAMED else f"{self.layers[0]} .. {self.layers[-1]} ({count})"
        return f"{names}: {time_text(self.ms)}"

    def to_dict(self) -> dict[str, Any]:
        """Return the group as JSON-compatible data, with the names of its first layers only if it has many."""
        return {"layers": list(self.layers[:_LISTED]), "count": len(self.layers), "ms": self.ms}


_LISTED: Final = 16
"""The largest number of layers of a group that are listed as data, since each of these layers has this list."""
_NAMED: Final = 3
"""The largest number of layers of a group that are all named in a text."""


@dataclass(frozen=True, slots=True)
class Time:
    """The time of a layer or part: milliseconds per run, None if unknown, and its share of all layers.

    Without a measurement, both are estimated: the time of the whole run, or of the `group` that was measured together,
    is divided among its layers in proportion to their work.
    """

    ms: float | None
    share: float
    measured: bool
    group: Group | None = None

    def __str__(self) -> str:
        if not self.measured and not self.ms and not self.share:
            return "?"  # the work of the layer is unknown
        time_or_share = f"{100 * self.share:.2g}%" if self.ms is None else time_text(self.ms)
        return time_or_share if self.measured else f"~{time_or_share}"

    def to_dict(self) -> dict[str, Any]:
        """Return the time as JSON-compatible data."""
        group = {} if self.group is None else {"group": self.group.to_dict()}
        return {"ms": self.ms, "share": self.share, "how": "measured" if self.measured else "estimated"} | group


def time_text(ms: float) -> str:
    """Return milliseconds as text for users."""
    if ms >= 1000:
        return f"{ms / 1000:.3g} s"
    return f"{ms:.3g} ms" if ms >= 0.1 else f"{1000 * ms:.3g} µs"


class Clock:
    """Computes how long each layer and each part of a network takes, from measured times and estimates of work.

    `times` are the measurements of a run, or None for estimates only.
    """

    def __init__(self, facts: Facts, times: Times | None) -> None:
        self._facts = facts
        self._times = Times() if times is None else times
        self._work = {name: layer_facts.work for name, layer_facts in facts.layers.items()}
        self._work_of_group: dict[tuple[str, ...], float] = {}
        self._layers_of_unit: dict[str, list[str]] = {}
        for name, units in facts.units.items():
            for unit in units:
                self._layers_of_unit.setdefault(unit, []).append(name)
        measured_total = sum(map(self._unit_time, self._layers_of_unit))
        self._total_work = sum(self._work.values()) or 1.0
        self._total = measured_total or self._times.whole
        self._groups = {unit: self._groups_of(unit) for unit in self._layers_of_unit} if self._times.units else {}

    def layer(self, name: str) -> Time:
        """Return the time of the layer with this name.

        It is exact if the layer runs by itself, or if its backend measured it alone. Else it is a share of the time of
        the group in which the layer was measured, in each running layer that contains it.
        """
        if not self._times.units:
            return self._estimated_time([name])
        groups = [self._groups[unit][name] for unit in self._facts.units.get(name, ())]
        ms = sum(group.ms * self._share_in(group, name) for group in groups)
        shared_groups = [group for group in groups if len(group.layers) > 1 and group.ms]
        return self._measured_time(ms, not shared_groups, shared_groups[0] if len(shared_groups) == 1 else None)

    def _groups_of(self, unit: str) -> dict[str, Group]:
        """Return the group in which each layer of a running layer was measured, by the name of the layer."""
        layers, times = self._layers_of_unit[unit], self._times
        measured_names = {name for name in layers if name in times.layers} if len(layers) > 1 else set()
        if not measured_names:
            return dict.fromkeys(layers, Group(tuple(layers), self._unit_time(unit)))
        leaders_of = fused_layers if times.others.get(unit) else leading_layers
        leaders = leaders_of(self._facts, layers, measured_names)
        members: dict[str, list[str]] = {}
        for name, leader in leaders.items():
            members.setdefault(leader, []).append(name)
        groups = {leader: Group(tuple(names), times.layers[leader]) for leader, names in members.items()}
        other_steps = Group(tuple(name for name in layers if name not in leaders), times.others.get(unit, 0.0))
        return {name: groups[leaders[name]] if name in leaders else other_steps for name in layers}

    def _unit_time(self, unit: str) -> float:
        """Return the measured milliseconds of a running layer; 0 if it did not run, as in a branch not taken."""
        return self._times.units.get(unit, 0.0)

    def _share_in(self, group: Group, name: str) -> float:
        if group.layers not in self._work_of_group:
            self._work_of_group[group.layers] = sum(self._work.get(member, 0.0) for member in group.layers)
        total_work = self._work_of_group[group.layers]
        return self._work.get(name, 0.0) / total_work if total_work else 1 / len(group.layers)

    def part(self, part: Part) -> Time:
        """Return the time of a part: the sum of its running layers if these were timed, else an estimate.

        The estimate is the part's share of the time of the whole run, in proportion to its work.
        """
        if part.units and self._times.units:
            return self._measured_time(sum(map(self._unit_time, part.units)), True)
        return self._estimated_time(part.layers)

    def _measured_time(self, ms: float, is_measured: bool, group: Group | None = None) -> Time:
        return Time(ms, ms / self._total if self._total else 0.0, is_measured, group)

    def _estimated_time(self, layers: Iterable[str]) -> Time:
        share = sum(self._work.get(name, 0.0) for name in layers) / self._total_work
        return Time(None if self._total is None else self._total * share, share, False)
