"""Types of options of the benchmarks."""

from __future__ import annotations

import argparse

__all__ = ["positive"]


def positive(said: str) -> int:
    """Return the integer that an option was given.

    Raises:
        ArgumentTypeError: the text is no integer, or the integer is less than 1.
    """
    if not said.isdecimal() or int(said) == 0:
        raise argparse.ArgumentTypeError(f"expected a positive number, not {said!r}")
    return int(said)
