"""The format of NNAPI documents."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from interposer.file_formats.format import Certainty, Content, Format, Reading
from interposer.ir.network import Network

__all__ = ["Nnapi"]


class Nnapi(Format):
    """Models for Android's Neural Networks API as JSON, or as a mapping in memory."""

    title: ClassVar = "NNAPI"
    files: ClassVar = "NNAPI documents"
    binds_shapes: ClassVar = True
    object_title: ClassVar = "an NNAPI document"

    def recognizes(self, content: Content) -> Certainty:
        """Return STRUCTURE for a JSON object."""
        return Certainty.STRUCTURE if content.head.lstrip().startswith(b"{") else Certainty.NO

    def accepts(self, source: object) -> bool:
        """Return True for a mapping."""
        return isinstance(source, Mapping)

    def read(self, source: Any, reading: Reading) -> Network:
        """Return the network of a document or a file."""
        from interposer.frontends import nnapi  # noqa: PLC0415 - front ends are imported when a model asks for them

        if not isinstance(source, Mapping):
            return nnapi.load(source, shapes=reading.shapes)
        return nnapi.build(source, shapes=reading.shapes)
