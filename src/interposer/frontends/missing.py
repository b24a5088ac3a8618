"""The error for operators of a model that a front end does not know."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from interposer.core.errors import UnsupportedOperatorError

__all__ = ["missing_operators"]

_SHOWN: Final = 3


def missing_operators(items: Iterable[tuple[str, str]]) -> UnsupportedOperatorError:
    """Return the error for unknown operators: pairs of an operator's name and its place in the model.

    It has the count and the first places of each name.
    """
    places = dict[str, list[str]]()
    for name, place in items:
        places.setdefault(name, []).append(place)
    counts = {name: len(result) for name, result in places.items()}
    return UnsupportedOperatorError(counts, notes={name: _shown(result) for name, result in places.items()})


def _shown(places: list[str]) -> str:
    rest = len(places) - _SHOWN
    return ", ".join(places[:_SHOWN]) + (f" and {rest} more" if rest > 0 else "")
