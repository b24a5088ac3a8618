"""The registry of layer writers: one function for each operator."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple, TypeAlias, TypeVar

from interposer.core.errors import InvalidArgumentError
from interposer.core.schema import Op
from interposer.writers.armnn.draft import Draft
from interposer.writers.armnn.sheet import Tensor

__all__ = ["Entry", "find", "operators", "writer"]

Writer: TypeAlias = Callable[[Draft, Any], Tensor | Sequence[Tensor]]
_W = TypeVar("_W", bound=Callable[..., Any])


class Entry(NamedTuple):
    """A registered function. `plain`: it also takes integers of 8 bits that are not quantized, and only moves them."""

    write: Writer
    plain: bool


_TABLE: Final[dict[type[Op], Entry]] = {}


def writer(*ops: type[Op], plain: bool = False) -> Callable[[_W], _W]:
    """Register the decorated function for operators; it takes a `Draft` and the operator, and returns the results.

    Args:
        ops: the operators.
        plain: it only moves elements, so that 8-bit integers need not be quantized.

    Raises:
        InvalidArgumentError: a second function for the same operator.
    """

    def register(function: _W) -> _W:
        for op in ops:
            if op in _TABLE:
                raise InvalidArgumentError(f"{op.op_name()} has two functions in the Arm NN writer")
            _TABLE[op] = Entry(function, plain)
        return function

    return register


def find(op: type[Op]) -> Entry | None:
    """Return the function that writes an operator, with its properties; None if none is registered."""
    return _TABLE.get(op)


def operators() -> list[str]:
    """Return the names of the operators that can be written, in alphabetical order."""
    return sorted(op.op_name() for op in _TABLE)
