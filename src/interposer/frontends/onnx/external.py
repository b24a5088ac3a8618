"""Tensor data in files beside the model, memory-mapped and restricted to the model's folder."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable
from pathlib import Path

import numpy as np

from interposer.core.constants import mapped
from interposer.core.errors import ParseError
from interposer.core.types import Array
from interposer.frontends.onnx.proto import Message, read_model

__all__ = ["ExternalFiles", "files_of_weights"]


class ExternalFiles:
    """Reads the external data of one model: each file is memory-mapped once, read-only, until no array refers to it."""

    def __init__(self, model: Path | None) -> None:
        self._model = model
        self._mapped: dict[str, Array] = {}

    def read(self, entries: Iterable[Message], needed: int) -> Array:
        """Return the bytes of a tensor with external data, a view of its file of exactly `needed` bytes.

        `entries` are the keys and values of the tensor's `external_data`: location, offset and length.

        Raises:
            ParseError: the path leads out of the model's folder, is not a regular file, or has too few bytes.
        """
        fields = {entry.key: entry.value for entry in entries}
        location = fields.get("location", "")
        offset, length = _number(fields, "offset", 0), _number(fields, "length", needed)
        if length != needed:
            raise ParseError(f"external data of {length} bytes; the tensor's type and shape ask for {needed}")
        data = self._file(location)
        if offset + length > len(data):
            raise ParseError(
                f"the file {location!r} is truncated or damaged: it has {len(data)} bytes, "
                f"but the data ends at {offset + length}"
            )
        return data[offset : offset + length]

    def _file(self, location: str) -> Array:
        if location not in self._mapped:
            self._mapped[location] = _mapped(self._resolved(location), location)
        return self._mapped[location]

    def _resolved(self, location: str) -> Path:
        """Return the path of the external file `location`, with links resolved.

        `ParseError` is raised if it is not in the folder of the model, or in that of the file which the model's path
        links to.
        """
        if self._model is None:
            raise ParseError(f"data lies in the file {location!r} beside the model, which was not given as a path")
        if not location or "\0" in location or Path(location).is_absolute() or "\\" in location:
            raise ParseError(f"external data in {location!r}; expected a path relative to the model's folder")
        folder = Path(os.path.realpath(self._model.parent))
        own = {folder, Path(os.path.realpath(self._model)).parent}
        path = Path(os.path.realpath(folder / location))
        if not any(path.is_relative_to(allowed) for allowed in own):
            raise ParseError(f"external data in {location!r}, which leads out of the model's folder")
        return path


def files_of_weights(path: str | os.PathLike[str]) -> tuple[Path, ...]:
    """Return the paths of the external data files of the model at `path`, whether they exist or not.

    They are those that the initializers of its graph name.

    Raises:
        ParseError: the file cannot be read.
    """
    initializers = read_model(path).model.graph.initializer
    entries = [entry for tensor in initializers for entry in tensor.external_data if entry.key == "location"]
    return tuple(Path(path).parent / name for name in dict.fromkeys(entry.value for entry in entries))


def _number(fields: dict[str, str], key: str, default: int) -> int:
    text = fields.get(key, str(default))
    if not (text.isascii() and text.isdigit()) or len(text) > 18:
        raise ParseError(f"external data has the {key} {text!r}; expected a whole number of bytes")
    return int(text)


def _mapped(path: Path, location: str) -> Array:
    try:
        status = path.stat()
        if not stat.S_ISREG(status.st_mode):
            raise ParseError(f"external data in {location!r}, which is no regular file")
        if status.st_size == 0:
            return np.empty(0, np.uint8)
        return mapped(path)
    except OSError as error:
        raise ParseError(f"the file {location!r} with external data cannot be read: {error.strerror}") from error
