"""`DeviceSpec`: the backends that a network may be optimized for."""

from __future__ import annotations

from functools import cache

from interposer.core.config import disabled_backends, settings
from interposer.isolation import Isolation, requested_isolations
from interposer.plugins.discovery import load_dynamic_backends
from interposer.plugins.registry import BackendRegistry, making, process_registry

__all__ = ["DeviceSpec"]


class DeviceSpec:
    """The set of backends that the optimizer may place layers on, taken from one registry."""

    def __init__(self, registry: BackendRegistry) -> None:
        self.registry = registry

    @classmethod
    def default(cls) -> DeviceSpec:
        """Return the backends of the process and the dynamic ones, without those that the environment disables."""
        return cls(_default_registry(disabled_backends()))

    @property
    def supported_backends(self) -> tuple[str, ...]:
        """The ids of the backends that are available; CpuRef last."""
        return self.registry.available()

    @property
    def default_backends(self) -> tuple[str, ...]:
        """The ids of the backends that are used by default: all without the capability ``OnlyByName``."""
        return self.registry.by_default()

    def __str__(self) -> str:
        return f"DeviceSpec(supported_backends=[{', '.join(self.supported_backends)}])"


def _default_registry(disabled: frozenset[str]) -> BackendRegistry:
    with making:
        isolate = tuple(requested_isolations().items())
        return _scope(disabled, isolate, settings()["backend_path"].read() or ())


@cache
def _scope(
    disabled: frozenset[str], isolate: tuple[tuple[str, Isolation], ...], path: tuple[str, ...]
) -> BackendRegistry:
    registry = BackendRegistry(process_registry(), disabled, dict(isolate))
    load_dynamic_backends(registry, disabled=disabled)
    return registry
