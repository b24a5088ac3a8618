"""Reading a model file, and the errors that converting one of its layers may raise."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeAlias

from interposer.core.constants import LEAST_MAPPED, mapped
from interposer.core.errors import InvalidArgumentError, ParseError
from interposer.core.files import check_regular, reason_of

__all__ = ["Source", "conversion_errors", "read_file"]

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


@contextmanager
def conversion_errors(where: str) -> Iterator[None]:
    """Convert the exceptions of converting a malformed layer to `ParseError` with its location in the file."""
    try:
        yield
    except ParseError:
        raise
    except InvalidArgumentError as error:
        raise ParseError(str(error), where=where) from error
    except (ArithmeticError, LookupError, TypeError, ValueError) as error:
        raise ParseError(f"it is not as it should be ({error})", where=where) from error
