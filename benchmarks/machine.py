"""A description of the machine on which figures were measured."""

from __future__ import annotations

import os
import platform
from pathlib import Path


def machine() -> dict[str, str | int | None]:
    """Return the names of the processor and of the system, and the number of processors."""
    return {"processor": _processor(), "system": platform.platform(), "processors": os.cpu_count()}


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor()
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(names, platform.processor())
