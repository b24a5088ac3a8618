"""Validation of lists of backend ids that users pass."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Set
from typing import Any

from interposer.core.errors import InvalidArgumentError

__all__ = ["listed_ids"]


def listed_ids(value: object, title: str = "backends", *, ordered: bool = True) -> tuple[str, ...]:
    """Return backend ids as a tuple in their order, without repetitions; a single text is a list with one id.

    Args:
        value: a text, or an iterable of texts.
        title: the name of the argument in messages.
        ordered: True if the order of the ids matters; a set with several ids is then refused, as it has no order.

    Raises:
        InvalidArgumentError: `value` has another type, a text in it has commas, or it is a set although the order
            matters.
    """
    if isinstance(value, str):
        return (_checked(value, title),)
    if isinstance(value, Mapping | bytes) or not isinstance(value, Iterable):
        raise InvalidArgumentError(f"{title} are named by their ids, such as 'CpuRef', not by {value!r}")
    ids = tuple(dict.fromkeys(_checked(item, title) for item in _unnested(value, title)))
    if ordered and len(ids) > 1 and isinstance(value, Set):
        raise InvalidArgumentError(
            f"the order of {title} matters, and a set has none; pass a list, such as {sorted(ids)}"
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
        raise InvalidArgumentError(f"{title}: {name!r} is one text with commas; pass a list: {ids}")
    return name
