"""A progress line on standard error while a command runs, if standard error is a terminal."""

from __future__ import annotations

import sys
from collections.abc import Callable

from interposer.cli.streams import printable

__all__ = ["progress_line"]


def progress_line(last_activity: str) -> Callable[[str, int, int], None]:
    """Return a callback that shows progress as one line on standard error, or does nothing if that is no terminal.

    It is called with the name of the activity, the number of finished steps and the number of all steps.

    Args:
        last_activity: the name of the last activity; the line is removed when this activity is complete.
    """

    def show(activity: str, finished: int, total: int) -> None:
        line = (
            "" if activity == last_activity and finished == total else printable(f"{activity} ({finished} of {total})")
        )
        sys.stderr.write(f"\r{line[:78]:78}\r{line[:78]}")
        sys.stderr.flush()

    return show if sys.stderr.isatty() else _silent


def _silent(activity: str, finished: int, total: int) -> None:
    """Ignore a report of progress; used instead of a progress line if standard error is not a terminal."""
