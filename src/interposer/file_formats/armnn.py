"""The format of Arm NN files."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar

from interposer.core.files import write_file
from interposer.file_formats.format import Certainty, Content, Format, Reading, WriteOption
from interposer.formats.armnn.recognition import is_armnn

if TYPE_CHECKING:
    from interposer.ir.graph import Layer
    from interposer.ir.network import Network

__all__ = ["ArmNN"]


class ArmNN(Format):
    """Arm NN's serialized networks, FlatBuffers with or without a file identifier."""

    title: ClassVar = "Arm NN"
    files: ClassVar = "Arm NN files"
    extra: ClassVar = "armnn"
    served_suffixes: ClassVar = (".armnn",)
    written_suffix: ClassVar = ".armnn"
    write_options: ClassVar = (
        WriteOption("inexact", "let Quantize layers round ties away from zero", argument="exact=False"),
        WriteOption(
            "release", "the release that has to read the file, such as 20.08 (default: the oldest possible one)",
            str, "VERSION",
        ),
    )  # fmt: skip

    def recognizes(self, content: Content) -> Certainty:
        """Return STRUCTURE for the root table of an Arm NN file."""
        return Certainty.STRUCTURE if is_armnn(content.head, content.piece) else Certainty.NO

    def read(self, source: Any, reading: Reading) -> Network:
        """Return the network of a file."""
        from interposer.frontends import armnn  # noqa: PLC0415 - front ends are imported when a model asks for them

        return armnn.load(source)

    def write(self, network: Network, path: str, options: Mapping[str, Any]) -> str:
        """Write a network to a file."""
        from interposer.writers import armnn  # noqa: PLC0415 - needs the package flatbuffers, which may be absent

        content, release = armnn.written(network, release=options.get("release"), exact=not options.get("inexact"))
        write_file(path, content)
        return f"Arm NN, {len(content):,} bytes, for release {release} and later ones"

    def refusals(self, layer: Layer) -> list[str]:
        """Return why no layer of the newest release of Arm NN computes the layer on its types."""
        from interposer.writers import armnn  # noqa: PLC0415

        return armnn.reasons(layer)
