"""The registry of converters: one function for each operator."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, NamedTuple, TypeAlias

from interposer.core.errors import InvalidArgumentError
from interposer.frontends.tensorflow.node import Node
from interposer.frontends.tensorflow.results import Result

__all__ = ["Converter", "Entry", "find", "operator", "operators"]

Converter: TypeAlias = "Callable[[Node], Result | Sequence[Result]]"


class Entry(NamedTuple):
    """The registered converter of an operator, and the names of its outputs if it has several ones.

    Bodies of functions refer to outputs by these names.
    """

    convert: Converter
    outputs: tuple[str, ...] = ()


_TABLE: Final[dict[str, Entry]] = {}


def operator(*names: str, outputs: Sequence[str] = ()) -> Callable[[Converter], Converter]:
    """Register the decorated function as the converter of the operators `names`.

    It takes a `Node` and returns the operator's output, or a sequence of them. `outputs` are the names of the outputs
    in the definition of the operator, if there are several.

    Raises:
        InvalidArgumentError: a second function for the same operator.
    """

    def register(convert: Converter) -> Converter:
        for name in names:
            if name in _TABLE:
                raise InvalidArgumentError(f"{name} has two functions")
            _TABLE[name] = Entry(convert, tuple(outputs))
        return convert

    return register


def find(name: str) -> Entry | None:
    """Return the entry of an operator; None if it is not known."""
    return _TABLE.get(name)


def operators() -> list[str]:
    """Return the names of all supported operators."""
    return sorted(_TABLE)
