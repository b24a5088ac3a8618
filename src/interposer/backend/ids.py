"""Validation of lists of backend ids that users pass."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Set
from typing import Any

from interposer.core.errors import InvalidArgumentError

__all__ = ["listed_ids"]


def listed_ids(ids_or_id: object, title: str = "backends", *, ordered: bool = True) -> tuple[str, ...]:
    """Return backend ids as a tuple in their order, without repetitions; a single text is a list with one id.

    Args:
        ids_or_id: a text, or an iterable of texts.
        title: the name of the argument in messages.
        ordered: True if the order of the ids matters; a set with several ids is then refused, as it has no order.

    Raises:
        InvalidArgumentError: `ids_or_id` has another type, a text in it has commas, or it is a set although the order
            matters.
    """
    if isinstance(ids_or_id, str):
        return (_checked(ids_or_id, title),)
    if isinstance(ids_or_id, Mapping | bytes) or not isinstance(ids_or_id, Iterable):
        raise InvalidArgumentError(f"{title} are named by their ids, such as 'CpuRef', not by {ids_or_id!r}")
    ids = tuple(dict.fromkeys(_checked(backend_id, title) for backend_id in _unnested(ids_or_id, title)))
    if ordered and len(ids) > 1 and isinstance(ids_or_id, Set):
        raise InvalidArgumentError(
            f"the order of {title} matters, and a set has none; pass a list, such as {sorted(ids)}"
        )
    return ids if ordered else tuple(sorted(ids) if isinstance(ids_or_id, Set) else ids)


def _unnested(ids: Iterable[Any], title: str) -> list[Any]:
    id_list = list(ids)
    for backend_id in id_list:
        if not isinstance(backend_id, str):
            raise InvalidArgumentError(f"{title} are named by their ids, such as 'CpuRef', not by {backend_id!r}")
    return id_list


def _checked(name: str, title: str) -> str:
    if "," in name:
        ids = [part.strip() for part in name.split(",") if part.strip()]
        raise InvalidArgumentError(f"{title}: {name!r} is one text with commas; pass a list: {ids}")
    return name
