"""Parsing of a path, bytes or an `onnx.ModelProto`; the only module of the front end that requires the package onnx.

Two encodings are detected by their content: protobuf's binary encoding and its text format.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeAlias

from interposer.core.errors import InvalidArgumentError, MissingDependencyError, ParseError
from interposer.formats.onnx import is_text
from interposer.frontends.onnx.wire import set_apart
from interposer.frontends.sources import content_of

__all__ = ["Document", "Message", "Source", "onnx_package", "read_model"]

Message: TypeAlias = Any
"""A protobuf message; its fields are not statically typed."""
Source: TypeAlias = "str | os.PathLike[str] | bytes | bytearray | memoryview | Message"


_HEAD: Final = 4096
_DAMAGED: Final = "the file is truncated or damaged, or is no ONNX model"


class Document(NamedTuple):
    """A model that was read, and the path of its file, or None if it was given as bytes or as a message.

    `apart` has the data of large initializers, which `model` lacks, by their positions in the graph.
    """

    model: Message
    path: Path | None
    apart: Mapping[int, memoryview] = {}


def read_model(source: Source) -> Document:
    """Return the model in a file or in bytes; a `ModelProto` or `Document` is returned as it is.

    Raises:
        MissingDependencyError: the package onnx is not installed.
        ParseError: the file cannot be read, or is no ONNX model.
        InvalidArgumentError: `source` is not a path, bytes or a model.
    """
    if isinstance(source, Document):
        return source
    if isinstance(source, onnx_package().ModelProto):
        return Document(_checked(source), None)
    if isinstance(source, bytes | bytearray | memoryview):
        return _document(memoryview(source).cast("B"), None)
    if not isinstance(source, str | os.PathLike):
        raise InvalidArgumentError(f"a model must be a path, bytes or an onnx.ModelProto, not {type(source).__name__}")
    return _document(content_of(source), Path(source))


def onnx_package() -> Any:
    """Return the package onnx; raise `MissingDependencyError` if it is not installed."""
    try:
        import onnx  # noqa: PLC0415 - optional, and slow to import
    except ImportError as error:
        raise MissingDependencyError("onnx", "onnx", "reading ONNX files") from error
    return onnx


def _document(view: memoryview, path: Path | None) -> Document:
    separated_arrays = set_apart(view)
    return Document(_checked(_decoded(bytes(separated_arrays.message))), path, separated_arrays.data)


def _decoded(content: bytes) -> Message:
    if not content:
        raise ParseError("the file is empty")
    encoding = "textproto" if is_text(content[:_HEAD]) else "protobuf"
    try:
        return onnx_package().load_model_from_string(content, format=encoding)
    except Exception as error:  # protobuf's own errors, which have no common base, and Python's on malformed text
        reason = str(error) or type(error).__name__
        raise ParseError(f"{_DAMAGED} ({encoding}: {reason[:200]})") from error


def _checked(model: Message) -> Message:
    if not model.HasField("graph"):
        raise ParseError(f"{_DAMAGED}: it has no graph")
    if not model.opset_import:
        raise ParseError(f"{_DAMAGED}: it imports no operator set")
    return model
