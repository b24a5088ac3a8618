"""NNAPI documents in JSON files."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any, TypeAlias

from interposer.core.errors import InvalidArgumentError, ParseError, memory_to
from interposer.core.files import check_regular
from interposer.frontends.nnapi.importer import Shapes, build
from interposer.ir.network import Network

__all__ = ["load"]

Source: TypeAlias = "str | os.PathLike[str] | bytes | bytearray | memoryview"


@memory_to("read the network")
def load(source: Source, *, shapes: Shapes | None = None) -> Network:
    """Return the network that a JSON file describes; see `build`.

    Args:
        source: a path, or the bytes of a file.
        shapes: shapes by input name, as for `build`.

    Raises:
        ParseError: the file cannot be read, or `build` refuses the document.
        InvalidArgumentError: `source` is not a path or bytes, or a shape does not fit its input.
    """
    path, data = _read(source)
    try:
        return build(_document(data), shapes=shapes)
    except ParseError as error:
        raise error.at(path) if path else error from error.__cause__


def _read(source: Source) -> tuple[str | None, bytes]:
    if isinstance(source, bytes | bytearray | memoryview):
        return None, bytes(source)
    if not isinstance(source, str | os.PathLike):
        raise InvalidArgumentError(f"a model must be a path or the bytes of a file, not {type(source).__name__}")
    path = os.fsdecode(source)
    try:
        check_regular(path)
        return path, Path(path).read_bytes()
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise ParseError(f"the file cannot be read: {reason or error}", path=path) from error


def _document(data: bytes) -> Any:
    try:
        return json.loads(data)
    except RecursionError as error:
        raise ParseError("the file is nested too deeply") from error
    except ValueError as error:
        raise ParseError(f"the file is truncated or damaged, or is no JSON: {error}") from error
