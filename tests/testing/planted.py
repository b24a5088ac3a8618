"""Records of errors that are planted in backends for the conformance kit to find."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

from interposer.backend import Backend
from interposer.core.schema import Op
from interposer.ops import Addition, Multiplication
from interposer.testing import Conformance, Result, Settings, Status, samples_of

__all__ = ["QUICK", "SUMS", "Planted", "failures_of"]

QUICK = Settings(examples=30, loads=20)
"""Settings for small backends: few random networks, and few loads where the kit looks for leaks."""

SUMS: tuple[type[Op], ...] = (Addition, Multiplication)
"""The operators of the smallest backends."""


@dataclass(frozen=True)
class Planted:
    """An error in a backend, and how the kit reports it.

    Args:
        what: the error in a sentence without a period, for the table in `docs/conformance.md`.
        backend: the class or function that creates the backend; its `__name__` is the name of the error.
        case: the case that finds the error, or a pattern of cases of which at least one does.
        message: a regular expression that the text of the failure must contain.
        kind: the group of the error in the table, such as "numbers" or "memory".
        operators: the operators whose samples are tried.
        names_it: whether the message says what the error is, not only that something is wrong.
        settings: the settings that the error needs.
    """

    what: str
    backend: Callable[[], Backend]
    case: str
    message: str
    kind: str
    operators: tuple[type[Op], ...] = SUMS
    names_it: bool = True
    settings: Settings = QUICK

    @property
    def name(self) -> str:
        """The name of the error, unique among all errors."""
        return self.backend.__name__

    def is_named_by(self, result: Result) -> bool:
        """Return True if a result is a failure whose text contains the expected message."""
        return result.status is Status.FAIL and re.search(self.message, result.text) is not None


def failures_of(planted: Planted) -> list[Result]:
    """Run the cases that should find the error, and return those that failed."""
    samples = [sample for op in planted.operators for sample in samples_of(op)]
    conformance = Conformance(planted.backend, only=planted.case, samples=samples, settings=planted.settings)
    return conformance.report().failures
