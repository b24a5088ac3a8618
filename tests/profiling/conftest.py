"""Fixtures of all tests of profiling."""

from __future__ import annotations

import weakref

import pytest

from interposer.profiling import recorder


@pytest.fixture(autouse=True)
def only_new_networks(monkeypatch):
    """Hide the memory of networks that other tests have left loaded, whose bytes each new recorder would get."""
    monkeypatch.setattr(recorder, "_gauges", weakref.WeakSet())
