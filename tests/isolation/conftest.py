"""Isolated backends whose processes start in little time."""

from __future__ import annotations

import pytest


@pytest.fixture(autouse=True)
def _programs_are_warm(warm_python: None) -> None:
    """Let the processes of isolated backends be forks of a process that has imported the package."""
