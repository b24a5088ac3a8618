"""Ctrl-C: it ends the command with status 130 and without a traceback, at whatever moment it arrives.

While modules are imported, an interruption ends the process at once, as nothing is to be cleaned up. While a command
works, it raises `KeyboardInterrupt`, so that temporary files are removed; a second one ends the process at once.
"""

from __future__ import annotations

import os
import signal
import sys
from types import FrameType

__all__ = ["STATUS", "end_at_once", "happened", "raise_first"]

STATUS = 130
"""The exit status after an interruption, which is also what a shell reports of a process that SIGINT has ended."""
_interruptions: list[int] = []


def happened() -> bool:
    """Return True if Ctrl-C was pressed since `raise_first`, even if code has caught the exception."""
    return bool(_interruptions)


def end_at_once() -> None:
    """From now on, let an interruption end the process with status 130, unless it ignores interruptions."""
    if signal.getsignal(signal.SIGINT) not in (signal.SIG_IGN, None):  # a shell ignores it for background processes
        signal.signal(signal.SIGINT, _end)


def raise_first() -> None:
    """From now on, let the first interruption raise `KeyboardInterrupt`, and the second end the process.

    This only replaces `end_at_once`: a program that calls the command line keeps its own handling of SIGINT.
    """
    _interruptions.clear()
    if signal.getsignal(signal.SIGINT) is _end:
        signal.signal(signal.SIGINT, _raise)
        sys.unraisablehook = _report_unraisable


def _end(number: int, frame: FrameType | None) -> None:
    os._exit(STATUS)


def _raise(number: int, frame: FrameType | None) -> None:
    _interruptions.append(number)
    if len(_interruptions) > 1:
        os._exit(STATUS)
    raise KeyboardInterrupt


def _report_unraisable(unraisable: sys.UnraisableHookArgs) -> None:
    """Report an exception of a finalizer as Python does; an interruption there is raised again in the main thread."""
    if not isinstance(unraisable.exc_value, KeyboardInterrupt):
        sys.__unraisablehook__(unraisable)
        return
    _interruptions.clear()
    signal.raise_signal(signal.SIGINT)
