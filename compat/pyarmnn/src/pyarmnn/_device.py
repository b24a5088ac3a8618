"""`IDeviceSpec`: the backends of a runtime."""

from __future__ import annotations

from interposer import DeviceSpec
from pyarmnn._arguments import instance
from pyarmnn._backend_id import BackendId
from pyarmnn._proxy import Abstract, borrowed

__all__ = ["IDeviceSpec"]


class IDeviceSpec(Abstract, destructor=False):
    """The backends for which networks can be optimized; `IRuntime.GetDeviceSpec` returns it."""

    _device_spec: DeviceSpec

    @classmethod
    def _of(cls, device_spec: DeviceSpec) -> IDeviceSpec:
        spec = borrowed(cls._create())
        spec._device_spec = device_spec
        return spec

    def GetSupportedBackends(self) -> tuple[BackendId, ...]:
        """Return the ids of the backends that are available without being asked for by name."""
        return tuple(map(BackendId, self._device_spec.default_backends))

    def __str__(self) -> str:
        return f"IDeviceSpec {{ supportedBackends: [{', '.join(map(str, self.GetSupportedBackends()))}]}}"


DEVICE_SPEC = instance(IDeviceSpec, "armnn::IDeviceSpec const &")
