"""`Patience`: a time limit that is extended while the threads of this process wait for a processor."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from time import monotonic
from typing import Final

__all__ = ["Patience"]

TASKS: Final = "/proc/self/task"
"""The folder with a folder for each thread of this process."""
_LONGEST: Final = 15
"""The limit of the extension, as a multiple of the time limit."""


class Patience:
    """A time limit for a device, whose work may be done by threads of this process: drivers on the processor do that.

    On a busy machine such threads wait for a processor, although the device works. The time that the most delayed
    thread has waited does not count, as far as the operating system reports it. The limit is extended to at most 15
    times its length, so that a device which hangs is found on a busy machine too.

    Args:
        seconds: the time limit, from now on.
    """

    def __init__(self, seconds: float) -> None:
        self._seconds, self._begin, self._delays = seconds, monotonic(), _delays()

    @property
    def elapsed(self) -> float:
        """The seconds since the beginning."""
        return monotonic() - self._begin

    @property
    def is_over(self) -> bool:
        """Whether the time limit has passed."""
        elapsed_seconds = self.elapsed
        if elapsed_seconds <= self._seconds or elapsed_seconds > _LONGEST * self._seconds:
            return elapsed_seconds > self._seconds
        return elapsed_seconds - self._delayed() > self._seconds

    def _delayed(self) -> float:
        """Return for how many seconds the most delayed thread has waited for a processor since the beginning."""
        return max((delay - self._delays.get(thread, 0) for thread, delay in _delays().items()), default=0)


def _delays() -> dict[str, float]:
    """Return the seconds that each thread has waited for a processor; empty where the system does not report them."""
    delays = {}
    with suppress(OSError):
        for thread in os.listdir(TASKS):
            with suppress(OSError, IndexError, ValueError):  # it may have ended
                delays[thread] = int(Path(TASKS, thread, "schedstat").read_text("ascii").split()[1]) / 1e9
    return delays
