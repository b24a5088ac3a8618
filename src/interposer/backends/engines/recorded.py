"""Recorded errors of engines: the operators, types and values of which an engine was seen to give wrong results.

The recordings are the files ``recordings/<backend>.json``. `tools/engine_matrix.py` makes them: it runs an engine and
the reference kernels on extreme values, layer by layer and in pairs of layers, and writes down where they differ.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping
from functools import cached_property
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np

from interposer.core.traits import Trait
from interposer.core.types import DataType
from interposer.ir.computations import label_of, numbers_of, pair_of, types_of
from interposer.ir.graph import Layer, Value

__all__ = ["CONDITIONS", "Condition", "Recording"]

FOLDER: Final = Path(__file__).parent / "recordings"


class Condition(NamedTuple):
    """A range of extreme values.

    `text` describes the values. Layers that are wrong for them are refused if `is_refused` is True, and only documented
    otherwise. `limit` is the largest magnitude that is surely outside of the range; 0 if there is none.
    """

    text: str
    is_refused: bool
    limit: int = 0


CONDITIONS: Final[Mapping[str, Condition]] = {
    "beyond24": Condition("integers above 2^24", True, 1 << 24),
    "beyond31": Condition("integers above 2^31", True, 1 << 31),
    "ends": Condition("integers at the ends of the type", True),
    "halves": Condition("float16 values above 300", True),
    "fails": Condition("any values, as it fails to run", True),
    "large": Condition("float32 values from 1e20 to 3e38", False),
    "special": Condition("infinities and zeros of either sign", False),
}
"""The conditions by the name that recordings use."""

_MOST_DEPTH: Final = 16


class Recording:
    """What was recorded of one engine: the wrong and the right layers, and the wrong pairs of layers.

    `layers` maps labels (see `label_of`) to types (see `types_of`) to the names of the conditions under which the
    engine is wrong; an empty list says that it was right. `pairs` has the same for pairs of layers (see
    `pair_of`), of which the second reads the first one's result. `title` and `version` are the engine's.
    """

    def __init__(self, title: str, version: str, layers: Mapping[str, Any], pairs: Mapping[str, Any]) -> None:
        self.title, self.version = title, version
        self.layers: Mapping[str, Mapping[str, list[str]]] = layers
        self.pairs: Mapping[str, Mapping[str, list[str]]] = pairs

    @classmethod
    def of(cls, backend: str) -> Recording:
        """Return the recording of a backend; an empty one if there is no file."""
        path = FOLDER / f"{backend}.json"
        if not path.exists():
            return cls.empty(backend)
        content = json.loads(path.read_text(encoding="utf-8"))
        return cls(content["title"], content["version"], content["layers"], content["pairs"])

    @classmethod
    def empty(cls, title: str = "") -> Recording:
        """Return a recording of nothing, by which no layer is refused."""
        return cls(title, "", {}, {})

    def reasons(self, layer: Layer) -> list[str]:
        """Return why a layer is refused; empty if it is not."""
        types = types_of(layer)
        return [] if types is None else list(self._reasons(layer, types))

    def _reasons(self, layer: Layer, types: str) -> Iterator[str]:
        label = label_of(layer.op)
        conditions = self._conditions(label, types)
        if conditions and not _is_within(layer, conditions):
            yield f"{self.title} computes {label} of {types} wrongly for {_texts(conditions)}"
        for first in _producers(layer):
            labels, pair_types = pair_of(first, layer)
            conditions = _refused(self.pairs.get(labels, {}).get(pair_types or "", ()))
            if conditions:
                pair_text = f"{label} of {types} after {label_of(first.op)} {first.name!r}"
                yield f"{self.title} merges the two layers, and computes {pair_text} wrongly for {_texts(conditions)}"

    def _conditions(self, label: str, types: str) -> list[str]:
        """Return the conditions under which the layers of a label and these types are refused.

        If such layers were not tried, they are refused as most layers of the same first type are.
        """
        recorded_conditions = self.layers.get(label, {}).get(types)
        return self._usual.get(_first(types), []) if recorded_conditions is None else _refused(recorded_conditions)

    @cached_property
    def _usual(self) -> dict[str, list[str]]:
        """The conditions, by the first type of layers, under which more than half of all recorded layers are wrong."""
        count, refused_counts = Counter[str](), Counter[tuple[str, str]]()
        for conditions_by_types in self.layers.values():
            for types, conditions in conditions_by_types.items():
                count[_first(types)] += 1
                refused_counts.update((_first(types), condition) for condition in _refused(conditions))
        usual_conditions: dict[str, list[str]] = {}
        for (dtype, condition), times in refused_counts.items():
            if times > count[dtype] / 2:
                usual_conditions.setdefault(dtype, []).append(condition)
        return usual_conditions


def _first(types: str) -> str:
    return types.partition(" -> ")[0].partition(", ")[0]


def _refused(conditions: Any) -> list[str]:
    return [name for name in conditions if CONDITIONS[name].is_refused]


def _texts(conditions: list[str]) -> str:
    """Return the widest of the ranges of integers, and the other ranges."""
    integers = [name for name in _INTEGERS if name in conditions]
    other_conditions = [name for name in conditions if name not in _INTEGERS]
    return " and ".join(CONDITIONS[name].text for name in [*integers[:1], *other_conditions])


_INTEGERS: Final = ("beyond24", "beyond31", "ends")
"""The conditions of integers; each range includes the next one."""


def _producers(layer: Layer) -> Iterator[Layer]:
    """Yield the layers whose results a layer computes with, each once."""
    producers = {value.producer: None for value in layer.inputs if value is not None and not value.is_constant}
    yield from producers


# --- values that are known to be small --------------------------------------------------------------------------------


def _is_within(layer: Layer, conditions: list[str]) -> bool:
    """Return True if a layer's operands and results are known to be too small for these conditions.

    This is known of layers whose results are numbers of their operands, or booleans.
    """
    limit = min(_limit(name, layer) for name in conditions)
    keeps_range = layer.op.traits.overlaps(_KEEPS_RANGE) and not layer.op.traits.overlaps(Trait.FILLS)
    is_bounded = keeps_range or layer.output_infos[0].dtype is DataType.BOOL
    return limit > 0 and is_bounded and all(_largest(value) <= limit for value in numbers_of(layer))


_KEEPS_RANGE: Final = Trait.MOVES | Trait.CHOOSES | Trait.CONVERTS


def _limit(condition: str, layer: Layer) -> int:
    """Return the magnitude up to which values are outside of a condition's range."""
    bits = max(value.known.dtype.bits for value in numbers_of(layer)) if layer.values else 0
    at_ends = {32: 1 << 30, 64: 1 << 40}.get(bits, 0)
    return at_ends if condition == "ends" else CONDITIONS[condition].limit


def _largest(value: Value, depth: int = 0) -> float:
    """Return a bound of the magnitudes of a tensor of integers; infinity if none is known."""
    dtype = value.known.dtype
    if dtype is DataType.BOOL:
        return 1
    if not dtype.is_integer or depth > _MOST_DEPTH:
        return np.inf
    if value.constant is not None:
        return max(map(abs, (int(value.constant.min()), int(value.constant.max())))) if value.constant.size else 0
    layer, narrow = value.producer, 1 << (dtype.bits - 1) if dtype.bits < 32 else np.inf
    if not layer.op.traits.overlaps(_KEEPS_RANGE) or layer.op.traits.overlaps(Trait.FILLS):
        return narrow
    return min(narrow, max((_largest(operand, depth + 1) for operand in numbers_of(layer)), default=np.inf))
