"""Noticing that weights have changed, although a loaded network has packed copies of them."""

from __future__ import annotations

import ctypes
from collections.abc import Iterable
from typing import Any, Final

from interposer.frontends.torch.package import torch

__all__ = ["Watch", "version_of"]

_SAMPLES: Final = 128
_FEWEST: Final = 2
_MOST: Final = 16
_INTEGERS: Final = {1: ctypes.c_uint8, 2: ctypes.c_uint16, 4: ctypes.c_uint32, 8: ctypes.c_uint64}


def version_of(tensor: Any) -> int:
    """Return the number that PyTorch increments when a tensor changes in place; -1 if it has none."""
    try:
        return int(tensor._version)
    except (RuntimeError, AttributeError):  # tensors that were made in inference mode
        return -1


class Watch:
    """Reports whether tensors have changed since it was created.

    Every change by an operator of PyTorch is noticed, by the version that PyTorch counts, and every assignment to
    ``tensor.data``. Other changes that PyTorch does not count (operators on ``tensor.data``, writes through a NumPy
    array over the same memory) are noticed if they change one of some elements that are spread over each tensor: 16
    elements, or 128 divided by the number of tensors, but at least 2. Tensors that were made in inference mode have no
    version, so all of their elements are compared.
    """

    def __init__(self, tensors: Iterable[Any]) -> None:
        self.tensors = tuple(tensors)
        counted = [tensor for tensor in self.tensors if version_of(tensor) >= 0]
        self._facts = [(tensor, tensor._version, tensor.data_ptr()) for tensor in counted]
        others = [tensor for tensor in self.tensors if version_of(tensor) < 0]
        self._others = [(tensor, tensor.data_ptr(), _content(tensor).clone()) for tensor in others]
        count = min(_MOST, max(_FEWEST, _SAMPLES // max(1, len(self.tensors))))
        self._cells = [cell for tensor in self.tensors for cell in _cells_of(tensor, count)]
        self._known = [cell.value for cell in self._cells]

    def has_changed(self) -> bool:
        """Return True if one of the tensors has changed."""
        if any([item._version != version or item.data_ptr() != place for item, version, place in self._facts]):
            return True
        if any(_differs(*other) for other in self._others):
            return True
        return [cell.value for cell in self._cells] != self._known

    def changed(self, tensor: Any) -> bool:
        """Return True if PyTorch has counted a change of one of the tensors, or if it has no version and differs."""
        return any(
            item is tensor and (item._version != v or item.data_ptr() != p) for item, v, p in self._facts
        ) or any(other[0] is tensor and _differs(*other) for other in self._others)


def _differs(tensor: Any, place: int, known: Any) -> bool:
    """Return True if a tensor has moved from an address, or its content differs from `known`."""
    return tensor.data_ptr() != place or not torch.equal(_content(tensor), known)


def _content(tensor: Any) -> Any:
    """Return the elements of a tensor as bytes, so that NaN equals itself."""
    return tensor.detach().reshape(-1).view(torch.uint8)


def _cells_of(tensor: Any, count: int) -> list[Any]:
    """Return about `count` elements of a tensor, as integers at addresses of its memory; none if it is not on the CPU.

    They are spread over all of a contiguous tensor, or over the diagonal of another one.
    """
    kind = _INTEGERS.get(min(8, tensor.element_size()))
    is_plain = type(tensor) in (torch.Tensor, torch.nn.Parameter, torch.nn.Buffer) and tensor.layout is torch.strided
    if kind is None or not is_plain or tensor.device.type != "cpu" or not tensor.numel() or not tensor.data_ptr():
        return []
    total, stride = (tensor.numel(), 1) if tensor.is_contiguous() else _diagonal(tensor)
    places = range(0, total, -(-total // count))
    start, step = tensor.data_ptr(), stride * tensor.element_size()
    return [kind.from_address(start + place * step) for place in places]


def _diagonal(tensor: Any) -> tuple[int, int]:
    """Return the number of elements on the diagonal of a tensor, and the stride between them."""
    sizes = [(size, step) for size, step in zip(tensor.shape, tensor.stride(), strict=True) if size > 1]
    return min((size for size, _ in sizes), default=1), sum(step for _, step in sizes)
