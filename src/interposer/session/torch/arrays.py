"""Tensors of PyTorch as arrays, and arrays as tensors, without a copy where that is possible."""

from __future__ import annotations

from typing import Any, Final

from interposer.core.dlpack import Exported, shared_array
from interposer.core.errors import BindingError
from interposer.core.types import Array
from interposer.frontends.torch.package import torch

__all__ = ["array_of", "tensor_of"]


def array_of(tensor: Any, title: str) -> Array:
    """Return the elements of a tensor as an array over the same memory; those of a device are copied to the host.

    A complex tensor becomes an array with real and imaginary part as the last axis.

    Raises:
        BindingError: the tensor has no elements in memory, or is not dense; the message begins with `title`.
    """
    try:
        if tensor.dtype.is_complex:
            return _real(tensor).numpy(force=True)  # type: ignore[no-any-return]
        if str(tensor.dtype) not in _RARE:
            return tensor.numpy(force=True)  # type: ignore[no-any-return]
        return shared_array(tensor.detach().cpu(), title)
    except (RuntimeError, TypeError) as error:
        reason = str(error).partition("\n")[0]
        raise BindingError(f"{title} cannot be read as an array: {reason}") from error


_RARE: Final = frozenset(
    f"torch.{name}"
    for name in ("bfloat16", "float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz", "float8_e8m0fnu")
)


def _real(tensor: Any) -> Any:
    return torch.view_as_real(tensor.detach().resolve_conj())


def tensor_of(array: Array, *, is_complex: bool = False) -> Any:
    """Return a tensor over the memory of an array; an array that is read-only or has negative strides is copied.

    With `is_complex`, the last axis of the array has real and imaginary part.
    """
    if array.flags.carray and array.dtype.isbuiltin == 1 and not is_complex:
        return torch.from_numpy(array)
    writable = array if array.flags.writeable and min(array.strides, default=0) >= 0 else array.copy()
    tensor = torch.from_numpy(writable) if writable.dtype.isbuiltin == 1 else torch.from_dlpack(Exported(writable))
    return torch.view_as_complex(tensor.contiguous()) if is_complex else tensor
