"""Sparse constants of TFLite files.

The dimensions of a sparse tensor are stored in a traversal order. A dimension may be divided into blocks, which adds a
dimension. Each dimension is dense, with an entry for every index, or sparse (CSR): for each entry of the dimensions
before, there is a range of stored indices.
"""

from __future__ import annotations

from typing import Final, NoReturn

import numpy as np
from numpy.typing import NDArray

from interposer.core.errors import ParseError
from interposer.core.types import Array
from interposer.frontends.tflite.contents import Dimension, Sparsity, Tensor

__all__ = ["densified"]

Ints = NDArray[np.int64]
_MOST_ELEMENTS: Final = 1 << 28


def densified(values: Array, tensor: Tensor, where: str) -> Array:
    """Return the dense array of a sparse tensor, whose stored elements are `values`.

    `ParseError` with the location `where` is raised if the tensor's dimensions do not fit together.
    """
    sparsity = tensor.sparsity
    assert sparsity is not None
    if tensor.elements > _MOST_ELEMENTS:
        _fail(tensor, f"has {tensor.elements} elements; at most {_MOST_ELEMENTS} are supported", where)
    _check(tensor, sparsity, where)
    entries = [np.zeros(1, np.int64)]
    for dimension in sparsity.dimensions:
        entries = _refined(entries, dimension, tensor, where)
    if len(entries[-1]) != len(values):
        _fail(tensor, f"has {len(values)} stored elements; expected {len(entries[-1])}", where)
    dense_array = np.zeros(tensor.shape, values.dtype)
    if len(values):
        dense_array[_indices(entries[1:], tensor, sparsity, where)] = values
    return dense_array


def _fail(tensor: Tensor, problem: str, where: str) -> NoReturn:
    raise ParseError(f"the sparse tensor {tensor.name!r} {problem}", where=where)


def _check(tensor: Tensor, sparsity: Sparsity, where: str) -> None:
    rank, order, blocks = len(tensor.shape), sparsity.traversal_order, sparsity.block_map
    if sorted(order) != list(range(rank + len(blocks))):
        _fail(tensor, f"has the traversal order {list(order)} for {rank} dimensions and {len(blocks)} blocks", where)
    if len(sparsity.dimensions) != len(order):
        _fail(tensor, f"describes {len(sparsity.dimensions)} dimensions; expected {len(order)}", where)
    if len(set(blocks)) < len(blocks) or any(not 0 <= axis < rank for axis in blocks):
        _fail(tensor, f"has blocks along the dimensions {list(blocks)}, but {rank} dimensions", where)


def _refined(entries: list[Ints], dimension: Dimension, tensor: Tensor, where: str) -> list[Ints]:
    """Return the entries of one more dimension: for each dimension so far, the index of every entry.

    The first array has the number of each entry.
    """
    count = len(entries[0])
    if dimension.segments is None or dimension.indices is None:
        if not 0 <= dimension.size <= _MOST_ELEMENTS or count * dimension.size > _MOST_ELEMENTS:
            _fail(tensor, f"has a dense dimension of size {dimension.size} after {count} entries", where)
        parents = np.repeat(np.arange(count), dimension.size)
        index = np.tile(np.arange(dimension.size), count)
    else:
        segments, index = (np.asarray(numbers, np.int64) for numbers in (dimension.segments, dimension.indices))
        lengths = np.diff(segments)
        if len(segments) != count + 1 or segments[0] != 0 or segments[-1] != len(index) or (lengths < 0).any():
            _fail(tensor, f"has a sparse dimension whose segments do not fit {count} entries", where)
        parents = np.repeat(np.arange(count), lengths)
    return [np.arange(len(index)), *(indices[parents] for indices in entries[1:]), index]


def _indices(entries: list[Ints], tensor: Tensor, sparsity: Sparsity, where: str) -> tuple[Ints, ...]:
    """Return the indices of all stored elements along each dimension of the tensor."""
    rank, by_dimension = len(tensor.shape), dict(zip(sparsity.traversal_order, entries, strict=True))
    sizes = {
        axis_or_block: dimension.size
        for axis_or_block, dimension in zip(sparsity.traversal_order, sparsity.dimensions, strict=True)
    }
    indices = [by_dimension[axis] for axis in range(rank)]
    for number, axis in enumerate(sparsity.block_map):
        indices[axis] = indices[axis] * sizes[rank + number] + by_dimension[rank + number]
    for axis, (index, size) in enumerate(zip(indices, tensor.shape, strict=True)):
        if index.min() < 0 or index.max() >= size:
            _fail(tensor, f"has an index out of range along dimension {axis}, which has size {size}", where)
    return tuple(indices)
