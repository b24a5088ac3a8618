"""Fixtures of the tests of the server."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.runtime.test_concurrency import OpenGates


@pytest.fixture
def gates() -> Iterator[OpenGates]:
    """A backend whose runs wait until the test opens the gates, and that does not wait after the test."""
    open_gates = OpenGates()
    yield open_gates
    open_gates.open.set()
