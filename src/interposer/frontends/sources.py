"""Reading a model file, from a path or from bytes, and errors with its path."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeAlias

from interposer.core.constants import LEAST_MAPPED, mapped
from interposer.core.errors import InvalidArgumentError, ParseError
from interposer.core.files import check_regular, unreadable

__all__ = ["Source", "content_of", "errors_at", "read_file"]

Source: TypeAlias = "str | os.PathLike[str] | bytes | bytearray | memoryview"


def read_file(source: Source) -> tuple[str | None, bytes | bytearray | memoryview]:
    """Return the path and the bytes of a model file; bytes are returned as they are, with None for the path.

    A large file is memory-mapped.

    Raises:
        ParseError: the file cannot be read.
        InvalidArgumentError: `source` is not a path or bytes.
    """
    if isinstance(source, bytes | bytearray | memoryview):
        return None, source
    if not isinstance(source, str | os.PathLike):
        raise InvalidArgumentError(f"a model must be a path or the bytes of a file, not {type(source).__name__}")
    path = os.fsdecode(source)
    try:
        check_regular(path)
        file = Path(path)
        return path, mapped(file).data if file.stat().st_size >= LEAST_MAPPED else file.read_bytes()
    except (OSError, ValueError) as error:
        raise unreadable(error, path) from error


def content_of(path: str | os.PathLike[str]) -> memoryview:
    """Return the content of a file, memory-mapped; raise `ParseError` if it cannot be read."""
    try:
        check_regular(path)
        return mapped(path).data if os.stat(path).st_size else memoryview(b"")
    except (OSError, ValueError) as error:
        raise unreadable(error, path) from error


@contextmanager
def errors_at(path: str | bytes | os.PathLike[str] | None) -> Iterator[None]:
    """Add the path of the model file to a `ParseError` of the body that names no file; None leaves it unchanged."""
    try:
        yield
    except ParseError as error:
        if path is None or error.path is not None:
            raise
        raise error.at(os.fsdecode(path)) from error.__cause__
