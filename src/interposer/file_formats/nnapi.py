"""The format of NNAPI documents."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar, Final

from interposer.file_formats.format import Certainty, Content, Format, Reading
from interposer.formats.json_files import foreign_json, is_json, is_nnapi

if TYPE_CHECKING:
    from interposer.ir.network import Network

__all__ = ["Nnapi"]

_SEARCHED: Final = 1 << 24
"""How many bytes of a JSON file are searched for the keys of a document."""


class Nnapi(Format):
    """Models for Android's Neural Networks API as JSON, or as a mapping in memory."""

    title: ClassVar = "NNAPI"
    files: ClassVar = "NNAPI documents"
    binds_shapes: ClassVar = True
    object_title: ClassVar = "an NNAPI document"

    def recognizes(self, content: Content) -> Certainty:
        """Return STRUCTURE for JSON with a key of an NNAPI document, and LIKELY for other JSON."""
        if not is_json(content.head):
            return Certainty.NO
        return Certainty.STRUCTURE if is_nnapi(_beginning(content)) else Certainty.LIKELY

    def explains(self, content: Content) -> str | None:
        """Return what another JSON file is, and what to do."""
        if not is_json(content.head) or is_nnapi(_beginning(content)):
            return None
        return foreign_json(_beginning(content))

    def accepts(self, source: object) -> bool:
        """Return True for a mapping."""
        return isinstance(source, Mapping)

    def read(self, source: Any, reading: Reading) -> Network:
        """Return the network of a document or a file."""
        from interposer.frontends import nnapi  # noqa: PLC0415 - front ends are imported when a model asks for them

        if not isinstance(source, Mapping):
            return nnapi.load(source, shapes=reading.shapes)
        return nnapi.build(source, shapes=reading.shapes)


def _beginning(content: Content) -> bytes:
    return content.piece(0, _SEARCHED)
