"""The registry of converters: one function for each operator."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, NamedTuple, TypeAlias

from interposer.frontends.converters import Converters
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


_TABLE: Final = Converters[Entry]()
find: Final = _TABLE.find
operators: Final = _TABLE.names


def operator(*names: str, outputs: Sequence[str] = ()) -> Callable[[Converter], Converter]:
    """Register the decorated function as the converter of the operators `names`.

    It takes a `Node` and returns the operator's output, or a sequence of them. `outputs` are the names of the outputs
    in the definition of the operator, if there are several.
    """
    return _TABLE.register(names, lambda convert, _: Entry(convert, tuple(outputs)))
