"""The extension ``ipr.devices/1``: the devices of a plug-in."""

from __future__ import annotations

import ctypes
from typing import Any, Final

from interposer.backend.capabilities import Capability
from interposer.backend.devices import Device
from interposer.core.errors import BackendContractError
from interposer.plugins.capi.abi import structs as abi
from interposer.plugins.capi.abi.reading import read, read_array, read_text
from interposer.plugins.capi.library.information import read_property
from interposer.plugins.capi.library.library import Library

__all__ = ["OPTION", "devices_of"]

OPTION: Final = "Device"
"""The option that names the index of a device, which a plug-in with this extension declares."""
_MANY: Final = 256
_TYPES: Final = {
    abi.DEVICE_CPU: "cpu", abi.DEVICE_GPU: "gpu", abi.DEVICE_NPU: "npu", abi.DEVICE_DSP: "dsp", abi.DEVICE_FPGA: "fpga",
}  # fmt: skip


def devices_of(library: Library) -> tuple[Device, ...]:
    """Return the devices of a plug-in; empty if it does not have the extension.

    Raises:
        CallError: the plug-in failed.
        BackendContractError: the description is damaged, or the plug-in does not declare the option ``Device``.
    """
    functions = library.extension(abi.EXT_DEVICES, abi.DevicesApi, {"describe": "describe_devices"})
    if functions is None:
        return ()
    option = next((option for option in library.info.options if option.name == OPTION), None)
    if option is None or option.kind is not int or not option.scope & abi.SCOPE_MODEL:
        raise BackendContractError(
            f"the plug-in has {abi.EXT_DEVICES.decode()}, but no integer option {OPTION!r} for networks",
            backend=library.id,
        )
    out = abi.Devices(struct_size=ctypes.sizeof(abi.Devices))
    with library.serialized():
        library.call("describe", functions["describe"], library.self, ctypes.addressof(out))
        with library.holding(out):
            return _read_devices(out, library.id)


def _read_devices(out: abi.Devices, backend: str) -> tuple[Device, ...]:
    if not 1 <= out.device_count <= _MANY:
        raise BackendContractError(f"{out.device_count:,} devices; expected 1 to {_MANY}", backend=backend)
    rows = read_array(abi.Device, out.devices, out.device_count, out.device_stride, "the devices")
    devices = tuple(_read_device(index, row) for index, row in enumerate(rows))
    ids = [device.id for device in devices]
    if "" in ids or len(set(ids)) < len(ids):
        names = ", ".join(map(repr, ids))
        raise BackendContractError(
            f"the devices must have different ids that are not empty, not {names}", backend=backend
        )
    return devices


def _read_device(index: int, row: Any) -> Device:
    id_, name, vendor, driver = (
        read_text(getattr(row, member), f"the {member} of a device") for member in ("id", "name", "vendor", "driver")
    )
    if row.property_count > _MANY:
        raise BackendContractError(f"{row.property_count:,} properties of device {id_!r} cannot be meant")
    properties = read_array(
        abi.Property, row.properties, row.property_count, row.property_stride, f"the properties of device {id_!r}"
    )
    return Device(
        index, id_, name, vendor, driver, _TYPES.get(row.type, "other"), row.memory, row.memory_free, row.largest,
        row.queue_limit, bool(row.flags & abi.DEVICE_UNIFIED), bool(row.flags & abi.DEVICE_SIMULATED),
        bool(row.flags & abi.DEVICE_DISPLAY), (row.dlpack_type, row.dlpack_id) if row.dlpack_type else None,
        read(row.uuid, 16, "the UUID of a device") if row.uuid else b"",
        tuple(Capability(*read_property(each)) for each in properties),
    )  # fmt: skip
