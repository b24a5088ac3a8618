"""The floating-point mode of the calling thread: denormal handling and rounding mode."""

from __future__ import annotations

import ctypes
from contextlib import suppress

import numpy as np

__all__ = ["mode_problems", "reset_mode"]


def mode_problems() -> list[str]:
    """Return the deviations from the default floating-point mode, detected by arithmetic; empty if there are none."""
    denormals, ones = np.array([1e-39, 2e-39], np.float32), np.array([1.0, -1.0])
    below_half_step, one_and_three = np.array([2.0**-54, -(2.0**-54)]), np.array([1.0, 3.0], np.float32)
    errors = []
    if denormals[0] + denormals[0] != denormals[1] or np.float32(2**-100) * np.float32(2**-40) == 0:
        errors.append("denormals are flushed to zero")
    sums = ones + below_half_step, ones - below_half_step
    if (
        not all(np.array_equal(rounded_sum, ones) for rounded_sum in sums)
        or np.float64(one_and_three[0] / one_and_three[1]) < 1 / 3
    ):
        errors.append("results are not rounded to the nearest value")
    return errors


def reset_mode() -> None:
    """Restore the default floating-point mode of the calling thread, if the C library supports it."""
    with suppress(OSError, AttributeError):
        libm = ctypes.CDLL("libm.so.6")
        libm.fesetenv(ctypes.c_void_p(-1))  # FE_DFL_ENV
