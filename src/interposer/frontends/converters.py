"""The registry of a format's converters: one function for each operator that the format has."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Generic, TypeVar

from interposer.core.errors import InvalidArgumentError

__all__ = ["Converters"]

C = TypeVar("C")
E = TypeVar("E")


class Converters(Generic[E]):
    """Converters by the names of their operators; an entry is the function, or the function and facts about it."""

    def __init__(self) -> None:
        self._entries: dict[str, E] = {}

    def register(self, names: Iterable[str], entry_of: Callable[[C, str], E]) -> Callable[[C], C]:
        """Return a decorator that registers a function for these operators; `entry_of` makes an entry of it and a name.

        The decorator raises `InvalidArgumentError` for a second function of an operator.
        """

        def registered(convert: C) -> C:
            for name in names:
                if name in self._entries:
                    raise InvalidArgumentError(f"{name} has two functions")
                self._entries[name] = entry_of(convert, name)
            return convert

        return registered

    def find(self, name: str) -> E | None:
        """Return the entry of an operator; None if it is not known."""
        return self._entries.get(name)

    def names(self) -> list[str]:
        """Return the names of the operators that are supported, in alphabetical order."""
        return sorted(self._entries)
