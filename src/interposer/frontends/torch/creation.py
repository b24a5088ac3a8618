"""Converters for operators that create tensors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from interposer.core.types import DataType, Dim
from interposer.frontends.torch.call import Call, Operand, Size
from interposer.frontends.torch.registry import aten
from interposer.ir.graph import Value
from interposer.ops.dynamic import DynamicBroadcastTo
from interposer.ops.randomness import Distribution, RandomFill
from interposer.ops.reshape import Shape

__all__: list[str] = []


def filled(c: Call, sizes: Sequence[Size], number: Operand) -> Value:
    """Return a tensor of the node's result type with one number in all elements."""
    filler = c.cast(number, c.dtype)
    if any(isinstance(size, Dim) for size in sizes):
        c.open_shape("its sizes are not known")
    return c.broadcast(filler, sizes)


@aten("full", "new_full")
def full(c: Call, *args: Any, **_: Any) -> Value:
    """Convert full and new_full."""
    *_first, sizes, number = args
    return filled(c, sizes, number)


@aten("zeros", "empty.memory_format", "new_zeros", "new_empty", "empty_permuted", "empty_strided", "new_empty_strided")
def zeros(c: Call, *args: Any, **_: Any) -> Value:
    """Convert zeros; the contents of an empty tensor are not defined, and are zeros here."""
    sizes = next(operand for operand in args if isinstance(operand, list))
    return filled(c, sizes, 0)


@aten("ones", "new_ones")
def ones(c: Call, *args: Any, **_: Any) -> Value:
    """Convert ones."""
    sizes = next(operand for operand in args if isinstance(operand, list))
    return filled(c, sizes, 1)


def _like(c: Call, x: Value, number: Operand) -> Value:
    """Return a number, repeated in the shape of a value, whose sizes may be known at run time only."""
    filler = c.cast(number, c.dtype)
    if x.known.shape.is_concrete:
        return c.broadcast(filler, list(c.shape(x)))
    return c.step(DynamicBroadcastTo(), filler, c.step(Shape(DataType.INT64), x))


@aten("full_like", "fill.Scalar", "fill.Tensor", open_sizes=True)
def full_like(c: Call, x: Value, number: Operand, **_: Any) -> Value:
    """Convert full_like and fill."""
    return _like(c, x, number)


@aten("zeros_like", "empty_like", "zero", open_sizes=True)
def zeros_like(c: Call, x: Value, **_: Any) -> Value:
    """Convert zeros_like and empty_like."""
    return _like(c, x, 0)


@aten("ones_like", open_sizes=True)
def ones_like(c: Call, x: Value, **_: Any) -> Value:
    """Convert ones_like."""
    return _like(c, x, 1)


@aten("scalar_tensor", "prims.scalar_tensor.default")
def scalar_tensor(c: Call, number: Operand, **_: Any) -> Value:
    """Convert scalar_tensor."""
    return c.cast(number, c.dtype)


@aten("eye", "eye.m")
def eye(c: Call, rows: int, columns: int | None = None, **_: Any) -> Value:
    """Convert eye."""
    return c.constant(np.eye(rows, rows if columns is None else columns).astype(c.dtype.numpy))


@aten("tril_indices", "triu_indices")
def triangle_indices(c: Call, rows: int, columns: int, offset: int = 0, **_: Any) -> Value:
    """Convert tril_indices and triu_indices: the rows and the columns of the elements of a triangle."""
    function = np.tril_indices if "tril" in str(c.node.target) else np.triu_indices
    return c.constant(np.stack(function(rows, offset, columns)).astype(c.dtype.numpy))


@aten("fft_fftfreq", "fft_rfftfreq")
def frequencies(c: Call, size: int, spacing: float = 1.0, **_: Any) -> Value:
    """Convert fft_fftfreq and fft_rfftfreq, the frequencies of a discrete Fourier transform."""
    function = np.fft.rfftfreq if "rfftfreq" in str(c.node.target) else np.fft.fftfreq
    return c.constant(function(size, spacing).astype(c.dtype.numpy))


@aten("rand", "randn", "rand_like", "randn_like")
def random(c: Call, first: Any, **_: Any) -> Value:
    """Convert rand and randn, whose numbers differ from PyTorch's and from run to run."""
    sizes = c.sizes(first) if isinstance(first, Value) else first
    is_normal = "randn" in str(c.node.target)
    kind = Distribution.NORMAL if is_normal else Distribution.UNIFORM
    return c.step(RandomFill(kind, 0.0, 1.0, dtype=c.dtype), c.size_vector(sizes))
