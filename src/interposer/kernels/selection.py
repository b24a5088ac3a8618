"""Kernels of the operators whose number of output elements depends on the data."""

from __future__ import annotations

import numpy as np

from interposer.core.errors import InvalidValueError
from interposer.core.types import Array
from interposer.kernels.encoding import encoded
from interposer.kernels.real import real
from interposer.kernels.reference import kernel
from interposer.kernels.table import KernelInfo
from interposer.ops.selection import Compress, NonZero, Unique

__all__: list[str] = []


@kernel(NonZero)
def non_zero(op: NonZero, x: Array, *, info: KernelInfo) -> Array:
    """Compute `NonZero`; quantized values are compared with the quantized zero."""
    return np.stack(np.nonzero(np.not_equal(x, encoded(0.0, info.input))))


@kernel(Compress)
def compress(op: Compress, x: Array, condition: Array) -> Array:
    """Compute `Compress` by the indices at which the condition is true."""
    size = x.size if op.axis is None else x.shape[op.axis]
    if len(condition) > size:
        reason = f"condition has {len(condition)} elements, but there are {size} to choose from"
        raise InvalidValueError(reason, operand="condition")
    return x.take(np.flatnonzero(condition), op.axis)


@kernel(Unique)
def unique(op: Unique, x: Array, *, info: KernelInfo) -> tuple[Array, ...]:
    """Compute `Unique`; elements are compared by their rank among all elements, and slices element by element."""
    ranks = _ranks(x, info)
    rows = ranks.reshape(-1, 1) if op.axis is None else np.moveaxis(ranks, op.axis, 0)
    rows = rows.reshape(len(rows), int(np.prod(rows.shape[1:])))
    zero_column = np.zeros((len(rows), 1), rows.dtype)  # slices without elements are all the same
    _, first_indices, inverse, counts = np.unique(np.hstack([zero_column, rows]), True, True, True, axis=0)
    order = np.arange(len(first_indices)) if op.sorted else np.argsort(first_indices)
    rank_of_group = np.argsort(order)
    return (
        x.take(first_indices[order], op.axis),
        first_indices[order],
        rank_of_group[inverse.reshape(-1)],
        counts[order],
    )


def _ranks(x: Array, info: KernelInfo) -> Array:
    """Return the rank of every element among the distinct elements, as integers in the shape of `x`.

    They stand for the elements, since NumPy cannot sort rows of narrow floats or of strings.
    """
    values = x if info.input.is_quantized else real(x, info.input)
    _, ranks = np.unique(values, return_inverse=True)
    return ranks.reshape(x.shape)
