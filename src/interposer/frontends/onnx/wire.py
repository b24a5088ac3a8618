"""Access to large tensors in the bytes of a model file without a copy, which parsing by protobuf would make.

Source: the encoding of Protocol Buffers; ``onnx.proto`` for the numbers of fields.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
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


_field: Final = partial(tuple.__new__, _Field)
"""Makes a `_Field` of its members; a fast path, as a model has thousands of fields."""


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
        parts_of_graph, arrays_set_apart = _without_data(view, graph)
    except (DamagedFileError, ValueError):  # damaged: protobuf reports it
        return Apart(view, {})
    head = bytes(view[: graph.begin]), _tag(_GRAPH), encoded_varint(sum(map(len, parts_of_graph)))
    return Apart(b"".join([*head, *parts_of_graph, view[graph.end :]]), arrays_set_apart)


def _without_data(view: memoryview, graph: _Field) -> tuple[list[bytes | memoryview], dict[int, memoryview]]:
    parts_of_graph: list[bytes | memoryview] = []
    data_of_initializer: dict[int, memoryview] = {}
    initializer_index, copied_until = 0, graph.start
    for field in _fields(view, graph.start, graph.end):
        if field.number != _INITIALIZER or field.kind != _BYTES:
            continue
        raw_field = _raw_data(view, field) if field.end - field.start > LEAST_TENSOR else None
        if raw_field is not None:
            data_of_initializer[initializer_index] = view[raw_field.start : raw_field.end]
            rest_of_tensor = view[field.start : raw_field.begin], view[raw_field.end : field.end]
            parts_of_graph += [
                view[copied_until : field.begin],
                _tag(_INITIALIZER),
                encoded_varint(sum(map(len, rest_of_tensor))),
                *rest_of_tensor,
            ]
            copied_until = field.end
        initializer_index += 1
    return [*parts_of_graph, view[copied_until : graph.end]], data_of_initializer


def _raw_data(view: memoryview, tensor: _Field) -> _Field | None:
    """Return the field with the raw data of an encoded `TensorProto`; None if the data is small or not in one field."""
    fields = [field for field in _fields(view, tensor.start, tensor.end) if field.number == _RAW_DATA]
    is_one_large_field = (
        len(fields) == 1 and fields[0].kind == _BYTES and fields[0].end - fields[0].start > LEAST_TENSOR
    )
    return fields[0] if is_one_large_field else None


def _fields(view: memoryview, offset: int, end: int) -> Iterator[_Field]:
    """Yield the fields of the encoded message between the offsets `offset` and `end`, in order.

    DamagedFileError or ValueError is raised if the message is damaged.
    """
    while offset < end:
        tag_offset = offset
        tag, offset = varint(view, offset, end)
        field_number, wire_type = tag >> 3, tag & 7
        content_start = offset
        if wire_type == _VARINT:
            _, offset = varint(view, offset, end)
        elif wire_type == _BYTES:
            size, content_start = varint(view, offset, end)
            offset = content_start + size
        elif wire_type in (_FIXED32, _FIXED64):
            offset += 4 if wire_type == _FIXED32 else 8
        else:
            raise ValueError("a group, which the format does not use")
        if offset > end:
            raise ValueError("a field reaches beyond its message")
        yield _field((field_number, wire_type, tag_offset, content_start, offset))


def _tag(number: int) -> bytes:
    return encoded_varint(number << 3 | _BYTES)
