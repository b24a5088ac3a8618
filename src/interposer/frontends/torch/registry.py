"""The registry of converters: one function for each group of ATen overloads, by their full names."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, NamedTuple, TypeAlias, TypeVar

__all__ = ["Converter", "Entry", "aten", "find", "names", "refusal", "refusals", "refused"]

Converter: TypeAlias = Callable[..., Any]
_Function = TypeVar("_Function", bound=Converter)


class Entry(NamedTuple):
    """A registered converter, and which operands it accepts.

    `open_sizes` is True if the converter takes sizes that are not known during the import. `complex_numbers` is True if
    it takes complex operands, which have real and imaginary part as their last axis.
    """

    convert: Converter
    open_sizes: bool
    complex_numbers: bool


_ENTRIES: Final[dict[str, Entry]] = {}
_COMPLEX: Final[dict[str, Entry]] = {}
_REFUSED: Final[dict[str, str]] = {}


def aten(*overloads: str, open_sizes: bool = False, complex_numbers: bool = False) -> Callable[[_Function], _Function]:
    """Register the decorated function as the converter of these overloads, such as ``"add.Tensor"``.

    Names without a namespace are those of ``aten``. The function takes a `Call` and the operands of the overload in the
    order of its schema: values, numbers, lists of them, texts or None. Keyword-only operands are passed by name, except
    data types, devices and memory formats. It returns a value, or a list of the overload's results.
    """

    def register(convert: _Function) -> _Function:
        table = _COMPLEX if complex_numbers else _ENTRIES
        for overload in overloads:
            table[_full(overload)] = Entry(convert, open_sizes, complex_numbers)
        return convert

    return register


_NAMESPACES: Final = (
    "aten.", "quantized_decomposed.", "torchvision.", "transformers.", "higher_order.", "prims.", "operator.", "torch.",
    "math.",
)  # fmt: skip


def _full(overload: str) -> str:
    if overload.startswith(_NAMESPACES):
        return overload
    return f"aten.{overload}" if "." in overload else f"aten.{overload}.default"


def refused(reason: str, *overloads: str) -> None:
    """Record why these overloads are not supported; the reason is part of the error that lists them."""
    for overload in overloads:
        _REFUSED[_full(overload)] = reason


def refusal(name: str) -> str:
    """Return the recorded reason why the overload `name` is not supported; empty if there is none."""
    return _REFUSED.get(name, "")


def refusals() -> tuple[str, ...]:
    """Return the full names of all overloads that are refused for a recorded reason."""
    return tuple(sorted(_REFUSED))


def find(name: str, complex_numbers: bool = False) -> Entry | None:
    """Return the converter of an overload by its full name, such as ``"aten.add.Tensor"``; None if there is none."""
    return _COMPLEX.get(name) if complex_numbers else _ENTRIES.get(name)


def names() -> tuple[str, ...]:
    """Return the full names of all overloads that have a converter."""
    return tuple(sorted({*_ENTRIES, *_COMPLEX}))
