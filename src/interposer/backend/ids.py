"""Lists of backend ids as users give them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Set
from typing import Any

from interposer.core.errors import InvalidArgumentError

__all__ = ["listed_ids"]


def listed_ids(given: object, title: str = "backends", *, ordered: bool = True) -> tuple[str, ...]:
    """Return ids in their order without repetitions; one text stands for a list with one id.

    Args:
        given: a text, or an iterable of texts.
        title: what messages call the argument.
        ordered: the order matters, so a set with several ids is refused.

    Raises:
        InvalidArgumentError: something else, a text with commas, or a set where the order matters.
    """
    if isinstance(given, str):
        return (_checked(given, title),)
    if isinstance(given, Mapping | bytes) or not isinstance(given, Iterable):
        raise InvalidArgumentError(f"{title} are named by their ids, such as 'CpuRef', not by {given!r}")
    ids = tuple(dict.fromkeys(_checked(one, title) for one in _unnested(given, title)))
    if ordered and len(ids) > 1 and isinstance(given, Set):
        raise InvalidArgumentError(
            f"{title} are tried in their order, and a set has none; give a list, such as {sorted(ids)}"
        )
    return ids if ordered else tuple(sorted(ids) if isinstance(given, Set) else ids)


def _unnested(given: Iterable[Any], title: str) -> list[Any]:
    found = list(given)
    for one in found:
        if not isinstance(one, str):
            raise InvalidArgumentError(f"{title} are named by their ids, such as 'CpuRef', not by {one!r}")
    return found


def _checked(name: str, title: str) -> str:
    if "," in name:
        ids = [part.strip() for part in name.split(",") if part.strip()]
        raise InvalidArgumentError(f"{title}: {name!r} is one text with commas; give a list: {ids}")
    return name
