"""Rewrites that remove conversions which undo each other."""

from __future__ import annotations

from typing import Final

from interposer.core.schema import Op
from interposer.core.types import DataType
from interposer.ir.continuity import is_discontinuous
from interposer.ir.graph import Layer
from interposer.ops import (
    ConvertBf16ToFp32,
    ConvertFp16ToFp32,
    ConvertFp32ToBf16,
    ConvertFp32ToFp16,
    Dequantize,
    Output,
    Quantize,
)
from interposer.rewriting.pattern import INSERTED, Replacement, above, rewrite

__all__ = ["INVERSES", "drop_inserted_conversions"]

_WIDER: Final[dict[type[Op], type[Op]]] = {ConvertFp32ToFp16: ConvertFp16ToFp32, ConvertFp32ToBf16: ConvertBf16ToFp32}
_NARROWER: Final = {wider: narrower for narrower, wider in _WIDER.items()}
_EXACT_SCALES: Final = (1e-30, 1e30)


@rewrite(ConvertFp32ToFp16, ConvertFp32ToBf16)
def drop_widening_and_narrowing(op: ConvertFp32ToFp16 | ConvertFp32ToBf16, layer: Layer) -> Replacement:
    """Remove a pair of conversions, of a half-precision value to float32 and back, which changes nothing."""
    inner = above(layer.inputs[0], _WIDER[type(op)])
    return inner.layer.inputs[0] if inner else None


@rewrite(ConvertFp16ToFp32, ConvertBf16ToFp32)
def drop_inserted_conversions(op: ConvertFp16ToFp32 | ConvertBf16ToFp32, layer: Layer) -> Replacement:
    """Remove an inserted rounding of a float32 result to half precision and back.

    The rounding remains if a consumer would reveal its absence. A discontinuous layer, such as `Quantize`, would return
    other integers. A layer whose own result is not rounded to half precision, such as a `Cast` to float32, would return
    more digits.
    """
    inner = above(layer.inputs[0], _NARROWER[type(op)])
    if inner is None or not layer.source == inner.layer.source == INSERTED:
        return None
    return None if any(map(_shows_rounding, layer.output.consumers)) else inner.layer.inputs[0]


def _shows_rounding(reader: Layer) -> bool:
    if isinstance(reader.op, Output):
        return False
    readers_of_result = (user for value in reader.outputs for user in value.consumers)
    return is_discontinuous(reader) or not all(map(_is_inserted_narrowing, readers_of_result))


def _is_inserted_narrowing(layer: Layer) -> bool:
    return layer.source == INSERTED and isinstance(layer.op, tuple(_WIDER))


@rewrite(Quantize)
def drop_dequantize_and_quantize(op: Quantize, layer: Layer) -> Replacement:
    """Remove a Dequantize to float32 and a Quantize with the same quantization, of values of at most 16 bits.

    Both roundings have a relative error of 2**-24, which is too small to change a value of 16 bits.
    """
    dequantize = above(layer.inputs[0], Dequantize)
    if dequantize is None or dequantize.layer.values[0].known != layer.output.known:
        return None
    quantized_info, dequantized_info = layer.output.known, layer.values[0].known
    low, high = _EXACT_SCALES
    scales = None if quantized_info.quantization is None else quantized_info.quantization.arrays.scales
    is_exact = scales is not None and bool(low < scales.min() and scales.max() < high)
    fits = quantized_info.dtype.itemsize <= 2 and dequantized_info.dtype in (DataType.FLOAT32, DataType.FLOAT64)
    return dequantize.layer.inputs[0] if is_exact and fits else None


INVERSES: Final = (drop_widening_and_narrowing, drop_dequantize_and_quantize)
