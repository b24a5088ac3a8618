"""The runtime that `load` uses by default, which is created on first use."""

from __future__ import annotations

import threading
from functools import cache

from interposer.core.pauses import collector_paused
from interposer.runtime import Runtime

__all__ = ["default_runtime"]

_creating = threading.Lock()


def default_runtime() -> Runtime:
    """Return the runtime that `load` uses by default; it lives as long as the process."""
    with _creating:
        return _only_runtime()


@cache
def _only_runtime() -> Runtime:
    with collector_paused():
        return Runtime()
