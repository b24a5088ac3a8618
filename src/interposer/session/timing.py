"""Comparative timing: calls take turns in rounds, so that a temporary slowdown affects all of them."""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from interposer.core.records import dataclass

__all__ = ["LONG", "REST", "Timing", "spread_of", "take_turns", "undecided"]

Failed = Callable[[str, Exception], None]
FEWEST: Final = 3
"""The least number of calls in a turn, unless they take longer than `LONG`."""
LONG: Final = 0.1
"""Seconds after which a turn ends, even if it has fewer than `FEWEST` calls."""
REST: Final = 0.05
"""Seconds of pause before a turn, in which the spinning threads of the previous backend go to sleep."""
LUCK: Final = 1 / 6
"""A candidate that wins at most this share of its turns against another one counts as slower."""
WARMING: Final = 0.2
"""The share of a turn's time that is spent on warm-up calls, which are not counted."""


@dataclass(frozen=True, slots=True)
class Timing:
    """How long one call takes in milliseconds, measured in several turns of several calls each.

    `turns` has the median of each turn in order, `least` the time of the fastest call.
    """

    turns: tuple[float, ...]
    least: float

    @property
    def median(self) -> float:
        """The median of the turns."""
        return statistics.median(self.turns)

    @property
    def spread(self) -> float:
        """Half the difference between the slowest and the fastest turn, divided by the median of the turns."""
        return (max(self.turns) - min(self.turns)) / 2 / (self.median or 1.0)

    def faster_than(self, other: Timing) -> float:
        """Return how many times faster this is than `other`: the median, over all rounds, of the ratios of their turns.

        Both must have been measured in the same rounds, by one call of `take_turns`.
        """
        return statistics.median(
            other_turn / own_turn for own_turn, other_turn in zip(self.turns, other.turns, strict=True)
        )

    def followed_by(self, other: Timing) -> Timing:
        """Return a timing with the turns of both, those of `other` last, for a measurement that was continued."""
        return Timing((*self.turns, *other.turns), min(self.least, other.least))


def spread_of(times: Sequence[float]) -> float:
    """Return how much times vary: half the distance between their lower and upper quartile, relative to the median.

    `times` has at least one element. The result is 0 if the median is 0.
    """
    ordered_times = sorted(times)
    quarter = len(ordered_times) // 4
    return (ordered_times[-1 - quarter] - ordered_times[quarter]) / (
        2 * (ordered_times[len(ordered_times) // 2] or math.inf)
    )


def undecided(timings: Mapping[str, Timing]) -> list[str]:
    """Return the names of the calls that may be the fastest: the one with the lowest median of its turns first.

    The others are those that beat it in more than a sixth of the rounds, and so are not certainly slower. All calls
    must have been measured in the same rounds, by one call of `take_turns`. Empty if there are none.
    """
    if not timings:
        return []
    best_name = min(timings, key=lambda name: timings[name].median)
    wins = {
        name: sum(ours < best_time for ours, best_time in zip(timing.turns, timings[best_name].turns, strict=True))
        for name, timing in timings.items()
    }
    return [
        best_name,
        *(name for name, count in wins.items() if name != best_name and count > LUCK * len(timings[name].turns)),
    ]


def take_turns(
    calls: Mapping[str, Callable[[], Any]],
    rounds: int,
    seconds: float,
    failed: Failed | None = None,
    progress: Callable[[int], None] | None = None,
    rest: float = REST,
) -> dict[str, Timing]:
    """Time calls in rounds, in alternating order; each turn of a call takes about `seconds`.

    In a turn, a call is made repeatedly. Returns the times by name.

    Args:
        calls: the functions to time, by name.
        rounds: the number of turns of each call.
        seconds: the duration of a turn.
        failed: called with the name and the exception of a call that raises, which is left out from then on. None
            raises the exception.
        progress: called with the number of finished turns.
        rest: seconds of pause before each turn.
    """
    turns_of_call: dict[str, list[list[float]]] = {name: [] for name in calls}
    num_finished = 0
    for round_number in range(rounds):
        for name in list(turns_of_call)[:: -1 if round_number % 2 else 1]:
            time.sleep(rest)
            try:
                turns_of_call[name].append(_turn(calls[name], seconds))
            except Exception as error:
                if failed is None:
                    raise
                failed(name, error)
                del turns_of_call[name]
            num_finished += 1
            if progress is not None:
                progress(num_finished)
    return {name: _timing(milliseconds) for name, milliseconds in turns_of_call.items()}


def _turn(call: Callable[[], Any], seconds: float) -> list[float]:
    _repeat(call, seconds * WARMING)
    return _repeat(call, seconds)


def _repeat(call: Callable[[], Any], seconds: float) -> list[float]:
    milliseconds: list[float] = []
    begin = time.perf_counter()
    end, latest_end = begin + seconds, begin + max(seconds, LONG)
    while not milliseconds or time.perf_counter() < (end if len(milliseconds) >= FEWEST else latest_end):
        start = time.perf_counter()
        call()
        milliseconds.append((time.perf_counter() - start) * 1e3)
    return milliseconds


def _timing(turns: list[list[float]]) -> Timing:
    return Timing(tuple(map(statistics.median, turns)), min(map(min, turns)))
