"""Collected reasons why nodes cannot be converted, so that one error reports all of them."""

from __future__ import annotations

from collections import Counter

from interposer.core.errors import UnboundInputError, UnsupportedOperatorError
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

    def refuse(self, title: str, note: str) -> None:
        """Record an unsupported operator: `title` is its name with the domain, `note` says where it occurs and why.

        Further occurrences are counted, but only the first note for each operator is reported.
        """
        self._unsupported.add(title, note)

    def defer(self, title: str, note: str, needs: Needs) -> None:
        """Record an operator that becomes supported once `needs` (shapes or values of the inputs) are given.

        `title` and `note` are as for `refuse`.
        """
        self._unbound.add(title, note)
        self._needs |= needs

    def check(self) -> None:
        """Raise `UnsupportedOperatorError` for unsupported operators, else `UnboundInputError` for missing inputs."""
        if self._unsupported.counts:
            raise UnsupportedOperatorError(self._unsupported.counts, notes=self._unsupported.first)
        if self._unbound.counts:
            values, shapes = self._needs
            raise UnboundInputError(self._unbound.counts, sorted(values), shapes=shapes, notes=self._unbound.first)


class _Notes:
    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self.first: dict[str, str] = {}

    def add(self, title: str, note: str) -> None:
        name = str(title)  # the name in a damaged file may be bytes
        self.counts[name] += 1
        self.first.setdefault(name, note)
