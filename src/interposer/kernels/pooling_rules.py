"""What the pooling kernels for images and for volumes support."""

from __future__ import annotations

from typing import Final

from interposer.core.types import FLOATS, DataType
from interposer.kernels.table import KernelInfo
from interposer.ops.pooling import Pooling2d, PoolingAlgorithm
from interposer.ops.pooling3d import Pooling3d

__all__ = ["EIGHT_OR_SIXTEEN_BITS", "floats_or_max", "one_scale"]

EIGHT_OR_SIXTEEN_BITS: Final = frozenset({DataType.INT8, DataType.UINT8, DataType.INT16})


def floats_or_max(op: Pooling2d | Pooling3d, info: KernelInfo) -> str | None:
    """Return why a tensor without quantization is refused: only floats have a mean; None if it is supported."""
    if op.pool_type is PoolingAlgorithm.MAX or info.input.dtype in FLOATS:
        return None
    return f"input is {info.input.dtype} and not quantized; takes floats for {op.pool_type.name}"


def one_scale(_: object, info: KernelInfo) -> str | None:
    """Return why a quantized tensor is refused: input and output must have one scale each; None if they have."""
    if info.output.quantization is None:
        return "input is quantized, but the output is not"
    if any(tensor.quantization and tensor.quantization.per_axis for tensor in (info.input, info.output)):
        return "a tensor is quantized along an axis; takes one scale for each"
    return None
