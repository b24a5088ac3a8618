"""What an import could not convert, collected so that a user is told all of it at once."""

from __future__ import annotations

from collections import Counter

from interposer.core.errors import UnboundInputError, UnsupportedOperatorError
from interposer.frontends.needs import Needs

__all__ = ["Refusals"]


class Refusals:
    """Operators that are not supported, and those that only lack something of the model's inputs."""

    def __init__(self) -> None:
        self._unsupported = _Notes()
        self._unbound = _Notes()
        self._needs = Needs()

    def refuse(self, title: str, note: str) -> None:
        """Note an operator that is not supported; the first note of each is kept."""
        self._unsupported.add(title, note)

    def defer(self, title: str, note: str, needs: Needs) -> None:
        """Note one that needs more of the inputs."""
        self._unbound.add(title, note)
        self._needs |= needs

    def check(self) -> None:
        """Raise `UnsupportedOperatorError` with the former, or else `UnboundInputError` with the latter."""
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
        name = str(title)  # that of a damaged file may be bytes
        self.counts[name] += 1
        self.first.setdefault(name, note)
