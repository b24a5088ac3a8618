"""The load of the machine by other processes during a measurement."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Final

__all__ = ["Watch"]

STAT: Final = Path("/proc/stat")


class Watch:
    """Watches the load of the machine from its creation on."""

    def __init__(self) -> None:
        self._start, self._busy = time.perf_counter(), _busy_seconds()

    def others(self, ours_ms: float) -> float | None:
        """Return the fraction of all processors' time since then that other processes used; None if it is unknown."""
        busy = _busy_seconds()
        if busy is None or self._busy is None:
            return None
        available = (time.perf_counter() - self._start) * (os.cpu_count() or 1)
        return min(1.0, max(0.0, (busy - self._busy - ours_ms / 1000) / available))


def _busy_seconds() -> float | None:
    """Return the processor time since the start of the machine that was neither idle nor waiting."""
    try:
        words = STAT.read_text(encoding="ascii").split("\n", 1)[0].split()
    except OSError:
        return None
    user, nice, system, _, _, *interrupts = map(int, words[1:9])
    return float(user + nice + system + sum(interrupts)) / os.sysconf("SC_CLK_TCK")
