"""Kernels of the operators that pick elements by indices."""

from __future__ import annotations

import math

import numpy as np

from interposer.core.types import Array
from interposer.kernels.operand_values import check_range, check_tuples
from interposer.kernels.reference import kernel
from interposer.ops.axes import normal_axis
from interposer.ops.gather import Gather, GatherElements, GatherNd

__all__: list[str] = []


@kernel(Gather)
def gather(op: Gather, params: Array, indices: Array) -> Array:
    """Compute `Gather` by one `take` for each element of the batch axes."""
    axis, batch = normal_axis(op.axis, params.ndim), op.batch_dims
    _check_indices(indices, params.shape[axis])
    if not batch:
        return params.take(indices, axis)
    shape = (*params.shape[:axis], *indices.shape[batch:], *params.shape[axis + 1 :])
    params_and_indices = zip(_flat_batch(params, batch), _flat_batch(indices, batch), strict=True)
    gathered = [batch_params.take(batch_indices, axis - batch) for batch_params, batch_indices in params_and_indices]
    return np.stack(gathered).reshape(shape) if gathered else np.empty(shape, params.dtype)


@kernel(GatherNd)
def gather_nd(op: GatherNd, params: Array, indices: Array) -> Array:
    """Compute `GatherNd`: the last axis of the indices becomes a tuple of index arrays, for each batch element."""
    batch, depth = op.batch_dims, indices.shape[-1]
    check_tuples("indices", indices, params.shape[batch : batch + depth])
    shape = (*indices.shape[:-1], *params.shape[batch + depth :])
    if depth == 0:
        inner = params.reshape(*params.shape[:batch], *[1] * (indices.ndim - 1 - batch), *params.shape[batch:])
        return np.broadcast_to(inner, shape)
    params_and_indices = zip(_flat_batch(params, batch), _flat_batch(indices, batch), strict=True)
    gathered = [
        batch_params[tuple(np.moveaxis(batch_indices, -1, 0))] for batch_params, batch_indices in params_and_indices
    ]
    return np.stack(gathered).reshape(shape) if gathered else np.empty(shape, params.dtype)


@kernel(GatherElements)
def gather_elements(op: GatherElements, params: Array, indices: Array) -> Array:
    """Compute `GatherElements`; the other axes of `params` are first cut to the dimensions of the indices."""
    axis = normal_axis(op.axis, params.ndim)
    _check_indices(indices, params.shape[axis])
    crop_slices = tuple(slice(None) if position == axis else slice(size) for position, size in enumerate(indices.shape))
    return np.take_along_axis(params[crop_slices], indices, axis)


def _flat_batch(x: Array, batch: int) -> Array:
    return x.reshape(math.prod(x.shape[:batch]), *x.shape[batch:])


def _check_indices(indices: Array, size: int) -> None:
    check_range("indices", indices, -size, size - 1)
