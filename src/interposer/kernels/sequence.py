"""Kernels of CumSum, CumProd, ReverseSequence and Range."""

from __future__ import annotations

import numpy as np

from interposer.core.room import check_room
from interposer.core.types import INTEGERS, Array
from interposer.kernels.elementwise import NUMBERS
from interposer.kernels.operand_values import check_range, refuse_value
from interposer.kernels.real import WIDE_FLOATS, all_quantized, real, store
from interposer.kernels.reference import kernel
from interposer.kernels.table import KernelInfo
from interposer.ops.sequence import CumProd, CumSum, Range, ReverseSequence, range_length

__all__: list[str] = []


@kernel(CumSum, dtypes=NUMBERS, when=all_quantized)
def running_sum(op: CumSum, x: Array, *, info: KernelInfo, out: Array) -> None:
    """Compute `CumSum`; quantized tensors are summed as float values."""
    store(_accumulated(op, np.add, real(x, info.input)), info.output, out)


@kernel(CumProd, dtypes=NUMBERS, when=all_quantized)
def running_product(op: CumProd, x: Array, *, info: KernelInfo, out: Array) -> None:
    """Compute `CumProd`; quantized tensors are multiplied as float values."""
    store(_accumulated(op, np.multiply, real(x, info.input)), info.output, out)


def _accumulated(op: CumSum | CumProd, function: np.ufunc, x: Array) -> Array:
    """Accumulate by `function`, np.add or np.multiply, along the operator's axis, in reverse if the operator says so.

    If it is exclusive, the results are shifted by one position, and the first one is 0 or 1.
    """
    x = np.moveaxis(x, op.axis, -1)
    x = x[..., ::-1] if op.reverse else x
    accumulated: Array = function.accumulate(x, axis=-1, dtype=x.dtype)
    if op.exclusive:
        identity = np.full_like(x[..., :1], function.identity)
        accumulated = np.concatenate([identity, accumulated[..., :-1]], -1)
    return np.moveaxis(accumulated[..., ::-1] if op.reverse else accumulated, -1, op.axis)


@kernel(ReverseSequence)
def reverse_sequence(op: ReverseSequence, x: Array, lengths: Array) -> Array:
    """Compute `ReverseSequence` by indexing; the first ``lengths[i]`` steps of sample i are in reverse order."""
    axes = (op.batch_axis, op.time_axis)
    sequences = np.moveaxis(x, axes, (0, 1))
    samples, steps = sequences.shape[:2]
    check_range("lengths", lengths, 0, steps)
    step, length = np.arange(steps), lengths[:, np.newaxis].astype(np.int64)
    sources = np.where(step < length, length - 1 - step, step)
    return np.moveaxis(sequences[np.arange(samples)[:, np.newaxis], sources], (0, 1), axes)


@kernel(Range, dtypes=NUMBERS & (WIDE_FLOATS | INTEGERS), quantized=False)
def number_range(op: Range, start: Array, limit: Array, delta: Array) -> Array:
    """Compute `Range` in 64 bits, and round every number once."""
    if not delta.any():
        refuse_value("delta", 0, "expected another number")
    wide_type = {"i": np.int64, "u": np.uint64}.get(start.dtype.kind, np.float64)
    length = range_length(start, limit, delta)
    check_room((length,), start.dtype.itemsize)
    steps = np.arange(length).astype(wide_type)
    return start.reshape(()).astype(wide_type) + steps * delta.reshape(()).astype(wide_type)
