"""Warnings about networks that are left to their host because of an error; each text is logged once in a process."""

from __future__ import annotations

import logging
import threading
from typing import Final

from interposer.core.errors import InterposerError

__all__ = ["unexpected", "warn_once"]

_log: Final = logging.getLogger("interposer.bridges")
_MOST: Final = 1000
"""The number of texts that a process remembers."""
_logged: Final[set[str]] = set()
_lock: Final = threading.Lock()


def warn_once(consequence: str, error: Exception) -> None:
    """Log what an error has led to, with its text, unless the process has logged the same.

    The traceback is logged too if the error is not an `InterposerError`, as it then shows a defect of Interposer.
    """
    is_known = isinstance(error, InterposerError)
    message = f"{consequence}: {error if is_known else unexpected(error)}"
    with _lock:
        if message in _logged or len(_logged) >= _MOST:
            return
        _logged.add(message)
    _log.warning("%s", message, exc_info=None if is_known else error)


def unexpected(error: Exception) -> str:
    """Return the text of an error that Interposer does not raise on purpose."""
    return f"Interposer failed with {type(error).__name__}: {error}"
