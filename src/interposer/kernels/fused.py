"""Kernels of operators that combine several operators."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from interposer.core.types import Array, DataType
from interposer.kernels.accumulation import EIGHT_BITS
from interposer.kernels.real import WIDE_FLOATS, real, store
from interposer.kernels.reference import kernel
from interposer.kernels.table import KernelInfo
from interposer.ops.fused import Fused

__all__: list[str] = []

PLAIN: Final = WIDE_FLOATS | {DataType.INT32}


def _all_or_none_quantized(_: object, info: KernelInfo) -> str | None:
    tensors = [tensor for tensor in (*info.inputs, *info.outputs) if tensor is not None]
    if len({tensor.is_quantized for tensor in tensors}) == 1:
        return None
    return "some of the tensors are quantized; takes all or none"


@kernel(Fused, dtypes=PLAIN, quantized=False, when=_all_or_none_quantized)
@kernel(Fused, dtypes=EIGHT_BITS, quantized=True, when=_all_or_none_quantized)
def add_mul_add(
    op: Fused, a: Array, b: Array, multiplier: Array, addend: Array, *, info: KernelInfo, out: Array | Sequence[Array]
) -> None:  # fmt: skip
    """Compute `Fused` on float values: a sum, a product and a sum, each rounded once to the type of the computation.

    `out` is the array for the last sum, or two arrays for the first sum and the last one.
    """
    x, y, factor, offset = (real(array, info.at(i)) for i, array in enumerate((a, b, multiplier, addend)))
    total = x + y
    sums = [total, np.broadcast_to(total * factor + offset, total.shape)]
    targets = [out] if isinstance(out, np.ndarray) else out
    for values, tensor, target in zip(sums[-len(targets) :], info.outputs, targets, strict=True):
        store(values, tensor, target)
