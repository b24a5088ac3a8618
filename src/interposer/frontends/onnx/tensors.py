"""Tensors of a model file: their types, and their data as arrays, checked before anything is allocated."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Final

import numpy as np

from interposer.errors import ParseError
from interposer.frontends.onnx.external import ExternalFiles
from interposer.frontends.onnx.proto import Message
from interposer.types import MAX_RANK, Array, DataType

__all__ = ["array_of", "data_type"]

_TYPES: Final = {
    1: DataType.FLOAT32,
    2: DataType.UINT8,
    3: DataType.INT8,
    4: DataType.UINT16,
    5: DataType.INT16,
    6: DataType.INT32,
    7: DataType.INT64,
    8: DataType.STRING,
    9: DataType.BOOL,
    10: DataType.FLOAT16,
    11: DataType.FLOAT64,
    12: DataType.UINT32,
    13: DataType.UINT64,
    16: DataType.BFLOAT16,
    17: DataType.FLOAT8_E4M3FN,
    18: DataType.FLOAT8_E4M3FNUZ,
    19: DataType.FLOAT8_E5M2,
    20: DataType.FLOAT8_E5M2FNUZ,
    21: DataType.UINT4,
    22: DataType.INT4,
}
_UNSUPPORTED: Final = {
    14: "complex64",
    15: "complex128",
    23: "float4e2m1",
    24: "float8e8m0",
    25: "uint2",
    26: "int2",
    27: "float6e2m3",
    28: "float6e3m2",
}
_NIBBLES: Final = frozenset({DataType.INT4, DataType.UINT4})
_FIELDS: Final = {
    DataType.FLOAT32: "float_data",
    DataType.FLOAT64: "double_data",
    DataType.INT64: "int64_data",
    DataType.UINT32: "uint64_data",
    DataType.UINT64: "uint64_data",
    DataType.STRING: "string_data",
}  # all other types lie in int32_data, floats of 16 and 8 bits as their bits
_EXTERNAL: Final = 1
_MOST_ELEMENTS: Final = 1 << 56  # an empty tensor may have other extents, but not whatever ones


def data_type(number: int) -> DataType:
    """The type of that number in the format; `ParseError` where it is none of ours."""
    found = _TYPES.get(number)
    if found is None:
        raise ParseError(f"tensors of type {_UNSUPPORTED.get(number, number)} are not supported")
    return found


def array_of(tensor: Message, files: ExternalFiles) -> Array:
    """The data of a tensor; bytes in the file are not copied where they can be used as they are.

    Raises:
        ParseError: the amount of data is not what type and shape ask for, or it lies where it must not.
    """
    dtype, shape = data_type(tensor.data_type), _shape_of(tensor)
    if tensor.HasField("segment"):
        raise ParseError("tensors in segments are not supported")
    if tensor.data_location == _EXTERNAL:
        return _from_bytes(dtype, shape, lambda needed: files.read(tensor.external_data, needed))
    if tensor.HasField("raw_data"):
        return _from_bytes(dtype, shape, lambda needed: _raw(tensor.raw_data, needed))
    return _from_field(tensor, dtype, shape)


def _shape_of(tensor: Message) -> tuple[int, ...]:
    shape = tuple(tensor.dims)
    if len(shape) > MAX_RANK:
        raise ParseError(f"a tensor has rank {len(shape)}; ranks 0 to {MAX_RANK} are supported")
    if any(dim < 0 for dim in shape):
        raise ParseError(f"a tensor has the shape {list(shape)}; an extent must not be negative")
    if math.prod(max(dim, 1) for dim in shape) > _MOST_ELEMENTS:
        raise ParseError(f"a tensor has the shape {list(shape)}; there is no room for that")
    return shape


def _raw(data: bytes, needed: int) -> Array:
    if len(data) != needed:
        raise ParseError(f"a tensor holds {len(data)} bytes of data; its type and shape ask for {needed}")
    return np.frombuffer(data, np.uint8)


def _from_bytes(dtype: DataType, shape: tuple[int, ...], read: Callable[[int], Array]) -> Array:
    if dtype is DataType.STRING:
        raise ParseError("a tensor of strings must not be given as bytes")
    count = math.prod(shape)
    data = read(-(-count * dtype.bits // 8))
    if dtype in _NIBBLES:
        return _unpacked(data, count, dtype).reshape(shape)
    if dtype is DataType.BOOL:
        truth: Array = data != 0
        return truth.reshape(shape)
    values = data.view(dtype.numpy.newbyteorder("<") if dtype.numpy.kind in "iuf" else dtype.numpy)
    aligned: Array = np.require(values, dtype.numpy, "A")
    return aligned.reshape(shape)


def _unpacked(data: Array, count: int, dtype: DataType) -> Array:
    """Two elements from each byte, the lower half first; signed ones have their sign in the fourth bit."""
    halves = np.stack([data & 15, data >> 4], axis=-1).reshape(-1)[:count].astype(np.int8)
    if dtype is DataType.INT4:
        halves = (halves ^ 8) - 8
    unpacked: Array = halves.astype(dtype.numpy)
    return unpacked


def _from_field(tensor: Message, dtype: DataType, shape: tuple[int, ...]) -> Array:
    name = _FIELDS.get(dtype, "int32_data")
    field = getattr(tensor, name)
    count = math.prod(shape)
    needed = -(-count // 2) if dtype in _NIBBLES else count
    if len(field) != needed:
        raise ParseError(f"a tensor has {len(field)} elements in {name}; its type and shape ask for {needed}")
    if dtype is DataType.STRING:
        return np.array([_text(item) for item in field] or [""], object)[:count].reshape(shape)
    return _typed(field, dtype, count).reshape(shape)


def _text(item: bytes) -> str:
    try:
        return item.decode("utf-8")
    except UnicodeDecodeError as error:
        raise ParseError(f"a string is not UTF-8: {item[:40]!r}") from error


def _typed(field: Message, dtype: DataType, count: int) -> Array:
    if dtype in _NIBBLES:
        return _unpacked(_narrowed(field, np.uint8), count, dtype)
    if dtype in _FIELDS:
        return _narrowed(field, dtype.numpy)
    if dtype.is_float:
        bits = _narrowed(field, np.dtype(f"u{dtype.itemsize}"))
        return bits.view(dtype.numpy)
    return _narrowed(field, dtype.numpy)


def _narrowed(field: Message, dtype: np.dtype[np.generic] | type[np.generic]) -> Array:
    """The numbers of a field in a narrower type; a value that does not fit wraps around, as it does in C."""
    wide: Array = np.array(field)
    return wide.astype(dtype) if wide.size else np.empty(0, dtype)
