"""The functions that write layers: one for each operator and format, registered by the families of the format."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Generic, Protocol, TypeAlias, TypeVar, cast

from interposer.core.errors import InvalidArgumentError
from interposer.core.records import dataclass
from interposer.core.schema import Op
from interposer.ir.graph import Layer

__all__ = ["Entry", "Function", "Registry", "called"]


class _Draft(Protocol):
    layer: Layer


DraftT = TypeVar("DraftT", bound=_Draft)
TensorT = TypeVar("TensorT")
_F = TypeVar("_F", bound=Callable[..., Any])
Function: TypeAlias = Callable[[DraftT, Any], TensorT | Sequence[TensorT]]
"""A function that takes a draft and its operator, adds what the format has for it, and returns the results."""


@dataclass(frozen=True)
class Entry(Generic[DraftT, TensorT]):
    """The functions that write an operator, and what they can handle.

    `write` is for layers without quantized tensors and `exact` for those with, if they can be written; both may be the
    same. `moves` says that `write` only moves or selects elements, so that it takes any type, and quantized values that
    keep their scale. `computes` says that `exact` computes with quantized values, and `typed` that `write` handles the
    types of its operands itself.
    """

    write: Function[DraftT, TensorT] | None = None
    exact: Function[DraftT, TensorT] | None = None
    moves: bool = False
    computes: bool = False
    typed: bool = False


class Registry(Generic[DraftT, TensorT]):
    """The entries of one format by operator; `format` is its name in messages."""

    def __init__(self, format: str) -> None:
        self._format = format
        self._entries: dict[type[Op], Entry[DraftT, TensorT]] = {}

    def writer(
        self,
        *ops: type[Op],
        moves: bool = False,
        quantized: bool = False,
        also_quantized: bool = False,
        computes: bool = False,
        typed: bool = False,
    ) -> Callable[[_F], _F]:
        """Register the decorated function for operators.

        Args:
            ops: the operators.
            moves: the function only moves, compares or selects elements.
            quantized: the function is for layers with quantized tensors, whose integers it takes.
            also_quantized: the function is for layers with quantized tensors and for others.
            computes: the function computes with quantized values, exactly as the operator prescribes.
            typed: the function gets narrow floats unchanged; for other functions they may be cast to float32.

        Raises:
            InvalidArgumentError: there is a second function for an operator.
        """

        def register(function: _F) -> _F:
            for op in ops:
                entry = self._entries.get(op, Entry())
                if (entry.exact if quantized else entry.write) is not None:
                    raise InvalidArgumentError(f"{op.op_name()} has two functions in the {self._format} writer")
                if quantized or also_quantized:
                    entry = replace(entry, exact=function, computes=computes)
                if not quantized:
                    entry = replace(entry, write=function, moves=moves, typed=typed or moves)
                self._entries[op] = entry
            return function

        return register

    def find(self, op: type[Op]) -> Entry[DraftT, TensorT] | None:
        """Return the functions that write an operator, or None if none is registered."""
        return self._entries.get(op)

    def operators(self) -> list[str]:
        """Return the names of the operators that can be written, in alphabetical order."""
        return sorted(op.op_name() for op in self._entries)


def called(function: Function[DraftT, TensorT], draft: DraftT) -> list[TensorT]:
    """Call a function for the layer of a draft, and return the results as a list."""
    results = function(draft, draft.layer.op)
    return list(results) if isinstance(results, list | tuple) else [cast("TensorT", results)]
