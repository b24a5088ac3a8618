"""The registry of converters: one function for each operator."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, NamedTuple, TypeAlias

from interposer.core.errors import InvalidArgumentError
from interposer.formats.tflite.schema import OPTIONS
from interposer.frontends.converters import Converters
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


_TABLE: Final = Converters[Entry]()
_COMPLEX: Final = Converters[Entry]()
_USERS: Final[dict[str, Entry]] = {}


def _key(name: str, custom: bool) -> str:
    return f"CUSTOM {name}" if custom else name


def operator(*names: str, options: bool = False, custom: bool = False) -> Callable[[Converter], Converter]:
    """Register the decorated function as the converter of the TFLite operators `names`.

    It takes a `Node` and returns the operator's output value, or a sequence of them, with None for an output that is
    not available to other operators. With `options`, it reads the node's options; an operator with options of another
    type than the schema's is then refused. `custom` says that the names are those of custom operators.
    """
    return _registered(_TABLE, [_key(name, custom) for name in names], options)


def complex_operator(*names: str, options: bool = False) -> Callable[[Converter], Converter]:
    """Register the decorated function as the converter of operators that have complex inputs or outputs.

    It is used instead of the operators' other converter if a tensor of the operator is complex. The arguments are those
    of `operator`.
    """
    return _registered(_COMPLEX, names, options)


def _registered(table: Converters[Entry], names: Sequence[str], options: bool) -> Callable[[Converter], Converter]:
    return table.register(names, lambda convert, name: Entry(convert, OPTIONS[name] if options else ""))


def add_custom(name: str, convert: Converter) -> None:
    """Register a user's converter of a custom operator, which replaces an earlier definition of the same function.

    `InvalidArgumentError` is raised for an operator that Interposer converts itself, or that has another function.
    """
    if _TABLE.find(_key(name, True)) is not None:
        raise InvalidArgumentError(f"the custom operator {name} is known already")
    known_entry = _USERS.get(name)
    if known_entry is not None and _place(known_entry.convert) != _place(convert):
        raise InvalidArgumentError(f"the custom operator {name} has two functions")
    _USERS[name] = Entry(convert, "")


def _place(convert: Converter) -> tuple[str | None, str | None]:
    return getattr(convert, "__module__", None), getattr(convert, "__qualname__", None)


def find(name: str, custom: bool) -> Entry | None:
    """Return the entry of an operator, or of a custom operator if `custom`; None if it is not known."""
    return _TABLE.find(_key(name, custom)) or (_USERS.get(name) if custom else _COMPLEX.find(name))


find_complex: Final = _COMPLEX.find
"""Return the entry of a builtin operator for complex numbers; None if it does not support them."""


def operators() -> list[str]:
    """Return the names of all supported operators, custom ones as ``CUSTOM name``."""
    return sorted({*_TABLE.names(), *_COMPLEX.names()})
