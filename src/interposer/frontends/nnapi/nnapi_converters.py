"""The registry of converters: one function for each operator."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, NamedTuple, TypeAlias

from interposer.frontends.converters import Converters
from interposer.frontends.nnapi.node import Node
from interposer.ir.graph import Value

__all__ = ["Converter", "Entry", "find", "operator", "operators"]

Converter: TypeAlias = Callable[[Node], Value | Sequence[Value]]


class Entry(NamedTuple):
    """The registered converter of an operator, and the smallest and largest number of its inputs (None: no limit)."""

    convert: Converter
    least: int
    most: int | None

    def fault(self, count: int) -> str | None:
        """Return an error message if the operator cannot have `count` inputs, or None if it can."""
        if count >= self.least and (self.most is None or count <= self.most):
            return None
        bound = "" if self.most == self.least else " or more" if self.most is None else f" to {self.most}"
        return f"it has {count} inputs; expected {self.least}{bound}"


_TABLE: Final = Converters[Entry]()
find: Final = _TABLE.find
operators: Final = _TABLE.names


def operator(*names: str, inputs: int | tuple[int, int | None]) -> Callable[[Converter], Converter]:
    """Register the decorated function as the converter of the NNAPI operators `names`.

    It takes a `Node` and returns the operator's output value, or a sequence of them. `inputs` is the number of inputs
    that these operators have, or a pair (minimum, maximum), with None for no maximum.
    """
    least_inputs, most_inputs = (inputs, inputs) if isinstance(inputs, int) else inputs
    return _TABLE.register(names, lambda convert, _: Entry(convert, least_inputs, most_inputs))
