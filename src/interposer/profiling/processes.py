"""The name of this process, as traces and collectors show it."""

from __future__ import annotations

from pathlib import Path

__all__ = ["process_name"]


def process_name() -> str:
    """Return the name that the kernel has for the process, or "python" where it cannot be read."""
    try:
        return Path("/proc/self/comm").read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return "python"
