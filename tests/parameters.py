"""Parametrizations of which a part runs by default: `make test` stays quick, and `make test-all` runs all of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import pytest


def one_in(step: int, values: Iterable[Any]) -> list[Any]:
    """Return the values with the mark `slow` on all but the first of each `step` values."""
    return [value if index % step == 0 else _slow(value) for index, value in enumerate(values)]


def slow_unless(is_quick: Callable[[Any], bool], values: Iterable[Any]) -> list[Any]:
    """Return the values with the mark `slow` on all for which `is_quick` is false."""
    return [value if is_quick(value) else _slow(value) for value in values]


def _slow(value: Any) -> Any:
    return pytest.param(*(value if isinstance(value, tuple) else (value,)), marks=pytest.mark.slow)
