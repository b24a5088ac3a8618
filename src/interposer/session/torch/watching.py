"""Noticing that weights have changed, although a loaded network has packed copies of them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from interposer.frontends.torch.package import torch

__all__ = ["Watch", "version_of"]

_SAMPLES: Final = 512
_FEWEST: Final = 2
_MOST: Final = 16
_INTEGERS: Final = {1: "uint8", 2: "int16", 4: "int32", 8: "int64"}


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
    elements, or 512 divided by the number of tensors, but at least 2.
    """

    def __init__(self, tensors: Iterable[Any]) -> None:
        self.tensors = tuple(tensors)
        counted = [tensor for tensor in self.tensors if version_of(tensor) >= 0]
        self._facts = [(tensor, tensor._version, tensor.data_ptr()) for tensor in counted]
        count = min(_MOST, max(_FEWEST, _SAMPLES // max(1, len(self.tensors))))
        probes = [probe for tensor in self.tensors if (probe := _probe(tensor, count)) is not None]
        self._probes = {
            kind: [probe for probe in probes if probe.dtype is kind] for kind in {probe.dtype for probe in probes}
        }
        self._known = self._samples()

    def has_changed(self) -> bool:
        """Return True if one of the tensors has changed."""
        if any([item._version != version or item.data_ptr() != place for item, version, place in self._facts]):
            return True
        return not all(torch.equal(now, known) for now, known in zip(self._samples(), self._known, strict=True))

    def changed(self, tensor: Any) -> bool:
        """Return True if PyTorch has counted a change of one of the tensors."""
        return any(item is tensor and (item._version != v or item.data_ptr() != p) for item, v, p in self._facts)

    def _samples(self) -> list[Any]:
        with torch.no_grad():
            return [torch.cat(probes) for probes in self._probes.values()]


def _probe(tensor: Any, count: int) -> Any:
    """Return a view of some elements of a tensor, as integers, so that NaN equals itself; None if that is not possible.

    The view has about `count` elements, which are spread over all of the memory of a contiguous tensor, or over the
    diagonal of another one.
    """
    kind = _INTEGERS.get(tensor.element_size())
    is_plain = type(tensor) in (torch.Tensor, torch.nn.Parameter, torch.nn.Buffer)
    if kind is None or tensor.layout is not torch.strided or not is_plain or not tensor.numel():
        return None
    plain = tensor.detach()
    flat = plain.view(-1) if plain.is_contiguous() else plain.as_strided(*_diagonal(plain))
    step = -(-flat.numel() // count)
    return flat[::step].view(getattr(torch, kind))


def _diagonal(tensor: Any) -> tuple[tuple[int], tuple[int]]:
    """Return shape and strides of the diagonal of a tensor."""
    sizes = [(size, step) for size, step in zip(tensor.shape, tensor.stride(), strict=True) if size > 1]
    shortest = min((size for size, _ in sizes), default=1)
    return (shortest,), (sum(step for _, step in sizes) or 1,)
