"""Decoding of Caffe's files, in protobuf's binary encoding or its text format; the only module that needs protobuf.

The weights in a binary file are read as the bytes of the packed field, so that they become arrays without a Python
object for each number.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any, Final, TypeAlias

import numpy as np

from interposer.core.errors import MissingDependencyError, ParseError
from interposer.core.types import Array
from interposer.formats.caffe import MARK, is_text
from interposer.formats.foreign import foreign
from interposer.frontends.caffe.schema import ENUMS, MESSAGES

__all__ = ["Message", "default", "message_like", "read_message", "text_of", "without_arrays"]

Message: TypeAlias = Any
"""A protobuf message; its fields are not statically typed."""

_PACKAGE: Final = "interposer_caffe"
_DAMAGED: Final = "the file is truncated or damaged, or is no Caffe model"
_SCALARS: Final = {
    "double": 1, "float": 2, "int64": 3, "uint64": 4, "int32": 5, "bool": 8, "string": 9, "bytes": 12, "uint32": 13,
}  # fmt: skip
_MESSAGE, _ENUM = 11, 14
_OPTIONAL, _REPEATED = 1, 3
_ARRAYS: Final = {"repeated float data 5": "bytes data 5", "repeated double double_data 8": "bytes double_data 8"}


def read_message(content: bytes | memoryview) -> Message:
    """Return the ``NetParameter`` in the bytes of a file.

    The arrays of blobs are bytes if the file is binary and stores them packed; otherwise they are repeated fields.

    Raises:
        MissingDependencyError: the package protobuf is not installed.
        ParseError: the file is damaged, or no Caffe model.
    """
    if not len(content):
        raise ParseError("the file is empty")
    message = foreign(bytes(content[:512]))
    if message is not None:
        raise ParseError(message)
    if is_text(content):
        return _parsed(content)
    net = _decoded(content, arrays_as_bytes=True)
    return net if _has_packed_arrays(net) else _decoded(content, arrays_as_bytes=False)


def message_like(name: str, fields: Mapping[str, Any]) -> Message:
    """Return a new message of the schema with these fields."""
    return _class(name, False)(**fields)


def text_of(value: str | bytes) -> str:
    """Return the text of a field; protobuf returns bytes if it is not in UTF-8, which raises `ParseError`."""
    if isinstance(value, bytes):
        raise ParseError(f"{_DAMAGED}: the name {value[:40]!r} is not in UTF-8")
    return value


def default(field: str) -> Message:
    """Return the default parameters of a layer, such as those of the field ``flatten_param``."""
    return getattr(_class("LayerParameter", False)(), field)


def _parsed(content: bytes | memoryview) -> Message:
    """Return the message in a text; its arrays are decoded apart from the rest, because protobuf is slow at numbers."""
    content_bytes = bytes(content).removeprefix(MARK)
    text, arrays = without_arrays(content_bytes)
    try:
        return _with_arrays(_parsed_text(text, arrays_as_bytes=bool(arrays)), arrays)
    except ParseError:
        if not arrays:
            raise
    return _parsed_text(content_bytes, arrays_as_bytes=False)


def _parsed_text(content: bytes, *, arrays_as_bytes: bool) -> Message:
    """Return the message in a text, of which comments may have any encoding."""
    net = _class("NetParameter", arrays_as_bytes)()
    from google.protobuf import text_format  # noqa: PLC0415 - optional, and slow to import

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # of escape sequences in texts
            return text_format.Parse(content.decode(errors="replace"), net, allow_unknown_field=True)
    except (text_format.ParseError, ValueError, RecursionError) as error:
        raise ParseError(f"{_DAMAGED} (text format: {_line(error)})") from error


def _with_arrays(net: Message, arrays: Sequence[bytes]) -> Message:
    """Return the message with the arrays that `without_arrays` has replaced by their numbers."""
    for blob in _blobs(net):
        for name in ("data", "double_data"):
            number = getattr(blob, name)
            if number and arrays:
                setattr(blob, name, _array(arrays, number))
    return net


def _array(arrays: Sequence[bytes], number: bytes) -> bytes:
    """Return an array by its number in a text; the text itself may have other strings in its place."""
    if not number.isdigit() or int(number) >= len(arrays):
        raise ParseError(f"{_DAMAGED} (text format: data is {number[:40]!r})")
    return arrays[int(number)]


def _decoded(content: bytes | memoryview, *, arrays_as_bytes: bool) -> Message:
    net = _class("NetParameter", arrays_as_bytes)
    from google.protobuf.message import DecodeError  # noqa: PLC0415

    try:
        return net.FromString(bytes(content))
    except (DecodeError, ValueError, RecursionError) as error:
        raise ParseError(f"{_DAMAGED} (binary: {_line(error)})") from error


def _line(error: Exception) -> str:
    return (str(error) or type(error).__name__).splitlines()[0][:200]


def _has_packed_arrays(net: Message) -> bool:
    """Return True unless a blob with a shape has no array: then the file stores every number as a field of its own."""
    return all(blob.data or blob.double_data or blob.raw_data for blob in _blobs(net))


def _blobs(net: Message) -> list[Message]:
    blobs = [blob for layer in (*net.layer, *net.layers) for blob in layer.blobs]
    return blobs + [blob for layer in net.layers for blob in layer.layer.blobs]


def _class(name: str, arrays_as_bytes: bool) -> Any:
    """Return protobuf's class for a message of the schema; `arrays_as_bytes` declares the arrays of blobs as bytes."""
    try:
        from google.protobuf import message_factory  # noqa: PLC0415
    except ImportError as error:
        raise MissingDependencyError("protobuf", "caffe", "reading Caffe files") from error
    return message_factory.GetMessageClass(_pool(arrays_as_bytes).FindMessageTypeByName(f"{_PACKAGE}.{name}"))


@cache
def _pool(arrays_as_bytes: bool) -> Any:
    """Return protobuf's pool of descriptors with all messages of the schema."""
    from google.protobuf import descriptor_pool  # noqa: PLC0415
    from google.protobuf.descriptor_pb2 import FileDescriptorProto  # noqa: PLC0415

    file = FileDescriptorProto(name="caffe.proto", package=_PACKAGE)
    for name, values in ENUMS.items():
        enum = file.message_type.add(name=_scope(name)).enum_type.add(name=name)
        for value, number in values.items():
            enum.value.add(name=value, number=number)
    for name, fields in MESSAGES.items():
        message = file.message_type.add(name=name)
        for line in filter(None, map(str.strip, fields.splitlines())):
            _add_field(message, _ARRAYS.get(line, line) if arrays_as_bytes else line)
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return pool


def _scope(enum: str) -> str:
    """Return the name of the message that holds an enumeration, as the names of values are unique in their scope."""
    return f"ScopeOf{enum}"


def _add_field(message: Message, line: str) -> None:
    """Add a field of the schema, such as ``repeated int64 dim 1`` or ``float beta 3 0.75``, to a descriptor."""
    words = line.split()
    label = _REPEATED if words[0] == "repeated" else _OPTIONAL
    kind, name, number, *values = words[label == _REPEATED :]
    field = message.field.add(name=name, number=int(number), label=label, default_value=values[0] if values else None)
    if kind in _SCALARS:
        field.type = _SCALARS[kind]
    elif kind in ENUMS:
        field.type, field.type_name = _ENUM, f".{_PACKAGE}.{_scope(kind)}.{kind}"
    else:
        field.type, field.type_name = _MESSAGE, f".{_PACKAGE}.{kind}"


# --- arrays in text ---------------------------------------------------------------------------------------------------


_RUN: Final = re.compile(rb"(?<!\w)(?:double_)?data:[ad-finotublN_:\s\d.+\-E]+")
"""A field with a number, and the characters after it of which such fields consist."""
_DTYPES: Final = {b"data:": "<f4", b"double_data:": "<f8"}


def without_arrays(text: bytes) -> tuple[bytes, list[bytes]]:
    """Return a text without the numbers of fields ``data`` and ``double_data``, and their arrays.

    Each run of such a field becomes one field with the number of its array. The text is unchanged and there are no
    arrays if a run has anything else, such as a comment or another field.
    """
    pieces, arrays, end = list[bytes](), list[bytes](), 0
    for run in _RUN.finditer(text):
        array = _array_of_text(run[0])
        if array is None or b"#" in text[text.rfind(b"\n", 0, run.start()) + 1 : run.start()]:
            return text, []
        name = run[0].partition(b":")[0]
        pieces += [text[end : run.start()], b'%s: "%d" ' % (name, len(arrays))]
        arrays.append(array.tobytes())
        end = run.end()
    return b"".join([*pieces, text[end:]]), arrays


def _array_of_text(run: bytes) -> Array | None:
    """Return the numbers of a run of one field; None if it has anything else."""
    field = run[: run.index(b":") + 1]
    numbers = run.replace(field, b" ")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", DeprecationWarning)
            array = np.fromstring(numbers, _DTYPES[field], sep=" ")
    except (DeprecationWarning, ValueError):
        return None
    return array if len(array) == run.count(field) else None
