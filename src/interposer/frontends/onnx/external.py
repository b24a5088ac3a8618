"""Tensor data in files beside the model."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

from interposer.core.errors import ParseError
from interposer.core.types import Array
from interposer.frontends.beside import FilesBeside
from interposer.frontends.onnx.proto import Message, read_model

__all__ = ["ExternalFiles", "files_of_weights"]


class ExternalFiles:
    """Reads the external data of one model from files beside it."""

    def __init__(self, model: Path | None) -> None:
        self._files = FilesBeside(model)

    def read(self, entries: Iterable[Message], num_bytes: int) -> Array:
        """Return the bytes of a tensor with external data, a view of its file of exactly `num_bytes` bytes.

        `entries` are the keys and values of the tensor's `external_data`: location, offset and length.

        Raises:
            ParseError: the path leads out of the model's folder, is not a regular file, or has too few bytes.
        """
        fields = {entry.key: entry.value for entry in entries}
        offset = _number(fields, "offset", 0)
        length = _number(fields, "length", num_bytes) or num_bytes  # 0 means the same as no length
        if length != num_bytes:
            raise ParseError(f"external data of {length} bytes; the tensor's type and shape ask for {num_bytes}")
        return self._files.part(fields.get("location", ""), offset, length)


def files_of_weights(path: str | os.PathLike[str]) -> tuple[Path, ...]:
    """Return the paths of the external data files of the model at `path`, whether they exist or not.

    They are those that the initializers of its graph name.

    Raises:
        ParseError: the file cannot be read.
    """
    initializers = read_model(path).model.graph.initializer
    locations = [entry for tensor in initializers for entry in tensor.external_data if entry.key == "location"]
    return tuple(Path(path).parent / name for name in dict.fromkeys(entry.value for entry in locations))


def _number(fields: dict[str, str], key: str, default: int) -> int:
    text = fields.get(key, str(default))
    if not (text.isascii() and text.isdigit()) or len(text) > 18:
        raise ParseError(f"external data has the {key} {text!r}; expected a whole number of bytes")
    return int(text)
