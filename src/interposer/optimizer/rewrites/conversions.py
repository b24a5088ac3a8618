"""Conversions between types that undo each other."""

from __future__ import annotations

from typing import Final

from interposer.ir.graph import Layer
from interposer.ops import (
    ConvertBf16ToFp32,
    ConvertFp16ToFp32,
    ConvertFp32ToBf16,
    ConvertFp32ToFp16,
    Dequantize,
    Quantize,
)
from interposer.optimizer.rewrites.pattern import INSERTED, Replacement, above, rewrite
from interposer.schema import Op
from interposer.types import DataType

__all__ = ["INVERSES", "drop_inserted_conversions"]

_WIDER: Final[dict[type[Op], type[Op]]] = {ConvertFp32ToFp16: ConvertFp16ToFp32, ConvertFp32ToBf16: ConvertBf16ToFp32}
_NARROWER: Final = {wider: narrower for narrower, wider in _WIDER.items()}
_EXACT_SCALES: Final = (1e-30, 1e30)


@rewrite(ConvertFp32ToFp16, ConvertFp32ToBf16)
def drop_widening_and_narrowing(op: ConvertFp32ToFp16 | ConvertFp32ToBf16, layer: Layer) -> Replacement:
    """A half-precision number that is made wider and narrow again is the same."""
    inner = above(layer.inputs[0], _WIDER[type(op)])
    return inner.layer.inputs[0] if inner else None


@rewrite(ConvertFp16ToFp32, ConvertBf16ToFp32)
def drop_inserted_conversions(op: ConvertFp16ToFp32 | ConvertBf16ToFp32, layer: Layer) -> Replacement:
    """A float32 tensor that was made narrow only because of where it runs, and is made wide again, keeps its digits."""
    inner = above(layer.inputs[0], _NARROWER[type(op)])
    inserted = inner is not None and layer.source == inner.layer.source == INSERTED
    return inner.layer.inputs[0] if inner and inserted else None


@rewrite(Quantize)
def drop_dequantize_and_quantize(op: Quantize, layer: Layer) -> Replacement:
    """Codes of at most 16 bits that are dequantized to float32 and quantized as before are the same codes.

    The way there rounds by 2**-24 of the number and the way back again, which 2**16 codes do not notice.
    """
    inner = above(layer.inputs[0], Dequantize)
    if inner is None or inner.layer.values[0].known != layer.output.known:
        return None
    codes, reals = layer.output.known, layer.values[0].known
    low, high = _EXACT_SCALES
    exact = codes.quantization is not None and all(low < scale < high for scale in codes.quantization.scales)
    fits = codes.dtype.itemsize <= 2 and reals.dtype in (DataType.FLOAT32, DataType.FLOAT64)
    return inner.layer.inputs[0] if exact and fits else None


INVERSES: Final = (drop_widening_and_narrowing, drop_dequantize_and_quantize)
