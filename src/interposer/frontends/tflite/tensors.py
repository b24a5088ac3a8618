"""Infos and arrays for the tensors of a TFLite file."""

from __future__ import annotations

from typing import Final

import numpy as np

from interposer.core.errors import DamagedFileError, InvalidArgumentError, ParseError
from interposer.core.types import Array, DataType, Quantization, TensorInfo
from interposer.frontends.tflite.contents import Tensor, packed_bits
from interposer.frontends.tflite.sparse import densified

__all__ = ["constant_array", "data_type", "is_complex", "tensor_info", "texts_of"]

_UNKNOWN_TYPES: Final = frozenset({"resource", "variant"})
_PARTS: Final = {"complex64": DataType.FLOAT32, "complex128": DataType.FLOAT64}
"""The type of the real and the imaginary part of complex numbers."""


def data_type(name: str, where: str) -> DataType:
    """Return the data type for the file's type name; integers of 2 and 4 bits are unpacked to 8 bits, as in TFLite.

    For complex numbers, it is the type of their parts.

    `ParseError` with the location `where` is raised for an unsupported type.
    """
    if name in _UNKNOWN_TYPES:
        raise ParseError(f"tensors of type {name} are not supported", where=where)
    if packed_bits(name):
        return DataType.UINT8 if name.startswith("u") else DataType.INT8
    return _PARTS.get(name) or DataType(name)


def is_complex(tensor: Tensor) -> bool:
    """Return True for complex numbers, which have a last dimension for their real and imaginary parts."""
    return tensor.dtype in _PARTS


def tensor_info(tensor: Tensor, where: str, *, dynamic: bool = False) -> TensorInfo:
    """Return the type, shape and quantization that the file declares for a tensor; `where` is for errors.

    With `dynamic`, the dimensions that are dynamic in the file are unknown. Complex numbers have a last dimension of
    size 2 that the file does not have.
    """
    dtype = data_type(tensor.dtype, where)
    shape = tensor.shape_signature if dynamic and tensor.shape_signature else tensor.shape
    shape = (*shape, 2) if is_complex(tensor) else shape
    try:
        return TensorInfo([None if dim < 0 else dim for dim in shape], dtype, _quantization(tensor, dtype, where))
    except InvalidArgumentError as error:
        raise ParseError(f"tensor {tensor.name!r}: {error}", where=where) from error


def _quantization(tensor: Tensor, dtype: DataType, where: str) -> Quantization | None:
    parameters = tensor.quantization
    if parameters is None or not dtype.is_integer:
        return None
    if parameters.details is not None:
        raise ParseError(
            f"tensor {tensor.name!r} is quantized by {parameters.details}, which is not supported", where=where
        )
    if min(parameters.scales, default=1.0) <= 0:
        return None
    return Quantization(parameters.scales, parameters.zero_points, parameters.axis)


def constant_array(values: Array, tensor: Tensor, where: str) -> Array:
    """Return the array of a constant from the file's values: a view, if the type allows it.

    Sparse tensors become dense. `ParseError` with the location `where` is raised for damaged texts, damaged sparse
    tensors and unsupported types.
    """
    if tensor.is_sparse:
        return densified(_stored(values, tensor, where), tensor, where)
    bits = packed_bits(tensor.dtype)
    if bits:
        return _unpacked(values, bits, data_type(tensor.dtype, where))[: tensor.elements].reshape(tensor.shape)
    if tensor.dtype == "string":
        return texts_of(values.tobytes(), tensor, where)
    dtype = data_type(tensor.dtype, where)
    if is_complex(tensor):
        return values.reshape(-1).view(dtype.numpy).reshape(*tensor.shape, 2)
    return values if values.dtype == dtype.numpy else values.view(dtype.numpy).reshape(tensor.shape)


def _stored(values: Array, tensor: Tensor, where: str) -> Array:
    """Return the stored elements of a sparse tensor, whose bytes are `values`."""
    dtype = data_type(tensor.dtype, where)
    if (
        packed_bits(tensor.dtype)
        or tensor.dtype == "string"
        or is_complex(tensor)
        or len(values) % dtype.numpy.itemsize
    ):
        raise ParseError(f"the sparse tensor {tensor.name!r} has {len(values)} bytes of {tensor.dtype}", where=where)
    return values != 0 if dtype is DataType.BOOL else values.view(dtype.numpy)


def _unpacked(packed: Array, bits: int, dtype: DataType) -> Array:
    """Return integers of 2 or 4 bits as int8 or uint8; each byte has several, the first one in its lowest bits."""
    shifts = np.arange(8 - bits, -1, -bits, dtype=np.uint8)
    return (packed[:, None] << shifts).view(dtype.numpy).reshape(-1) >> (8 - bits)


# --- texts ------------------------------------------------------------------------------------------------------------


def texts_of(data: bytes, tensor: Tensor, where: str) -> Array:
    """Return the strings in the bytes of a constant as an array of texts, with the tensor's shape.

    `ParseError` with the location `where` is raised if the bytes are damaged, or if a string is not UTF-8.
    """
    count = int.from_bytes(data[:4], "little", signed=True)
    if count != tensor.elements or len(data) < 4 * (count + 2):
        raise DamagedFileError(
            f"tensor {tensor.name!r} has {len(data)} bytes for {tensor.elements} strings", where=where
        )
    offsets = np.frombuffer(data, "<i4", count + 1, 4).tolist()
    if offsets[0] != 4 * (count + 2) or sorted(offsets) != offsets or offsets[-1] > len(data):
        raise DamagedFileError(f"tensor {tensor.name!r} has strings outside of its bytes", where=where)
    texts = np.empty(count, object)
    texts[:] = [_text(data[start:end], tensor, where) for start, end in zip(offsets[:-1], offsets[1:], strict=True)]
    return texts.reshape(tensor.shape)


def _text(encoded_text: bytes, tensor: Tensor, where: str) -> str:
    try:
        return encoded_text.decode()
    except UnicodeDecodeError as error:
        raise ParseError(
            f"tensor {tensor.name!r} has a string that is not UTF-8: {encoded_text[:40]!r}", where=where
        ) from error
