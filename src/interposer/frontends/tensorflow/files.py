"""Reading of frozen graphs, binary or text, and of folders with SavedModels."""

from __future__ import annotations

import os
from pathlib import Path
from typing import NamedTuple, TypeAlias, TypeVar

from interposer.core.errors import DamagedFileError, InvalidArgumentError, ParseError
from interposer.formats.foreign import foreign
from interposer.formats.tensorflow import BINARY, TEXT, is_saved_model_content, is_text, missing
from interposer.frontends.sources import content_of
from interposer.frontends.tensorflow.messages import GraphDef, SavedModel, decode, from_text
from interposer.frontends.tensorflow.wire import parse_text

__all__ = ["Content", "Source", "read_content"]

Source: TypeAlias = "str | os.PathLike[str] | bytes | bytearray | memoryview"

M = TypeVar("M")


class Content(NamedTuple):
    """What was read: a graph or a SavedModel, the folder of a SavedModel, and the number of bytes."""

    graph: GraphDef | None
    saved_model: SavedModel | None
    folder: Path | None
    size: int


def read_content(source: Source) -> Content:
    """Return the graph or the SavedModel in a file, in bytes or in a folder.

    Raises:
        ParseError: the file cannot be read, or is damaged.
        InvalidArgumentError: `source` is not a path or bytes.
    """
    if isinstance(source, bytes | bytearray | memoryview):
        return _content(memoryview(source).cast("B"), None)
    if not isinstance(source, str | os.PathLike):
        raise InvalidArgumentError(f"a model must be a path or the bytes of a file, not {type(source).__name__}")
    path = Path(source)
    if not path.is_dir():
        folder = path.parent if path.name in {BINARY, TEXT} else None
        return _content(content_of(path), folder)
    name = next((name for name in (BINARY, TEXT) if (path / name).is_file()), None)
    if name is None:
        raise ParseError(missing(path))
    return _content(content_of(path / name), path)


def _content(view: memoryview, folder: Path | None) -> Content:
    if not len(view):
        raise ParseError("the file is empty")
    first_bytes = bytes(view[:512])
    message = foreign(first_bytes)
    if message is not None:
        raise ParseError(message)
    is_text_format = is_text(first_bytes)
    if folder is None and not is_saved_model_content(first_bytes):
        return Content(_message(GraphDef, view, is_text_format), None, None, len(view))
    return Content(None, _message(SavedModel, view, is_text_format), folder, len(view))


def _message(kind: type[M], view: memoryview, is_text_format: bool) -> M:
    if not is_text_format:
        return decode(kind, view)
    try:
        return from_text(kind, parse_text(bytes(view).decode("utf-8")))
    except UnicodeDecodeError as error:
        raise DamagedFileError("the text is not UTF-8") from error
