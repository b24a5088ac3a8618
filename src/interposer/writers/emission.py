"""What the writers of all formats have in common when they write the layers of a legalized graph one by one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, MutableMapping, Sequence
from typing import Protocol, TypeAlias, TypeVar

import numpy as np

from interposer.core.errors import UnknownRankError
from interposer.core.types import Array
from interposer.ir.graph import Layer, Value
from interposer.ops.control import Constant, Input, Output
from interposer.writers.borders import Border
from interposer.writers.refusals import RefusedError

__all__ = ["Names", "Refusals", "array_of", "live", "write_layers"]

Refusals: TypeAlias = Iterable[tuple[str, tuple[str, str]]]
"""Refused layers: the name of each, with its operator and the reason."""
TensorT = TypeVar("TensorT")
"""The tensors of one format."""


class Names:
    """The names of one kind that are in use in a file."""

    def __init__(self) -> None:
        self._taken: set[str] = set()
        self._numbers: Counter[str] = Counter()

    def reserve(self, names: Iterable[str]) -> None:
        """Reserve names, so that `free` never returns one of them."""
        self._taken.update(names)

    def free(self, wanted: str) -> str:
        """Return an unused name and reserve it: `wanted`, or with a number appended."""
        name = wanted
        while name in self._taken or not name:
            self._numbers[wanted] += 1
            name = f"{wanted}_{self._numbers[wanted]}"
        self._taken.add(name)
        return name


def array_of(value: Value) -> Array | None:
    """Return the array of a value that a Constant layer produces; None for any other value."""
    return np.asarray(value.producer.op.value) if isinstance(value.producer.op, Constant) else None


def write_layers(
    border: Border,
    tensors: MutableMapping[Value, TensorT],
    constant: Callable[[Value], TensorT],
    write: Callable[[Layer], Sequence[TensorT] | None],
    stand_ins: Callable[[Layer], Sequence[TensorT]],
) -> Refusals:
    """Write all layers of `border`, and return each refused layer as (name, (operator, reason)).

    Args:
        border: the layers, in topological order.
        tensors: gets the tensors of all values that the layers compute.
        constant: returns the tensor of the output of a Constant layer.
        write: writes any other layer, and returns its results, or None if they are already in `tensors`.
        stand_ins: returns tensors for the results of a refused layer, so that the layers after it can be tried.
    """
    refusals = []
    with np.errstate(all="ignore"):
        for layer in border.layers:
            if isinstance(layer.op, Constant):
                tensors[layer.output] = constant(layer.output)
            elif not isinstance(layer.op, Input | Output):
                try:
                    results = write(layer)
                except (RefusedError, UnknownRankError) as error:
                    results = stand_ins(layer)
                    refusals.append(border.refused(layer, str(error)))
                tensors.update(zip(layer.outputs, results or (), strict=results is not None))
    return refusals


class _Record(Protocol):
    """An entry of a file with the tensors that it reads and computes, or their names."""

    @property
    def reads(self) -> Iterable[object]: ...

    @property
    def outputs(self) -> Sequence[object]: ...


RecordT = TypeVar("RecordT", bound=_Record)


def live(records: Sequence[RecordT], outputs: Iterable[object]) -> list[RecordT]:
    """Return those of `records`, which are in topological order, that `outputs` depend on."""
    needed_outputs, live_records = set(outputs), list[RecordT]()
    for record in reversed(records):
        if needed_outputs.intersection(record.outputs):
            needed_outputs.update(record.reads)
            live_records.append(record)
    return live_records[::-1]
