"""Names of layers that rewrites merge, concatenated without copying."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import chain
from typing import Final

__all__ = ["NO_NAMES", "MergedNames"]


class MergedNames:
    """Distinct names in order of first appearance, built from names and from other `MergedNames`.

    The time of merging depends on the number of parts, not on the number of names in them. A chain of 20,000 layers
    that are merged into one layer, step by step, therefore takes linear time. Immutable.

    Args:
        parts: names and merged names; empty ones are dropped.
    """

    __slots__ = ("_parts",)

    def __init__(self, parts: Iterable[str | MergedNames] = ()) -> None:
        part_tuples = [
            part._parts if isinstance(part, MergedNames) and len(part._parts) < 2 else (part,) for part in parts
        ]
        self._parts: tuple[str | MergedNames, ...] = tuple(dict.fromkeys(chain.from_iterable(part_tuples)))

    @classmethod
    def of(cls, name: str) -> MergedNames:
        """Return a single name as merged names."""
        names = cls.__new__(cls)
        names._parts = (name,)
        return names

    def __bool__(self) -> bool:
        return bool(self._parts)

    def is_only(self, name: str) -> bool:
        """Return True if `name` is the only name."""
        return self._parts == (name,)

    def flat(self) -> tuple[str, ...]:
        """Return the names; the result is cached."""
        if MergedNames in map(type, self._parts):
            self._parts = tuple(dict.fromkeys(self._names()))
        return self._parts  # type: ignore[return-value]  # all parts are names now

    def _names(self) -> Iterator[str]:
        """Yield all names, also those of merged names inside, depth first and without recursion.

        Merged names that occur several times are visited once.
        """
        pending_parts, visited_parts = [*reversed(self._parts)], set[MergedNames]()
        while pending_parts:
            part = pending_parts.pop()
            if isinstance(part, str):
                yield part
            elif part not in visited_parts:
                visited_parts.add(part)
                pending_parts += reversed(part._parts)


NO_NAMES: Final = MergedNames()
