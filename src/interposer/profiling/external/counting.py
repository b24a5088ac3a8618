"""The counters of a client: how often something has happened since the previous capture."""

from __future__ import annotations

import math
import re
import threading
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby
from typing import Final, NamedTuple

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
_MAX_VALUE: Final = 0xFFFFFFFF
_MOST_SAMPLES: Final = 1 << 14
"""The most values of one capture; later ones replace the oldest."""


class _Sample(NamedTuple):
    counter: events.Counter
    at: int
    value: float


class Counting:
    """Arm NN's counters, and those of backends. Thread-safe.

    `count` adds to one of Arm NN's counters, and `sampled` takes a value of a backend's. A captured value is the number
    of events since the previous capture, or for a counter of another class the last value.

    Args:
        of_backends: the counters of backends by number, which may grow at any time.
    """

    def __init__(self, of_backends: Mapping[int, events.Counter] | None = None) -> None:
        self._of_backends = {} if of_backends is None else of_backends
        self._value_of_number: dict[int, int] = {}
        self._samples_between: dict[int, _Sample] = {}
        self._captured_samples: deque[_Sample] = deque(maxlen=_MOST_SAMPLES)
        self._selected: frozenset[int] = frozenset()
        self._lock = threading.RLock()  # the garbage collector can close a client within a method

    def count(self, number: int, amount: int = 1) -> None:
        """Add to one of Arm NN's counters."""
        with self._lock:
            self._value_of_number[number] = self._value_of_number.get(number, 0) + amount

    @property
    def size(self) -> int:
        """The number of counters."""
        return len(_RUNTIME.counters) + len(self._of_backends)

    @property
    def directory(self) -> Directory:
        """The counters of all categories, the devices that they are of, and the sets that they belong to."""
        counters = [counter for counter in list(self._of_backends.values()) if not counter.core]
        devices = {name: number for number, name in enumerate(_names(counter.device for counter in counters), 1)}
        sets = {name: number for number, name in enumerate(_names(map(_set_of, counters)), 1)}
        categories: dict[str, list[Counter]] = {}
        for counter in counters:
            category = _name(f"{counter.backend}_{counter.category}")
            description = _described(counter, devices.get(counter.device, 0), sets.get(_set_of(counter), 0))
            categories.setdefault(category, []).append(description)
        backend_categories = (Category(name, tuple(group)) for name, group in categories.items())
        cores = {name: max(counter.cores for counter in counters if counter.device == name) for name in devices}
        sizes = {name: sum(_set_of(counter) == name for counter in counters) for name in sets}
        return Directory(
            (_RUNTIME, *backend_categories),
            tuple((number, name, cores[name]) for name, number in devices.items()),
            tuple((number, name, sizes[name]) for name, number in sets.items()),
        )

    def known(self, numbers: Sequence[int]) -> tuple[int, ...]:
        """Return those of the numbers that are counters, in ascending order; repeated ones stay."""
        return tuple(sorted(number for number in numbers if _is_own(number) or number in self._of_backends))

    # --- values -------------------------------------------------------------------------------------------------------

    def select(self, numbers: Iterable[int]) -> None:
        """Take values of these counters of backends from now on, and drop those of others."""
        with self._lock:
            self._selected = frozenset(number for number in numbers if not _is_own(number))
            self._samples_between = {
                number: sample for number, sample in self._samples_between.items() if number in self._selected
            }
            self._captured_samples.clear()

    def sampled(self, counter: events.Counter, at: int, value: float, captured: bool = False) -> None:
        """Take a value of a backend's counter, in its units.

        Values that were `captured` keep their moments. Those that come between two captures are added up, or replace
        each other. Values of other runtimes' counters and of counters that are not selected are ignored, and infinity
        and NaN.
        """
        number = counter.number
        if number not in self._selected or self._of_backends.get(number) is not counter or not math.isfinite(value):
            return
        sample = _Sample(counter, at, value / counter.multiplier)
        with self._lock:
            if captured:
                self._captured_samples.append(sample)
            else:
                self._samples_between[number] = _sum(self._samples_between.get(number), sample)

    def capture(self, at: int, numbers: Sequence[int]) -> Capture | None:
        """Return the values of those `numbers` that are Arm NN's counters, and reset the counters to 0.

        `at` is the moment of the capture. A counter that is named twice has its value once, and then 0. The result is
        None if no number is that of such a counter.
        """
        own_numbers = [number for number in numbers if _is_own(number)]
        with self._lock:
            return (
                Capture(at, tuple((number, _raw(self._value_of_number.pop(number, 0))) for number in own_numbers))
                if own_numbers
                else None
            )

    def captures_of_backends(self) -> list[Capture]:
        """Return the values that were sampled since the previous call: a capture for each backend and moment.

        Those between two captures belong to the first moment of the present one.
        """
        with self._lock:
            samples, self._captured_samples = list(self._captured_samples), deque(maxlen=_MOST_SAMPLES)
            samples_between, self._samples_between = self._samples_between, {}
        for position, sample in enumerate(samples):
            samples[position] = _sum(samples_between.pop(sample.counter.number, None), sample)
        samples += samples_between.values()
        captures = []
        for (_, moment), group in groupby(sorted(samples, key=_moment), key=_moment):
            values: dict[int, _Sample] = {}
            for sample in group:
                values[sample.counter.number] = _sum(values.get(sample.counter.number), sample)
            captures.append(Capture(moment, tuple((number, _raw(values[number].value)) for number in sorted(values))))
        return captures


def _is_own(number: int) -> bool:
    return number < len(_RUNTIME.counters)


def _moment(sample: _Sample) -> tuple[str, int]:
    return sample.counter.backend, sample.at


def _sum(earlier_sample: _Sample | None, later_sample: _Sample) -> _Sample:
    """Return the value of both samples of a counter together, at the moment of the later one."""
    if earlier_sample is None or later_sample.counter.kind is not events.CounterClass.EVENT:
        return later_sample
    return later_sample._replace(value=earlier_sample.value + later_sample.value)


def _raw(value: float) -> int:
    return min(round(value), _MAX_VALUE) & _MAX_VALUE


def _name(text: str) -> str:
    """Return a text with underscores for all but ASCII letters and digits, as names and units must have them."""
    return re.sub(r"\W", "_", text, flags=re.ASCII)


def _names(names: Iterable[str]) -> list[str]:
    return [name for name in dict.fromkeys(names) if name]


def _set_of(counter: events.Counter) -> str:
    return dict(counter.details).get("counter set", "")


def _described(counter: events.Counter, device: int, counter_set: int) -> Counter:
    """Return a counter as the protocol describes it: one of several cores has the numbers of all."""
    kind = 0 if counter.kind is events.CounterClass.EVENT else 1
    name = counter.name.removesuffix(" of core 0") if counter.cores > 1 else counter.name
    return Counter(
        counter.number, name, counter.description or name, _name(counter.units),
        last=counter.number + counter.cores - 1, device=device, counter_set=counter_set, kind=kind,
        multiplier=counter.multiplier,
    )  # fmt: skip
