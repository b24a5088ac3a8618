"""The files that a backend in native code is built with: the C header, the C++ wrapper and the Rust binding.

``python -m interposer.include`` prints the folder to give to a compiler: ``cc -I"$(python -m interposer.include)"``.
"""

from __future__ import annotations

from pathlib import Path

__all__ = ["path"]


def path() -> Path:
    """Return the folder in which ``interposer/backend.h``, ``backend.hpp`` and ``backend.rs`` lie."""
    return Path(__file__).resolve().parent
