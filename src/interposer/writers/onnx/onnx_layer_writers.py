"""The registry of layer writers: one function per operator, and for some a second one for quantized tensors."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple, TypeAlias, TypeVar

from interposer.core.errors import InvalidArgumentError
from interposer.core.schema import Op
from interposer.writers.onnx.draft import Draft
from interposer.writers.onnx.tensor import Tensor

__all__ = ["Entry", "Writer", "find", "writer"]

Writer: TypeAlias = Callable[[Draft, Any], Tensor | Sequence[Tensor]]
_W = TypeVar("_W", bound="Callable[..., Any]")


class Entry(NamedTuple):
    """The registered functions that write an operator: `write` for float values, `exact` for quantized values.

    `moves` says that `write` only moves elements, and so also takes quantized values with one scale. `computes` says
    that `exact` computes in integer arithmetic, which is only used for exact results.
    """

    write: Writer | None
    moves: bool
    exact: Writer | None
    computes: bool = False


_TABLE: Final[dict[type[Op], Entry]] = {}


def writer(*ops: type[Op], moves: bool = False, quantized: bool = False, computes: bool = False) -> Callable[[_W], _W]:
    """Register the decorated function for operators; it takes a `Draft` and the operator, and returns the results.

    Args:
        ops: the operators.
        moves: the operators only move, compare or select elements, so that quantized values keep their scale.
        quantized: the function is for quantized tensors, whose integers it takes.
        computes: the function computes with quantized values, exactly as the operator prescribes.

    Raises:
        InvalidArgumentError: there is a second function for an operator.
    """

    def register(function: _W) -> _W:
        for op in ops:
            known = _TABLE.get(op, Entry(None, False, None))
            if (known.exact if quantized else known.write) is not None:
                raise InvalidArgumentError(f"{op.op_name()} has two functions in the ONNX writer")
            if quantized:
                _TABLE[op] = known._replace(exact=function, computes=computes)
            else:
                _TABLE[op] = known._replace(write=function, moves=moves)
        return function

    return register


def find(op: type[Op]) -> Entry | None:
    """Return the functions that write an operator, or None if none is registered."""
    return _TABLE.get(op)
