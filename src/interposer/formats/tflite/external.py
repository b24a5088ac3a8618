"""Whether a TFLite file refers to files of weights beside it."""

from __future__ import annotations

import struct
from typing import Final

from interposer.formats.tflite.schema import slots

__all__ = ["may_have_external_buffers"]

_SLOT: Final = next(i for i, field in enumerate(slots("Model")) if field and field.name == "external_buffers")


def may_have_external_buffers(head: bytes) -> bool:
    """Return False if the start of a TFLite file is enough to know that it has no external buffers."""
    try:
        (root,) = struct.unpack_from("<I", head)
        vtable = root - struct.unpack_from("<i", head, root)[0]
        (length,) = struct.unpack_from("<H", head, vtable) if vtable >= 0 else (0,)
        place = 4 + 2 * _SLOT
        return bool(place < length and struct.unpack_from("<H", head, vtable + place)[0])
    except struct.error:
        return True
