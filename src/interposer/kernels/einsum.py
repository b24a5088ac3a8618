"""Einsum kernel by NumPy."""

from __future__ import annotations

import numpy as np

from interposer.core.types import Array
from interposer.kernels.elementwise import NUMBERS
from interposer.kernels.real import all_quantized, real, store
from interposer.kernels.reference import kernel
from interposer.kernels.table import KernelInfo
from interposer.ops.einsum import Einsum

__all__: list[str] = []


@kernel(Einsum, dtypes=NUMBERS, when=all_quantized)
def einsum(op: Einsum, inputs: tuple[Array, ...], *, info: KernelInfo, out: Array) -> None:
    """Compute `Einsum` by NumPy; three or more inputs are multiplied in an order that needs few operations.

    Narrow floats and quantized tensors are computed in float32, and rounded once.
    """
    operand_letters, output = op.words()
    values = [real(x, info.at(index)) for index, x in enumerate(inputs)]
    contracted = np.einsum(f"{','.join(operand_letters)}->{output}", *values, optimize=len(values) > 2)
    store(np.asarray(contracted), info.output, out)
