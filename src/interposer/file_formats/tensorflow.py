"""The format of TensorFlow models."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

from interposer.core.errors import InvalidArgumentError
from interposer.file_formats.format import Certainty, Content, Format, Reading
from interposer.formats.tensorflow import is_saved_model, is_tensorflow, missing

if TYPE_CHECKING:
    from interposer.frontends.template import Template

__all__ = ["TensorFlow"]


class TensorFlow(Format):
    """TensorFlow's frozen graphs, and the folders of SavedModels."""

    title: ClassVar = "TensorFlow"
    files: ClassVar = "TensorFlow models"
    suffixes: ClassVar = (".pbtxt",)
    served_suffixes: ClassVar = (".pb", ".savedmodel")
    options: ClassVar = frozenset({"signature"})
    binds_shapes: ClassVar = True

    def recognizes(self, content: Content) -> Certainty:
        """Return SIGNATURE for the folder of a SavedModel, and STRUCTURE for a graph."""
        if content.is_folder:
            return Certainty.SIGNATURE if is_saved_model(str(content.path)) else Certainty.NO
        return Certainty.STRUCTURE if is_tensorflow(content.head) else Certainty.NO

    def explains(self, content: Content) -> str | None:
        """Return what a folder lacks that is no SavedModel."""
        return missing(content.path) if content.is_folder and content.path is not None else None

    def read(self, source: Any, reading: Reading) -> Template:
        """Return a template of the network."""
        from interposer.frontends import tensorflow  # noqa: PLC0415 - front ends are imported when a model asks

        read = partial(tensorflow.template, source, shapes=reading.shapes, signature=reading.signature)
        try:
            return read(outputs=reading.outputs)
        except InvalidArgumentError:
            template = read()
            if reading.outputs is None or not template.signatures:
                raise
            return template  # the outputs may be values in the functions of a SavedModel, which the network has
