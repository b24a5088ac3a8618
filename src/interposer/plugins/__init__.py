"""Plug-ins: the registry of backends, their discovery, and the C interface for backends in shared objects."""

from interposer.plugins.capi.loading.records import DynamicBackendRecord
from interposer.plugins.device_spec import DeviceSpec
from interposer.plugins.registry import BackendRecord, BackendRegistry, process_registry

__all__ = ["BackendRecord", "BackendRegistry", "DeviceSpec", "DynamicBackendRecord", "process_registry"]
