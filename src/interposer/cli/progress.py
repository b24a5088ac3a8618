"""A progress line on standard error while a command works, with the time that remains, if that is a terminal."""

from __future__ import annotations

import os
import shutil
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

from interposer.cli.streams import printable

__all__ = ["Progress", "progress_line"]

_FIRST: Final = 1.0
"""Seconds after which the line appears, so that a quick command shows none."""
_TICK: Final = 0.25
"""Seconds between two updates of the line."""
_CLEAR: Final = "\r\033[K"


class Progress:
    """What a command does at present: an activity, and how much of it is finished. Safe to use from several threads.

    Called as ``progress(activity, finished, total)``, it notes how many steps of an activity are finished. The time
    that remains follows from that of the steps so far. Nothing is printed here; `line` is what there is to show.

    Args:
        clock: returns the seconds from some moment on.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._began = clock()
        self._activity, self._finished, self._total, self._note = "", 0, 0, ""
        self._seconds: float | None = None
        self._lock = threading.Lock()

    def __call__(self, activity: str, finished: int, total: int, note: str = "") -> None:
        """Note that `finished` of `total` steps of an activity are finished; `note` is shown after these numbers."""
        with self._lock:
            self._enter(activity)
            self._finished, self._total, self._note = finished, total, note

    def wait(self, activity: str, seconds: float | None = None) -> None:
        """Note an activity whose steps are not known; it takes about so many seconds, unless that is None."""
        with self._lock:
            self._enter(activity)
            self._finished, self._total, self._note, self._seconds = 0, 0, "", seconds

    def _enter(self, activity: str) -> None:
        if activity != self._activity:
            self._activity, self._began, self._seconds = activity, self._clock(), None

    def line(self) -> str:
        """Return the activity with its progress, and the time that remains or else has passed."""
        with self._lock:
            if not self._activity:
                return ""
            steps = f" ({self._finished:,} of {self._total:,}{self._note})" if self._total > 1 else ""
            return printable(f"{self._activity}{steps}, {self._time(self._clock() - self._began)}")

    def _time(self, seconds_passed: float) -> str:
        if self._seconds is not None:
            seconds_left = self._seconds - seconds_passed
        elif self._total > 1 and self._finished and seconds_passed >= _FIRST:
            seconds_left = seconds_passed / self._finished * (self._total - self._finished)
        else:
            return f"{duration(seconds_passed)} so far"
        return f"about {duration(seconds_left)} left" if seconds_left >= 1 else "nearly done"


def duration(seconds: float) -> str:
    """Return a time in words, such as "8 s", "3 min 20 s" or "2 h 5 min"."""
    whole_seconds = max(0, round(seconds))
    if whole_seconds < 60:
        return f"{whole_seconds} s"
    if whole_seconds < 3600:
        return f"{whole_seconds // 60} min {whole_seconds % 60} s"
    return f"{whole_seconds // 3600} h {whole_seconds % 3600 // 60} min"


@contextmanager
def progress_line() -> Iterator[Progress]:
    """Yield a `Progress` that is shown on standard error until the end of the context, if that is a terminal."""
    progress = Progress()
    if not _is_shown():
        yield progress
        return
    end_event = threading.Event()
    painter = threading.Thread(target=_paint, args=(progress, end_event), name="interposer progress", daemon=True)
    painter.start()
    try:
        yield progress
    finally:
        end_event.set()
        painter.join()
        sys.stderr.write(_CLEAR)
        sys.stderr.flush()


def _is_shown() -> bool:
    return sys.stderr.isatty() and os.environ.get("TERM", "") not in ("", "dumb")


def _paint(progress: Progress, end_event: threading.Event) -> None:
    if end_event.wait(_FIRST):
        return
    while True:
        columns = shutil.get_terminal_size().columns - 1
        sys.stderr.write(f"{_CLEAR}{progress.line()[:columns]}")
        sys.stderr.flush()
        if end_event.wait(_TICK):
            return
