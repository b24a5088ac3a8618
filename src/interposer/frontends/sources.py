"""Reading a model file, from a path or from bytes."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TypeAlias

from interposer.core.constants import LEAST_MAPPED, mapped
from interposer.core.errors import InvalidArgumentError, ParseError
from interposer.core.files import check_regular, reason_of

__all__ = ["Source", "read_file"]

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
        raise ParseError(f"the file cannot be read: {reason_of(error)}", path=path) from error
