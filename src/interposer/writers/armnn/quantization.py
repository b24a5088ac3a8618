"""Arm NN writers for quantization and type conversion."""

from __future__ import annotations

from interposer.core.types import DataType
from interposer.formats.armnn.schema import COMPARISONS
from interposer.ops.quantization import (
    Cast,
    ConvertFp16ToFp32,
    ConvertFp32ToFp16,
    Dequantize,
    Quantize,
    RoundingMethod,
)
from interposer.writers.armnn.armnn_layer_writers import writer
from interposer.writers.armnn.draft import Draft
from interposer.writers.armnn.sheet import Tensor
from interposer.writers.refusals import refuse

__all__: list[str] = []


@writer(Quantize)
def quantize(draft: Draft, op: Quantize) -> Tensor:
    """Write Quantize; a layer that does not round ties away from zero is refused, as Arm NN does so."""
    q = draft.result.quantization
    if q is None or q.per_axis:
        refuse("its output has several scales" if q else "its output has no scale")
    if op.rounding is not RoundingMethod.HALF_AWAY_FROM_ZERO and not draft.info(0).is_quantized and draft.sheet.exact:
        refuse(f"it rounds {op.rounding.name}; Arm NN rounds HALF_AWAY_FROM_ZERO; write it with exact=False")
    if draft.result.dtype is DataType.INT32:
        refuse("Arm NN has no Quantize to int32")
    return draft.final("Quantize", draft.operand(0))


@writer(Dequantize)
def dequantize(draft: Draft, op: Dequantize) -> Tensor:
    """Write Dequantize; several scales and int32 are refused, which Arm NN does not dequantize."""
    info = draft.info(0)
    if info.quantization is not None and info.quantization.per_axis:
        refuse("its input has several scales")
    if info.dtype is DataType.INT32:
        refuse("Arm NN has no Dequantize of int32")
    return draft.final("Dequantize", draft.operand(0))


@writer(Cast, ConvertFp16ToFp32, ConvertFp32ToFp16, moves=True)
def cast(draft: Draft, op: Cast) -> Tensor:
    """Write a conversion to another type.

    Arm NN converts to and from 8-bit integers as quantized values, which gives the same only for widening conversions.
    """
    x, dtype = draft.operand(0), draft.result.dtype
    if draft.is_quantized:
        refuse("it converts quantized values as plain integers, which Arm NN does not")
    if dtype is DataType.BOOL:
        unequal = {"operation": COMPARISONS.index("NOT_EQUAL")}
        return draft.final("Comparison", x, draft.number(0, x), descriptor=unequal)
    if dtype in (DataType.UINT8, DataType.INT8) and x.dtype is not dtype and x.dtype is not DataType.BOOL:
        refuse(f"Arm NN rounds and saturates where it converts to {dtype}")
    if x.dtype in (DataType.INT32, DataType.INT64) and dtype in (DataType.INT32, DataType.INT64):
        refuse("Arm NN converts integers by way of float32, which has fewer digits")
    return draft.final("Cast", x)
