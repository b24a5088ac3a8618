"""Parametrizations of which a part runs by default: `make test` stays quick, and `make test-all` runs all of them.

Tests that are not run take as long to collect as others, so `make test` makes none of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, TypeVar

import pytest

T = TypeVar("T")
slow_are_wanted = True
"""Whether this run of pytest has slow tests; `tests/conftest.py` sets it before it collects tests."""


def one_in(step: int, values: Iterable[Any]) -> list[Any]:
    """Return the values with the mark `slow` on all but the first of each `step` values; those only if wanted."""
    return [*_marked((index % step == 0, value) for index, value in enumerate(values))]


def slow_unless(is_quick: Callable[[Any], bool], values: Iterable[Any]) -> list[Any]:
    """Return the values with the mark `slow` on all for which `is_quick` is false; those only if wanted."""
    return [*_marked((is_quick(value), value) for value in values)]


def divided(step: int, values: Sequence[T], groups: int = 16) -> tuple[Sequence[T], list[list[T]]]:
    """Return one of each `step` values for a test of each, and all others in groups, each for one slow test."""
    others = [value for index, value in enumerate(values) if index % step]
    return values[::step], [others[group::groups] for group in range(groups)]


def _marked(values: Iterable[tuple[bool, Any]]) -> Iterator[Any]:
    for is_quick, value in values:
        if is_quick:
            yield value
        elif slow_are_wanted:
            yield pytest.param(*(value if isinstance(value, tuple) else (value,)), marks=pytest.mark.slow)
