"""The registry of converters: one function per operator and opset version since which it is valid."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple, NoReturn, TypeAlias

from interposer.core.errors import InvalidArgumentError
from interposer.core.records import dataclass
from interposer.frontends.onnx.node import Node
from interposer.frontends.onnx.operator_names import title
from interposer.ir.graph import Value

__all__ = ["Converter", "Refusal", "add_custom", "find", "newest_version", "operator", "operators"]

Converter: TypeAlias = Callable[[Node], Value | Sequence[Value | None]]


@dataclass(frozen=True)
class Refusal:
    """The converter of an operator that is known, but that no form of is supported."""

    reason: str

    def __call__(self, node: Node) -> NoReturn:
        """Refuse the node with the reason."""
        node.unsupported(self.reason)


class _Entry(NamedTuple):
    since: int
    convert: Converter


class _Table:
    """A thread-safe registry of converter functions, looked up by domain, operator name and opset version.

    The function that was registered for the latest version not above the requested one is found.
    """

    def __init__(self) -> None:
        self.entries: dict[tuple[str, str], tuple[_Entry, ...]] = {}
        self._changing = threading.Lock()

    def add(self, domain: str, name: str, since: int, convert: Converter) -> None:
        with self._changing:
            other_entries = [
                entry for entry in self.entries.get((domain, name), ()) if not _is_same(entry, since, convert)
            ]
            if any(entry.since == since for entry in other_entries):
                raise InvalidArgumentError(f"{title(domain, name)} has two functions since opset {since}")
            entries = sorted([*other_entries, _Entry(since, convert)], key=lambda entry: entry.since)
            self.entries[domain, name] = tuple(entries)

    def find(self, domain: str, name: str, version: int) -> Converter | None:
        converters = [entry.convert for entry in self.entries.get((domain, name), ()) if entry.since <= version]
        return converters[-1] if converters else None


def _is_same(entry: _Entry, since: int, convert: Converter) -> bool:
    """Return True if `convert` redefines the entry's function: the same qualified name, for the same version `since`.

    This occurs when a notebook cell is run again; the new function then replaces the old one.
    """
    return entry.since == since and _origin(entry.convert) == _origin(convert)


def _origin(convert: Converter) -> tuple[object, ...]:
    return (convert,) if isinstance(convert, Refusal) else (convert.__module__, convert.__qualname__)


_BUILT_IN: Final = _Table()
_CUSTOM: Final = _Table()


def operator(name: str, *, since: int = 1, domain: str = "") -> Callable[[Converter], Converter]:
    """Register the decorated function as the converter of an operator, from opset version `since` of its domain on.

    The function takes a `Node` and returns its output value, or a sequence of values with None for absent outputs.

    Raises:
        InvalidArgumentError: a second function for the same version.
    """

    def register(convert: Converter) -> Converter:
        _BUILT_IN.add(domain, name, since, convert)
        return convert

    return register


def add_custom(domain: str, name: str, since: int, convert: Converter) -> None:
    """Register a user's converter for an operator of `domain`, from opset version `since` on.

    `InvalidArgumentError` is raised for an operator that Interposer converts itself.
    """
    if (domain, name) in _BUILT_IN.entries:
        raise InvalidArgumentError(
            f"{title(domain, name)} is known already; to convert it otherwise give load(..., operators={{...}})"
        )
    _CUSTOM.add(domain, name, since, convert)


def find(domain: str, name: str, version: int) -> Converter | None:
    """Return the converter for version `version` of an operator's opset, built-in ones first; None if there is none."""
    return _BUILT_IN.find(domain, name, version) or _CUSTOM.find(domain, name, version)


def newest_version(domain: str) -> int | None:
    """Return the latest opset version since which an operator of `domain` has a converter; None if none has any."""
    tables = {**_BUILT_IN.entries, **_CUSTOM.entries}
    versions = (entries[-1].since for (known_domain, _), entries in tables.items() if known_domain == domain)
    return max(versions, default=None)


def operators() -> dict[str, tuple[int, ...]]:
    """Return the opset versions for which each operator has converters, by the operator's name, domain included."""
    return {
        f"{domain}:{name}" if domain else name: tuple(entry.since for entry in entries)
        for (domain, name), entries in sorted(_BUILT_IN.entries.items())
    }
