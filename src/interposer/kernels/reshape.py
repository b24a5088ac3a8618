"""Kernels of the operators that give a tensor another shape."""

from __future__ import annotations

import numpy as np

from interposer.core.errors import InvalidArgumentError
from interposer.core.types import Array
from interposer.kernels.encoding import encoded
from interposer.kernels.reference import kernel
from interposer.kernels.table import KernelInfo
from interposer.ops.reshape import BroadcastTo, Fill, Rank, Reshape, Shape

__all__: list[str] = []


@kernel(Reshape)
def reshape(op: Reshape, x: Array, *, info: KernelInfo) -> Array:
    """Return the shape that was inferred is the target with its dimension of -1 worked out."""
    return x.reshape(tuple(info.output.shape))


@kernel(BroadcastTo)
def broadcast_to(op: BroadcastTo, x: Array) -> Array:
    """NumPy's view."""
    return np.broadcast_to(x, op.shape)


@kernel(Shape)
def shape(op: Shape, x: Array) -> Array:
    """Return the shape of the array that is there, whatever was inferred."""
    return np.array(x.shape, op.dtype.numpy)


@kernel(Rank)
def rank(op: Rank, x: Array) -> Array:
    """Return a scalar."""
    return np.array(x.ndim, np.int32)


@kernel(Fill)
def fill(op: Fill, dims: Array, *, info: KernelInfo) -> Array:
    """The value is quantized as the output is."""
    if (dims < 0).any():
        raise InvalidArgumentError(f"dims is {dims.tolist()}; a dimension must not be negative")
    return np.broadcast_to(encoded(op.value, info.output), tuple(dims.tolist()))
