"""Access to large tensors in the bytes of a model file without a copy, which parsing by protobuf would make.

Source: the encoding of Protocol Buffers; ``onnx.proto`` for the numbers of fields.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

from interposer.core.errors import DamagedFileError
from interposer.core.varint import encoded_varint, varint

__all__ = ["Apart", "set_apart"]

LEAST_FILE: Final = 1 << 20
LEAST_TENSOR: Final = 1 << 12
_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_GRAPH, _INITIALIZER, _RAW_DATA = 7, 5, 9


class Apart(NamedTuple):
    """The bytes of a model file without the raw data of large initializers, and this data by initializer number."""

    message: bytes | memoryview
    data: dict[int, memoryview]


class _Field(NamedTuple):
    """A field of an encoded protobuf message: its number, its wire type `kind`, and where it is in the bytes.

    `begin` is the offset of its tag; its content is from `start` to `end`.
    """

    number: int
    kind: int
    begin: int
    start: int
    end: int


def set_apart(view: memoryview) -> Apart:
    """Return the bytes of a model without the raw data of large initializers, and this data.

    Protobuf then need not copy it. Small or damaged files are left unchanged.
    """
    if len(view) < LEAST_FILE:
        return Apart(view, {})
    try:
        graphs = [field for field in _fields(view, 0, len(view)) if field.number == _GRAPH]
        if len(graphs) != 1 or graphs[0].kind != _BYTES:
            return Apart(view, {})
        [graph] = graphs
        pieces, data = _without_data(view, graph)
    except (DamagedFileError, ValueError):  # damaged: protobuf reports it
        return Apart(view, {})
    head = bytes(view[: graph.begin]), _tag(_GRAPH), encoded_varint(sum(map(len, pieces)))
    return Apart(b"".join([*head, *pieces, view[graph.end :]]), data)


def _without_data(view: memoryview, graph: _Field) -> tuple[list[bytes | memoryview], dict[int, memoryview]]:
    pieces: list[bytes | memoryview] = []
    data: dict[int, memoryview] = {}
    position, copied = 0, graph.start
    for field in _fields(view, graph.start, graph.end):
        if field.number != _INITIALIZER or field.kind != _BYTES:
            continue
        raw = _raw_data(view, field) if field.end - field.start > LEAST_TENSOR else None
        if raw is not None:
            data[position] = view[raw.start : raw.end]
            rest = view[field.start : raw.begin], view[raw.end : field.end]
            pieces += [view[copied : field.begin], _tag(_INITIALIZER), encoded_varint(sum(map(len, rest))), *rest]
            copied = field.end
        position += 1
    return [*pieces, view[copied : graph.end]], data


def _raw_data(view: memoryview, tensor: _Field) -> _Field | None:
    """Return the field with the raw data of an encoded `TensorProto`; None if the data is small or not in one field."""
    fields = [field for field in _fields(view, tensor.start, tensor.end) if field.number == _RAW_DATA]
    large = len(fields) == 1 and fields[0].kind == _BYTES and fields[0].end - fields[0].start > LEAST_TENSOR
    return fields[0] if large else None


def _fields(view: memoryview, at: int, end: int) -> Iterator[_Field]:
    """Yield the fields of the encoded message between the offsets `at` and `end`, in order.

    DamagedFileError or ValueError is raised if the message is damaged.
    """
    while at < end:
        begin = at
        tag, at = varint(view, at, end)
        number, kind = tag >> 3, tag & 7
        start = at
        if kind == _VARINT:
            _, at = varint(view, at, end)
        elif kind == _BYTES:
            size, start = varint(view, at, end)
            at = start + size
        elif kind in (_FIXED32, _FIXED64):
            at += 4 if kind == _FIXED32 else 8
        else:
            raise ValueError("a group, which the format does not use")
        if at > end:
            raise ValueError("a field reaches beyond its message")
        yield _Field(number, kind, begin, start, at)


def _tag(number: int) -> bytes:
    return encoded_varint(number << 3 | _BYTES)
