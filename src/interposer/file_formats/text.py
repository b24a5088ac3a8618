"""The format of networks in the text form."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from interposer.core.errors import ParseError
from interposer.core.files import check_regular, unreadable, write_file
from interposer.file_formats.format import Certainty, Content, Format, Reading

if TYPE_CHECKING:
    from interposer.ir.network import Network

__all__ = ["Text"]


class Text(Format):
    """The text form, in which people read and write networks."""

    title: ClassVar = "the text form"
    files: ClassVar = "networks in the text form"
    written_suffix: ClassVar = ".txt"

    def recognizes(self, content: Content) -> Certainty:
        """Return STRUCTURE for the word with which a graph begins."""
        begins = content.head.lstrip().startswith((b"graph ", b"graph{"))
        return Certainty.STRUCTURE if begins else Certainty.NO

    def read(self, source: Any, reading: Reading) -> Network:
        """Return the network of a file."""
        from interposer.ir.inference import infer_graph  # noqa: PLC0415 - formats are listed without these modules
        from interposer.ir.network import Network  # noqa: PLC0415
        from interposer.ir.text import parse_graph  # noqa: PLC0415

        path = None if isinstance(source, bytes | bytearray | memoryview) else str(source)
        try:
            if path is not None:
                check_regular(path)
            network_text = (Path(path).read_bytes() if path is not None else bytes(source)).decode()
        except UnicodeDecodeError as error:
            raise ParseError("the file is truncated or damaged, or is no text in UTF-8", path=path) from error
        except (OSError, ValueError) as error:
            raise unreadable(error, path) from error
        try:
            graph = parse_graph(network_text)
        except ParseError as error:
            raise error.at(path) if path is not None else error from None
        infer_graph(graph)
        return Network(graph.name, graph)

    def write(self, network: Network, path: str, options: Mapping[str, Any]) -> str:
        """Write a network to a file."""
        from interposer.ir.text import print_graph  # noqa: PLC0415

        network_text = print_graph(network.graph)
        write_file(Path(path), network_text)
        return f"text, {len(network_text):,} characters"
