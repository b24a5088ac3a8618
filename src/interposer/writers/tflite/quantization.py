"""TFLite writers for quantization and type conversion."""

from __future__ import annotations

from typing import Final

import numpy as np

from interposer.core.types import DataType, TensorInfo
from interposer.ops.quantization import (
    Bitcast,
    Cast,
    ConvertBf16ToFp32,
    ConvertFp16ToFp32,
    ConvertFp32ToBf16,
    ConvertFp32ToFp16,
    Dequantize,
    FakeQuantization,
    Quantize,
    RoundingMethod,
)
from interposer.writers.refusals import refuse
from interposer.writers.tflite.draft import Draft
from interposer.writers.tflite.sheet import Tensor
from interposer.writers.tflite.takes import taken
from interposer.writers.tflite.tflite_layer_writers import writer

__all__: list[str] = []

_PAIRS: Final = frozenset(
    {
        ("INT8", "INT8"), ("INT8", "UINT8"), ("INT8", "INT16"), ("UINT8", "INT8"), ("UINT8", "UINT8"),
        ("UINT8", "INT16"), ("INT16", "INT8"), ("INT16", "INT16"), ("INT16", "INT32"), ("INT32", "INT8"),
        ("INT32", "INT16"),
    }
)  # fmt: skip
"""The quantized types that QUANTIZE requantizes, and the types of the results."""


@writer(Quantize, also_quantized=True)
def quantize(draft: Draft, op: Quantize) -> Tensor:
    """Write Quantize as QUANTIZE; a layer that does not round ties away from zero is refused, as TFLite does so."""
    if draft.result.quantization is None:
        refuse("its output has no scale")
    if op.rounding is not RoundingMethod.HALF_AWAY_FROM_ZERO and not draft.info(0).is_quantized:
        refuse(f"it rounds {op.rounding.name}; QUANTIZE rounds HALF_AWAY_FROM_ZERO")
    x, info = draft.operand(0), draft.result
    pair = (x.dtype.name, info.dtype.name)
    if not taken("QUANTIZE", info) or (x.info.is_quantized and (pair not in _PAIRS or _several(x.info, info))):
        refuse(f"QUANTIZE makes no {info} of {x.dtype}")
    return draft.final("QUANTIZE", x)


def _several(*infos: TensorInfo) -> bool:
    return any(info.quantization is not None and info.quantization.per_axis for info in infos)


@writer(Dequantize, also_quantized=True, typed=True)
def dequantize(draft: Draft, op: Dequantize) -> Tensor:
    """Write Dequantize as DEQUANTIZE to float32, and a cast to another type.

    float64 is refused, as its additional digits would be lost.
    """
    if op.dtype is DataType.FLOAT64:
        refuse("DEQUANTIZE gives float32, which has fewer digits than float64")
    float_result = draft.node("DEQUANTIZE", draft.operand(0), giving=draft.result.with_dtype(DataType.FLOAT32))
    return draft.cast(float_result, op.dtype)


@writer(FakeQuantization)
def fake_quantization(draft: Draft, op: FakeQuantization) -> Tensor:
    """Write FakeQuantization as FAKE_QUANT, whose range is float32."""
    if any(float(np.float32(bound)) != bound for bound in (op.min, op.max)):
        refuse("its range has more digits than an option holds")
    if op.narrow_range:
        refuse("its range is narrow, which FAKE_QUANT only knows of weights")
    fields = {"min": op.min, "max": op.max, "num_bits": op.num_bits, "narrow_range": op.narrow_range}
    return draft.final("FAKE_QUANT", draft.operand(0), **fields)


@writer(Cast, typed=True)
def cast(draft: Draft, op: Cast) -> Tensor:
    """Write Cast to the type of the result."""
    x = draft.operand(0)
    if not taken("CAST", TensorInfo((), op.dtype)):
        refuse(f"CAST gives no {op.dtype}")
    return draft.final("CAST", x, in_data_type=x.dtype, out_data_type=op.dtype)


@writer(ConvertFp16ToFp32, ConvertFp32ToFp16, ConvertBf16ToFp32, ConvertFp32ToBf16, typed=True)
def convert(draft: Draft, op: ConvertFp16ToFp32) -> Tensor:
    """Write ConvertFp16ToFp32 as CAST."""
    x = draft.operand(0)
    return draft.final("CAST", x, in_data_type=x.dtype, out_data_type=draft.result.dtype)


@writer(Bitcast, typed=True)
def bitcast(draft: Draft, op: Bitcast) -> Tensor:
    """Write Bitcast to the type of the result."""
    return draft.final("BITCAST", draft.operand(0))
