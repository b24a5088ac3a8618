"""Plug-ins: the registry of backends, their discovery, and the C interface for backends in shared objects."""

from __future__ import annotations

from typing import TYPE_CHECKING

from interposer.core.lazy_names import lazy_names
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

__getattr__, __dir__ = lazy_names(__name__, {"capi.loading.open_libraries": ("backend_of_file",)})
