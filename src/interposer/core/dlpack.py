"""Arrays of other libraries, imported and exported without a copy: by NumPy, the buffer protocol, or DLPack.

NumPy supports DLPack too, but neither bfloat16 nor the float8 types of `ml_dtypes`, and NumPy may copy. So this module
implements DLPack itself, after the specification of version 1.0: https://dmlc.github.io/dlpack/latest/c_api.html
"""

from __future__ import annotations

import ctypes
import weakref
from collections.abc import Iterator
from typing import Any, Final

import numpy as np

from interposer.core.errors import BindingError
from interposer.core.masks import plain_array
from interposer.core.types import FLOATS, SIGNED_INTEGERS, Array, DataType

__all__ = ["Exported", "as_array", "shared_array"]

_CPU: Final = frozenset({1, 3, 11, 13})  # plain memory, and memory pinned or managed by CUDA or ROCm
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
    """The C structure ``DLManagedTensor``, which producers return if no version is requested."""

    _fields_ = [("tensor", _Tensor), ("manager", ctypes.c_void_p), ("deleter", _Deleter)]


class _Versioned(ctypes.Structure):
    """The C structure ``DLManagedTensorVersioned``, which adds a version and flags."""

    _fields_ = [
        ("major", ctypes.c_uint32),
        ("minor", ctypes.c_uint32),
        ("manager", ctypes.c_void_p),
        ("deleter", _Deleter),
        ("flags", ctypes.c_uint64),
        ("tensor", _Tensor),
    ]


_READ_ONLY: Final = 1
_COPIED: Final = 2
_CAPSULES: Final = {b"dltensor_versioned": _Versioned, b"dltensor": _Managed}
_RARE: Final = {
    (4, 16): DataType.BFLOAT16,
    (10, 8): DataType.FLOAT8_E4M3FN,
    (11, 8): DataType.FLOAT8_E4M3FNUZ,
    (12, 8): DataType.FLOAT8_E5M2,
    (13, 8): DataType.FLOAT8_E5M2FNUZ,
    (14, 8): DataType.FLOAT8_E8M0FNU,
}
_RARE_CODES: Final = {dtype: code for (code, _), dtype in _RARE.items()}


def _plain_types() -> Iterator[tuple[tuple[int, int], DataType]]:
    for dtype in DataType:
        if dtype.bits >= 8 and dtype not in _RARE_CODES:
            code = 6 if dtype is DataType.BOOL else 2 if dtype in FLOATS else 0 if dtype in SIGNED_INTEGERS else 1
            yield (code, dtype.bits), dtype


_TYPES: Final = dict(_plain_types()) | _RARE


def as_array(value: Any, title: str = "it") -> Array:
    """Return a value as an array, without a copy if it is in the memory of the host.

    Lists and numbers become arrays. Objects of other libraries are accepted if NumPy can convert them, if they have the
    buffer protocol, or if they have ``__dlpack__``.

    Raises:
        BindingError: the value cannot be converted, is on a device, or has masked elements; the message begins with
            `title`.
    """
    if isinstance(value, np.ndarray):
        return plain_array(value, title)
    try:
        if hasattr(value, "__dlpack__"):
            return _of_library(value)
        return np.asarray(value)
    except (TypeError, ValueError, RuntimeError, BufferError, AttributeError) as error:
        raise BindingError(f"{title} cannot be made into an array: {error}") from error


def shared_array(value: Any, title: str = "it") -> Array:
    """Return an array that shares the memory of a NumPy array, or of an object with ``__dlpack__`` or a buffer.

    The array is read-only if the producer marks its memory as read-only.

    Raises:
        BindingError: the memory cannot be shared without a copy, is on a device, or has masked elements; the message
            begins with `title`.
    """
    if isinstance(value, np.ndarray):
        return plain_array(value, title)
    try:
        if hasattr(value, "__dlpack__"):
            _check_device(value)
            return _read_shared(value)
        return np.asarray(_buffer(value))
    except (TypeError, ValueError, RuntimeError, BufferError, AttributeError) as error:
        raise BindingError(f"{title} cannot be used without a copy: {error}") from error


class Exported:
    """An array that other libraries can import without a copy, as in ``torch.from_dlpack(Exported(array))``.

    NumPy arrays can be imported directly; this class adds bfloat16 and the float8 types. The memory is freed when no
    library refers to it any more.
    """

    def __init__(self, array: Array) -> None:
        self.array = array

    def __dlpack_device__(self) -> tuple[int, int]:
        """Return the DLPack device type and number of the host memory."""
        return 1, 0

    def __dlpack__(
        self, *, stream: Any = None, max_version: Any = None, dl_device: Any = None, copy: bool | None = None
    ) -> Any:
        """Return the array as a DLPack capsule.

        Raises:
            BufferError: DLPack has no code for the element type, or the array is read-only and the consumer's version
                of DLPack has no flag for that.
        """
        if dl_device not in (None, (1, 0)):
            raise BufferError(f"the array is in the memory of the host, not on device {dl_device}")
        array = self.array.copy() if copy else self.array
        is_versioned = max_version is not None and max_version[0] >= 1 and _NUMPY_KNOWS_VERSIONS
        keywords = {"max_version": max_version} if is_versioned else {}
        if array.dtype.isbuiltin == 1:
            return array.__dlpack__(**keywords)
        code = _RARE_CODES.get(DataType.of(array.dtype))
        if code is None:
            raise BufferError(f"DLPack has no type code for {array.dtype}")
        capsule = array.view(f"u{array.itemsize}").__dlpack__(**keywords)
        _structure_in(capsule)[1].tensor.dtype.code = code
        return capsule


_NUMPY_KNOWS_VERSIONS: Final = np.lib.NumpyVersion(np.__version__) >= "2.1.0"


def _check_device(value: Any) -> None:
    device, device_id = value.__dlpack_device__()
    if int(device) not in _CPU:
        name = _DEVICES.get(int(device), f"type {int(device)}")
        raise ValueError(f"it is on device {device_id} ({name}); copy it to the host first")


def _is_lazily_negated(value: Any) -> bool:
    """Return True for a tensor of PyTorch whose memory has the negated elements, such as ``z.conj().imag``.

    DLPack cannot express this, and PyTorch exports the memory as it is.
    """
    is_neg = getattr(value, "is_neg", None)
    return callable(is_neg) and bool(is_neg())


def _of_library(value: Any) -> Array:
    _check_device(value)
    if _is_lazily_negated(value):
        value = value.resolve_neg()
    try:
        return np.asarray(value) if hasattr(value, "__array__") else np.from_dlpack(value)
    except (TypeError, RuntimeError, BufferError) as error:
        try:
            return _read(value.__dlpack__())
        except (TypeError, ValueError, RuntimeError, BufferError):
            raise error from None


def _buffer(value: Any) -> memoryview:
    try:
        return memoryview(value)
    except TypeError as error:
        raise TypeError(f"a {type(value).__name__} has neither __dlpack__ nor the buffer protocol") from error


def _read_shared(value: Any) -> Array:
    if _is_lazily_negated(value):
        raise ValueError("its memory has the negated elements; call resolve_neg() first")
    try:
        capsule = value.__dlpack__(max_version=(1, 0))
    except TypeError:  # the library's DLPack has no versions
        capsule = value.__dlpack__()
    array = _read(capsule)
    if array.flags.writeable and _is_known_read_only(value, array):
        array.flags.writeable = False
    return array


def _is_known_read_only(value: Any, array: Array) -> bool:
    """Return True if NumPy sees the memory of `value` as read-only; `array` is what DLPack made of it.

    Not every library says through DLPack that its memory is read-only.
    """
    try:
        numpy_view = np.asarray(value)
    except (TypeError, ValueError, RuntimeError, BufferError):
        return False
    return not numpy_view.flags.writeable and np.may_share_memory(numpy_view, array)


def _read(capsule: Any) -> Array:
    """Return the array in a capsule and mark the capsule as used; the producer's memory is released with the array."""
    name, managed_tensor = _structure_in(capsule)
    tensor = managed_tensor.tensor
    dtype = _TYPES.get((tensor.dtype.code, tensor.dtype.bits))
    if dtype is None or tensor.dtype.lanes != 1:
        raise TypeError(f"its type is not supported: DLPack code {tensor.dtype.code}, {tensor.dtype.bits} bits")
    flags = managed_tensor.flags if isinstance(managed_tensor, _Versioned) else 0
    if flags & _COPIED:
        raise BufferError("its library can only export a copy")
    shape = tuple(tensor.shape[axis] for axis in range(tensor.ndim))
    strides = tuple(tensor.strides[axis] * dtype.itemsize for axis in range(tensor.ndim)) if tensor.strides else None
    byte_count = _byte_span(shape, strides, dtype.itemsize)
    memory = (
        (ctypes.c_ubyte * byte_count).from_address((tensor.data or 0) + tensor.byte_offset)
        if byte_count
        else bytearray()
    )
    owner = np.frombuffer(memoryview(memory), np.uint8)
    ctypes.pythonapi.PyCapsule_SetName(ctypes.py_object(capsule), _USED_NAMES[name])
    if byte_count:
        weakref.finalize(memory, _delete, managed_tensor)
    else:
        _delete(managed_tensor)
    array: Array = np.ndarray(shape, dtype.numpy, owner.data, 0, strides)
    array.flags.writeable = not flags & _READ_ONLY
    return array


_USED_NAMES: Final = {name: b"used_" + name for name in _CAPSULES}


def _structure_in(capsule: Any) -> tuple[bytes, Any]:
    """Return the name of a capsule, and the ctypes structure in it."""
    api = ctypes.pythonapi
    api.PyCapsule_GetPointer.restype = ctypes.c_void_p
    api.PyCapsule_GetPointer.argtypes = api.PyCapsule_SetName.argtypes = [ctypes.py_object, ctypes.c_char_p]
    api.PyCapsule_IsValid.argtypes = [ctypes.py_object, ctypes.c_char_p]
    for name, structure in _CAPSULES.items():
        if api.PyCapsule_IsValid(capsule, name):
            managed_tensor = structure.from_address(api.PyCapsule_GetPointer(capsule, name))
            if isinstance(managed_tensor, _Versioned) and managed_tensor.major != 1:
                raise TypeError(f"it uses major version {managed_tensor.major} of DLPack; expected 1")
            return name, managed_tensor
    raise TypeError("its capsule holds no tensor, or has been used already")


def _byte_span(shape: tuple[int, ...], strides: tuple[int, ...] | None, itemsize: int) -> int:
    """Return the number of bytes from the first element of an array to the end of its last one.

    Strides are in bytes; None means a C-contiguous array. Raises ValueError for negative strides.
    """
    if 0 in shape:
        return 0
    if strides is None:
        return int(np.prod(shape, dtype=np.int64)) * itemsize
    if min(strides, default=0) < 0:
        raise ValueError("it has negative strides")
    return sum((dim - 1) * stride for dim, stride in zip(shape, strides, strict=True)) + itemsize


def _delete(managed_tensor: Any) -> None:
    if managed_tensor.deleter:
        managed_tensor.deleter(ctypes.addressof(managed_tensor))
