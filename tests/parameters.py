"""Parametrizations of which a part runs by default: `make test` stays quick, and `make test-all` runs all of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar

import pytest

T = TypeVar("T")


def one_in(step: int, values: Iterable[Any]) -> list[Any]:
    """Return the values with the mark `slow` on all but the first of each `step` values."""
    return [value if index % step == 0 else _slow(value) for index, value in enumerate(values)]


def slow_unless(is_quick: Callable[[Any], bool], values: Iterable[Any]) -> list[Any]:
    """Return the values with the mark `slow` on all for which `is_quick` is false."""
    return [value if is_quick(value) else _slow(value) for value in values]


def divided(step: int, values: Sequence[T], groups: int = 16) -> tuple[Sequence[T], list[list[T]]]:
    """Return one of each `step` values for a test of each, and all others in groups, each for one slow test.

    Thousands of tests that are not run take seconds to collect.
    """
    others = [value for index, value in enumerate(values) if index % step]
    return values[::step], [others[group::groups] for group in range(groups)]


def _slow(value: Any) -> Any:
    return pytest.param(*(value if isinstance(value, tuple) else (value,)), marks=pytest.mark.slow)
