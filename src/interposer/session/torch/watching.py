"""Noticing that weights have changed, although a loaded network has packed copies of them."""

from __future__ import annotations

import ctypes
from collections.abc import Iterable
from operator import attrgetter
from typing import Any, Final

from interposer.frontends.torch.package import torch

__all__ = ["Watch", "version_of"]

_SAMPLES: Final = 96
_FEWEST: Final = 2
_MOST: Final = 8
_SMALL: Final = 1024
"""Tensors of at most this number of bytes are compared completely."""
_LINE: Final = 64
"""How many bytes of a larger contiguous tensor are compared at each place."""


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
    array over the same memory) are noticed if they change bytes that are compared: those of a contiguous tensor of at
    most 1024 bytes; 64 bytes at each of some places that are spread over a larger one; and elements at such places of
    one that is not contiguous. There are 96 divided by the number of tensors of these places, but 2 to 8. Tensors that
    were made in inference mode have no version, so all of their elements are compared.
    """

    def __init__(self, tensors: Iterable[Any]) -> None:
        self.tensors = tuple(tensors)
        self._counted_tensors = [tensor for tensor in self.tensors if version_of(tensor) >= 0]
        self._address, self._version = torch.Tensor.data_ptr, attrgetter("_version")
        self._addresses, self._versions = self._present()
        unversioned = [tensor for tensor in self.tensors if version_of(tensor) < 0]
        self._unversioned = [(tensor, tensor.data_ptr(), _content(tensor).clone()) for tensor in unversioned]
        places = min(_MOST, max(_FEWEST, _SAMPLES // max(1, len(self.tensors))))
        self._cells = [cell for tensor in self.tensors for cell in _cells_of(tensor, places)]
        self._known_cells = b"".join(self._cells)

    def _present(self) -> tuple[list[int], list[int]]:
        """Return the present addresses and versions of the tensors that have versions."""
        return list(map(self._address, self._counted_tensors)), list(map(self._version, self._counted_tensors))

    def has_changed(self) -> bool:
        """Return True if one of the tensors has changed."""
        if self._present() != (self._addresses, self._versions):
            return True
        if self._unversioned and any(_differs(*snapshot) for snapshot in self._unversioned):
            return True
        return b"".join(self._cells) != self._known_cells  # last, as the memory of a tensor that has moved may be gone

    def changed(self, tensor: Any) -> bool:
        """Return True if PyTorch has counted a change of one of the tensors, or if it has no version and differs."""
        facts = zip(self._counted_tensors, self._addresses, self._versions, strict=True)
        changes = (
            counted_tensor is tensor and (counted_tensor.data_ptr() != address or counted_tensor._version != version)
            for counted_tensor, address, version in facts
        )
        return any(changes) or any(snapshot[0] is tensor and _differs(*snapshot) for snapshot in self._unversioned)


def _differs(tensor: Any, address: int, content: Any) -> bool:
    """Return True if a tensor has moved from an address, or its content differs from `content`."""
    return tensor.data_ptr() != address or not torch.equal(_content(tensor), content)


def _content(tensor: Any) -> Any:
    """Return the elements of a tensor as bytes, so that NaN equals itself."""
    return tensor.detach().reshape(-1).view(torch.uint8)


def _cells_of(tensor: Any, count: int) -> list[Any]:
    """Return the bytes of a tensor that are compared, as ctypes arrays over its memory; none if it is not on the CPU.

    They are all bytes of a small contiguous tensor, about `count` places that are spread over a larger one, or about
    `count` elements on the diagonal of one that is not contiguous.
    """
    is_plain = type(tensor) in (torch.Tensor, torch.nn.Parameter, torch.nn.Buffer) and tensor.layout is torch.strided
    if not is_plain or tensor.device.type != "cpu" or not tensor.numel() or not tensor.data_ptr():
        return []
    size, start = tensor.element_size(), tensor.data_ptr()
    if not tensor.is_contiguous():
        count_of_elements, stride = _diagonal(tensor)
        return _spread(start, count_of_elements, stride * size, size, count)
    if tensor.numel() * size <= _SMALL:
        return _spread(start, 1, 0, tensor.numel() * size, 1)
    return _spread(start, tensor.numel() * size // _LINE, _LINE, _LINE, count)


def _spread(start: int, total: int, step: int, size: int, count: int) -> list[Any]:
    """Return `size` bytes each at about `count` of the addresses ``start + step * index`` for indices below `total`."""
    kind = ctypes.c_char * size
    return [kind.from_address(start + index * step) for index in range(0, total, -(-total // count))]


def _diagonal(tensor: Any) -> tuple[int, int]:
    """Return the number of elements on the diagonal of a tensor, and the stride between them."""
    sizes_and_strides = [(size, step) for size, step in zip(tensor.shape, tensor.stride(), strict=True) if size > 1]
    return min((size for size, _ in sizes_and_strides), default=1), sum(step for _, step in sizes_and_strides)
