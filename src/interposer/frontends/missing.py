"""The error for operators of a model that a front end does not know."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from interposer.core.errors import UnsupportedOperatorError

__all__ = ["missing_operators", "places_text"]

_SHOWN: Final = 3


def missing_operators(operators: Iterable[tuple[str, str]]) -> UnsupportedOperatorError:
    """Return the error for unknown operators: pairs of an operator's name and its place in the model.

    It has the count and the first places of each name.
    """
    places = dict[str, list[tuple[str, str]]]()
    for name, place in operators:
        places.setdefault(name, []).append((place, ""))
    counts = {name: len(places_of_name) for name, places_of_name in places.items()}
    return UnsupportedOperatorError(
        counts, notes={name: places_text(places_of_name) for name, places_of_name in places.items()}
    )


def places_text(places: Sequence[tuple[str, str]]) -> str:
    """Return the first places as text, as in ``node 'a', node 'b' and 2 more: the reason``.

    Each place comes with the reason why it is listed, or an empty text. Places with the same reason stand together.
    """
    shown = dict[str, list[str]]()
    for place, reason in places[:_SHOWN]:
        shown.setdefault(reason, []).append(place)
    groups = [", ".join(group) for group in shown.values()]
    num_hidden = len(places) - _SHOWN
    if num_hidden > 0:
        groups[-1] += f" and {num_hidden} more"
    return "; ".join(f"{group}: {reason}" if reason else group for group, reason in zip(groups, shown, strict=True))
