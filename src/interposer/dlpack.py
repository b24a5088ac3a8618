"""Arrays of other libraries, taken over where they lie: by NumPy's own means, the buffer protocol, or DLPack.

NumPy reads DLPack too, but not bfloat16 and the types of fewer than 16 bits, which `ml_dtypes` supplies. These are read
here, as the specification of DLPack 1.0 lays them out: https://dmlc.github.io/dlpack/latest/c_api.html
"""

from __future__ import annotations

import ctypes
import weakref
from typing import Any, Final

import numpy as np

from interposer.errors import BindingError
from interposer.types import Array, DataType

__all__ = ["as_array"]

_CPU: Final = frozenset({1, 3, 11, 13})  # plain, and pinned or managed by CUDA or ROCm: the host reads all of them
_DEVICES: Final = {2: "CUDA", 4: "OpenCL", 7: "Vulkan", 8: "Metal", 10: "ROCm", 14: "oneAPI", 15: "WebGPU"}


class _DataType(ctypes.Structure):
    _fields_ = [("code", ctypes.c_uint8), ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16)]


class _Tensor(ctypes.Structure):
    _fields_ = [
        ("data", ctypes.c_void_p),
        ("device_type", ctypes.c_int32),
        ("device_id", ctypes.c_int32),
        ("ndim", ctypes.c_int32),
        ("dtype", _DataType),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    ]


_Deleter = ctypes.CFUNCTYPE(None, ctypes.c_void_p)


class _Managed(ctypes.Structure):
    """``DLManagedTensor``, which every producer gives where no newer version is asked for."""

    _fields_ = [("tensor", _Tensor), ("manager", ctypes.c_void_p), ("deleter", _Deleter)]


_TYPES: Final = {
    (4, 16): DataType.BFLOAT16,
    (10, 8): DataType.FLOAT8_E4M3FN,
    (11, 8): DataType.FLOAT8_E4M3FNUZ,
    (12, 8): DataType.FLOAT8_E5M2,
    (13, 8): DataType.FLOAT8_E5M2FNUZ,
    (14, 8): DataType.FLOAT8_E8M0FNU,
}


def as_array(given: Any, title: str = "it") -> Array:
    """The array that something is or can be seen as: without a copy where it lies in memory of the host.

    Lists and numbers become arrays. Of other libraries, everything that NumPy takes, that has the buffer protocol, or
    ``__dlpack__`` is taken.

    Raises:
        BindingError: it is none, or lies on a device; names `title`.
    """
    if isinstance(given, np.ndarray):
        return given
    try:
        if hasattr(given, "__dlpack__"):
            return _of_library(given)
        return np.asarray(given)
    except (TypeError, ValueError, RuntimeError, BufferError, AttributeError) as error:
        raise BindingError(f"{title} cannot be made into an array: {error}") from error


def _of_library(given: Any) -> Array:
    device, number = given.__dlpack_device__()
    if int(device) not in _CPU:
        name = _DEVICES.get(int(device), f"type {int(device)}")
        raise ValueError(f"it lies on device {number} ({name}); bring it to the host first")
    try:
        return np.asarray(given) if hasattr(given, "__array__") else np.from_dlpack(given)
    except (TypeError, RuntimeError, BufferError) as error:
        try:
            return _read(given.__dlpack__())
        except (TypeError, ValueError, RuntimeError, BufferError):
            raise error from None


def _read(capsule: Any) -> Array:
    """The array in a capsule, which is used up by that; the producer's memory is let go of with the array."""
    managed = _managed(capsule)
    tensor = managed.tensor
    dtype = _TYPES.get((tensor.dtype.code, tensor.dtype.bits))
    if dtype is None or tensor.dtype.lanes != 1:
        raise TypeError(f"its type is number {tensor.dtype.code} of DLPack, with {tensor.dtype.bits} bits")
    shape = tuple(tensor.shape[i] for i in range(tensor.ndim))
    strides = tuple(tensor.strides[i] * dtype.itemsize for i in range(tensor.ndim)) if tensor.strides else None
    span = _span(shape, strides, dtype.itemsize)
    raw = (ctypes.c_ubyte * span).from_address((tensor.data or 0) + tensor.byte_offset) if span else bytearray()
    owner = np.frombuffer(memoryview(raw), np.uint8)
    ctypes.pythonapi.PyCapsule_SetName(ctypes.py_object(capsule), b"used_dltensor")
    if span:
        weakref.finalize(raw, _delete, managed)
    else:
        _delete(managed)
    return np.ndarray(shape, dtype.numpy, owner.data, 0, strides)


def _managed(capsule: Any) -> _Managed:
    pointer = ctypes.pythonapi.PyCapsule_GetPointer
    pointer.restype, pointer.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
    ctypes.pythonapi.PyCapsule_SetName.argtypes = [ctypes.py_object, ctypes.c_char_p]
    return _Managed.from_address(pointer(capsule, b"dltensor"))


def _span(shape: tuple[int, ...], strides: tuple[int, ...] | None, itemsize: int) -> int:
    """The bytes from the first to the last element."""
    if 0 in shape:
        return 0
    if strides is None:
        return int(np.prod(shape, dtype=np.int64)) * itemsize
    if min(strides, default=0) < 0:
        raise ValueError("its rows lie backwards")
    return sum((dim - 1) * stride for dim, stride in zip(shape, strides, strict=True)) + itemsize


def _delete(managed: _Managed) -> None:
    if managed.deleter:
        managed.deleter(ctypes.addressof(managed))
