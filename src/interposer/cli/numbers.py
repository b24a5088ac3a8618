"""Parsers for command-line arguments with numbers and lists."""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable
from typing import Final

__all__ = ["listed", "number", "numbers", "positive", "spreads", "threads", "whole"]

_MOST_THREADS: Final = 4096


def listed(text: str) -> list[str]:
    """Return the parts between commas without the blanks around them, or no parts if one of them is empty."""
    parts = [part.strip() for part in text.split(",")]
    return parts if all(parts) else []


def positive(text: str) -> int:
    """Return an integer of 1 or more; raise `ArgumentTypeError` for any other text."""
    if not (text.isascii() and text.isdecimal()) or int(text) == 0:
        raise argparse.ArgumentTypeError(f"expected a whole number of 1 or more, not {text!r}")
    return int(text)


def threads(text: str) -> int:
    """Return a number of threads from 1 to the largest allowed one; raise `ArgumentTypeError` for any other text."""
    if not (text.isascii() and text.isdecimal() and 1 <= int(text) <= _MOST_THREADS):
        raise argparse.ArgumentTypeError(f"expected a number of threads from 1 to {_MOST_THREADS}, not {text!r}")
    return int(text)


def whole(text: str) -> int:
    """Return an integer of 0 or more; raise `ArgumentTypeError` for any other text."""
    if not (text.isascii() and text.isdecimal()):
        raise argparse.ArgumentTypeError(f"expected a whole number of 0 or more, not {text!r}")
    return int(text)


def number(expected: str, *, zero: bool = True) -> Callable[[str], float]:
    """Return a parser of finite numbers above zero, or from zero on if `zero` is True.

    Args:
        expected: the description of a valid number in the message of `ArgumentTypeError`.
        zero: whether 0 is valid.
    """

    def read(text: str) -> float:
        try:
            parsed_number = float(text)
        except ValueError:
            parsed_number = math.nan
        if not (0 < parsed_number < math.inf or (zero and parsed_number == 0)):
            raise argparse.ArgumentTypeError(f"expected {expected}, not {text!r}")
        return parsed_number

    return read


def numbers(text: str) -> tuple[float, ...]:
    """Return one or several finite numbers with commas between them; raise `ArgumentTypeError` for any other text."""
    try:
        parsed_numbers = tuple(float(part) for part in text.split(","))
    except ValueError:
        parsed_numbers = ()
    if not parsed_numbers or not all(map(math.isfinite, parsed_numbers)):
        raise argparse.ArgumentTypeError(f"expected a number, or several with commas, not {text!r}")
    return parsed_numbers


def spreads(text: str) -> tuple[float, ...]:
    """Return one or several numbers above zero; raise `ArgumentTypeError` for any other text."""
    parsed_spreads = numbers(text)
    if not all(spread > 0 for spread in parsed_spreads):
        raise argparse.ArgumentTypeError(f"expected positive numbers, not {text!r}")
    return parsed_spreads
