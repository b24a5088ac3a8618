"""The devices of a backend that has several, and how users name them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from interposer.backend.capabilities import Capability
from interposer.core.records import dataclass

__all__ = ["Device", "device_index", "is_address", "split_address"]


@dataclass(frozen=True, slots=True)
class Device:
    """A device of a backend. Users name it by its `index` or its `id`: ``"Npu:1"``, ``"Npu:pci:0000:41:00.0"``.

    `id` is the same in every process on this machine. `type` is "cpu", "gpu", "npu", "dsp", "fpga" or "other".
    `memory`, `memory_free` and `largest` (the largest allocation) are in bytes, and 0 if they are unknown; so is
    `queue_limit`, the number of queues that run at the same time. `unified` devices share the memory of the host,
    `simulated` ones run on the processor of the host, and `drives_display` says that the device also drives a display.
    `dlpack` is the type and the number of the device in DLPack, or None. `uuid` has 16 bytes by which two backends know
    that they share a device, or is empty. `properties` are capabilities of this device.
    """

    index: int
    id: str
    name: str = ""
    vendor: str = ""
    driver: str = ""
    type: str = "other"
    memory: int = 0
    memory_free: int = 0
    largest: int = 0
    queue_limit: int = 0
    unified: bool = False
    simulated: bool = False
    drives_display: bool = False
    dlpack: tuple[int, int] | None = None
    uuid: bytes = b""
    properties: tuple[Capability, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """Return the device as JSON-compatible data."""
        properties = {property_.name: property_.value for property_ in self.properties}
        return asdict(self) | {"uuid": self.uuid.hex(), "properties": properties}

    def __str__(self) -> str:
        names = ", ".join(filter(None, (self.id, self.name)))
        return f"{self.index} ({names})" if names else str(self.index)


def split_address(text: str) -> tuple[str, str] | None:
    """Return the id of the backend and the device in an address such as ``"Npu:1"``; None if the text has no colon."""
    backend, colon, device = text.partition(":")
    return (backend, device) if colon else None


def is_address(text: str) -> bool:
    """Return True if a text is certainly the address of a device, and not the ``MODULE:CLASS`` of a backend.

    The name of a class consists of identifiers. ``"Npu:1"`` and ``"Npu:pci:0000:41:00.0"`` do not.
    """
    id_and_device = split_address(text)
    return (
        id_and_device is not None
        and id_and_device[1] != ""
        and not all(name.isidentifier() for name in id_and_device[1].split("."))
    )


def device_index(devices: Sequence[Device], text: str) -> int | None:
    """Return the index of the device that a user means by an index or an id; None if there is no such device."""
    by_id = {device.id: device.index for device in devices if device.id}
    if text in by_id:
        return by_id[text]
    index = int(text) if text.isascii() and text.isdecimal() else len(devices)
    return index if index < len(devices) and str(index) == text else None
