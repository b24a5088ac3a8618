"""`Plan`: the placement of a network's layers on backends, as a small JSON file that can be edited and replayed."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import field
from fnmatch import fnmatchcase
from os import PathLike
from pathlib import Path
from typing import Any, Final

from interposer.backend.ids import listed_ids
from interposer.core.errors import InvalidArgumentError
from interposer.core.files import check_regular, reason_of, write_file
from interposer.core.records import dataclass
from interposer.ir.graph import Graph

__all__ = ["MIXES", "TYPE", "Plan"]

_VERSION: Final = 1
_COST: Final = ("milliseconds", "bound", "gap")
MIXES: Final = "mixes"
"""The key in `Plan.unmeasured` that stands for all candidates with several backends."""
TYPE: Final = "type:"
"""The prefix of a key in `Plan.layers` that stands for all layers of a type."""


@dataclass(frozen=True)
class Plan:
    """The backend for each layer of a network, and the measurements that led to this placement.

    `layers` maps names of layers, patterns of names (``"conv*"``) or types (``"type:Softmax"``) to backend ids. A key
    that is the name of a layer applies to this layer only, and takes precedence over patterns and types. Among several
    patterns and types that match, the first one is used. Layers without a match run on the first of `backends` that
    supports them. `exclude` maps types of layers to the ids of backends that never run them.

    `measured` maps the names of candidates to the milliseconds of one run of the whole network (for throughput: the
    time of concurrent runs divided by their number). `spread` has how much these times varied in several turns: half
    the distance between their lower and upper quartile, relative to the median. `chosen` is the name of the selected
    candidate. `made_with` has the versions, the machine and the threads of the measurement. `failed` maps backends to
    the errors they raised.

    `unmeasured` maps the names of candidates that were not timed to the reasons; its key ``"mixes"`` stands for all
    candidates with several backends.

    `cost` describes the best plan in the cost model, which adds the times of measured parts and of copies between them.
    It has the cost in milliseconds, a lower `bound` that also covers parts that were not measured, and the relative
    `gap` between both; the gap is 0 if all parts were measured. `units` maps the names of layers, parts and copies of
    the plan to their milliseconds, if there was time to measure them.
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
    unmeasured: Mapping[str, str] = field(default_factory=dict)
    spread: Mapping[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        object.__setattr__(self, "backends", listed_ids(self.backends, "a plan's backends"))
        exclude = {kind: listed_ids(ids, f"a plan's exclude[{kind!r}]: backends") for kind, ids in self.exclude.items()}
        object.__setattr__(self, "exclude", exclude)

    def hints(self, graph: Graph) -> dict[str, str]:
        """Return the backend id of each layer for which the plan has an entry, by the name of the layer.

        The entry may be its name, a pattern of names, or its type: see `Plan`.
        """
        return self.hints_by_name({layer.name: layer.kind for layer in graph})

    def hints_by_name(self, kinds: Mapping[str, str]) -> dict[str, str]:
        """Return what `hints` returns for layers with these names, which are the keys, and types."""
        patterns = self._patterns(kinds)
        hints = {}
        for name, kind in kinds.items():
            backend = self.layers.get(name) or next(
                (pattern_backend for pattern, pattern_backend in patterns.items() if _fits(pattern, name, kind)), None
            )
            if backend is not None:
                hints[name] = backend
        return hints

    def _patterns(self, names: Container[str]) -> dict[str, str]:
        """Return the entries of `layers` whose key is not one of these names of layers: patterns and types."""
        return {key: backend for key, backend in self.layers.items() if key not in names}

    def differences(self, graph: Graph, made_with: Mapping[str, Any], available: tuple[str, ...]) -> Iterator[str]:
        """Yield a sentence for each reason why the plan may not hold for this network in this environment.

        `graph` is that of the network, `made_with` has the versions, machine and threads of this environment, and
        `available` the ids of the backends in it.
        """
        yield from self.unused({layer.name: layer.kind for layer in graph})
        yield from self.changes(made_with, available)

    def changes(self, made_with: Mapping[str, Any], available: Container[str]) -> Iterator[str]:
        """Yield the sentences of `differences` that concern the environment."""
        for backend in dict.fromkeys((*self.backends, *self.layers.values())):
            if backend not in available:
                yield f"backend {backend} is not available here"
        if self.made_with:
            yield from _changes(self.made_with, made_with)

    def unused(self, kinds: Mapping[str, str]) -> Iterator[str]:
        """Yield a sentence for each pattern without a layer, and one about names without a layer.

        `kinds` has the types of the layers of the network by name.
        """
        unused = [
            pattern
            for pattern in self._patterns(kinds)
            if not any(_fits(pattern, name, kind) for name, kind in kinds.items())
        ]
        wildcards = [
            pattern for pattern in unused if pattern.startswith(TYPE) or any(wildcard in pattern for wildcard in "*?[")
        ]
        yield from (f"{pattern!r} of the plan fits no layer of this network" for pattern in wildcards)
        missing_layers = [pattern for pattern in unused if pattern not in wildcards]
        if missing_layers:
            yield f"{len(missing_layers)} layers of the plan are not in this network, such as {missing_layers[0]!r}"

    def notes(self) -> tuple[str, ...]:
        """Return a sentence for each backend that was not timed, and one about mixes of backends if none was chosen.

        Empty for a plan that was not measured.
        """
        if not self.measured:
            return ()
        untimed = {name: reason for name, reason in self.unmeasured.items() if name != MIXES}
        return (*(f"{name} was not timed: {reason}" for name, reason in untimed.items()), *self._about_mixes())

    def _about_mixes(self) -> Iterator[str]:
        if MIXES in self.unmeasured:
            yield f"no mix of backends was timed: {self.unmeasured[MIXES]}"
        elif self.chosen in self.backends and not self.measured.keys() <= set(self.backends):
            yield f"no mix of backends was better than {self.chosen} alone"

    def save(self, path: str | PathLike[str]) -> None:
        """Write the plan to a JSON file.

        Raises:
            FileWriteError: the file cannot be written; its previous content is unchanged.
        """
        write_file(path, self.to_json())

    def to_json(self) -> str:
        """Return the plan as a JSON string."""
        facts = {
            "plan": _VERSION, "network": self.network, "chosen": self.chosen, "backends": list(self.backends),
            "layers": dict(self.layers), "exclude": {kind: list(ids) for kind, ids in self.exclude.items()},
            "milliseconds": dict(self.measured), "made with": dict(self.made_with), "failed": dict(self.failed),
            "spread": dict(self.spread), "not measured": dict(self.unmeasured), "cost": dict(self.cost),
            "units": dict(self.units),
        }  # fmt: skip
        return json.dumps(facts, indent=1) + "\n"

    @classmethod
    def load(cls, path: str | PathLike[str]) -> Plan:
        """Read a plan from a JSON file.

        Raises:
            InvalidArgumentError: the file cannot be read, or is not a plan.
        """
        try:
            check_regular(path)
            plan_text = Path(path).read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            reason = reason_of(error) if isinstance(error, OSError) else "it is no text in UTF-8"
            raise InvalidArgumentError(f"{os.fspath(path)}: the plan cannot be read: {reason}") from error
        return cls.from_json(plan_text, str(path))

    @classmethod
    def from_json(cls, text: str, where: str = "the plan") -> Plan:
        """Return the plan in a JSON string; raise `InvalidArgumentError` if it is not a plan.

        `where` names the source of the text in the message.
        """
        if not text.strip():
            raise InvalidArgumentError(f"{where} is empty")
        try:
            facts = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise InvalidArgumentError(f"{where} is no JSON: {error}") from error
        problem = _problem(facts)
        if problem:
            raise InvalidArgumentError(f"{where} is no plan of version {_VERSION}: {problem}")
        return cls(
            str(facts.get("network", "")), facts["backends"], dict(facts["layers"]), facts.get("exclude", {}),
            {str(name): float(time) for name, time in facts.get("milliseconds", {}).items()},
            str(facts.get("chosen", "")), dict(facts.get("made with", {})), dict(facts.get("failed", {})),
            dict(facts.get("cost", {})), {str(name): float(time) for name, time in facts.get("units", {}).items()},
            {str(name): str(reason) for name, reason in facts.get("not measured", {}).items()},
            {str(name): float(spread) for name, spread in facts.get("spread", {}).items()},
        )  # fmt: skip


def _fits(pattern: str, name: str, kind: str) -> bool:
    return kind == pattern.removeprefix(TYPE) if pattern.startswith(TYPE) else fnmatchcase(name, pattern)


def _changes(old_facts: Mapping[str, Any], new_facts: Mapping[str, Any]) -> Iterator[str]:
    """Compare two versions of the facts that a plan depends on; yield a sentence for each entry that has changed.

    The members of nested mappings are compared separately.
    """
    for name in dict.fromkeys((*old_facts, *new_facts)):
        old_fact, new_fact = old_facts.get(name), new_facts.get(name)
        if isinstance(old_fact, Mapping) and isinstance(new_fact, Mapping):
            yield from (f"{name} of {text}" for text in _changes(old_fact, new_fact))
        elif new_fact != old_fact:
            yield f"{name} is {new_fact} here, and was {old_fact} where the plan was made"


def _problem(facts: Any) -> str | None:
    if not isinstance(facts, dict) or type(facts.get("plan")) is not int or facts["plan"] != _VERSION:
        return f'it has no member "plan" with the value {_VERSION}'
    backends, layers = facts.get("backends"), facts.get("layers")
    if not _is_ids(backends) or not backends:
        return '"backends" must be a list of ids'
    if not isinstance(layers, dict) or not all(isinstance(layer, str) for layer in layers.values()):
        return '"layers" must map names to ids'
    exclude = facts.get("exclude", {})
    if not isinstance(exclude, dict) or not all(map(_is_ids, exclude.values())):
        return '"exclude" must map types of layers to lists of ids'
    for member in ("milliseconds", "units", "spread"):
        times = facts.get(member, {})
        if not isinstance(times, dict) or not all(map(_is_time, times.values())):
            return f'"{member}" must map names to numbers'
    cost = facts.get("cost", {})
    if cost != {} and not (isinstance(cost, dict) and all(_is_number(cost.get(name)) for name in _COST)):
        return f'"cost" must have the numbers {", ".join(_COST)}'
    objects = "made with", "failed", "not measured"
    wrong_members = [name for name in objects if not isinstance(facts.get(name, {}), dict)]
    return f'"{wrong_members[0]}" must be an object' if wrong_members else None


def _is_ids(plain: Any) -> bool:
    return isinstance(plain, list) and all(isinstance(element, str) for element in plain)


def _is_time(value: Any) -> bool:
    return _is_number(value) and value >= 0


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and abs(value) <= sys.float_info.max
