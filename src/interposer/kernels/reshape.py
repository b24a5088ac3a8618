"""Kernels of the operators that change or return the shape of a tensor."""

from __future__ import annotations

import numpy as np

from interposer.core.types import Array
from interposer.kernels.encoding import encoded
from interposer.kernels.operand_values import checked_shape
from interposer.kernels.reference import kernel
from interposer.kernels.table import KernelInfo
from interposer.ops.reshape import BroadcastTo, Fill, Rank, Reshape, Shape

__all__: list[str] = []


@kernel(Reshape)
def reshape(op: Reshape, x: Array, *, info: KernelInfo) -> Array:
    """Compute `Reshape`; the inferred output shape is the target, with its dimension of -1 resolved."""
    return x.reshape(tuple(info.output.shape))


@kernel(BroadcastTo)
def broadcast_to(op: BroadcastTo, x: Array) -> Array:
    """Compute `BroadcastTo` as a view."""
    return np.broadcast_to(x, op.shape)


@kernel(Shape)
def shape(op: Shape, x: Array) -> Array:
    """Compute `Shape`: the shape of the array itself, not the inferred one."""
    return np.array(x.shape, op.dtype.numpy)


@kernel(Rank)
def rank(op: Rank, x: Array) -> Array:
    """Compute `Rank`, a scalar."""
    return np.array(x.ndim, np.int32)


@kernel(Fill)
def fill(op: Fill, dims: Array, *, info: KernelInfo) -> Array:
    """Compute `Fill`; the value is quantized like the output."""
    shape = checked_shape("dims", dims, info.output.dtype.itemsize)
    return np.broadcast_to(encoded(op.value, info.output), shape)
