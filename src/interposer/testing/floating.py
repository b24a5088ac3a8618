"""The floating-point mode of the calling thread: whether denormals are kept, and how results are rounded."""

from __future__ import annotations

import ctypes
from contextlib import suppress

import numpy as np

__all__ = ["mode_problems", "reset_mode"]


def mode_problems() -> list[str]:
    """What is not as a thread begins with, found by arithmetic on values that show it; empty where all is well."""
    tiny, item = np.array([1e-39, 2e-39], np.float32), np.array([1.0, -1.0])
    small, third = np.array([2.0**-54, -(2.0**-54)]), np.array([1.0, 3.0], np.float32)
    errors = []
    if tiny[0] + tiny[0] != tiny[1] or np.float32(2**-100) * np.float32(2**-40) == 0:
        errors.append("denormals are flushed to zero")
    sums = item + small, item - small
    if not all(np.array_equal(total, item) for total in sums) or np.float64(third[0] / third[1]) < 1 / 3:
        errors.append("results are not rounded to the nearest value")
    return errors


def reset_mode() -> None:
    """Give the calling thread the mode that it began with, where the C library can."""
    with suppress(OSError, AttributeError):
        libm = ctypes.CDLL("libm.so.6")
        libm.fesetenv(ctypes.c_void_p(-1))  # FE_DFL_ENV
