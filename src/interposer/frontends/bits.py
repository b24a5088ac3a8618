"""The bits of elements as elements of another data type, which may be narrower or wider."""

from __future__ import annotations

import numpy as np

from interposer.core.schema import Op
from interposer.core.types import DataType
from interposer.frontends.elementwise import BITWISE_AND, SHIFT_LEFT, SHIFT_RIGHT
from interposer.frontends.node import Layers
from interposer.ir.graph import Value
from interposer.ops.quantization import Bitcast, Cast
from interposer.ops.rearrange import Stack
from interposer.ops.reduction import Reduce, ReduceOperation

__all__ = ["reinterpreted"]


def reinterpreted(node: Layers, x: Value, dtype: DataType) -> Value:
    """Return the bits of `x` as elements of type `dtype`; the lowest bits come first.

    A narrower type adds a last axis, for example of size 4 for the bytes of int32. A wider type removes the last axis,
    whose size must be the ratio of the widths.
    """
    width, target_width = x.known.dtype.bits, dtype.bits
    if not width or not target_width:
        node.fail(f"{x.known.dtype} as {dtype}: the elements have no fixed width")
    if width == target_width:
        is_same = x.known.dtype is dtype and not x.known.is_quantized
        return x if is_same else node.result(Bitcast(dtype), x)
    unsigned = _unsigned(width)
    bits = x if x.known.dtype is unsigned else node.step(Bitcast(unsigned), x)
    if width > target_width:
        return _from_unsigned(node, Cast(_unsigned(target_width)), _pieces(node, bits, target_width), dtype)
    ratio = target_width // width
    if not x.known.rank or x.known.shape[-1] != ratio:
        node.fail(f"{x.known.dtype} of shape {x.known.shape} as {dtype} needs a last axis of size {ratio}")
    total = Reduce((x.known.rank - 1,), False, ReduceOperation.SUM)
    return _from_unsigned(node, total, _shifted(node, bits, target_width), dtype)


def _unsigned(bits: int) -> DataType:
    return DataType(f"uint{bits}")


def _from_unsigned(node: Layers, op: Op, x: Value, dtype: DataType) -> Value:
    """Return the result of `op` on `x`, unsigned integers of the width of `dtype`, as elements of that type."""
    if dtype is _unsigned(dtype.bits):
        return node.result(op, x)
    return node.result(Bitcast(dtype), node.step(op, x))


def _pieces(node: Layers, x: Value, width: int) -> Value:
    """Return the pieces of `width` bits of unsigned integers, along a new last axis, in the type of `x`."""
    wide_type = x.known.dtype
    shifts = node.constant(np.arange(0, wide_type.bits, width).astype(wide_type.numpy))
    mask = node.constant(np.array((1 << width) - 1, wide_type.numpy))
    shifted = node.step(SHIFT_RIGHT, node.step(Stack(x.known.rank), x), shifts)
    return node.step(BITWISE_AND, shifted, mask)


def _shifted(node: Layers, pieces: Value, width: int) -> Value:
    """Return the pieces along the last axis as unsigned integers of `width` bits, each at its place."""
    wide_type = _unsigned(width)
    shifts = node.constant(np.arange(0, width, pieces.known.dtype.bits).astype(wide_type.numpy))
    return node.step(SHIFT_LEFT, node.step(Cast(wide_type), pieces), shifts)
