"""The counters of a client: how often something has happened since the previous capture."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Final

from interposer.profiling.external.messages import Capture, Category, Counter, Directory

__all__ = [
    "BACKENDS_REGISTERED",
    "BACKENDS_UNREGISTERED",
    "INFERENCES",
    "NETWORK_LOADS",
    "NETWORK_UNLOADS",
    "Counting",
]

NETWORK_LOADS, NETWORK_UNLOADS, BACKENDS_REGISTERED, BACKENDS_UNREGISTERED, INFERENCES = range(5)
"""The numbers of Arm NN's own counters."""
_RUNTIME: Final = Category(
    "ArmNN_Runtime",
    (
        Counter(NETWORK_LOADS, "Network loads", "The number of networks loaded at runtime", "networks"),
        Counter(NETWORK_UNLOADS, "Network unloads", "The number of networks unloaded at runtime", "networks"),
        Counter(BACKENDS_REGISTERED, "Backends registered", "The number of registered backends", "backends"),
        Counter(BACKENDS_UNREGISTERED, "Backends unregistered", "The number of unregistered backends", "backends"),
        Counter(INFERENCES, "Inferences run", "The number of inferences run", "inferences"),
    ),
)
_MOST: Final = 0xFFFFFFFF


class Counting:
    """Arm NN's counters, and those that backends add. Thread-safe.

    `count` adds to a counter. The value of a capture is what has been added since the previous capture. A counter of a
    backend is read with a function instead, which returns the value to send.
    """

    def __init__(self) -> None:
        self._totals = dict.fromkeys(range(len(_RUNTIME.counters)), 0)
        self._sent = dict(self._totals)
        self._lock = threading.Lock()
        self._categories = [_RUNTIME]
        self._readers: dict[int, Callable[[], int]] = {}

    def add_category(self, category: Category, readers: dict[int, Callable[[], int]]) -> None:
        """Add the counters of a backend, and for each of their numbers the function that reads it."""
        with self._lock:
            self._categories.append(category)
            self._readers |= readers

    def count(self, number: int, amount: int = 1) -> None:
        """Add to one of Arm NN's counters."""
        with self._lock:
            self._totals[number] += amount

    @property
    def directory(self) -> Directory:
        """The counters of all categories."""
        return Directory(tuple(self._categories))

    def known(self, numbers: Sequence[int]) -> tuple[int, ...]:
        """Return those of the numbers that are counters, in ascending order; repeated ones stay."""
        return tuple(sorted(number for number in numbers if number in self._totals or number in self._readers))

    def capture(self, at: int, numbers: Sequence[int]) -> Capture:
        """Return the values of counters at a moment; a counter that is named twice counts once."""
        return Capture(at, tuple((number, self._value(number)) for number in numbers))

    def _value(self, number: int) -> int:
        if number in self._readers:
            return self._readers[number]() & _MOST
        with self._lock:
            value = self._totals[number] - self._sent[number]
            self._sent[number] = self._totals[number]
        return value & _MOST
