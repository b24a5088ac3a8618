"""The format of TensorFlow Lite files."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from interposer.file_formats.format import Certainty, Content, Format, Reading

if TYPE_CHECKING:
    from interposer.frontends.template import Template
    from interposer.ir.graph import Layer
    from interposer.ir.network import Network

__all__ = ["TFLite"]


class TFLite(Format):
    """TensorFlow Lite files, FlatBuffers with the identifier TFL3."""

    title: ClassVar = "TFLite"
    files: ClassVar = "TFLite files"
    extra: ClassVar = "tflite"
    suffixes: ClassVar = (".tflite",)
    served_suffixes: ClassVar = (".tflite",)
    written_suffix: ClassVar = ".tflite"
    options: ClassVar = frozenset({"signature", "stand_in", "subgraph"})
    binds_shapes: ClassVar = True

    def recognizes(self, content: Content) -> Certainty:
        """Return SIGNATURE for the identifier of the format."""
        return Certainty.SIGNATURE if content.head[4:8] == b"TFL3" else Certainty.NO

    def read(self, source: Any, reading: Reading) -> Template:
        """Return a template of the network, whose dynamic dimensions are open."""
        from interposer.frontends import tflite  # noqa: PLC0415 - front ends are imported when a model asks for them

        return tflite.template(
            source, shapes=reading.shapes, dynamic=True, signature=reading.signature, stand_in=reading.stand_in,
            inputs=reading.inputs or (), outputs=reading.outputs, subgraph=reading.subgraph,
        )  # fmt: skip

    def files_of_weights(self, path: str | os.PathLike[str]) -> tuple[Path, ...]:
        """Return the files with weights that are not in the FlatBuffer."""
        from interposer.frontends.tflite import container  # noqa: PLC0415

        return container.files_of_weights(path)

    def operators(self) -> Iterable[str]:
        """Return the names of operators, custom ones as ``CUSTOM name``."""
        from interposer.frontends import tflite  # noqa: PLC0415

        return tflite.operators()

    def write(self, network: Network, path: str, options: Mapping[str, Any]) -> str:
        """Write a network to a file."""
        from interposer.writers import tflite  # noqa: PLC0415 - needs the package flatbuffers, which may be absent

        return f"TFLite, {tflite.save(network, path):,} bytes"

    def refusals(self, layer: Layer) -> list[str]:
        """Return why no operator of TensorFlow Lite computes the layer on its types."""
        from interposer.writers import tflite  # noqa: PLC0415

        return tflite.reasons(layer)
