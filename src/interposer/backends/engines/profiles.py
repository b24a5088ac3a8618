"""Profiles of engines: the intervals that an engine measured inside the subgraphs that it runs."""

from __future__ import annotations

import weakref
from collections.abc import Iterable, Sequence
from typing import NamedTuple, Protocol

from interposer.backend import BackendProfiling, BackendProfilingContext

__all__ = ["EngineProfiles", "EngineStep", "in_turn"]


class EngineStep(NamedTuple):
    """A step that an engine measured: its name and operator, and its times in nanoseconds of the host's clock.

    `thread` is the id of the thread that ran it; None for the calling one.
    """

    name: str
    kind: str
    begin: int
    end: int
    thread: int | None = None


class Measured(Protocol):
    """The interface of an executable that measures its steps."""

    layers: frozenset[str]

    @property
    def is_measuring(self) -> bool:
        """True if there may be steps that `end_measuring` returns."""

    def end_measuring(self) -> Sequence[EngineStep]:
        """Return the steps that were measured and not reported yet."""


class EngineProfiles:
    """Reports the steps of an engine, for all runtimes that use it. Thread-safe."""

    def __init__(self) -> None:
        self._profiling: BackendProfiling | None = None
        self._measuring: set[Measured] = set()
        """Executables with steps to report; their network may be closed before recording ends."""
        self.listening: weakref.WeakSet[_Context] = weakref.WeakSet()

    @property
    def is_on(self) -> bool:
        """True while something records intervals."""
        return len(self.listening) > 0

    def context(self, profiling: BackendProfiling) -> BackendProfilingContext:
        """Return the context of a runtime that reports to `profiling`."""
        self._profiling = profiling
        return _Context(self)

    def add(self, executable: Measured, steps: Iterable[EngineStep]) -> None:
        """Report steps of a run of an executable, whose other steps are asked for when recording ends."""
        if executable.is_measuring:
            self._measuring.add(executable)
        self._report(executable, steps)

    def end(self) -> None:
        """Report the steps that executables have measured and not reported yet."""
        for executable in list(self._measuring):
            self._measuring.discard(executable)
            self._report(executable, executable.end_measuring())

    def _report(self, executable: Measured, steps: Iterable[EngineStep]) -> None:
        profiling, layer_names = self._profiling, executable.layers
        if profiling is None:
            return
        for name, kind, begin, end, thread in steps:
            layer = name if name in layer_names else ""
            profiling.interval(name, begin, end, kind=kind, layer=layer, thread=thread)


class _Context(BackendProfilingContext):
    """Ends the measurements of an engine when recording ends; they begin with the next run of a subgraph."""

    def __init__(self, profiles: EngineProfiles) -> None:
        self._profiles = profiles

    def enable_timeline_reporting(self, enable: bool) -> bool:
        if enable:
            self._profiles.listening.add(self)
        else:
            self._profiles.listening.discard(self)
            self._profiles.end()
        return True


def in_turn(durations: Iterable[tuple[str, str, int]], begin: int, end: int) -> list[EngineStep]:
    """Return steps of which an engine reports the duration only, one after the other from `begin` on.

    `durations` has the name, the operator and the nanoseconds of each. If they are longer than the run together, as
    those of concurrent steps are, all are shortened by the same factor.
    """
    rows = list(durations)
    total = sum(duration for _, _, duration in rows)
    factor = min(1.0, (end - begin) / total) if total else 1.0
    steps, time = [], float(begin)
    for name, kind, duration in rows:
        steps.append(EngineStep(name, kind, int(time), min(end, int(time + duration * factor))))
        time += duration * factor
    return steps
