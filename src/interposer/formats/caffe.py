"""Recognition of Caffe's files by the first bytes of their content."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import suppress
from typing import Final, NamedTuple

from interposer.core.errors import DamagedFileError
from interposer.core.varint import varint

__all__ = ["MARK", "is_caffe", "is_caffe_text", "is_text"]

MARK: Final = b"\xef\xbb\xbf"
"""The byte order mark of UTF-8, with which some editors begin a file."""
_TEXT: Final = re.compile(rb"(\s|#[^\n]*(\n|$))*[A-Za-z_]\w*\s*[:{<]")
_BINARY: Final = re.compile(rb"[\x00-\x08\x0e-\x1f]")
_FIELDS: Final = re.compile(rb"(?:^|[\s}])(layers?\s*:?\s*\{|input\s*:|input_dim\s*:|input_shape\s*:?\s*\{)")
_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_NAME, _LAYERS, _INPUT, _LAYER = 1, 2, 3, 100
_V1_LAYER, _V1_BOTTOM, _V1_TOP, _V1_NAME, _V1_TYPE = 1, 2, 3, 4, 5


class _Field(NamedTuple):
    """A field of an encoded message: its number, its wire type, and the part of its content that is available."""

    number: int
    kind: int
    content: bytes


def is_text(content: bytes | memoryview) -> bool:
    """Return True if a file is in protobuf's text format, judged by its first 4,096 bytes."""
    head = bytes(content[:4096]).removeprefix(MARK)
    return _TEXT.match(head) is not None and _BINARY.search(head) is None


def is_caffe(head: bytes) -> bool:
    """Return True if the first bytes of a file are those of a Caffe network, in text or in binary.

    A few thousand bytes are enough. Text has a field such as ``layer {`` or ``input:``. In binary files the
    network's name, its inputs, or its layers come first.
    """
    if is_text(head):
        return _FIELDS.search(head) is not None
    for field in _fields(head):
        if field.number == _LAYER:
            return field.kind == _BYTES
        if field.number == _LAYERS:
            return field.kind == _BYTES and _is_v1_layer(field.content)
        if field.number > _INPUT + 5:
            return False
    return False


def is_caffe_text(head: bytes) -> bool:
    """Return True if the first bytes of a file are those of a prototxt, whose weights are usually in another file."""
    return is_text(head) and is_caffe(head)


def _is_v1_layer(content: bytes) -> bool:
    """Return True if an encoded message begins like a ``V1LayerParameter``, with the kinds of fields that it has."""
    kinds = {_V1_LAYER: _BYTES, _V1_BOTTOM: _BYTES, _V1_TOP: _BYTES, _V1_NAME: _BYTES, _V1_TYPE: _VARINT}
    for field in _fields(content):
        if kinds.get(field.number, field.kind) != field.kind:
            return False
        if field.number in (_V1_NAME, _V1_TYPE):
            return True
        if field.number == _V1_LAYER:
            inner = next(_fields(field.content), None)
            return inner is not None and inner.number == _NAME and _is_printable(inner.content)
    return False


def _is_printable(content: bytes) -> bool:
    return bool(content) and content.isascii() and content.decode().isprintable()


def _fields(content: bytes) -> Iterator[_Field]:
    """Yield the fields of an encoded message of which only the beginning may be available; stop where it is damaged."""
    with suppress(DamagedFileError):
        at = 0
        while at < len(content):
            tag, at = varint(content, at, len(content))
            number, kind = tag >> 3, tag & 7
            if kind == _VARINT:
                _, end = varint(content, at, len(content))
            elif kind == _BYTES:
                size, at = varint(content, at, len(content))
                end = at + size
            elif kind in (_FIXED32, _FIXED64):
                end = at + (4 if kind == _FIXED32 else 8)
            else:
                return
            yield _Field(number, kind, content[at:end])
            at = end
