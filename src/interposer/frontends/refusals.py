"""Collected reasons why nodes cannot be converted, so that one error reports all of them, and the texts for it."""

from __future__ import annotations

import copy
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Final

from interposer.core.errors import UnboundInputError, UnsupportedOperatorError, did_you_mean
from interposer.frontends.unsupported import Needs

__all__ = ["Refusals", "missing_operators", "places_text"]


class Refusals:
    """Collects the operators of a model that cannot be imported, so that one error at the end reports all of them.

    There are two kinds: unsupported operators, and operators that require shapes or values of the model's inputs.
    """

    def __init__(self) -> None:
        self._unsupported = _Notes()
        self._unbound = _Notes()
        self._needs = Needs()
        self.are_discarded = False
        """True within `discarded`."""

    def refuse(self, title: str, place: str, reason: str = "", *, detail: str = "") -> None:
        """Record an unsupported operator: `title` is its name with the domain, `place` says where it occurs.

        All occurrences are counted, and the first places of each operator are reported. `reason` says what of a known
        operator is not supported. `detail` is reported once for the operator, such as its version.
        """
        self._unsupported.add(title, place, reason, detail)

    def defer(self, title: str, place: str, reason: str, needs: Needs, *, detail: str = "") -> None:
        """Record an operator that becomes supported once `needs` (shapes or values of the inputs) are given.

        The other arguments are those of `refuse`.
        """
        self._unbound.add(title, place, reason, detail)
        self._needs |= needs

    @contextmanager
    def discarded(self) -> Iterator[None]:
        """Forget at the end of the block what was recorded in it, as for a conversion that is only tried."""
        state_before = copy.deepcopy((self._unsupported, self._unbound, self._needs))
        self.are_discarded = True
        try:
            yield
        finally:
            self.are_discarded = False
            self._unsupported, self._unbound, self._needs = state_before

    def check(self) -> None:
        """Raise `UnsupportedOperatorError` for unsupported operators, else `UnboundInputError` for missing inputs."""
        if self._unsupported.counts:
            raise UnsupportedOperatorError(self._unsupported.counts, notes=self._unsupported.texts())
        if self._unbound.counts:
            values, shapes = self._needs
            raise UnboundInputError(self._unbound.counts, sorted(values), shapes=shapes, notes=self._unbound.texts())


class _Notes:
    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self._details: dict[str, str] = {}
        self._places: dict[str, list[tuple[str, str]]] = {}

    def add(self, title: str, place: str, reason: str, detail: str) -> None:
        name = str(title)  # the name in a damaged file may be bytes
        self.counts[name] += 1
        self._details.setdefault(name, detail)
        self._places.setdefault(name, []).append((place, reason))

    def texts(self) -> dict[str, str]:
        """Return for each operator its detail and the places where it occurs."""
        details = {name: f"{detail}; " if detail else "" for name, detail in self._details.items()}
        return {name: details[name] + places_text(places) for name, places in self._places.items()}


# --- texts ------------------------------------------------------------------------------------------------------------


_SHOWN: Final = 3


def missing_operators(operators: Iterable[tuple[str, str]], known: Iterable[str] = ()) -> UnsupportedOperatorError:
    """Return the error for unknown operators: pairs of an operator's name and its place in the model.

    It has the count and the first places of each name, and the most similar of the `known` names.
    """
    places = dict[str, list[tuple[str, str]]]()
    known_names = list(known)
    for name, place in operators:
        places.setdefault(name, []).append((place, did_you_mean(name, known_names).removeprefix("; ")))
    counts = {name: len(places_of_name) for name, places_of_name in places.items()}
    return UnsupportedOperatorError(
        counts, notes={name: places_text(places_of_name) for name, places_of_name in places.items()}
    )


def places_text(places: Sequence[tuple[str, str]]) -> str:
    """Return the first places as text, as in ``node 'a', node 'b' and 2 more: the reason``.

    Each place comes with the reason why it is listed, or an empty text. Places with the same reason stand together.
    """
    places_of_reason = dict[str, list[str]]()
    for place, reason in places[:_SHOWN]:
        places_of_reason.setdefault(reason, []).append(place)
    groups = [", ".join(group) for group in places_of_reason.values()]
    num_hidden = len(places) - _SHOWN
    if num_hidden > 0:
        groups[-1] += f" and {num_hidden} more"
    return "; ".join(
        f"{group}: {reason}" if reason else group for group, reason in zip(groups, places_of_reason, strict=True)
    )
