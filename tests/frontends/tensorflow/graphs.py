"""Graphs of TensorFlow as bytes, written by a small encoder of protobuf."""

import struct
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

TYPES = {
    "float32": 1, "float64": 2, "int32": 3, "uint8": 4, "int16": 5, "int8": 6, "str": 7, "int64": 9, "bool": 10,
    "bfloat16": 14, "uint16": 17, "float16": 19, "resource": 20, "uint32": 22, "uint64": 23,
}  # fmt: skip


class Type(NamedTuple):
    """An attribute that is a data type."""

    name: str


class Func(NamedTuple):
    """An attribute that is a function."""

    name: str


class Shape(NamedTuple):
    """An attribute that is a shape; None is an unknown dimension, and no dimensions at all an unknown rank."""

    dims: Sequence[int | None] | None


def varint(value: int) -> bytes:
    value &= (1 << 64) - 1
    result = bytearray()
    while value >= 0x80:
        result.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*result, value])


def number(field: int, value: int) -> bytes:
    return varint(field << 3) + varint(value)


def block(field: int, content: bytes | str) -> bytes:
    data = content.encode() if isinstance(content, str) else content
    return varint(field << 3 | 2) + varint(len(data)) + data


def shape(dims: Sequence[int | None] | None) -> bytes:
    if dims is None:
        return number(3, 1)
    return b"".join(block(2, number(1, -1 if dim is None else dim)) for dim in dims)


def tensor(array: Any) -> bytes:
    values = np.asarray(array)
    if values.dtype.kind in "US":
        strings = b"".join(block(8, str(item)) for item in values.reshape(-1))
        return number(1, 7) + block(2, shape(values.shape)) + strings
    content = np.ascontiguousarray(values).tobytes()
    return number(1, TYPES[values.dtype.name]) + block(2, shape(values.shape)) + block(4, content)


def attribute(value: Any) -> bytes:
    if isinstance(value, Type):
        return number(6, TYPES[value.name])
    if isinstance(value, Func):
        return block(10, block(1, value.name))
    if isinstance(value, Shape):
        return block(7, shape(value.dims))
    if isinstance(value, bool):
        return number(5, int(value))
    if isinstance(value, int):
        return number(3, value)
    if isinstance(value, float):
        return varint(4 << 3 | 5) + struct.pack("<f", value)
    if isinstance(value, str):
        return block(2, value)
    if isinstance(value, list):
        return block(1, b"".join(map(item_of_list, value)))
    return block(8, tensor(value))


def item_of_list(item: Any) -> bytes:
    if isinstance(item, float):
        return varint(4 << 3 | 5) + struct.pack("<f", item)
    return number(6, TYPES[item.name]) if isinstance(item, Type) else number(3, item)


def entry(key: str, value: bytes) -> bytes:
    return block(1, key) + block(2, value)


def node(op: str, name: str, *inputs: str, **attributes: Any) -> bytes:
    parts = [block(1, name), block(2, op), *(block(3, item) for item in inputs)]
    return b"".join([*parts, *(block(5, entry(key, attribute(value))) for key, value in attributes.items())])


def placeholder(name: str, dims: Sequence[int | None] | None, dtype: str = "float32") -> bytes:
    return node("Placeholder", name, dtype=Type(dtype), shape=Shape(dims))


def const(name: str, array: Any) -> bytes:
    values = np.asarray(array)
    dtype = "str" if values.dtype.kind in "US" else values.dtype.name
    return node("Const", name, dtype=Type(dtype), value=values)


def function(
    name: str, inputs: Mapping[str, str], outputs: Mapping[str, str], *nodes: bytes, dtype: str = "float32"
) -> bytes:
    """Return a function: `inputs` maps arguments to types, `outputs` maps outputs to values of the body."""
    arguments = b"".join(block(2, block(1, key) + number(3, TYPES[kind])) for key, kind in inputs.items())
    results = b"".join(block(3, block(1, key) + number(3, TYPES[dtype])) for key in outputs)
    signature = block(1, name) + arguments + results
    returned = b"".join(block(4, entry(key, value.encode())) for key, value in outputs.items())
    return block(1, signature) + b"".join(block(3, item) for item in nodes) + returned


def graph(*nodes: bytes, functions: Sequence[bytes] = ()) -> bytes:
    library = block(2, b"".join(block(1, item) for item in functions)) if functions else b""
    return b"".join(block(1, item) for item in nodes) + library


def one(op: str, arrays: Sequence[Any], constants: Mapping[int, Any] | None = None, **attributes: Any) -> bytes:
    """Return a graph of one operator; operands in `constants` are constants, the others placeholders x0, x1 ..."""
    constants = constants or {}
    count = len(arrays) + len(constants)
    rest, nodes = iter(enumerate(arrays)), []
    names = []
    for index in range(count):
        if index in constants:
            names.append(f"c{index}")
            nodes.append(const(names[-1], constants[index]))
        else:
            place, array = next(rest)
            names.append(f"x{place}")
            nodes.append(placeholder(names[-1], np.shape(array), np.asarray(array).dtype.name))
    return graph(*nodes, node(op, "y", *names, **attributes))


# --- SavedModels ------------------------------------------------------------------------------------------------------


def saved_model(
    content: bytes,
    inputs: Mapping[str, str],
    outputs: Mapping[str, str],
    shapes: Mapping[str, Any],
    name: str = "serving_default",
    dtype: str = "float32",
    assets: Mapping[str, str] | None = None,
) -> bytes:
    """Return a SavedModel with one signature; `inputs` and `outputs` map its names to tensors of the graph.

    `assets` maps tensors of the graph to the names of files.
    """

    def info(key: str, text: str) -> bytes:
        dims = block(3, shape(shapes[key])) if key in shapes else b""
        return block(1, text) + number(2, TYPES[dtype]) + dims

    fields = [block(1, entry(key, info(key, text))) for key, text in inputs.items()]
    fields += [block(2, entry(key, info(key, text))) for key, text in outputs.items()]
    meta = block(1, block(4, "serve")) + block(2, content) + block(5, entry(name, b"".join(fields)))
    files = (block(1, block(1, text)) + block(2, file) for text, file in (assets or {}).items())
    return number(1, 1) + block(2, meta + b"".join(block(6, item) for item in files))


def checkpoint(values: Mapping[str, Any]) -> tuple[bytes, bytes]:
    """Return the index and the data file of a checkpoint with these tensors by key."""
    data, entries = b"", [("", number(1, 1) + block(3, number(1, 1)))]
    for key in sorted(values):
        array = np.ascontiguousarray(values[key])
        place = (number(4, len(data)) if data else b"") + number(5, array.nbytes)
        entries.append((key, number(1, TYPES[array.dtype.name]) + block(2, shape(array.shape)) + place))
        data += array.tobytes()
    return table(entries), data


def table(entries: Sequence[tuple[str, bytes]]) -> bytes:
    """Return a sorted table with one block, whose keys share prefixes."""
    body, before = b"", b""
    for key, value in entries:
        text = key.encode()
        shared = 0
        while shared < min(len(text), len(before)) and text[shared] == before[shared]:
            shared += 1
        body += varint(shared) + varint(len(text) - shared) + varint(len(value)) + text[shared:] + value
        before = text
    first = _finished(body)
    handle = varint(0) + varint(len(first) - 5)
    index = _finished(varint(0) + varint(1) + varint(len(handle)) + b"z" + handle)
    empty = _finished(b"")
    metaindex = varint(len(first) + len(index)) + varint(len(empty) - 5)
    footer = metaindex + varint(len(first)) + varint(len(index) - 5)
    magic = (0xDB4775248B80FB57).to_bytes(8, "little")
    return first + index + empty + footer.ljust(40, b"\0") + magic


def _finished(body: bytes) -> bytes:
    return body + struct.pack("<II", 0, 1) + b"\0" + b"\0\0\0\0"
