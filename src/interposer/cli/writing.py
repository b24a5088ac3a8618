"""The choice of the format of a file that a command writes."""

from __future__ import annotations

import os
from pathlib import Path

from interposer.core.errors import InvalidArgumentError
from interposer.file_formats import Format, process_formats

__all__ = ["named_writer_of", "suffixes_of_writers", "writer_of"]


def suffixes_of_writers() -> str:
    """Return the suffixes of the files that can be written, as in ".onnx or .tflite"."""
    *others, last = process_formats().writers()
    return f"{', '.join(others)} or {last}" if others else last


def writer_of(title: str, path: str | os.PathLike[str]) -> Format:
    """Return the format of a file to write by its suffix; `title` names the file in the error."""
    format = process_formats().writers().get(Path(path).suffix.lower())
    if format is None:
        text = f"{title} is {os.fspath(path)!r}; expected a file with the suffix {suffixes_of_writers()}"
        raise InvalidArgumentError(text)
    return format


def named_writer_of(title: str, path: str | os.PathLike[str]) -> tuple[str, Format]:
    """Return the format of a file to write, as `writer_of` does, with the name of the format."""
    format = writer_of(title, path)
    return next(name for name, other in process_formats() if other is format), format
