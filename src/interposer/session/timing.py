"""Times of calls that are to be compared: each has its turn, again and again, so that a slow moment hits all."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

__all__ = ["LONG", "REST", "Timing", "take_turns", "undecided"]

Failed = Callable[[str, Exception], None]
FEWEST: Final = 3
"""Calls of a turn, at least, unless they take long."""
LONG: Final = 0.1
"""Seconds after which a turn is over, however few calls it had."""
REST: Final = 0.05
"""Seconds before a turn: threads of what ran before look for work for a while, and take a processor meantime."""
LUCK: Final = 1 / 6
"""What wins no more of its turns than this against another is the slower one."""
WARMING: Final = 0.2
"""The part of a turn's time that is spent on calls before it, which are not counted."""


@dataclass(frozen=True, slots=True)
class Timing:
    """Milliseconds of one call: the medians of its turns, in order, and the least of all calls."""

    turns: tuple[float, ...]
    least: float

    @property
    def median(self) -> float:
        """The median of the turns."""
        return statistics.median(self.turns)

    @property
    def spread(self) -> float:
        """Half the distance between the slowest and the fastest turn, as a part of the median."""
        return (max(self.turns) - min(self.turns)) / 2 / (self.median or 1.0)

    def faster_than(self, other: Timing) -> float:
        """How many times as fast as another that had its turns in the same rounds: the median of their ratios."""
        return statistics.median(theirs / ours for ours, theirs in zip(self.turns, other.turns, strict=True))

    def followed_by(self, other: Timing) -> Timing:
        """Return the turns of both."""
        return Timing((*self.turns, *other.turns), min(self.least, other.least))


def undecided(timings: Mapping[str, Timing]) -> list[str]:
    """Of what had its turns in the same rounds, the fastest, and then all that wins too often against it."""
    if not timings:
        return []
    best = min(timings, key=lambda name: timings[name].median)
    won = {
        name: sum(ours < best_one for ours, best_one in zip(item.turns, timings[best].turns, strict=True))
        for name, item in timings.items()
    }
    return [best, *(name for name, count in won.items() if name != best and count > LUCK * len(timings[name].turns))]


def take_turns(
    calls: Mapping[str, Callable[[], Any]],
    rounds: int,
    seconds: float,
    failed: Failed | None = None,
    progress: Callable[[int], None] | None = None,
    rest: float = REST,
) -> dict[str, Timing]:
    """Time calls in rounds, forwards and backwards in turn, each for so many seconds.

    Args:
        failed: what is told of a call that raises, which is left out from then on; None lets the exception through.
        progress: what is told how many turns are over.
        rest: seconds before each turn in which nothing runs.
    """
    turns: dict[str, list[list[float]]] = {name: [] for name in calls}
    over = 0
    for number in range(rounds):
        for name in list(turns)[:: -1 if number % 2 else 1]:
            time.sleep(rest)
            try:
                turns[name].append(_turn(calls[name], seconds))
            except Exception as error:
                if failed is None:
                    raise
                failed(name, error)
                del turns[name]
            over += 1
            if progress is not None:
                progress(over)
    return {name: _timing(result) for name, result in turns.items()}


def _turn(call: Callable[[], Any], seconds: float) -> list[float]:
    _repeat(call, seconds * WARMING)
    return _repeat(call, seconds)


def _repeat(call: Callable[[], Any], seconds: float) -> list[float]:
    times: list[float] = []
    begin = time.perf_counter()
    end, late = begin + seconds, begin + max(seconds, LONG)
    while not times or time.perf_counter() < (end if len(times) >= FEWEST else late):
        start = time.perf_counter()
        call()
        times.append((time.perf_counter() - start) * 1e3)
    return times


def _timing(turns: list[list[float]]) -> Timing:
    return Timing(tuple(map(statistics.median, turns)), min(map(min, turns)))
