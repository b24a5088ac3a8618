"""Detection of output arrays that overlap each other, themselves, or constants in memory."""

from __future__ import annotations

import bisect
import itertools
import weakref
from collections.abc import Iterable, Sequence
from typing import Final

import numpy as np

from interposer.core.addresses import address_of
from interposer.core.errors import BindingError
from interposer.core.types import Array

__all__ = ["Constants", "is_same_memory", "refuse_overlaps", "share_memory"]

_EFFORT: Final = 10**5
"""The work limit for `numpy.shares_memory`."""
_FEW: Final = 8
"""Up to this number of arrays, all pairs are compared."""

Named = tuple[str, Array]


def share_memory(a: Array, b: Array) -> bool:
    """Return True if two arrays share an element in memory, and also if an exact answer would take too long."""
    if not np.may_share_memory(a, b):
        return False
    try:
        return bool(np.shares_memory(a, b, max_work=_EFFORT))  # type: ignore[arg-type] # NumPy's stubs know two of them
    except np.exceptions.TooHardError:
        return True


def is_same_memory(a: Array, b: Array) -> bool:
    """Return True if two contiguous arrays have the same address and size."""
    is_same = a is b or (address_of(a) == address_of(b) and a.nbytes == b.nbytes)
    return is_same and a.flags.c_contiguous and b.flags.c_contiguous


def refuse_overlaps(outputs: Sequence[Named]) -> None:
    """Raise `BindingError` if two of the arrays share memory, or two elements of an array have the same address.

    Args:
        outputs: pairs of the name in messages and the array.
    """
    for title, array in outputs:
        if not array.flags.forc and _has_an_element_twice(array):
            raise BindingError(f"several elements of {title} share one place in memory; give an array without that")
    for (title, array), (other_title, other_array) in _near_pairs(outputs):
        if share_memory(array, other_array):
            raise BindingError(f"{title} and {other_title} share memory; give each an array of its own")


def _near_pairs(outputs: Sequence[Named]) -> Iterable[tuple[Named, Named]]:
    """Yield pairs of outputs that may share memory, for an exact check.

    These are all pairs if there are few arrays, else those whose ranges of addresses overlap.
    """
    if len(outputs) <= _FEW:
        yield from itertools.combinations(outputs, 2)
        return
    bounds = sorted(((*_bounds(output[1]), index) for index, output in enumerate(outputs)))
    open_ranges: list[tuple[int, int]] = []
    for low, high, index in bounds:
        open_ranges = [(end, other_index) for end, other_index in open_ranges if end > low]
        for _, other_index in open_ranges:
            yield outputs[min(index, other_index)], outputs[max(index, other_index)]
        open_ranges.append((high, index))


def _bounds(array: Array) -> tuple[int, int]:
    """Return the address of the first byte of an array, and the address after its last byte."""
    address = address_of(array)
    if array.flags.forc or not array.size:
        return address, address + array.nbytes
    spans = [(size - 1) * stride for size, stride in zip(array.shape, array.strides, strict=True)]
    low = address + sum(min(span, 0) for span in spans)
    return low, address + sum(max(span, 0) for span in spans) + array.itemsize


def _has_an_element_twice(array: Array) -> bool:
    strides_and_sizes = [
        (abs(stride), size) for stride, size in zip(array.strides, array.shape, strict=True) if size > 1
    ]
    occupied = array.itemsize
    for stride, size in sorted(strides_and_sizes):
        if stride < occupied:
            return _counted_twice(array)
        occupied = stride * (size - 1) + occupied
    return False


def _counted_twice(array: Array) -> bool:
    """Return True if two elements of an array have the same address, by computing the offsets of all elements.

    Needed for arrays with interleaved dimensions, for which the strides alone do not answer this.
    """
    if 0 in (stride for stride, size in zip(array.strides, array.shape, strict=True) if size > 1):
        return True
    offsets = np.zeros((), np.int64)
    for stride, size in zip(array.strides, array.shape, strict=True):
        offsets = np.add.outer(offsets, np.arange(size, dtype=np.int64) * stride)
    ordered_offsets = np.sort(offsets, axis=None)
    return bool((np.diff(ordered_offsets) < array.itemsize).any())


class Constants:
    """The addresses of a network's constants, to check that no output of a caller overlaps them."""

    def __init__(self, arrays: Iterable[Array]) -> None:
        distinct_arrays = {id(array): array for array in arrays if array.nbytes}
        self._arrays = [weakref.ref(array) for array in distinct_arrays.values()]
        merged_ranges: list[list[int]] = []
        for low, high in sorted(map(_bounds, distinct_arrays.values())):
            if merged_ranges and low <= merged_ranges[-1][1]:
                merged_ranges[-1][1] = max(merged_ranges[-1][1], high)
            else:
                merged_ranges.append([low, high])
        self._lows, self._highs = [low for low, _ in merged_ranges], [high for _, high in merged_ranges]

    @property
    def ranges(self) -> tuple[tuple[int, int], ...]:
        """The addresses that the constants occupy, as sorted pairs of start and end; adjacent ranges are merged."""
        return tuple(zip(self._lows, self._highs, strict=True))

    def refuse(self, outputs: Iterable[Named]) -> None:
        """Raise `BindingError` if one of the arrays shares memory with a constant."""
        if not self._lows:
            return
        for title, array in outputs:
            if self._is_near(array) and any(share_memory(array, constant) for constant in self._alive()):
                raise BindingError(f"{title} shares memory with a constant of the network; give another array")

    def _is_near(self, array: Array) -> bool:
        low, high = _bounds(array)
        index = bisect.bisect_left(self._lows, high) - 1
        return index >= 0 and self._highs[index] > low

    def _alive(self) -> Iterable[Array]:
        return (array for array in (reference() for reference in self._arrays) if array is not None)
