"""Kernels of the operators that write elements to positions that are data."""

from __future__ import annotations

import math
from typing import Any, Final

import numpy as np

from interposer.core.errors import InvalidValueError
from interposer.core.types import ANY_TYPE, STORED_FLOATS, Array, DataType, TensorInfo
from interposer.kernels.encoding import encoded
from interposer.kernels.operand_values import check_range, check_tuples, checked_shape
from interposer.kernels.real import real, store
from interposer.kernels.reference import kernel
from interposer.kernels.table import KernelInfo
from interposer.ops.axes import normal_axis
from interposer.ops.scatter import DynamicUpdateSlice, ScatterElements, ScatterFunction, ScatterNd, TensorScatter

__all__: list[str] = []

NUMBERS: Final = ANY_TYPE - STORED_FLOATS - {DataType.BOOL, DataType.STRING}
UFUNCS: Final = {
    ScatterFunction.ADD: np.add,
    ScatterFunction.SUB: np.subtract,
    ScatterFunction.MAX: np.maximum,
    ScatterFunction.MIN: np.minimum,
    ScatterFunction.MUL: np.multiply,
}


def _on_zeros(op: ScatterNd | ScatterElements) -> bool:
    return isinstance(op, ScatterNd) and not op.input_enabled


def _types(op: ScatterNd | ScatterElements, info: KernelInfo) -> str | None:
    dtype = info.at(2).dtype
    if dtype not in NUMBERS and op.function is not ScatterFunction.UPDATE:
        return f"updates is {dtype}; takes numbers for {op.function.name}"
    if dtype is DataType.STRING and _on_zeros(op):
        return "updates is string; there is no zero to write them to"
    return None


def _scales(op: ScatterNd | ScatterElements, info: KernelInfo) -> str | None:
    if len({tensor.is_quantized for tensor in _tensors(op, info)}) > 1:
        return "some of input, updates and output are quantized; takes all or none"
    if any(tensor.quantization is not None and tensor.quantization.per_axis for tensor in _tensors(op, info)):
        return "a tensor is quantized along an axis; takes one scale for each"
    return None


def _tensors(op: ScatterNd | ScatterElements, info: KernelInfo) -> list[TensorInfo]:
    return [*([] if _on_zeros(op) else [info.at(0)]), info.at(2), info.output]


@kernel(ScatterNd, when=(_types, _scales))
def scatter_nd(op: ScatterNd, x: Array, indices: Array, updates: Array, *, info: KernelInfo) -> Array:
    """Compute `ScatterNd`: flatten the indexed axes to rows, so that each tuple of indices becomes one row number."""
    is_direct = _keeps_quantized_values(op, info)
    stored_updates = updates if is_direct else real(updates, info.at(2))
    base = _zeros(x, stored_updates, info) if not op.input_enabled else x if is_direct else real(x, info.at(0))
    return _stored(_written(op, np.array(base), indices, stored_updates), info, is_direct)


@kernel(ScatterElements, when=(_types, _scales))
def scatter_elements(op: ScatterElements, x: Array, indices: Array, updates: Array, *, info: KernelInfo) -> Array:
    """Compute `ScatterElements`: indices replace the position of their updates along `op.axis`."""
    is_direct = _keeps_quantized_values(op, info)
    stored_updates = updates if is_direct else real(updates, info.at(2))
    target = np.array(x if is_direct else real(x, info.at(0)))
    axis = normal_axis(op.axis, x.ndim)
    positions = [*np.ogrid[tuple(slice(size) for size in indices.shape)]]
    positions[axis] = _non_negative(indices, x.shape[axis])
    _write(op.function, target, tuple(positions), stored_updates)
    return _stored(target, info, is_direct)


def _keeps_quantized_values(op: ScatterNd | ScatterElements, info: KernelInfo) -> bool:
    """Return True if quantized values can be written as they are: with equal quantizations and without arithmetic."""
    keeps_order = op.function in {ScatterFunction.UPDATE, ScatterFunction.MAX, ScatterFunction.MIN}
    return keeps_order and len({tensor.quantization for tensor in _tensors(op, info)}) == 1


def _stored(written: Array, info: KernelInfo, is_direct: bool) -> Array:
    if is_direct:
        return written
    out = np.empty(written.shape, info.output.dtype.numpy)
    store(written, info.output, out)
    return out


def _write(function: ScatterFunction, target: Array, positions: Any, updates: Array) -> None:
    """Write `updates` to the index `positions` of `target`, or combine them with its elements, in place.

    If several updates have the same element, UPDATE applies the last one, and the other functions apply all of them.
    """
    if function is ScatterFunction.UPDATE:
        target[positions] = updates
    else:
        UFUNCS[function].at(target, positions, updates)


def _zeros(shape: Array, updates: Array, info: KernelInfo) -> Array:
    sizes = checked_shape("input", shape, updates.dtype.itemsize)
    zero = encoded(0.0, info.output) if updates.dtype == info.output.dtype.numpy else np.zeros((), updates.dtype)
    return np.full(sizes, zero)


def _written(op: ScatterNd, base: Array, indices: Array, updates: Array) -> Array:
    depth = indices.shape[-1]
    indexed_sizes, row_shape = base.shape[:depth], base.shape[depth:]
    expected = (*indices.shape[:-1], *row_shape)
    if updates.shape != expected:
        raise InvalidValueError(f"updates has shape {list(updates.shape)}; expected {list(expected)}")
    check_tuples("indices", indices, indexed_sizes)
    rows = _rows(indices.reshape(math.prod(indices.shape[:-1]), depth), indexed_sizes)
    flat_base, flat_updates = base.reshape(math.prod(indexed_sizes), *row_shape), updates.reshape(len(rows), *row_shape)
    _write(op.function, flat_base, rows, flat_updates)
    return flat_base.reshape(base.shape)


def _rows(indices: Array, sizes: tuple[int, ...]) -> Array:
    """Return the flat row numbers (N,) of index tuples (N, K) into K axes of these sizes."""
    rows = np.zeros(len(indices), np.int64)
    for column, size in zip(indices.T, sizes, strict=True):
        rows = rows * size + _non_negative(column, size)
    return rows


def _non_negative(indices: Array, size: int) -> Array:
    """Return the indices with negative ones counted from the end of an axis of this size.

    Raises:
        InvalidValueError: an index is out of range.
    """
    check_range("indices", indices, -size, size - 1)
    return np.where(indices < 0, indices + size, indices)


@kernel(TensorScatter)
def tensor_scatter(op: TensorScatter, x: Array, updates: Array, start: Array | None, *, out: Array) -> None:
    """Compute `TensorScatter`; every sample has its own start along the axis."""
    cache, steps = np.moveaxis(out, op.axis, 1), np.moveaxis(updates, op.axis, 1)
    length, count = cache.shape[1], steps.shape[1]
    starts = np.zeros(len(x), np.int64) if start is None else start.astype(np.int64)
    if not op.circular:
        check_range("start", starts, 0, length - count)
    np.copyto(out, x)
    period = max(length, 1)
    positions = (starts[:, np.newaxis] % period + np.arange(count)) % period
    cache[np.arange(len(x))[:, np.newaxis], positions] = steps


@kernel(DynamicUpdateSlice)
def dynamic_update_slice(op: DynamicUpdateSlice, x: Array, update: Array, start: Array, *, out: Array) -> None:
    """Compute `DynamicUpdateSlice` by writing the update into a copy."""
    np.copyto(out, x)
    starts = [
        min(max(0, int(index)), size - update_size)
        for index, size, update_size in zip(start, x.shape, update.shape, strict=True)
    ]
    out[tuple(slice(begin, begin + update_size) for begin, update_size in zip(starts, update.shape, strict=True))] = (
        update
    )
