"""Constant tensors of a model as arrays, checked before memory is allocated."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

import numpy as np

from interposer.core.constants import LEAST_SHARED, place_of
from interposer.core.errors import ParseError
from interposer.core.types import MAX_RANK, Array, DataType
from interposer.frontends.tensorflow.dtypes import data_type
from interposer.frontends.tensorflow.messages import TensorProto, TensorShape

__all__ = ["array_of", "from_bytes", "shape_of", "texts_of"]

_FIELDS: Final = {
    DataType.FLOAT32: "float_val",
    DataType.FLOAT64: "double_val",
    DataType.INT64: "int64_val",
    DataType.BOOL: "bool_val",
    DataType.FLOAT16: "half_val",
    DataType.BFLOAT16: "half_val",
    DataType.UINT32: "uint32_val",
    DataType.UINT64: "uint64_val",
}  # all other numbers are in int_val
_BITS: Final = {DataType.FLOAT16: np.uint16, DataType.BFLOAT16: np.uint16}
_MOST_ELEMENTS: Final = 1 << 56
_MOST_REPEATED: Final = 1 << 28
"""The largest number of elements that a file may express by fewer numbers, of which the last is repeated."""


def array_of(tensor: TensorProto) -> Array:
    """Return the elements of a `TensorProto` as an array, a view of the file's bytes if possible.

    Raises:
        ParseError: the amount of data does not match type and shape, or the type is not supported.
    """
    dtype, shape = data_type(tensor.dtype), shape_of(tensor.tensor_shape or TensorShape())
    if dtype is DataType.STRING:
        return _repeated(texts_of(tensor.string_val), shape, "")
    if len(tensor.tensor_content):
        return from_bytes(tensor.tensor_content, dtype, shape)
    numbers = np.asarray(getattr(tensor, _FIELDS.get(dtype, "int_val")))
    if dtype in _BITS:
        return _repeated(numbers.astype(np.uint16).view(dtype.numpy), shape, 0)
    return _repeated(numbers.astype(dtype.numpy), shape, 0)


def shape_of(shape: TensorShape) -> tuple[int, ...]:
    """Return the sizes of a shape; `ParseError` if its rank or a size is unknown, or it is too large."""
    dims = shape.dims()
    if dims is None or len(dims) > MAX_RANK:
        description = "no rank" if dims is None else f"rank {len(dims)}; ranks 0 to {MAX_RANK} are supported"
        raise ParseError(f"a tensor has {description}")
    sizes = [size for size in dims if size is not None]
    if len(sizes) < len(dims) or math.prod(max(size, 1) for size in sizes) > _MOST_ELEMENTS:
        raise ParseError(f"a tensor has the shape {[-1 if size is None else size for size in dims]}")
    return tuple(sizes)


def _repeated(values: Array, shape: tuple[int, ...], default: object) -> Array:
    """Return the values in this shape; the last one is repeated if there are fewer, and `default` without any."""
    count = math.prod(shape)
    if values.size >= count:
        return values[:count].reshape(shape)
    if count > _MOST_REPEATED:
        raise ParseError(f"a tensor of the shape {list(shape)} holds only {values.size} elements")
    fill_value = values[-1] if values.size else default
    repeated = np.full(count, fill_value, values.dtype)
    repeated[: values.size] = values
    return repeated.reshape(shape)


def texts_of(strings: Sequence[memoryview]) -> Array:
    """Return strings as an array of texts with one axis; bytes that are not UTF-8 are replaced."""
    texts = np.empty(len(strings), object)
    texts[:] = [bytes(string).decode("utf-8", "replace") for string in strings]
    return texts


def from_bytes(data: memoryview, dtype: DataType, shape: tuple[int, ...]) -> Array:
    """Return little-endian elements as an array, a view of a mapped file if possible.

    Raises:
        ParseError: the number of bytes does not match type and shape.
    """
    num_bytes = math.prod(shape) * dtype.itemsize
    if len(data) != num_bytes:
        raise ParseError(f"a tensor holds {len(data)} bytes of data; its type and shape ask for {num_bytes}")
    raw_bytes = np.frombuffer(data, np.uint8)
    if dtype is DataType.BOOL:
        booleans: Array = raw_bytes != 0
        return booleans.reshape(shape)
    values = raw_bytes.view(dtype.numpy)
    if values.nbytes >= LEAST_SHARED and place_of(values) is not None:
        return values.reshape(shape)  # a mapped file; copied by `core.constants.aligned` where alignment matters
    aligned: Array = np.require(values, dtype.numpy, "A")
    return aligned.reshape(shape)
