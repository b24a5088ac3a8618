"""Collected reasons why nodes cannot be converted, so that one error reports all of them."""

from __future__ import annotations

from collections import Counter

from interposer.core.errors import UnboundInputError, UnsupportedOperatorError
from interposer.frontends.missing import places_text
from interposer.frontends.needs import Needs

__all__ = ["Refusals"]


class Refusals:
    """Collects the operators of a model that cannot be imported, so that one error at the end reports all of them.

    There are two kinds: unsupported operators, and operators that require shapes or values of the model's inputs.
    """

    def __init__(self) -> None:
        self._unsupported = _Notes()
        self._unbound = _Notes()
        self._needs = Needs()

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
