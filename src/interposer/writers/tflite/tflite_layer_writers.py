"""The operators that the writer knows: one function for each."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple, NoReturn, TypeAlias, TypeVar

from interposer.core.errors import InterposerError, InvalidArgumentError
from interposer.core.schema import Op
from interposer.writers.tflite.sheet import Tensor

if TYPE_CHECKING:
    from interposer.writers.tflite.draft import Draft

__all__ = ["Entry", "RefusedError", "Writer", "find", "refuse", "writer"]

Writer: TypeAlias = "Callable[[Draft, Any], Tensor | Sequence[Tensor]]"
_W = TypeVar("_W", bound="Callable[..., Any]")


class RefusedError(InterposerError):
    """A layer that the format cannot express; collected, so that a user sees all of them."""


class Entry(NamedTuple):
    """How an operator is written.

    `moves` says that it only moves or picks elements, so that integers keep their scale, and `quantized` that it can
    be written for quantized tensors too; `typed` that it looks after the types of its operands itself.
    """

    write: Writer
    moves: bool
    quantized: bool
    typed: bool


_TABLE: Final[dict[type[Op], Entry]] = {}


def writer(*ops: type[Op], moves: bool = False, quantized: bool = False, typed: bool = False) -> Callable[[_W], _W]:
    """Register the decorated function for operators. It gets a `Draft` and the operator, and returns the results.

    Args:
        ops: the operators.
        moves: it only moves or picks elements; quantized ones must keep their scale, or are refused.
        typed: it is given narrow floats as they are, which other functions compute with in 32 bits.
        quantized: it is for quantized tensors too, and refuses those that it cannot express by itself.

    Raises:
        InvalidArgumentError: a second function for the same operator.
    """

    def register(function: _W) -> _W:
        for op in ops:
            if op in _TABLE:
                raise InvalidArgumentError(f"{op.op_name()} has two functions in the TFLite writer")
            _TABLE[op] = Entry(function, moves, quantized or moves, typed or moves)
        return function

    return register


def find(op: type[Op]) -> Entry | None:
    """Return how an operator is written, or None if it is not known."""
    import interposer.writers.tflite.tflite_writer_families  # noqa: F401, PLC0415 - the families fill the table

    return _TABLE.get(op)


def refuse(reason: str) -> NoReturn:
    """Say that the format cannot express a layer, and why."""
    raise RefusedError(reason)
