"""The registry of layer writers: one function for each operator."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple, TypeAlias, TypeVar

from interposer.core.errors import InvalidArgumentError
from interposer.core.schema import Op
from interposer.writers.tflite.draft import Draft
from interposer.writers.tflite.sheet import Tensor

__all__ = ["Entry", "Writer", "find", "writer"]

Writer: TypeAlias = Callable[[Draft, Any], Tensor | Sequence[Tensor]]
_W = TypeVar("_W", bound="Callable[..., Any]")


class Entry(NamedTuple):
    """The registered function that writes an operator, and what it can handle.

    `moves`: it only moves or selects elements, so that quantized values keep their scale. `quantized`: it also writes
    quantized tensors. `typed`: it handles the types of its operands itself.
    """

    write: Writer
    moves: bool
    quantized: bool
    typed: bool


_TABLE: Final[dict[type[Op], Entry]] = {}


def writer(*ops: type[Op], moves: bool = False, quantized: bool = False, typed: bool = False) -> Callable[[_W], _W]:
    """Register the decorated function for operators; it takes a `Draft` and the operator, and returns the results.

    Args:
        ops: the operators.
        moves: it only moves or selects elements; layers that change the scale are refused.
        typed: it gets narrow floats unchanged; for other functions they are cast to float32.
        quantized: it also accepts quantized tensors, and refuses those that it cannot express.

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
    """Return the function that writes an operator, with its properties; None if none is registered."""
    return _TABLE.get(op)
