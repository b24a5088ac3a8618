"""Fixtures of the tests of the delegate."""

from __future__ import annotations

from collections.abc import Iterator

import pytest


@pytest.fixture(autouse=True)
def cpuacc_in_bridges(cpuacc: None) -> Iterator[None]:
    """Lets delegates use CpuAcc: runtimes of other tests, which have disabled it, are not used."""
    from interposer.bridges import options as of_bridges
    from interposer.bridges.litert import options as of_delegates

    for module in (of_bridges, of_delegates):
        module._runtime.cache_clear()
    yield
    for module in (of_bridges, of_delegates):
        module._runtime.cache_clear()
