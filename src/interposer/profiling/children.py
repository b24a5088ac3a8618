"""Layers that ran in child processes: the times of the child replace those at which the host sent the layers."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import replace
from typing import Final, NamedTuple

from interposer.core.records import dataclass
from interposer.profiling.events import Category, Interval, Site

__all__ = ["Executed", "Execution", "waiting", "with_child_times"]

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


def with_child_times(intervals: list[Interval], executed: Sequence[Executed]) -> list[Interval]:
    """Return the intervals with the times at which child processes ran layers, and without waits inside of others.

    The host sends a layer and does not wait for its end. The interval of such a layer gets the time and the thread of
    the child. A copy or layer that had to wait for a child first begins when the wait is over.
    """
    waits = [child for child in intervals if child.site.kind == _WAIT]
    if not waits and not executed:
        return intervals
    by_thread = _LayerIndex(intervals)
    replacement_at: dict[int, Interval] = {}
    for child in executed:
        position = by_thread.innermost(child.execution.thread, child.execution.at, child.run)
        if position is not None:
            replacement_at[position] = replace(
                intervals[position], begin=child.begin, end=child.end, thread=child.thread
            )
    for wait in sorted(waits, key=lambda interval: interval.end):
        position = by_thread.innermost(wait.thread, wait.begin, wait.run, leaf=True)
        if position is not None and position not in replacement_at and intervals[position].end >= wait.end:
            replacement_at[position] = replace(intervals[position], begin=wait.end)
        elif (
            position is not None
            and replacement_at[position].thread == wait.thread
            and replacement_at[position].end >= wait.end
        ):
            replacement_at[position] = replace(replacement_at[position], begin=wait.end)
    return [replacement_at.get(number, interval) for number, interval in enumerate(intervals)]


class _LayerIndex:
    """Finds the layers and copies of runs by their thread and time."""

    def __init__(self, intervals: Sequence[Interval]) -> None:
        self._intervals = intervals
        self._positions: dict[tuple[int, int], list[int]] = {}
        for position, interval in enumerate(intervals):
            if interval.site.category in (Category.LAYER, Category.COPY) and interval.run >= 0:
                self._positions.setdefault((interval.run, interval.thread), []).append(position)
        for numbers in self._positions.values():
            numbers.sort(key=self._begin)

    def _begin(self, position: int) -> int:
        return self._intervals[position].begin

    def innermost(self, thread: int, moment: int, run: int, leaf: bool = False) -> int | None:
        """Return the number of the latest layer or copy of the run that contains this moment, or None.

        If `leaf`, also return None if another layer has run inside of it before that moment.
        """
        positions = self._positions.get((run, thread), [])
        last_index = bisect_right(positions, moment, key=self._begin) - 1
        for candidate in range(last_index, max(-1, last_index - 1) if leaf else -1, -1):
            if self._intervals[positions[candidate]].end >= moment:
                return positions[candidate]
        return None
