"""Ctrl-C: it ends the command with status 130 and without a traceback, at whatever moment it arrives.

While modules are imported, an interruption ends the process at once, as nothing is to be cleaned up. While a command
works, it raises `KeyboardInterrupt`, so that temporary files are removed; a second one ends the process at once.
"""

from __future__ import annotations

import atexit
import os
import signal
import sys
from types import FrameType

__all__ = ["STATUS", "end_at_once", "happened", "raise_first"]

STATUS = 130
"""The exit status after an interruption, which is also what a shell reports of a process that SIGINT has ended."""
_LATER = 0.01
"""Seconds after which an interruption in a finalizer is raised again."""
_interruptions: list[int] = []
_is_prepared: list[bool] = []


def happened() -> bool:
    """Return True if Ctrl-C was pressed since `raise_first`, even if code has caught the exception."""
    return bool(_interruptions)


def end_at_once() -> None:
    """From now on, let an interruption end the process with status 130, unless it ignores interruptions.

    This is to be called first when the process begins to work, and again when it has ended its work.
    """
    if not _is_prepared:
        _is_prepared.append(True)
        atexit.register(_ignore)  # the first one that is registered is called last
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


def _ignore() -> None:
    """Block interruptions for the rest of the interpreter's exit, in which they would be reported."""
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])


def _end(number: int, frame: FrameType | None) -> None:
    os._exit(STATUS)


def _raise(number: int, frame: FrameType | None) -> None:
    _interruptions.append(number)
    if len(_interruptions) > 1:
        os._exit(STATUS)
    raise KeyboardInterrupt


def _report_unraisable(unraisable: sys.UnraisableHookArgs) -> None:
    """Report an exception of a finalizer as Python does; an interruption there is soon raised again."""
    if not isinstance(unraisable.exc_value, KeyboardInterrupt):
        sys.__unraisablehook__(unraisable)
        return
    _interruptions.clear()
    import threading  # noqa: PLC0415 - rarely needed

    main = threading.main_thread()
    threading.Thread(target=_interrupt_later, args=(main.ident,), daemon=True).start()


def _interrupt_later(thread: int) -> None:
    """Interrupt a thread when it has left the finalizer, where an exception has no effect."""
    import time  # noqa: PLC0415 - rarely needed

    time.sleep(_LATER)
    signal.pthread_kill(thread, signal.SIGINT)
