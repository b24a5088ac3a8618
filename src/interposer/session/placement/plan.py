"""`Plan`: which layer runs where, as a small JSON file that can be kept, edited and replayed."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from os import PathLike
from pathlib import Path
from typing import Any, Final

from interposer.backend.ids import listed_ids
from interposer.core.errors import InvalidArgumentError
from interposer.core.files import check_regular, reason_of, write_file
from interposer.ir.graph import Graph, Layer

__all__ = ["TYPE", "Plan"]

_VERSION: Final = 1
_COST: Final = ("milliseconds", "bound", "gap")
TYPE: Final = "type:"
"""What stands before a type of layers, where a plan speaks of all of it."""


@dataclass(frozen=True)
class Plan:
    """Which backend runs which layer of a network, and how that was found.

    `layers` maps names of layers, patterns of names (``"conv*"``) or types (``"type:Softmax"``) to ids. What is the
    name of a layer is for that one alone, and counts before patterns and types, of which the first one counts. Layers
    that nothing is said of go to the first of `backends` that takes them; `exclude` maps types of layers to the ids of
    backends that never get them. `measured` has milliseconds of one run for every candidate that was timed whole, by
    its name (for throughput of runs at the same time, divided by their number); `made_with` says with which versions
    and threads, and `failed` what backends did wrong while they were measured. `cost` has the least cost of a plan in
    the model (the sum of measured parts and borders)
    in milliseconds, a `bound` below which no plan can be, also with the parts for which there was no time, and the
    `gap` between them as a part of the cost: 0 where all parts were measured. `units` has milliseconds of what runs in
    the plan, copies too, by name, where there was time to measure that.
    """

    network: str
    backends: tuple[str, ...]
    layers: Mapping[str, str]
    exclude: Mapping[str, Sequence[str]] = field(default_factory=dict)
    measured: Mapping[str, float] = field(default_factory=dict)
    chosen: str = ""
    made_with: Mapping[str, Any] = field(default_factory=dict)
    failed: Mapping[str, str] = field(default_factory=dict)
    cost: Mapping[str, float] = field(default_factory=dict)
    units: Mapping[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        object.__setattr__(self, "backends", listed_ids(self.backends, "a plan's backends"))
        exclude = {kind: listed_ids(ids, f"a plan's exclude[{kind!r}]: backends") for kind, ids in self.exclude.items()}
        object.__setattr__(self, "exclude", exclude)

    def hints(self, graph: Graph) -> dict[str, str]:
        """For every layer of a graph that the plan speaks of, its backend."""
        patterns = self._patterns({layer.name for layer in graph})
        found = {}
        for layer in graph:
            named = self.layers.get(layer.name) or next((to for one, to in patterns.items() if _fits(one, layer)), None)
            if named is not None:
                found[layer.name] = named
        return found

    def _patterns(self, names: Container[str]) -> dict[str, str]:
        """Of `layers`, what is no name of a layer."""
        return {one: backend for one, backend in self.layers.items() if one not in names}

    def differences(self, graph: Graph, made_with: Mapping[str, Any], available: tuple[str, ...]) -> Iterator[str]:
        """What is different here from where the plan was made, a sentence each."""
        for backend in dict.fromkeys((*self.backends, *self.layers.values())):
            if backend not in available:
                yield f"backend {backend} is not available here"
        names = {layer.name for layer in graph}
        unused = [one for one in self._patterns(names) if not any(_fits(one, layer) for layer in graph)]
        wide = [one for one in unused if one.startswith(TYPE) or any(mark in one for mark in "*?[")]
        yield from (f"{one!r} of the plan fits no layer of this network" for one in wide)
        lost = [one for one in unused if one not in wide]
        if lost:
            yield f"{len(lost)} layers of the plan are not in this network, such as {lost[0]!r}"
        if self.made_with:
            yield from _changes(self.made_with, made_with)

    def save(self, path: str | PathLike[str]) -> None:
        """Write the plan as JSON.

        Raises:
            FileWriteError: the file cannot be written. Its previous content is still there.
        """
        write_file(path, self.to_json())

    def to_json(self) -> str:
        """The plan as a JSON text."""
        told = {
            "plan": _VERSION, "network": self.network, "chosen": self.chosen, "backends": list(self.backends),
            "layers": dict(self.layers), "exclude": {kind: list(ids) for kind, ids in self.exclude.items()},
            "milliseconds": dict(self.measured), "made with": dict(self.made_with), "failed": dict(self.failed),
            "cost": dict(self.cost), "units": dict(self.units),
        }  # fmt: skip
        return json.dumps(told, indent=1) + "\n"

    @classmethod
    def load(cls, path: str | PathLike[str]) -> Plan:
        """Read a plan from a file.

        Raises:
            InvalidArgumentError: the file cannot be read, or is no plan.
        """
        try:
            check_regular(path)
            text = Path(path).read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            reason = reason_of(error) if isinstance(error, OSError) else "it is no text in UTF-8"
            raise InvalidArgumentError(f"{os.fspath(path)}: the plan cannot be read: {reason}") from error
        return cls.from_json(text, str(path))

    @classmethod
    def from_json(cls, text: str, where: str = "the plan") -> Plan:
        """The plan of a JSON text; `InvalidArgumentError` where it is none."""
        if not text.strip():
            raise InvalidArgumentError(f"{where} is empty")
        try:
            told = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise InvalidArgumentError(f"{where} is no JSON: {error}") from error
        fault = _fault(told)
        if fault:
            raise InvalidArgumentError(f"{where} is no plan of version {_VERSION}: {fault}")
        return cls(
            str(told.get("network", "")), told["backends"], dict(told["layers"]), told.get("exclude", {}),
            {str(name): float(one) for name, one in told.get("milliseconds", {}).items()},
            str(told.get("chosen", "")), dict(told.get("made with", {})), dict(told.get("failed", {})),
            dict(told.get("cost", {})), {str(name): float(one) for name, one in told.get("units", {}).items()},
        )  # fmt: skip


def _fits(pattern: str, layer: Layer) -> bool:
    if pattern.startswith(TYPE):
        return layer.kind == pattern.removeprefix(TYPE)
    return fnmatchcase(layer.name, pattern)


def _changes(before: Mapping[str, Any], now: Mapping[str, Any]) -> Iterator[str]:
    """What has changed, one by one; members of objects are told apart."""
    for name in dict.fromkeys((*before, *now)):
        there, here = before.get(name), now.get(name)
        if isinstance(there, Mapping) and isinstance(here, Mapping):
            yield from (f"{name} of {text}" for text in _changes(there, here))
        elif here != there:
            yield f"{name} is {here} here, and was {there} where the plan was made"


def _fault(told: Any) -> str | None:
    if not isinstance(told, dict) or type(told.get("plan")) is not int or told["plan"] != _VERSION:
        return f'it has no member "plan" with the value {_VERSION}'
    backends, layers = told.get("backends"), told.get("layers")
    if not _is_ids(backends) or not backends:
        return '"backends" must be a list of ids'
    if not isinstance(layers, dict) or not all(isinstance(one, str) for one in layers.values()):
        return '"layers" must map names to ids'
    exclude = told.get("exclude", {})
    if not isinstance(exclude, dict) or not all(map(_is_ids, exclude.values())):
        return '"exclude" must map types of layers to lists of ids'
    for member in ("milliseconds", "units"):
        times = told.get(member, {})
        if not isinstance(times, dict) or not all(map(_is_time, times.values())):
            return f'"{member}" must map names to numbers'
    cost = told.get("cost", {})
    if cost != {} and not (isinstance(cost, dict) and all(_is_number(cost.get(name)) for name in _COST)):
        return f'"cost" must have the numbers {", ".join(_COST)}'
    wrong = [name for name in ("made with", "failed") if not isinstance(told.get(name, {}), dict)]
    return f'"{wrong[0]}" must be an object' if wrong else None


def _is_ids(told: Any) -> bool:
    return isinstance(told, list) and all(isinstance(one, str) for one in told)


def _is_time(one: Any) -> bool:
    return _is_number(one) and one >= 0


def _is_number(one: Any) -> bool:
    return isinstance(one, int | float) and abs(one) <= sys.float_info.max
