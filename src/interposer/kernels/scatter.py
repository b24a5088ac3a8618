"""Kernels of the operators that write elements to places that are data."""

from __future__ import annotations

import math
from typing import Final

import numpy as np

from interposer.errors import InvalidArgumentError
from interposer.kernels.encoding import encoded
from interposer.kernels.real import real, store
from interposer.kernels.reference import kernel
from interposer.kernels.table import KernelInfo
from interposer.ops.scatter import ScatterFunction, ScatterNd
from interposer.types import ANY_TYPE, Array, DataType, TensorInfo

__all__: list[str] = []

NUMBERS: Final = ANY_TYPE - {DataType.BOOL, DataType.STRING}
UFUNCS: Final = {
    ScatterFunction.ADD: np.add,
    ScatterFunction.SUB: np.subtract,
    ScatterFunction.MAX: np.maximum,
    ScatterFunction.MIN: np.minimum,
    ScatterFunction.MUL: np.multiply,
}


def _types(op: ScatterNd, info: KernelInfo) -> str | None:
    dtype = info.at(2).dtype
    if dtype not in NUMBERS and op.function is not ScatterFunction.UPDATE:
        return f"updates is {dtype}; takes numbers for {op.function.name}"
    if dtype is DataType.STRING and not op.input_enabled:
        return "updates is string; there is no zero to write them to"
    return None


def _scales(op: ScatterNd, info: KernelInfo) -> str | None:
    if len({tensor.is_quantized for tensor in _tensors(op, info)}) > 1:
        return "some of input, updates and output are quantized; takes all or none"
    if any(tensor.quantization is not None and tensor.quantization.per_axis for tensor in _tensors(op, info)):
        return "a tensor is quantized along an axis; takes one scale for each"
    return None


def _tensors(op: ScatterNd, info: KernelInfo) -> list[TensorInfo]:
    return [*([info.at(0)] if op.input_enabled else []), info.at(2), info.output]


@kernel(ScatterNd, when=(_types, _scales))
def scatter_nd(op: ScatterNd, x: Array, indices: Array, updates: Array, *, info: KernelInfo) -> Array:
    """Codes of one scale are moved and compared as they are; all other quantized numbers are real ones meanwhile."""
    keeps_order = op.function in {ScatterFunction.UPDATE, ScatterFunction.MAX, ScatterFunction.MIN}
    same = len({tensor.quantization for tensor in _tensors(op, info)}) == 1
    changes = updates if same and keeps_order else real(updates, info.at(2))
    base = _zeros(x, changes, info) if not op.input_enabled else x if changes is updates else real(x, info.at(0))
    written = _written(op, np.array(base), indices, changes)
    if changes is updates:
        return written
    out = np.empty(written.shape, info.output.dtype.numpy)
    store(written, info.output, out)
    return out


def _zeros(shape: Array, changes: Array, info: KernelInfo) -> Array:
    zero = encoded(0.0, info.output) if changes.dtype == info.output.dtype.numpy else np.zeros((), changes.dtype)
    return np.full(tuple(shape.tolist()), zero)


def _written(op: ScatterNd, base: Array, indices: Array, changes: Array) -> Array:
    depth = indices.shape[-1]
    lead, rest = base.shape[:depth], base.shape[depth:]
    rows = _rows(indices.reshape(math.prod(indices.shape[:-1]), depth), lead)
    flat, many = base.reshape(math.prod(lead), *rest), changes.reshape(len(rows), *rest)
    if op.function is ScatterFunction.UPDATE:
        flat[rows] = many
    else:
        UFUNCS[op.function].at(flat, rows, many)
    return flat.reshape(base.shape)


def _rows(indices: Array, extents: tuple[int, ...]) -> Array:
    """The place of every tuple of indices where those axes are one."""
    rows = np.zeros(len(indices), np.int64)
    for column, extent in zip(indices.T, extents, strict=True):
        wrong = column[(column >= extent) | (column < -extent)]
        if wrong.size:
            raise InvalidArgumentError(f"index {wrong[0]} is outside of an axis of extent {extent}")
        rows = rows * extent + np.where(column < 0, column + extent, column)
    return rows
