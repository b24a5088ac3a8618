"""What all tests share: no clocks, and the skipping of those that need CpuRef where that backend is absent."""

from __future__ import annotations

import pytest
from hypothesis import settings

settings.register_profile("untimed", deadline=None)
settings.load_profile("untimed")

MARKER = "needs_cpuref: runs networks on CpuRef; skipped where that backend is absent or disabled"


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", MARKER)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    marked = [item for item in items if item.get_closest_marker("needs_cpuref")]
    reason = _why_absent() if marked else None
    for item in marked if reason is not None else ():
        item.add_marker(pytest.mark.skip(reason=f"CpuRef is absent: {reason}"))


def _why_absent() -> str | None:
    from interposer.backend import DeviceSpec
    from interposer.errors import UnknownBackendError

    try:
        return DeviceSpec.default().registry.reason_absent("CpuRef")
    except UnknownBackendError as error:
        return str(error)
