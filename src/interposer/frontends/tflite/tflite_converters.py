"""The registry of converters: one function for each operator."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, NamedTuple, TypeAlias

from interposer.core.errors import InvalidArgumentError
from interposer.formats.tflite.schema import OPTIONS
from interposer.frontends.tflite.node import Node
from interposer.ir.graph import Value

__all__ = ["Converter", "Entry", "add_custom", "complex_operator", "find", "find_complex", "operator", "operators"]

Converter: TypeAlias = Callable[[Node], Value | Sequence[Value | None]]


class Entry(NamedTuple):
    """The registered converter of an operator.

    `options` is the name of the options table that the converter reads, such as ``Conv2DOptions``; empty if it reads
    none.
    """

    convert: Converter
    options: str


_TABLE: Final[dict[tuple[str, bool], Entry]] = {}
_COMPLEX: Final[dict[str, Entry]] = {}
_USERS: Final[dict[str, Entry]] = {}


def operator(*names: str, options: bool = False, custom: bool = False) -> Callable[[Converter], Converter]:
    """Register the decorated function as the converter of the TFLite operators `names`.

    It takes a `Node` and returns the operator's output value, or a sequence of them, with None for an output that is
    not available to other operators. With `options`, it reads the
    node's options; an operator with options of another type than the schema's is then refused. `custom` says that the
    names are those of custom operators.

    Raises:
        InvalidArgumentError: a second function for the same operator.
    """

    def register(convert: Converter) -> Converter:
        for name in names:
            if (name, custom) in _TABLE:
                raise InvalidArgumentError(f"{name} has two functions")
            _TABLE[name, custom] = Entry(convert, OPTIONS[name] if options else "")
        return convert

    return register


def complex_operator(*names: str, options: bool = False) -> Callable[[Converter], Converter]:
    """Register the decorated function as the converter of operators that have complex inputs or outputs.

    It is used instead of the operators' other converter if a tensor of the operator is complex. The arguments and
    errors are those of `operator`.
    """

    def register(convert: Converter) -> Converter:
        for name in names:
            if name in _COMPLEX:
                raise InvalidArgumentError(f"{name} has two functions for complex numbers")
            _COMPLEX[name] = Entry(convert, OPTIONS[name] if options else "")
        return convert

    return register


def add_custom(name: str, convert: Converter) -> None:
    """Register a user's converter of a custom operator, which replaces an earlier definition of the same function.

    `InvalidArgumentError` is raised for an operator that Interposer converts itself, or that has another function.
    """
    if (name, True) in _TABLE:
        raise InvalidArgumentError(f"the custom operator {name} is known already")
    known = _USERS.get(name)
    if known is not None and _place(known.convert) != _place(convert):
        raise InvalidArgumentError(f"the custom operator {name} has two functions")
    _USERS[name] = Entry(convert, "")


def _place(convert: Converter) -> tuple[str | None, str | None]:
    return getattr(convert, "__module__", None), getattr(convert, "__qualname__", None)


def find(name: str, custom: bool) -> Entry | None:
    """Return the entry of an operator, or of a custom operator if `custom`; None if it is not known."""
    return _TABLE.get((name, custom)) or (_USERS if custom else _COMPLEX).get(name)


def find_complex(name: str) -> Entry | None:
    """Return the entry of a builtin operator for complex numbers; None if it does not support them."""
    return _COMPLEX.get(name)


def operators() -> list[str]:
    """Return the names of all supported operators, custom ones as ``CUSTOM name``."""
    return sorted({*(f"CUSTOM {name}" if custom else name for name, custom in _TABLE), *_COMPLEX})
