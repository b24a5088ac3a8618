"""What is told while a command takes its time: one line on the error stream, where that is a terminal."""

from __future__ import annotations

import sys
from collections.abc import Callable

from interposer.cli.streams import printable

__all__ = ["progress_line"]


def progress_line(last: str) -> Callable[[str, int, int], None]:
    """Return what is to be called with what is done, how much of it is over, and how much there is.

    Args:
        last: what is done last: at its end the line is gone.
    """

    def show(what: str, over: int, total: int) -> None:
        line = "" if what == last and over == total else printable(f"{what} ({over} of {total})")
        sys.stderr.write(f"\r{line[:78]:78}\r{line[:78]}")
        sys.stderr.flush()

    return show if sys.stderr.isatty() else _silent


def _silent(what: str, over: int, total: int) -> None:
    """Tell nobody, since nobody looks."""
