"""PyTorch's tensors and data types as arrays and data types of Interposer, without a copy of the elements."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any, Final

from interposer.core.dlpack import shared_array
from interposer.core.errors import BindingError, ParseError
from interposer.core.types import Array, DataType
from interposer.frontends.torch.package import torch
from interposer.frontends.unsupported import UnsupportedFormError

__all__ = ["array_of", "data_type", "key_of"]


@cache
def _types() -> Mapping[Any, DataType]:
    """Return the data types by ``torch.dtype``."""
    return {
        torch.bool: DataType.BOOL,
        torch.int8: DataType.INT8,
        torch.int16: DataType.INT16,
        torch.int32: DataType.INT32,
        torch.int64: DataType.INT64,
        torch.uint8: DataType.UINT8,
        torch.uint16: DataType.UINT16,
        torch.uint32: DataType.UINT32,
        torch.uint64: DataType.UINT64,
        torch.float16: DataType.FLOAT16,
        torch.float32: DataType.FLOAT32,
        torch.float64: DataType.FLOAT64,
        torch.bfloat16: DataType.BFLOAT16,
        torch.float8_e4m3fn: DataType.FLOAT8_E4M3FN,
        torch.float8_e4m3fnuz: DataType.FLOAT8_E4M3FNUZ,
        torch.float8_e5m2: DataType.FLOAT8_E5M2,
        torch.float8_e5m2fnuz: DataType.FLOAT8_E5M2FNUZ,
        torch.complex64: DataType.FLOAT32,  # with real and imaginary part as the last axis
        torch.complex128: DataType.FLOAT64,
        torch.complex32: DataType.FLOAT16,
    }


_RARE: Final = "bfloat16", "float8"
"""The beginnings of the names of types that NumPy lacks."""


def data_type(dtype: Any) -> DataType:
    """Return the data type for a ``torch.dtype``; that of the parts for complex numbers.

    Raises:
        UnsupportedFormError: Interposer has no such type.
    """
    known_type = _types().get(dtype)
    if known_type is None:
        raise UnsupportedFormError(f"the data type {_name(dtype)} is not supported")
    return known_type


def key_of(tensor: Any) -> tuple[Any, ...] | None:
    """Return a key that equals the key of another tensor over the same memory, as tied weights are; None if empty."""
    if (
        hasattr(tensor, "__tensor_flatten__")
        or _is_fake(tensor)
        or not tensor.numel()
        or tensor.layout is not torch.strided
    ):
        return None
    return tensor.data_ptr(), tuple(tensor.shape), tensor.stride(), tensor.dtype, tensor.is_conj(), tensor.is_neg()


def array_of(tensor: Any, title: str) -> Array:
    """Return the elements of a tensor as an array over the same memory; `title` names the tensor in errors.

    A complex tensor becomes an array with real and imaginary part as the last axis. Tensors on a device, and those with
    pending conjugation or negation, are copied.

    Raises:
        ParseError: the tensor has no data of its own, or a layout or type that is not supported.
    """
    for error in _problems(tensor):
        raise ParseError(f"{title} {error}")
    readable_tensor = tensor.detach().resolve_conj().resolve_neg()
    readable_tensor = readable_tensor if readable_tensor.device.type == "cpu" else readable_tensor.cpu()
    readable_tensor = torch.view_as_real(readable_tensor) if readable_tensor.is_complex() else readable_tensor
    try:
        array: Array = (
            shared_array(readable_tensor) if _name(readable_tensor.dtype).startswith(_RARE) else readable_tensor.numpy()
        )
    except (BindingError, RuntimeError, TypeError) as error:
        raise ParseError(f"{title} cannot be read: {error}") from error
    return array


def _name(dtype: Any) -> str:
    return str(dtype).removeprefix("torch.")


def _is_fake(tensor: Any) -> bool:
    return type(tensor).__name__ == "FakeTensor" or tensor.device.type == "meta"


def _problems(tensor: Any) -> list[str]:
    """Return why the elements of a tensor cannot be read: at most one reason."""
    if tensor.device.type == "meta":
        return ["has no data, as it is on the device meta; load its weights before the export"]
    if _is_fake(tensor):
        return ["has no data, as the program was exported with fake tensors; export it with real weights"]
    if hasattr(tensor, "__tensor_flatten__"):
        advice = "unwrap it with torchao.utils.unwrap_tensor_subclass before the export"
        return [f"is a {type(tensor).__name__}, a tensor subclass; {advice}"]
    if tensor.layout is not torch.strided:
        return [f"has the layout {tensor.layout}; only strided tensors are supported"]
    if tensor.is_quantized or tensor.dtype not in _types():
        return [f"has the data type {tensor.dtype}, which is not supported"]
    return []
