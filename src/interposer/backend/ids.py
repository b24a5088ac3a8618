"""Lists of backend ids as users give them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Set
from typing import Any

from interposer.core.errors import InvalidArgumentError

__all__ = ["listed_ids"]


def listed_ids(value: object, title: str = "backends", *, ordered: bool = True) -> tuple[str, ...]:
    """Return ids in their order without repetitions; one text stands for a list with one id.

    Args:
        given: a text, or an iterable of texts.
        title: what messages call the argument.
        ordered: the order matters, so a set with several ids is refused.

    Raises:
        InvalidArgumentError: something else, a text with commas, or a set where the order matters.
    """
    if isinstance(value, str):
        return (_checked(value, title),)
    if isinstance(value, Mapping | bytes) or not isinstance(value, Iterable):
        raise InvalidArgumentError(f"{title} are named by their ids, such as 'CpuRef', not by {value!r}")
    ids = tuple(dict.fromkeys(_checked(item, title) for item in _unnested(value, title)))
    if ordered and len(ids) > 1 and isinstance(value, Set):
        raise InvalidArgumentError(
            f"{title} are tried in their order, and a set has none; give a list, such as {sorted(ids)}"
        )
    return ids if ordered else tuple(sorted(ids) if isinstance(value, Set) else ids)


def _unnested(values: Iterable[Any], title: str) -> list[Any]:
    result = list(values)
    for item in result:
        if not isinstance(item, str):
            raise InvalidArgumentError(f"{title} are named by their ids, such as 'CpuRef', not by {item!r}")
    return result


def _checked(name: str, title: str) -> str:
    if "," in name:
        ids = [part.strip() for part in name.split(",") if part.strip()]
        raise InvalidArgumentError(f"{title}: {name!r} is one text with commas; give a list: {ids}")
    return name
