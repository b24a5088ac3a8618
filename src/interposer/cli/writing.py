"""The choice of the format of a file that a command writes."""

from __future__ import annotations

import os
from pathlib import Path

from interposer.core.errors import InvalidArgumentError
from interposer.file_formats import Format, process_formats

__all__ = ["named_writer_of", "suffixes_of_writers", "writer_of"]


def suffixes_of_writers() -> str:
    """Return the suffixes of the files that can be written, as in ".onnx or .tflite"."""
    *other_suffixes, last_suffix = process_formats().writers()
    return f"{', '.join(other_suffixes)} or {last_suffix}" if other_suffixes else last_suffix


def writer_of(title: str, path: str | os.PathLike[str]) -> Format:
    """Return the format of a file to write by its suffix; `title` names the file in the error."""
    format = process_formats().writers().get(Path(path).suffix.lower())
    if format is None:
        message = f"{title} is {os.fspath(path)!r}; expected a file with the suffix {suffixes_of_writers()}"
        raise InvalidArgumentError(message)
    return format


def named_writer_of(title: str, path: str | os.PathLike[str]) -> tuple[str, Format]:
    """Return the format of a file to write, as `writer_of` does, with the name of the format."""
    format = writer_of(title, path)
    return next(name for name, candidate in process_formats() if candidate is format), format
