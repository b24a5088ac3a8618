"""Helpers that quantize and dequantize one number for a data type that is given by its name."""

from __future__ import annotations

from typing import Any

import numpy as np

from pyarmnn._quantization import arithmetic

__all__ = ["dequantize", "quantize"]

_TYPES = ["uint8", "int8", "int16", "int32"]


def quantize(value: float, scale: float, offset: int, target_dtype: str) -> int:
    """Return the quantized value of a number: ``round(value / scale) + offset``, saturated to the type's range.

    Args:
        value: the number; also a scalar of NumPy.
        scale: quantization scale.
        offset: quantization offset (zero point).
        target_dtype: ``"uint8"``, ``"int8"``, ``"int16"`` or ``"int32"``.

    Raises:
        ValueError: the data type is another one, or the value is not a number.
        TypeError: the scale or the offset has the wrong type.
    """
    if target_dtype not in _TYPES:
        raise ValueError(
            f"Unexpected target datatype {target_dtype} given.\n"
            f"                         Armnn currently supports quantization to {_TYPES} values."
        )
    quantized: int = _function("Quantize", target_dtype)(_scalar(value, float), scale, offset)
    return quantized


def dequantize(value: int, scale: float, offset: int, from_dtype: str) -> float:
    """Return the number that a quantized value stands for: ``(value - offset) * scale``.

    Args:
        value: the quantized value; also a scalar of NumPy.
        scale: quantization scale.
        offset: quantization offset (zero point).
        from_dtype: ``"uint8"``, ``"int8"``, ``"int16"`` or ``"int32"``.

    Raises:
        ValueError: the data type is another one, or the value is outside its range.
        TypeError: the scale or the offset has the wrong type.
    """
    if from_dtype not in _TYPES:
        raise ValueError(
            f"Unexpected value datatype {from_dtype} given.\n"
            f"                         Armnn currently supports dequantization from {_TYPES} values."
        )
    limits = np.iinfo(from_dtype)
    if not limits.min <= value <= limits.max:
        raise ValueError(f"Value is not within range of the given datatype {from_dtype}")
    dequantized: float = _function("Dequantize", from_dtype)(_scalar(value, int), scale, offset)
    return dequantized


def _function(verb: str, dtype: str) -> Any:
    return getattr(arithmetic, f"{verb}_{dtype}_t")


def _scalar(value: Any, kind: Any) -> Any:
    """Return the number as Python's own type; also that of an array of one element."""
    return kind(value.item() if isinstance(value, np.ndarray) else value)
