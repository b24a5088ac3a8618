"""Kernels of the operators that write elements to positions that are data."""

from __future__ import annotations

import math
from typing import Any, Final

import numpy as np

from interposer.core.errors import InvalidArgumentError
from interposer.core.types import ANY_TYPE, STORED_FLOATS, Array, DataType, TensorInfo
from interposer.kernels.encoding import encoded
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
    codes = _moves_codes(op, info)
    changes = updates if codes else real(updates, info.at(2))
    base = _zeros(x, changes, info) if not op.input_enabled else x if codes else real(x, info.at(0))
    return _stored(_written(op, np.array(base), indices, changes), info, codes)


@kernel(ScatterElements, when=(_types, _scales))
def scatter_elements(op: ScatterElements, x: Array, indices: Array, updates: Array, *, info: KernelInfo) -> Array:
    """Compute `ScatterElements`: indices replace the position of their updates along `op.axis`."""
    codes = _moves_codes(op, info)
    changes = updates if codes else real(updates, info.at(2))
    target = np.array(x if codes else real(x, info.at(0)))
    axis = normal_axis(op.axis, x.ndim)
    places = [*np.ogrid[tuple(slice(n) for n in indices.shape)]]
    places[axis] = _within(indices, x.shape[axis])
    _write(op.function, target, tuple(places), changes)
    return _stored(target, info, codes)


def _moves_codes(op: ScatterNd | ScatterElements, info: KernelInfo) -> bool:
    """Return True if quantized values can be written as they are: with equal quantizations and without arithmetic."""
    keeps_order = op.function in {ScatterFunction.UPDATE, ScatterFunction.MAX, ScatterFunction.MIN}
    return keeps_order and len({tensor.quantization for tensor in _tensors(op, info)}) == 1


def _stored(written: Array, info: KernelInfo, codes: bool) -> Array:
    if codes:
        return written
    out = np.empty(written.shape, info.output.dtype.numpy)
    store(written, info.output, out)
    return out


def _write(function: ScatterFunction, target: Array, places: Any, changes: Array) -> None:
    """Write `changes` to the index `places` of `target`, or combine them with its elements, in place.

    If several updates have the same element, UPDATE applies the last one, and the other functions apply all of them.
    """
    if function is ScatterFunction.UPDATE:
        target[places] = changes
    else:
        UFUNCS[function].at(target, places, changes)


def _zeros(shape: Array, changes: Array, info: KernelInfo) -> Array:
    if (shape < 0).any():
        raise InvalidArgumentError(f"input is {shape.tolist()}; a dimension must not be negative")
    zero = encoded(0.0, info.output) if changes.dtype == info.output.dtype.numpy else np.zeros((), changes.dtype)
    return np.full(tuple(shape.tolist()), zero)


def _written(op: ScatterNd, base: Array, indices: Array, changes: Array) -> Array:
    depth = indices.shape[-1]
    lead, rest = base.shape[:depth], base.shape[depth:]
    requested = (*indices.shape[:-1], *rest)
    if changes.shape != requested:
        raise InvalidArgumentError(f"updates has shape {list(changes.shape)}; expected {list(requested)}")
    rows = _rows(indices.reshape(math.prod(indices.shape[:-1]), depth), lead)
    flat, many = base.reshape(math.prod(lead), *rest), changes.reshape(len(rows), *rest)
    _write(op.function, flat, rows, many)
    return flat.reshape(base.shape)


def _rows(indices: Array, sizes: tuple[int, ...]) -> Array:
    """Return the flat row numbers (N,) of index tuples (N, K) into K axes of these sizes."""
    rows = np.zeros(len(indices), np.int64)
    for column, size in zip(indices.T, sizes, strict=True):
        rows = rows * size + _within(column, size)
    return rows


def _within(indices: Array, size: int) -> Array:
    """Return the indices with negative ones counted from the end of an axis of this size.

    Raises:
        InvalidArgumentError: an index is out of range.
    """
    wrong = indices[(indices >= size) | (indices < -size)]
    if wrong.size:
        raise InvalidArgumentError(f"index {wrong[0]} is out of range for an axis of size {size}")
    return np.where(indices < 0, indices + size, indices)


@kernel(TensorScatter)
def tensor_scatter(op: TensorScatter, x: Array, updates: Array, start: Array | None, *, out: Array) -> None:
    """Compute `TensorScatter`; every sample has its own start along the axis."""
    np.copyto(out, x)
    samples, steps = np.moveaxis(out, op.axis, 1), np.moveaxis(updates, op.axis, 1)
    length, count = samples.shape[1], steps.shape[1]
    first = np.zeros(len(x), np.int64) if start is None else start.astype(np.int64)
    wrong = first[(first < 0) | (first > length - count)]
    if wrong.size and not op.circular:
        raise InvalidArgumentError(f"{count} steps from {wrong[0]} on do not fit into a cache of {length}")
    period = max(length, 1)
    places = (first[:, np.newaxis] % period + np.arange(count)) % period
    samples[np.arange(len(x))[:, np.newaxis], places] = steps


@kernel(DynamicUpdateSlice)
def dynamic_update_slice(op: DynamicUpdateSlice, x: Array, update: Array, start: Array, *, out: Array) -> None:
    """Compute `DynamicUpdateSlice` by writing the update into a copy."""
    np.copyto(out, x)
    first = [min(max(0, int(s)), n - u) for s, n, u in zip(start, x.shape, update.shape, strict=True)]
    out[tuple(slice(f, f + u) for f, u in zip(first, update.shape, strict=True))] = update
