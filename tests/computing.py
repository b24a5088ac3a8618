"""Computes one operator with its reference kernel, for tests that look at operators alone."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from interposer.core.schema import Op
from interposer.core.types import Quantization, TensorInfo
from interposer.kernels import evaluate


def compute(
    op: Op,
    *arrays: np.ndarray | None,
    quantized: Sequence[Quantization | None] = (),
    result: Quantization | None = None,
) -> np.ndarray:
    """Return the result on arrays, the first of which have these quantizations; the result has its declared one."""
    quantizations = [*quantized, *[None] * (len(arrays) - len(quantized))]
    infos = [
        None if array is None else TensorInfo(array.shape, array.dtype, quantization)
        for array, quantization in zip(arrays, quantizations, strict=True)
    ]
    assert op.violations(*infos) == []
    [info] = op.infer_infos(*infos)
    assert info is not None
    [matches] = evaluate(op, arrays, infos, [info if result is None else info.with_quantization(result)])
    return matches
