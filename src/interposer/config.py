"""Settings from the environment."""

from __future__ import annotations

import os
from typing import Final

__all__ = ["DISABLED_BACKENDS", "disabled_backends"]

DISABLED_BACKENDS: Final = "INTERPOSER_DISABLED_BACKENDS"
"""Environment variable: ids of backends to leave out, separated by commas."""


def disabled_backends() -> frozenset[str]:
    """The ids that the environment leaves out."""
    return frozenset(name.strip() for name in os.environ.get(DISABLED_BACKENDS, "").split(",") if name.strip())
