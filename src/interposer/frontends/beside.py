"""Files with weights beside a model, memory-mapped and restricted to the model's folder."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import numpy as np

from interposer.core.constants import mapped
from interposer.core.errors import ParseError
from interposer.core.types import Array

__all__ = ["FilesBeside"]


class FilesBeside:
    """Reads files beside one model: each file is memory-mapped once, read-only, until no array refers to it.

    `model` is the path of the model, or None if it was not read from a file.
    """

    def __init__(self, model: Path | None) -> None:
        self._model = model
        self._mapped: dict[str, Array] = {}

    def part(self, location: str, offset: int, length: int) -> Array:
        """Return `length` bytes of the file `location` from `offset`, as a view of the file.

        Raises:
            ParseError: the path leads out of the model's folder, is not a regular file, or has too few bytes.
        """
        if location not in self._mapped:
            self._mapped[location] = _mapped(self._resolved(location), location)
        file_bytes = self._mapped[location]
        if offset + length > len(file_bytes):
            raise ParseError(
                f"the file {location!r} is truncated or damaged: it has {len(file_bytes)} bytes, "
                f"but the data ends at {offset + length}"
            )
        return file_bytes[offset : offset + length]

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
        own_folders = {folder, Path(os.path.realpath(self._model)).parent}
        path = Path(os.path.realpath(folder / location))
        if not any(path.is_relative_to(allowed_folder) for allowed_folder in own_folders):
            raise ParseError(f"external data in {location!r}, which leads out of the model's folder")
        return path


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
