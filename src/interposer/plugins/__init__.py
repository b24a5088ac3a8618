"""Plug-ins: the registry of backends, their discovery, and the C interface for backends in shared objects."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from interposer.plugins.capi.loading.records import DynamicBackendRecord
from interposer.plugins.device_spec import DeviceSpec
from interposer.plugins.registry import BackendRecord, BackendRegistry, process_registry

if TYPE_CHECKING:
    from interposer.plugins.capi.loading.open_libraries import backend_of_file

__all__ = [
    "BackendRecord",
    "BackendRegistry",
    "DeviceSpec",
    "DynamicBackendRecord",
    "backend_of_file",
    "process_registry",
]


def __getattr__(name: str) -> Any:
    if name != "backend_of_file":
        raise AttributeError(f"module 'interposer.plugins' has no attribute {name!r}")
    from interposer.plugins.capi.loading.open_libraries import backend_of_file  # noqa: PLC0415 - seldom needed

    return backend_of_file
