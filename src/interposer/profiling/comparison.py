"""Comparison of two profiles that were written as files: which layers became slower."""

from __future__ import annotations

import json
import os
import statistics
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

from interposer.core.errors import ParseError
from interposer.core.files import reason_of

__all__ = ["LayerChange", "compare_profiles"]

_LONGEST: Final = 1e15
"""Microseconds that no layer takes; a number like that is damaged."""
_THREADS: Final = 1
"""The process of a trace in Chrome's format that has the threads; other processes repeat their intervals."""


@dataclass(frozen=True, slots=True)
class LayerChange:
    """The median time of a layer in two profiles in microseconds, and its backends; None if a profile lacks it."""

    layer: str
    kind: str
    backends: tuple[str | None, str | None]
    before_us: float | None
    after_us: float | None

    @property
    def difference_us(self) -> float:
        """By how many microseconds the layer became slower; a layer that one profile lacks counts as 0 there."""
        return (self.after_us or 0.0) - (self.before_us or 0.0)

    @property
    def ratio(self) -> float | None:
        """How many times as long the layer takes; None if a profile lacks it or the time was 0."""
        return self.after_us / self.before_us if self.before_us and self.after_us is not None else None

    def to_dict(self) -> dict[str, Any]:
        """Return the change as JSON-compatible data."""
        return {**asdict(self), "difference_us": self.difference_us, "ratio": self.ratio}


def compare_profiles(before: str | os.PathLike[str], after: str | os.PathLike[str]) -> list[LayerChange]:
    """Compare the layers of two profiles, files that were written with the suffix ``.json``.

    Returns the layers and copies, those that became slower by the largest amount first.

    Raises:
        ParseError: a file cannot be read, or is not a trace in Chrome's format with layers.
    """
    first, second = _layers(Path(before)), _layers(Path(after))
    changes = [_change(name, first.get(name), second.get(name)) for name in first | second]
    return sorted(changes, key=lambda item: -item.difference_us)


@dataclass(slots=True)
class _Layer:
    kind: str
    backend: str
    durations: list[float]


def _change(name: str, before: _Layer | None, after: _Layer | None) -> LayerChange:
    pair = before, after
    kind = next(item.kind for item in (after, before) if item is not None)
    medians = [None if item is None else statistics.median(item.durations) for item in pair]
    backends = tuple(None if item is None else item.backend for item in pair)
    return LayerChange(name, kind, (backends[0], backends[1]), medians[0], medians[1])


def _layers(path: Path) -> dict[str, _Layer]:
    """Return the layers of a trace by name, with a duration in microseconds for each time that they ran."""
    try:
        data = json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError) as error:
        why = reason_of(error) if isinstance(error, OSError) else "it is not JSON"
        raise ParseError(f"{path}: the profile cannot be read: {why}") from error
    events = data.get("traceEvents") if isinstance(data, Mapping) else None
    result: dict[str, _Layer] = {}
    for event in events if isinstance(events, list) else ():
        facts = _facts(event)
        if facts is not None:
            layer = result.setdefault(facts["layer"], _Layer(_text(facts, "kind"), _text(facts, "backend"), []))
            layer.durations.append(float(event["dur"]))
    if not result:
        raise ParseError(f"{path}: it is no profile with layers; write one with interposer trace -o FILE.json")
    return result


def _facts(event: object) -> Mapping[str, Any] | None:
    """Return the arguments of an event that is the time of a layer or copy; None for other events."""
    if not isinstance(event, Mapping) or event.get("ph") != "X" or event.get("pid") != _THREADS:
        return None
    facts, duration = event.get("args"), event.get("dur")
    if event.get("cat") not in ("layer", "copy") or not isinstance(facts, Mapping):
        return None
    timed = isinstance(duration, int | float) and 0 <= duration < _LONGEST
    return facts if timed and isinstance(facts.get("layer"), str) else None


def _text(facts: Mapping[str, Any], name: str) -> str:
    value = facts.get(name, "")
    return value if isinstance(value, str) else ""
