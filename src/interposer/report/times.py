"""The times of a network's layers and parts: measured, or estimated from measurements and the amount of work."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from interposer.report.facts import OPERATIONS_PER_BYTE, Facts, Part

__all__ = ["BASIS", "Clock", "Time", "Times", "time_text"]

BASIS: Final = f"bytes read and written, {OPERATIONS_PER_BYTE} operations as one"


@dataclass(frozen=True, slots=True)
class Times:
    """The measured times of one run, as medians in milliseconds.

    `whole` is the time of a run from input arrays to output arrays. `units` has the times of the running layers, copies
    included, by name; it is empty if only the whole run was measured, as for a plan. `source` says what measured them,
    and `runs` how many runs were measured. `candidates` has the times of whole runs with other placements, by name, and
    `unmeasured` the reasons why others were not timed; `notes` are sentences about both.
    `layers` has the times of layers that backends measured inside of running layers, by name, and `others` the times of
    the steps in a running layer that belong to no layer of the network.
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


@dataclass(frozen=True, slots=True)
class Time:
    """The time of a layer or part: milliseconds per run, None if unknown, and its share of all layers.

    Without a measurement, both are estimated: the time of the whole run, or of the unit that contains the layer, is
    divided among its layers in proportion to their work.
    """

    ms: float | None
    share: float
    measured: bool

    def __str__(self) -> str:
        text = f"{100 * self.share:.2g}%" if self.ms is None else time_text(self.ms)
        return text if self.measured else f"~{text}"

    def to_dict(self) -> dict[str, Any]:
        """Return the time as JSON-compatible data."""
        return {"ms": self.ms, "share": self.share, "how": "measured" if self.measured else "estimated"}


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
        self._layers_of_unit: dict[str, list[str]] = {}
        for name, units in facts.units.items():
            for unit in units:
                self._layers_of_unit.setdefault(unit, []).append(name)
        self._unmeasured_layers = {
            unit: [name for name in names if not self._is_inside(name)] for unit, names in self._layers_of_unit.items()
        }
        self._unmeasured_work = {
            unit: sum(self._work.get(name, 0.0) for name in names) for unit, names in self._unmeasured_layers.items()
        }
        measured = sum(map(self._unit_time, self._layers_of_unit))
        self._total_work = sum(self._work.values()) or 1.0
        self._total = measured or self._times.whole

    def layer(self, name: str) -> Time:
        """Return the time of the layer with this name.

        It is exact if the layer runs by itself, or if its backend measured it. Else it is a share of the time of
        the running layers that contain it.
        """
        units = self._facts.units.get(name, ())
        if not self._times.units:
            return self._estimated_time([name])
        if self._is_inside(name):
            return self._measured_time(self._times.layers[name], True)
        ms = sum(self._unmeasured_time(unit) * self._share_in(unit, name) for unit in units)
        return self._measured_time(ms, all(len(self._layers_of_unit[unit]) == 1 for unit in units))

    def _is_inside(self, name: str) -> bool:
        """Return True if a backend measured the layer inside of a running layer with several."""
        units = self._facts.units.get(name, ())
        return name in self._times.layers and any(len(self._layers_of_unit[unit]) > 1 for unit in units)

    def _unit_time(self, unit: str) -> float:
        """Return the measured milliseconds of a running layer; 0 if it did not run, as in a branch not taken."""
        return self._times.units.get(unit, 0.0)

    def _unmeasured_time(self, unit: str) -> float:
        """Return the milliseconds of a running layer that are divided among those of its layers that are not measured.

        If the backend measured some layers, the others were computed in the steps of these, or in steps of no layer.
        """
        if any(map(self._is_inside, self._layers_of_unit[unit])):
            return self._times.others.get(unit, 0.0)
        return self._unit_time(unit)

    def _share_in(self, unit: str, name: str) -> float:
        total_work = self._unmeasured_work[unit]
        return self._work.get(name, 0.0) / total_work if total_work else 1 / len(self._unmeasured_layers[unit])

    def part(self, part: Part) -> Time:
        """Return the time of a part: the sum of its running layers if these were timed, else an estimate.

        The estimate is the part's share of the time of the whole run, in proportion to its work.
        """
        if part.units and self._times.units:
            return self._measured_time(sum(map(self._unit_time, part.units)), True)
        return self._estimated_time(part.layers)

    def _measured_time(self, ms: float, measured: bool) -> Time:
        return Time(ms, ms / self._total if self._total else 0.0, measured)

    def _estimated_time(self, layers: Iterable[str]) -> Time:
        share = sum(self._work.get(name, 0.0) for name in layers) / self._total_work
        return Time(None if self._total is None else self._total * share, share, False)
