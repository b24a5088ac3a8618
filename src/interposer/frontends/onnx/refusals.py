"""Collected reasons why nodes cannot be converted, so that one error reports all of them."""

from __future__ import annotations

from collections import Counter

from interposer.core.errors import UnboundInputError, UnsupportedOperatorError
from interposer.frontends.needs import Needs

__all__ = ["Refusals"]


class Refusals:
    """Operators that are not supported, and operators that require shapes or values of the model's inputs."""

    def __init__(self) -> None:
        self._unsupported = _Notes()
        self._unbound = _Notes()
        self._needs = Needs()

    def refuse(self, title: str, note: str) -> None:
        """Record an operator that is not supported; only the first note for each operator is reported."""
        self._unsupported.add(title, note)

    def defer(self, title: str, note: str, needs: Needs) -> None:
        """Record an operator that requires more shapes or values of the inputs."""
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
