"""Backends that the command line can be asked for."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

import pytest

from interposer import process_registry
from interposer.backend import Backend
from tests.devices import Device, Sums


class Gone(Backend):
    """A backend whose device is missing."""

    id: ClassVar = "Gone"

    @classmethod
    def unavailable(cls) -> str | None:
        return "there is no such device"


@pytest.fixture
def more_backends() -> Iterator[None]:
    """Sums adds and multiplies, Device can only do ReLU, and Gone is absent."""
    registry = process_registry()
    backends = {"Sums": Sums, "Device": Device, "Gone": Gone}
    for name, backend in backends.items():
        registry.register(name, backend, source="registered by a test")
    yield
    for name in backends:
        registry.deregister(name)
