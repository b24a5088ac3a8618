"""The counters of a client: how often something has happened since the previous capture."""

from __future__ import annotations

import math
import re
import threading
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from interposer.profiling import events
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
    """Arm NN's counters, and those of backends. Thread-safe.

    `count` adds to one of Arm NN's counters, and `sampled` takes a value of a backend's. A captured value is the number
    of events since the previous capture, or for a counter of another class the last value.

    Args:
        of_backends: the counters of backends by number, which may grow at any time.
    """

    def __init__(self, of_backends: Mapping[int, events.Counter] | None = None) -> None:
        self._of_backends = {} if of_backends is None else of_backends
        self._values: dict[int, float] = {}
        self._lock = threading.RLock()  # the garbage collector can close a client within a method

    def count(self, number: int, amount: int = 1) -> None:
        """Add to one of Arm NN's counters."""
        with self._lock:
            self._values[number] = self._values.get(number, 0) + amount

    def sampled(self, counter: events.Counter, value: float) -> None:
        """Take a value of a backend's counter, in its units; ignore other runtimes' counters, infinity and NaN."""
        if self._of_backends.get(counter.number) is not counter or not math.isfinite(value):
            return
        raw = value / counter.multiplier
        with self._lock:
            before = self._values.get(counter.number, 0) if counter.kind is events.CounterClass.EVENT else 0
            self._values[counter.number] = before + raw

    @property
    def size(self) -> int:
        """The number of counters."""
        return len(_RUNTIME.counters) + len(self._of_backends)

    @property
    def directory(self) -> Directory:
        """The counters of all categories, and the devices that they are of."""
        counters = list(self._of_backends.values())
        devices = {name: number for number, name in enumerate(_names(item.device for item in counters), 1)}
        categories: dict[str, list[Counter]] = {}
        for item in counters:
            title = _name(f"{item.backend}_{item.category}")
            categories.setdefault(title, []).append(_described(item, devices.get(item.device, 0)))
        added = (Category(name, tuple(group)) for name, group in categories.items())
        return Directory((_RUNTIME, *added), tuple((number, name, 1) for name, number in devices.items()))

    def known(self, numbers: Sequence[int]) -> tuple[int, ...]:
        """Return those of the numbers that are counters, in ascending order; repeated ones stay."""
        own = range(len(_RUNTIME.counters))
        return tuple(sorted(number for number in numbers if number in own or number in self._of_backends))

    def capture(self, at: int, numbers: Sequence[int]) -> Capture:
        """Return the values of counters at a moment; a counter that is named twice counts once."""
        with self._lock:
            return Capture(at, tuple((number, self._taken(number)) for number in numbers))

    def _taken(self, number: int) -> int:
        """Return the value of a counter, and count its events from 0 again."""
        counter = self._of_backends.get(number)
        value = round(self._values.get(number, 0))
        if counter is None or counter.kind is events.CounterClass.EVENT:
            self._values[number] = 0
        return min(value, _MOST) & _MOST


def _name(text: str) -> str:
    """Return a text with underscores for all but ASCII letters and digits, as names and units must have them."""
    return re.sub(r"\W", "_", text, flags=re.ASCII)


def _names(names: Iterable[str]) -> list[str]:
    return [name for name in dict.fromkeys(names) if name]


def _described(counter: events.Counter, device: int) -> Counter:
    kind = 0 if counter.kind is events.CounterClass.EVENT else 1
    return Counter(
        counter.number, counter.name, counter.description or counter.name, _name(counter.units), device=device,
        kind=kind, multiplier=counter.multiplier,
    )  # fmt: skip
