"""Tensors of a model file: their types, and their data as arrays, checked before memory is allocated."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache
from typing import Any, Final

import numpy as np

from interposer.core.constants import LEAST_SHARED, place_of
from interposer.core.errors import ParseError
from interposer.core.types import MAX_RANK, UNKNOWN, UNRANKED, Array, DataType, ShapeLike, TensorInfo, from_bits
from interposer.frontends.onnx.external import ExternalFiles
from interposer.frontends.onnx.proto import Message

__all__ = ["array_of", "data_type", "dense_array_of", "element_info", "info_of_type", "type_number"]

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
    23: DataType.FLOAT4_E2M1FN,
    24: DataType.FLOAT8_E8M0FNU,
    25: DataType.UINT2,
    26: DataType.INT2,
    27: DataType.FLOAT6_E2M3FN,
    28: DataType.FLOAT6_E3M2FN,
}
_NUMBERS: Final = {dtype: number for number, dtype in _TYPES.items()}
_UNSUPPORTED: Final = {14: "complex64", 15: "complex128"}
_FIELD_NAMES: Final = {
    DataType.FLOAT32: "float_data",
    DataType.FLOAT64: "double_data",
    DataType.INT64: "int64_data",
    DataType.UINT32: "uint64_data",
    DataType.UINT64: "uint64_data",
    DataType.STRING: "string_data",
}  # all other types are in int32_data; floats of 16 and 8 bits as their bits
_PACKED: Final = (2, 4)
"""The widths in bits of elements that are packed in int32_data; elements of other types take one number each."""
_EXTERNAL: Final = 1
_MOST_DENSE: Final = 1 << 28
"""The most elements of a tensor that is stored with its elements other than 0 only."""
_MOST_ELEMENTS: Final = 1 << 56  # an empty tensor may have large dimensions, but not unlimited ones


def data_type(number: int) -> DataType:
    """Return the data type for a number of the format; raise `ParseError` for unsupported types."""
    dtype = _TYPES.get(number)
    if dtype is None:
        raise ParseError(f"tensors of type {_UNSUPPORTED.get(number, number)} are not supported")
    return dtype


def type_number(dtype: DataType) -> int:
    """Return the format's number for a type; 0 (undefined) if it has none."""
    return _NUMBERS.get(dtype, 0)


def array_of(tensor: Message, files: ExternalFiles, apart: memoryview | None = None) -> Array:
    """Return the elements of a `TensorProto` as an array, a view of the file's bytes if possible.

    `files` reads external data. `apart` is the raw data of the tensor, if it was taken out of the message.

    Raises:
        ParseError: the amount of data does not match type and shape, or its external file is not allowed.
    """
    dtype, shape = data_type(tensor.data_type), _shape_of(tensor)
    if tensor.HasField("segment"):
        raise ParseError("tensors in segments are not supported")
    if tensor.data_location == _EXTERNAL:
        return _from_bytes(dtype, shape, lambda needed: files.read(tensor.external_data, needed))
    if apart is not None:
        return _from_bytes(dtype, shape, lambda needed: _raw(apart, needed))
    if tensor.HasField("raw_data"):
        return _from_bytes(dtype, shape, lambda needed: _raw(tensor.raw_data, needed))
    return _from_field(tensor, dtype, shape)


def dense_array_of(tensor: Message, files: ExternalFiles) -> Array:
    """Return the elements of a `SparseTensorProto` as an array, in which all elements that are not listed are 0.

    Raises:
        ParseError: the elements or their indices are damaged, or too many.
    """
    shape = _shape_of(tensor)
    values, indices = array_of(tensor.values, files), array_of(tensor.indices, files)
    if values.ndim != 1 or indices.dtype != np.int64 or indices.shape not in {values.shape, (len(values), len(shape))}:
        raise ParseError(
            f"a sparse tensor of shape {list(shape)} has values of shape {list(values.shape)} and indices "
            f"of shape {list(indices.shape)}; expected an index, or one for each axis, for each value"
        )
    if values.dtype == object or math.prod(shape) > _MOST_DENSE:
        raise ParseError(f"a sparse tensor of shape {list(shape)} and of the type {values.dtype} is not supported")
    limits = np.array(shape if indices.ndim == 2 else math.prod(shape))
    if ((indices < 0) | (indices >= limits)).any():
        raise ParseError(f"a sparse tensor of shape {list(shape)} has an index out of range")
    array = np.zeros(math.prod(shape), values.dtype)
    array[np.ravel_multi_index(tuple(indices.T), shape) if indices.ndim == 2 and shape else indices] = values
    return array.reshape(shape)


def _shape_of(tensor: Message) -> tuple[int, ...]:
    shape = tuple(tensor.dims)
    if not shape:
        return shape
    if len(shape) > MAX_RANK:
        raise ParseError(f"a tensor has rank {len(shape)}; ranks 0 to {MAX_RANK} are supported")
    if min(shape) < 0:
        raise ParseError(f"a tensor has the shape {list(shape)}; a dimension must not be negative")
    if math.prod(filter(None, shape)) > _MOST_ELEMENTS:
        raise ParseError(f"a tensor has the shape {list(shape)}; it is too large")
    return shape


def _raw(raw_data: bytes | memoryview, num_bytes: int) -> Array:
    if len(raw_data) != num_bytes:
        raise ParseError(f"a tensor holds {len(raw_data)} bytes of data; its type and shape ask for {num_bytes}")
    return np.frombuffer(raw_data, np.uint8)


def _from_bytes(dtype: DataType, shape: tuple[int, ...], read: Callable[[int], Array]) -> Array:
    if dtype is DataType.STRING:
        raise ParseError("a tensor of strings must not be given as bytes")
    count = math.prod(shape)
    stored_bytes = read(-(-count * dtype.bits // 8))
    if 0 < dtype.bits < 8:
        return from_bits(_unpacked(stored_bytes, count, dtype.bits), dtype).reshape(shape)
    if dtype is DataType.BOOL:
        booleans: Array = stored_bytes != 0
        return booleans.reshape(shape)
    values = stored_bytes.view(_stored_dtype(dtype))
    if values.nbytes >= LEAST_SHARED and values.dtype == dtype.numpy and place_of(values) is not None:
        return values.reshape(shape)  # a mapped file; copied by `core.constants.aligned` where alignment matters
    if not (values.flags.aligned and values.dtype.isnative):
        values = np.require(values, dtype.numpy, "A")
    return values.reshape(shape)


@cache
def _stored_dtype(dtype: DataType) -> np.dtype[Any]:
    """Return the type of elements as bytes of a file, which are little-endian."""
    return dtype.numpy.newbyteorder("<") if dtype.numpy.kind in "iuf" else dtype.numpy


def _unpacked(packed_bytes: Array, count: int, bits: int) -> Array:
    """Return `count` elements of `bits` bits as one byte each; they are packed from the lowest bit of each byte on."""
    if bits == 4:
        unpacked = packed_bytes.astype(np.uint16)
        unpacked |= unpacked << 4
        unpacked &= 0x0F0F
        return unpacked.astype("<u2", copy=False).view(np.uint8)[:count]
    if 8 % bits:
        stream = np.unpackbits(packed_bytes, bitorder="little")[: count * bits].reshape(count, bits)
        return np.packbits(stream, axis=-1, bitorder="little").reshape(-1)
    shifts = np.arange(0, 8, bits, dtype=np.uint8)
    elements: Array = packed_bytes[:, np.newaxis] >> shifts & np.uint8((1 << bits) - 1)
    return elements.reshape(-1)[:count]


def _from_field(tensor: Message, dtype: DataType, shape: tuple[int, ...]) -> Array:
    name = _FIELD_NAMES.get(dtype, "int32_data")
    field = getattr(tensor, name)
    count = math.prod(shape)
    num_entries = -(-count * dtype.bits // 8) if dtype.bits in _PACKED else count
    if len(field) != num_entries:
        raise ParseError(f"a tensor has {len(field)} elements in {name}; its type and shape ask for {num_entries}")
    if dtype is DataType.STRING:
        return np.array([_text(encoded) for encoded in field] or [""], object)[:count].reshape(shape)
    return _typed(field, dtype, count).reshape(shape)


def _text(encoded_text: bytes) -> str:
    try:
        return encoded_text.decode("utf-8")
    except UnicodeDecodeError as error:
        raise ParseError(f"a string is not UTF-8: {encoded_text[:40]!r}") from error


def _typed(field: Message, dtype: DataType, count: int) -> Array:
    if 0 < dtype.bits < 8:
        elements = _narrowed(field, np.uint8)
        return from_bits(_unpacked(elements, count, dtype.bits) if dtype.bits in _PACKED else elements, dtype)
    if dtype in _FIELD_NAMES:
        return _narrowed(field, dtype.numpy)
    if dtype.is_float:
        bits = _narrowed(field, np.dtype(f"u{dtype.itemsize}"))
        return bits.view(dtype.numpy)
    return _narrowed(field, dtype.numpy)


def _narrowed(field: Message, dtype: np.dtype[np.generic] | type[np.generic]) -> Array:
    """Return the numbers in a field of a `TensorProto` as `dtype`, which may be narrower than the field's type.

    A value that does not fit wraps around, as in C.
    """
    count = len(field)
    if count == 1:  # a fast path, since quantized networks have thousands of scalars
        return np.array(field[0]).astype(dtype).reshape(1)
    numbers: Array = np.array(field)
    return numbers.astype(dtype) if count else np.empty(0, dtype)


# --- infos of values --------------------------------------------------------------------------------------------------


_COLLECTIONS: Final = {"sequence_type": DataType.SEQUENCE, "optional_type": DataType.OPTIONAL}
_TITLES: Final = {"map_type": "a map", "sparse_tensor_type": "a sparse tensor", None: "of no type"}


def info_of_type(type_proto: Message, shape: ShapeLike) -> TensorInfo:
    """Return the info of a value of the type `type_proto` (a `TypeProto`) and of this shape.

    The shape of a sequence or optional is its number of elements.

    Raises:
        ParseError: the type is not a tensor, sequence or optional, or has elements of an unsupported type.
    """
    type_field = type_proto.WhichOneof("value")
    if type_field == "tensor_type":
        return TensorInfo(shape, data_type(type_proto.tensor_type.elem_type))
    if type_field not in _COLLECTIONS:
        raise ParseError(
            f"it is {_TITLES.get(type_field, type_field)}; only tensors, sequences and optionals are supported"
        )
    return TensorInfo(shape, _COLLECTIONS[type_field], element=element_info(getattr(type_proto, type_field).elem_type))


def element_info(type_proto: Message) -> TensorInfo:
    """Return the info of the elements of a sequence or optional, whose element type is `type_proto` (a `TypeProto`).

    Dimensions that are open in the model have no name here: elements may differ in size, so a name would not identify
    one.
    """
    if type_proto.WhichOneof("value") != "tensor_type":
        return info_of_type(type_proto, (UNKNOWN,))
    if not type_proto.tensor_type.HasField("shape"):
        return info_of_type(type_proto, UNRANKED)
    dimensions = type_proto.tensor_type.shape.dim
    return info_of_type(type_proto, [dim.dim_value if _is_known(dim) else UNKNOWN for dim in dimensions])


def _is_known(dim: Message) -> bool:
    return bool(dim.WhichOneof("value") == "dim_value" and dim.dim_value >= 0)
