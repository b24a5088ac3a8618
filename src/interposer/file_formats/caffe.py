"""The format of Caffe networks."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from interposer.file_formats.format import Certainty, Content, Format, Reading
from interposer.formats.caffe import is_caffe

if TYPE_CHECKING:
    from interposer.frontends.template import Template

__all__ = ["Caffe"]


class Caffe(Format):
    """Caffe's networks: a prototxt with a caffemodel beside it, or a caffemodel alone."""

    title: ClassVar = "Caffe"
    files: ClassVar = "Caffe networks"
    extra: ClassVar = "caffe"
    suffixes: ClassVar = (".prototxt", ".caffemodel")
    served_suffixes: ClassVar = (".prototxt",)
    options: ClassVar = frozenset({"weights"})
    binds_shapes: ClassVar = True

    def recognizes(self, content: Content) -> Certainty:
        """Return LIKELY for fields that a network of Caffe begins with."""
        is_likely = is_caffe(content.head) and not content.head.startswith(b"ir_version")
        return Certainty.LIKELY if is_likely else Certainty.NO

    def read(self, source: Any, reading: Reading) -> Template:
        """Return a template of the network."""
        from interposer.frontends import caffe  # noqa: PLC0415 - front ends are imported when a model asks for them

        return caffe.template(source, weights=reading.weights, shapes=reading.shapes, outputs=reading.outputs)

    def files_of_weights(self, path: str | os.PathLike[str]) -> tuple[Path, ...]:
        """Return the caffemodel beside a prototxt, if there is one."""
        from interposer.frontends import caffe  # noqa: PLC0415

        weights = caffe.weights_of(path)
        return () if weights is None else (weights,)
