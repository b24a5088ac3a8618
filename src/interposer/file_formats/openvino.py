"""The format of networks in OpenVINO's IR."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Final

from interposer.file_formats.format import Certainty, Content, Format, Reading

if TYPE_CHECKING:
    from interposer.frontends.template import Template

__all__ = ["OpenVinoIr"]

_IR: Final = re.compile(rb"(?s)(\xef\xbb\xbf)?\s*(<\?xml[^>]*>\s*)?(<!--.*?-->\s*)*<net\s[^>]*version=")


class OpenVinoIr(Format):
    """OpenVINO's IR: an XML file with the layers, and a file with the weights beside it."""

    title: ClassVar = "OpenVINO IR"
    files: ClassVar = "networks of OpenVINO's IR"
    extra: ClassVar = "openvino"
    served_suffixes: ClassVar = (".xml",)
    options: ClassVar = frozenset({"weights"})
    binds_shapes: ClassVar = True
    backends: ClassVar = ("OpenVino",)

    def recognizes(self, content: Content) -> Certainty:
        """Return SIGNATURE for the element with which an IR begins."""
        return Certainty.SIGNATURE if _IR.match(content.head) else Certainty.NO

    def read(self, source: Any, reading: Reading) -> Template:
        """Return a template of the network, which is one layer that the backend OpenVino runs."""
        from interposer.frontends import openvino  # noqa: PLC0415 - front ends are imported when a model asks for them

        return openvino.template(source, shapes=reading.shapes, weights=reading.weights)

    def files_of_weights(self, path: str | os.PathLike[str]) -> tuple[Path, ...]:
        """Return the file with the weights beside the file, if there is one."""
        weights = Path(path).with_suffix(".bin")
        return (weights,) if weights.is_file() else ()
