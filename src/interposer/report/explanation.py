"""Explanations: the backend of every layer, and for every other backend the reason why it does not run the layer."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import field
from typing import Any, Final

from interposer.core.records import dataclass
from interposer.report.facts import Facts, LayerFacts, Part, Tensor
from interposer.report.records import Crossing, Placement
from interposer.report.times import BASIS, Clock, Times, time_text

__all__ = ["LATE", "Explanation", "Times", "Verdict"]

VERSION: Final = 1
"""The version of the data that `Explanation.to_dict` returns; additional members do not change it."""
COULD: Final = "could, ranked lower"
CALLER: Final = "the caller"
_HOW: Final = {
    "direct": "passed from {source} to {target} without a copy",
    "import": "used by {target} where {source} has it, without a copy",
    "device copy": "copied by the device from {source} to {target}",
    "copy": "copied from {source} to {target}",
}
LATE: Final = ("was not asked, as the layer came in while others were given back",)
_TITLES: Final = ("layer", "operator", "backend", "time", "measured as", "runs in", "stands also for", "refused by")
_PART_TITLES: Final = ("part", "backend", "layers", "{}", "comes in", "goes out")
_MOVES: Final = {"direct": "passed", "import": "imported", "device copy": "copied by the device", "copy": "copied"}
_ALWAYS: Final = 3
_DISAGREES: Final = 1.5
"""The factor by which the sum of layer times may exceed the time of a whole run, before a remark reports it."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """What one backend says about a layer that another backend runs.

    `reasons` says why it refuses the layer; there are none if it supports the layer, but was not preferred.
    """

    backend: str
    reasons: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.backend}: {'; '.join(self.reasons) or COULD}"


@dataclass(frozen=True, slots=True)
class Explanation:
    """The placement of a whole network with the verdicts of all backends. ``print`` shows it as tables.

    `to_dict` and `to_json` return it as data, and `to_html` as a page that draws the network.
    """

    network: str
    preferences: tuple[str, ...]
    rows: tuple[tuple[Placement, tuple[Verdict, ...]], ...]
    crossings: tuple[Crossing, ...]
    absent: tuple[tuple[str, str], ...]
    notes: tuple[str, ...]
    remarks: tuple[str, ...] = ()
    """The notes that contain more than refusals."""
    facts: Facts = field(default_factory=Facts)
    times: Times | None = None

    @property
    def copies(self) -> tuple[Crossing, ...]:
        """The records of the tensors that are copied from one backend's memory to another's in every run."""
        return tuple(crossing for crossing in self.crossings if crossing.is_copy)

    def counts(self) -> dict[str, int]:
        """Return the number of layers of each backend, in order of preference."""
        layers_by_backend = Counter(placement.backend for placement, _ in self.rows)
        return {backend: layers_by_backend[backend] for backend in self.preferences}

    def to_dict(self) -> dict[str, Any]:
        """Return the explanation as JSON-compatible data; docs/reference/explanations.md describes the format."""
        part_of = {name: part.number for part in self.facts.parts for name in part.layers}
        clock = Clock(self.facts, self.times)
        layers = [
            placement.to_dict()
            | {"others": {verdict.backend: list(verdict.reasons) or [COULD] for verdict in verdicts}}
            | {"part": part_of.get(placement.layer), "time": clock.layer(placement.layer).to_dict()}
            | self._layer_facts(placement).to_dict()
            for placement, verdicts in self.rows
        ]
        unit_times = {} if self.times is None else self.times.units
        crossings = [crossing.to_dict() | {"ms": unit_times.get(crossing.layer)} for crossing in self.crossings]
        return {
            "explanation": VERSION,
            "network": self.network,
            "backends": list(self.preferences),
            "absent": [{"id": backend, "reason": reason} for backend, reason in self.absent],
            "times": self._times_to_dict(),
            "inputs": [_border_tensor(hosted) for hosted in self.facts.inputs],
            "outputs": [_border_tensor(tensor) for tensor in self.facts.outputs],
            "layers": layers,
            "run by the runtime": [
                {"layer": hosted.name, "kind": hosted.kind} | hosted.to_dict() | {"ms": unit_times.get(hosted.name)}
                for hosted in self.facts.hosted
            ],
            "parts": [_part_to_dict(part) | {"time": clock.part(part).to_dict()} for part in self.facts.parts],
            "counts": self.counts(),
            "copies": [copy for copy, crossing in zip(crossings, self.crossings, strict=True) if crossing.is_copy],
            "crossings": crossings,
            "messages": list(self.notes),
        }

    def _layer_facts(self, placement: Placement) -> LayerFacts:
        facts = self.facts.layers.get(placement.layer)
        return facts or LayerFacts(placement.layer, placement.kind, {}, (), (), 0, 0)

    def _times_to_dict(self) -> dict[str, Any]:
        times = self.times or Times()
        return {
            "whole_ms": times.whole,
            "source": times.source,
            "runs": times.runs,
            "estimated_by": BASIS,
            "candidates_ms": dict(times.candidates),
            **({"not_measured": dict(times.unmeasured)} if times.unmeasured else {}),
            **({"notes": list(times.notes)} if times.notes else {}),
            **({} if times.spread is None else {"spread": times.spread}),
            **({} if times.overlap is None else {"overlap_ms": times.overlap}),
            **({"devices_ms": dict(times.devices)} if times.devices else {}),
        }

    def to_json(self, indent: int | None = 2) -> str:
        """Return the explanation as JSON text; see `to_dict`."""
        return json.dumps(self.to_dict(), indent=indent, allow_nan=False)

    def to_html(self) -> str:
        """Return a self-contained HTML page that draws the network and shows all facts about each layer."""
        from interposer.pages.network import html  # noqa: PLC0415 - seldom needed

        return html(self.to_dict())

    def refusals(self) -> dict[Verdict, Counter[str]]:
        """Return each refusal once, with the number of refused layers by operator, in order of preference."""
        refused_by_kind: dict[Verdict, Counter[str]] = {}
        for placement, verdicts in self.rows:
            for verdict in filter(_is_refusal, verdicts):
                refused_by_kind.setdefault(verdict, Counter())[placement.kind] += 1
        return dict(
            sorted(
                refused_by_kind.items(),
                key=lambda refusal_and_count: self.preferences.index(refusal_and_count[0].backend),
            )
        )

    def table(self) -> list[tuple[str, ...]]:
        """Return a row of titles and one row per layer, without empty columns.

        Numbers in brackets refer to the reasons that `summary` lists.
        """
        numbers = {verdict: number for number, verdict in enumerate(self.refusals(), 1)}
        clock = None if self.times is None else Clock(self.facts, self.times)
        part_of_unit = {unit: part for part in self.facts.parts for unit in part.units}
        rows = [_cells(placement, verdicts, numbers, clock, part_of_unit) for placement, verdicts in self.rows]
        return _without_empty(_TITLES, rows, _ALWAYS)

    def part_table(self) -> list[tuple[str, ...]]:
        """Return a row of titles and one row per part: its backend, layers, time, and the tensors at its border.

        Times with a ~ are estimated. If nothing is measured, the share of the work is shown instead. The table is empty
        if the network is a single part without any known time.
        """
        if len(self.facts.parts) < 2 and self.times is None:
            return []
        clock = Clock(self.facts, self.times)
        titles = tuple(part_title.format("work" if self.times is None else "time") for part_title in _PART_TITLES)
        return _without_empty(titles, [self._part_cells(part, clock) for part in self.facts.parts], _ALWAYS)

    def _part_cells(self, part: Part, clock: Clock) -> tuple[str, ...]:
        first_name, last_name = (part.layers or part.units)[0], (part.layers or part.units)[-1]
        layers = first_name if len(part.layers) < 2 else f"{first_name} .. {last_name} ({len(part.layers)})"
        moved_bytes = self._moved_bytes(part.incoming), self._moved_bytes(part.outgoing)
        return str(part.number), part.backend, layers, str(clock.part(part)), *moved_bytes

    def _moved_bytes(self, crossings: tuple[int, ...]) -> str:
        sizes: Counter[str] = Counter()
        for number in crossings:
            sizes[_MOVES[self.crossings[number].how]] += self.crossings[number].num_bytes
        return ", ".join(f"{size:,} bytes {how}" for how, size in sizes.items())

    def summary(self) -> Iterator[str]:
        """Yield lines about the whole network, about each backend with its refusals, and about copied tensors."""
        has_several_backends = len(self.preferences) > 1
        count = len(self.copies)
        copied_text = (
            f", {_counted(count, 'copy', 'copies') if count else 'no copies'} between backends"
            if has_several_backends
            else ""
        )
        yield f"network {self.network!r}: {_counted(len(self.rows), 'layer')}{copied_text}"
        for backend, count in self.counts().items():
            yield from self._backend_lines(backend, count)
        yield from self._crossing_lines()
        yield from self._timing_lines()
        for remark in self.remarks:
            yield f"  {remark}"

    def _backend_lines(self, backend: str, count: int) -> Iterator[str]:
        verdicts_of_backend = [
            verdict for _, verdicts in self.rows for verdict in verdicts if verdict.backend == backend
        ]
        num_refused = sum(map(_is_refusal, verdicts_of_backend))
        num_supported = len(verdicts_of_backend) - num_refused
        parts = [_counted(count, "layer") if count or not verdicts_of_backend else "no layers"]
        parts += [f"refuses {num_refused}"] if num_refused else []
        parts += [f"could run {num_supported}{' more' if count else ''}"] if num_supported else []
        yield f"  {backend}: {', '.join(parts)}"
        for number, (verdict, kinds) in enumerate(self.refusals().items(), 1):
            if verdict.backend == backend:
                kind_counts = ", ".join(f"{kind} ({times})" for kind, times in kinds.most_common())
                yield f"    [{number}] {kind_counts}: {'; '.join(verdict.reasons)}"

    def _crossing_lines(self) -> Iterator[str]:
        groups: dict[tuple[str, str, str], list[Crossing]] = {}
        for crossing in self.crossings:
            groups.setdefault((crossing.how, crossing.source or CALLER, crossing.target or CALLER), []).append(crossing)
        for (how, source, target), similar_crossings in groups.items():
            size = sum(crossing.num_bytes for crossing in similar_crossings)
            names = ", ".join(crossing.value for crossing in similar_crossings)
            yield f"  {_HOW[how].format(source=source, target=target)} ({size:,} bytes): {names}"

    def _timing_lines(self) -> Iterator[str]:
        times = self.times
        if times is None or times.whole is None:
            return
        basis = f"{times.source}, {_counted(times.runs, 'run')}" if times.runs else times.source
        spread = "" if times.spread is None else f" ±{times.spread:.0%}"
        whole_text = f"{time_text(times.whole)}{spread}"
        yield f"  one run takes {whole_text} ({basis}); ~ stands before estimates, by work ({BASIS})"
        layers_total = sum(times.units.values())
        if times.overlap is not None:
            yield (
                f"  the layers take {time_text(layers_total)} one after the other, each measured alone; "
                f"devices and the host overlap by {time_text(times.overlap)}"
            )
        elif layers_total > _DISAGREES * times.whole:
            yield (
                f"  the layers took {time_text(layers_total)} together when each was timed, more than a whole run: "
                "the machine was busy, or layers ran concurrently; measure again on an idle machine"
            )
        for device, ms in times.devices.items():
            yield f"  {device} is busy for {time_text(ms)} of a run, by its clock; the rest is submission and waiting"
        if times.candidates:
            ranked_candidates = sorted(times.candidates.items(), key=lambda name_and_time: name_and_time[1])
            yield f"  measured for the plan: {', '.join(f'{name} {time_text(ms)}' for name, ms in ranked_candidates)}"
        for note in times.notes:
            yield f"  {note}"

    def lines(self) -> Iterator[str]:
        """Yield the explanation as lines of text: the summary, and the tables of parts and of layers."""
        yield from self.summary()
        for rows in filter(None, (self.part_table(), self.table())):
            widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
            for row in rows:
                yield f"  {'  '.join(map(str.ljust, row, widths))}".rstrip()

    def _repr_html_(self) -> str:
        from interposer.report.notebook import explanation_html  # noqa: PLC0415 - only notebooks need it

        return explanation_html(self.network, list(self.summary()), self.part_table(), self.table())

    def __str__(self) -> str:
        return "\n".join(self.lines())


def _is_refusal(verdict: Verdict) -> bool:
    return bool(verdict.reasons)


def _counted(count: int, singular: str, plural: str = "") -> str:
    return f"{count} {singular if count == 1 else plural or f'{singular}s'}"


def _without_empty(
    titles: tuple[str, ...], rows: list[tuple[str, ...]], num_always_shown: int
) -> list[tuple[str, ...]]:
    shown_columns = [
        column for column in range(len(titles)) if column < num_always_shown or any(row[column] for row in rows)
    ]
    return [tuple(row[column] for column in shown_columns) for row in (titles, *rows)]


def _cells(
    placement: Placement,
    verdicts: tuple[Verdict, ...],
    numbers: Mapping[Verdict, int],
    clock: Clock | None,
    part_of_unit: Mapping[str, Part],
) -> tuple[str, ...]:
    part = part_of_unit.get(placement.runs_in)
    unit = placement.runs_in if part is None else f"part {part.number}"
    inside = "" if placement.runs_in == placement.layer else unit
    refused_text = ", ".join(f"{verdict.backend} [{numbers[verdict]}]" for verdict in filter(_is_refusal, verdicts))
    merged_names = ", ".join(name for name in placement.replaced if name != placement.layer)
    time = None if clock is None else clock.layer(placement.layer)
    group = None if time is None else time.group
    is_part = group is not None and part is not None and set(group.layers) == set(part.layers)
    texts = "" if time is None else str(time), "" if group is None or is_part else str(group)
    return placement.layer, placement.kind, placement.backend, *texts, inside, merged_names, refused_text


def _border_tensor(tensor: Tensor) -> dict[str, Any]:
    """Return an input or output of the network as JSON-compatible data.

    The fields of `Tensor` that only apply to operands of layers are left out.
    """
    fields = {name: getattr(tensor, name) for name in ("name", "type", "shape", "bytes", "quantization", "layer")}
    return fields | {"name": tensor.role, "crossing": tensor.crossing}


def _part_to_dict(part: Part) -> dict[str, Any]:
    return {
        "part": part.number,
        "backend": part.backend,
        "layers": list(part.layers),
        "runs_as": list(part.units),
        "incoming": list(part.incoming),
        "outgoing": list(part.outgoing),
    }
