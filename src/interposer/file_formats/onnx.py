"""The format of ONNX models."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from interposer.core.families import import_families
from interposer.file_formats.format import Certainty, Content, Format, Reading, WriteOption
from interposer.formats.onnx import is_text

if TYPE_CHECKING:
    from interposer.frontends.template import Template
    from interposer.ir.graph import Layer
    from interposer.ir.network import Network

__all__ = ["Onnx"]


class Onnx(Format):
    """ONNX models, binary or text, or an `onnx.ModelProto` in memory."""

    title: ClassVar = "ONNX"
    files: ClassVar = "ONNX models"
    extra: ClassVar = "onnx"
    suffixes: ClassVar = (".onnx",)
    served_suffixes: ClassVar = (".onnx",)
    written_suffix: ClassVar = ".onnx"
    binds_shapes: ClassVar = True

    write_options: ClassVar = (
        WriteOption(
            "opset",
            "the version of the operator set (default: 20, which engines support, or a newer one if it is needed)",
            int, "N",
        ),
        WriteOption(
            "inexact", "write quantized layers as float layers between DequantizeLinear and QuantizeLinear",
            argument="exact=False",
        ),
        WriteOption("external_data", "write the weights to a separate file"),
    )  # fmt: skip

    def recognizes(self, content: Content) -> Certainty:
        """Return STRUCTURE for a text, and GUESS for the version of the format, with which most binary models begin."""
        if is_text(content.head):
            return Certainty.STRUCTURE
        return Certainty.GUESS if content.head.startswith(b"\x08") else Certainty.NO

    def accepts(self, source: object) -> bool:
        """Return True for a model that the package onnx has read."""
        return type(source).__name__ == "ModelProto"

    def read(self, source: Any, reading: Reading) -> Template:
        """Return a template of the network."""
        from interposer.frontends import onnx  # noqa: PLC0415 - front ends are imported when a model asks for them

        return onnx.template(source, shapes=reading.shapes, inputs=reading.inputs or (), outputs=reading.outputs)

    def files_of_weights(self, path: str | os.PathLike[str]) -> tuple[Path, ...]:
        """Return the files with external data."""
        from interposer.frontends.onnx import external  # noqa: PLC0415

        return external.files_of_weights(path)

    def operators(self) -> Iterable[str]:
        """Return the names of operators of all domains, without the domain."""
        from interposer.frontends.onnx import onnx_converters  # noqa: PLC0415

        import_families(onnx_converters.__package__)
        return (operator.rpartition(":")[2] for operator in onnx_converters.operators())

    def write(self, network: Network, path: str, options: Mapping[str, Any]) -> str:
        """Write a network to a file."""
        from interposer.writers import onnx  # noqa: PLC0415 - needs the package onnx, which not everybody has

        is_exact, data_file = not options.get("inexact"), options.get("external_data") or None
        opset = onnx.save(network, path, opset=options.get("opset"), exact=is_exact, external_data=data_file)
        return f"ONNX, opset {opset}"

    def refusals(self, layer: Layer) -> list[str]:
        """Return why no operators of the newest opset compute the layer."""
        from interposer.writers import onnx  # noqa: PLC0415

        return onnx.reasons(layer, exact=False)

    def write_quantized(self, network: Network, path: str) -> str:
        """Write quantized layers between DequantizeLinear and QuantizeLinear, which engines fuse."""
        return self.write(network, path, {"inexact": True})
