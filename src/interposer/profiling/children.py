"""Layers that ran in child processes: the times of the child replace those at which the host sent the layers."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final, NamedTuple

from interposer.profiling.events import Category, Interval, Site

__all__ = ["Executed", "Execution", "told_by_children", "waiting"]

_WAIT: Final = "Wait"
"""The kind of sites at which the host waits for a child process."""


@dataclass(frozen=True, slots=True)
class Execution:
    """The moment `at` at which a `thread` of the host sent a layer to a child process."""

    thread: int
    at: int


class Executed(NamedTuple):
    """The time in which a child process executed a layer, on the host's clock; `thread` is that of the child."""

    execution: Execution
    begin: int
    end: int
    thread: int
    run: int


def waiting(backend: str) -> Site:
    """Return the site at which the host waits for the child process of a backend."""
    return Site(Category.BACKEND, f"wait for {backend}", _WAIT)


def told_by_children(intervals: list[Interval], executed: Sequence[Executed]) -> list[Interval]:
    """Return the intervals with the times at which child processes ran layers, and without waits inside of others.

    The host sends a layer and does not wait for its end. The interval of such a layer gets the time and the thread of
    the child. A copy or layer that had to wait for a child first begins when the wait is over.
    """
    waits = [item for item in intervals if item.site.kind == _WAIT]
    if not waits and not executed:
        return intervals
    by_thread = _Places(intervals)
    replaced: dict[int, Interval] = {}
    for item in executed:
        place = by_thread.innermost(item.execution.thread, item.execution.at, item.run)
        if place is not None:
            replaced[place] = replace(intervals[place], begin=item.begin, end=item.end, thread=item.thread)
    for wait in sorted(waits, key=lambda item: item.end):
        place = by_thread.innermost(wait.thread, wait.begin, wait.run, leaf=True)
        if place is not None and place not in replaced and intervals[place].end >= wait.end:
            replaced[place] = replace(intervals[place], begin=wait.end)
        elif place is not None and replaced[place].thread == wait.thread and replaced[place].end >= wait.end:
            replaced[place] = replace(replaced[place], begin=wait.end)
    return [replaced.get(number, item) for number, item in enumerate(intervals)]


class _Places:
    """Finds the layers and copies of runs by their thread and time."""

    def __init__(self, intervals: Sequence[Interval]) -> None:
        self._intervals = intervals
        self._numbers: dict[tuple[int, int], list[int]] = {}
        for number, item in enumerate(intervals):
            if item.site.category in (Category.LAYER, Category.COPY) and item.run >= 0:
                self._numbers.setdefault((item.run, item.thread), []).append(number)
        for numbers in self._numbers.values():
            numbers.sort(key=self._begin)

    def _begin(self, number: int) -> int:
        return self._intervals[number].begin

    def innermost(self, thread: int, at: int, run: int, leaf: bool = False) -> int | None:
        """Return the number of the latest layer or copy of the run that contains this moment, or None.

        If `leaf`, also return None if another layer has run inside of it before that moment.
        """
        numbers = self._numbers.get((run, thread), [])
        last = bisect_right(numbers, at, key=self._begin) - 1
        for place in range(last, max(-1, last - 1) if leaf else -1, -1):
            if self._intervals[numbers[place]].end >= at:
                return numbers[place]
        return None
