"""The operators that the front end knows: one function for each, from the opset version on in which it is so."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

from interposer.errors import InterposerError, InvalidArgumentError
from interposer.ir.graph import Value

if TYPE_CHECKING:
    from interposer.frontends.onnx.node import Node

__all__ = ["Converter", "UnsupportedFormError", "find", "operator", "operators"]

Converter: TypeAlias = "Callable[[Node], Value | Sequence[Value | None]]"


class UnsupportedFormError(InterposerError):
    """An operator that is known, in a form that is not supported; collected, so that a user sees all of them."""


class _Entry(NamedTuple):
    since: int
    convert: Converter


_TABLE: Final[dict[tuple[str, str], list[_Entry]]] = {}


def operator(name: str, *, since: int = 1, domain: str = "") -> Callable[[Converter], Converter]:
    """Register the decorated function for an operator, from that version of its domain's opset on.

    The function gets a `Node` and returns the value that is its output, or several; None for one that it cannot give.

    Raises:
        InvalidArgumentError: a second function for the same version.
    """

    def register(convert: Converter) -> Converter:
        entries = _TABLE.setdefault((domain, name), [])
        if any(entry.since == since for entry in entries):
            raise InvalidArgumentError(f"{name} has two functions since opset {since}")
        entries.append(_Entry(since, convert))
        entries.sort(key=lambda entry: entry.since)
        return convert

    return register


def find(domain: str, name: str, version: int) -> Converter | None:
    """The function for an operator as that version of the opset has it, or None where it is not known."""
    fitting = [entry.convert for entry in _TABLE.get((domain, name), ()) if entry.since <= version]
    return fitting[-1] if fitting else None


def operators() -> dict[str, tuple[int, ...]]:
    """The versions since which each operator is known in some form, by its name (with its domain where it has one)."""
    return {
        f"{domain}:{name}" if domain else name: tuple(entry.since for entry in entries)
        for (domain, name), entries in sorted(_TABLE.items())
    }
