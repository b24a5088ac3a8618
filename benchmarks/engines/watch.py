"""What else the machine was doing while something was measured."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Final

__all__ = ["Watch"]

STAT: Final = Path("/proc/stat")


class Watch:
    """Begins to watch when it is made."""

    def __init__(self) -> None:
        self._start, self._busy = time.perf_counter(), _busy_seconds()

    def others(self, ours_ms: float) -> float | None:
        """The part of all processors' time that was not idle and not ours since then; None if nobody tells."""
        busy = _busy_seconds()
        if busy is None or self._busy is None:
            return None
        available = (time.perf_counter() - self._start) * (os.cpu_count() or 1)
        return min(1.0, max(0.0, (busy - self._busy - ours_ms / 1000) / available))


def _busy_seconds() -> float | None:
    """Processor time since the start of the machine that was neither idle nor waiting."""
    try:
        words = STAT.read_text(encoding="ascii").split("\n", 1)[0].split()
    except OSError:
        return None
    user, nice, system, _, _, *interrupts = map(int, words[1:9])
    return float(user + nice + system + sum(interrupts)) / os.sysconf("SC_CLK_TCK")
