"""Comparison of two profiles that were written as files: which layers became slower."""

from __future__ import annotations

import json
import os
import statistics
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final, TypeAlias

from interposer.core.errors import ParseError
from interposer.core.files import check_regular, reason_of
from interposer.core.records import dataclass

__all__ = ["CounterChange", "LayerChange", "compare_counters", "compare_profiles"]

_LONGEST: Final = 1e15
"""Microseconds that no layer takes; a number like that is damaged."""
_LARGEST: Final = 1e300
"""The absolute value that the number of a counter is below."""
_BACKENDS: Final = 2
"""The process of a trace in Chrome's format that has the backends.

Layers of child processes are on threads of other processes, and steps of devices on none, but all are on the track of
their backend.
"""
_LAYERS: Final = ("layer", "copy")
_STEPS: Final = ("kernel", "backend")


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


@dataclass(frozen=True, slots=True)
class CounterChange:
    """A counter in two profiles: the sum of its events, or the median of other values; None if a profile lacks it."""

    counter: str
    units: str
    before: float | None
    after: float | None

    @property
    def difference(self) -> float:
        """By how much the value grew; a counter that one profile lacks counts as 0 there."""
        return (self.after or 0.0) - (self.before or 0.0)

    def to_dict(self) -> dict[str, Any]:
        """Return the change as JSON-compatible data."""
        return {**asdict(self), "difference": self.difference}


def compare_counters(before: str | os.PathLike[str], after: str | os.PathLike[str]) -> list[CounterChange]:
    """Compare the counters of two profiles, files that were written with the suffix ``.json``.

    Raises:
        ParseError: a file cannot be read, or is not a trace in Chrome's format.
    """
    values_before, values_after = _counters(Path(before)), _counters(Path(after))
    names = dict.fromkeys([*values_before, *values_after])
    return [CounterChange(*name, values_before.get(name), values_after.get(name)) for name in names]


def compare_profiles(before: str | os.PathLike[str], after: str | os.PathLike[str]) -> list[LayerChange]:
    """Compare the layers of two profiles, files that were written with the suffix ``.json``.

    Returns the layers and copies, and the steps that backends have measured in them, whose `kind` is "step". Those that
    became slower by the largest amount come first. If a profile has several networks, the layers are those of networks
    with the same name, and the name is in front of that of the layer, as in "network: layer".

    Raises:
        ParseError: a file cannot be read, or is not a trace in Chrome's format with layers.
    """
    layers_before, layers_after = _layers(Path(before)), _layers(Path(after))
    if max(_networks(layers_before), _networks(layers_after)) <= 1:  # its name need not be the same
        layers_before, layers_after = _without_networks(layers_before), _without_networks(layers_after)
    changes = [_change(key, layers_before.get(key), layers_after.get(key)) for key in layers_before | layers_after]
    return sorted(changes, key=lambda change: -change.difference_us)


def _networks(layers: Mapping[_Key, _Layer]) -> int:
    return len({network for network, _, is_step in layers if not is_step})


def _without_networks(layers: Mapping[_Key, _Layer]) -> dict[_Key, _Layer]:
    merged_layers: dict[_Key, _Layer] = {}
    for (_, name, is_step), layer in layers.items():
        merged_layer = merged_layers.setdefault(("", name, is_step), _Layer(layer.kind, layer.backend, []))
        merged_layer.durations.extend(layer.durations)
    return merged_layers


@dataclass(slots=True)
class _Layer:
    kind: str
    backend: str
    durations: list[float]


def _change(key: _Key, layer_before: _Layer | None, layer_after: _Layer | None) -> LayerChange:
    layers = layer_before, layer_after
    kind = next(layer.kind for layer in (layer_after, layer_before) if layer is not None)
    medians = [None if layer is None else statistics.median(layer.durations) for layer in layers]
    backends = tuple(None if layer is None else layer.backend for layer in layers)
    network, layer_name, _ = key
    name = f"{network}: {layer_name}" if network else layer_name
    return LayerChange(name, kind, (backends[0], backends[1]), medians[0], medians[1])


_Key: TypeAlias = tuple[str, str, bool]
"""The names of a network and of its layer or step, and whether it is a step."""


def _layers(path: Path) -> dict[_Key, _Layer]:
    """Return the layers and steps of a trace, with a duration in microseconds for each time that they ran."""
    layers: dict[_Key, _Layer] = {}
    for event in _events(_trace(path)):
        arguments = _facts(event)
        if arguments is not None:
            layers.setdefault(*_named(event, arguments)).durations.append(float(event["dur"]))
    if not _networks(layers):
        raise ParseError(f"{path}: it is no profile with layers; write one with interposer trace -o FILE.json")
    return layers


def _trace(path: Path) -> Mapping[str, Any]:
    try:
        check_regular(path)
        trace_data = json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError) as error:
        reason = reason_of(error) if isinstance(error, OSError) else "it is not JSON"
        raise ParseError(f"{path}: the profile cannot be read: {reason}") from error
    return trace_data if isinstance(trace_data, Mapping) else {}


def _events(trace: Mapping[str, Any]) -> list[Any]:
    events = trace.get("traceEvents")
    return events if isinstance(events, list) else []


def _named(event: Mapping[str, Any], arguments: Mapping[str, Any]) -> tuple[_Key, _Layer]:
    """Return what an event is the time of, and a new record for it."""
    is_step = event["cat"] not in _LAYERS
    name = _text(event, "name") if is_step else arguments["layer"]
    return (_text(arguments, "network"), name, is_step), _Layer(
        "step" if is_step else _text(arguments, "kind"), _text(arguments, "backend"), []
    )


def _counters(path: Path) -> dict[tuple[str, str], float]:
    """Return the value of each counter of a trace by its name and units."""
    trace = _trace(path)
    samples_of_counter: dict[tuple[str, str], list[float]] = {}
    for event in _events(trace):
        if isinstance(event, Mapping) and event.get("ph") == "C" and isinstance(event.get("args"), Mapping):
            for units, value in event["args"].items():
                if isinstance(value, int | float) and abs(value) < _LARGEST:
                    samples_of_counter.setdefault((_text(event, "name"), units), []).append(float(value))
    events = _counters_of_events(trace)
    return {
        key: sum(samples) if key[0] in events else statistics.median(samples)
        for key, samples in samples_of_counter.items()
    }


def _counters_of_events(trace: Mapping[str, Any]) -> set[str]:
    other_data = trace.get("otherData")
    declarations = other_data.get("counters") if isinstance(other_data, Mapping) else None
    counters = (
        [counter for counter in declarations if isinstance(counter, Mapping)] if isinstance(declarations, list) else []
    )
    return {_text(counter, "name") for counter in counters if counter.get("class") == "event"}


def _facts(event: object) -> Mapping[str, Any] | None:
    """Return the arguments of an event that is the time of a layer, copy or step; None for other events."""
    if not isinstance(event, Mapping) or event.get("ph") != "X":
        return None
    arguments, duration, category = event.get("args"), event.get("dur"), event.get("cat")
    if not isinstance(arguments, Mapping) or not _is_time(duration):
        return None
    if event.get("pid") != _BACKENDS:
        return None
    is_layer = category in _LAYERS and isinstance(arguments.get("layer"), str)
    return arguments if is_layer or category in _STEPS else None


def _is_time(value: object) -> bool:
    return isinstance(value, int | float) and 0 <= value < _LONGEST


def _text(arguments: Mapping[str, Any], name: str) -> str:
    value = arguments.get(name, "")
    return value if isinstance(value, str) else ""
