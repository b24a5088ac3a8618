"""The functions ``Quantize_uint8_t``, ``Dequantize_uint8_t`` and their like, one pair for each quantized data type.

The arithmetic is that of Arm NN: in float32, rounded to the nearest integer with ties away from zero, and saturated.
"""

from __future__ import annotations

import math
import operator
from typing import Any

import numpy as np

__all__ = [
    "Dequantize_int8_t",
    "Dequantize_int16_t",
    "Dequantize_int32_t",
    "Dequantize_uint8_t",
    "Quantize_int8_t",
    "Quantize_int16_t",
    "Quantize_int32_t",
    "Quantize_uint8_t",
]

_C_TYPES = {"uint8": "unsigned char", "int8": "signed char", "int16": "short", "int32": "int"}


def Quantize_uint8_t(value: float, scale: float, offset: int) -> int:
    """Return the uint8 that stands for `value`, which is ``round(value / scale) + offset`` within the type's range."""
    return _quantized("uint8", value, scale, offset)


def Quantize_int8_t(value: float, scale: float, offset: int) -> int:
    """Return the int8 that stands for `value`, which is ``round(value / scale) + offset`` within the type's range."""
    return _quantized("int8", value, scale, offset)


def Quantize_int16_t(value: float, scale: float, offset: int) -> int:
    """Return the int16 that stands for `value`, which is ``round(value / scale) + offset`` within the type's range."""
    return _quantized("int16", value, scale, offset)


def Quantize_int32_t(value: float, scale: float, offset: int) -> int:
    """Return the int32 that stands for `value`, which is ``round(value / scale) + offset`` within the type's range."""
    return _quantized("int32", value, scale, offset)


def Dequantize_uint8_t(value: int, scale: float, offset: int) -> float:
    """Return the number that a uint8 stands for, which is ``(value - offset) * scale``."""
    return _dequantized("uint8", value, scale, offset)


def Dequantize_int8_t(value: int, scale: float, offset: int) -> float:
    """Return the number that an int8 stands for, which is ``(value - offset) * scale``."""
    return _dequantized("int8", value, scale, offset)


def Dequantize_int16_t(value: int, scale: float, offset: int) -> float:
    """Return the number that an int16 stands for, which is ``(value - offset) * scale``."""
    return _dequantized("int16", value, scale, offset)


def Dequantize_int32_t(value: int, scale: float, offset: int) -> float:
    """Return the number that an int32 stands for, which is ``(value - offset) * scale``."""
    return _dequantized("int32", value, scale, offset)


def _quantized(dtype: str, value: Any, scale: Any, offset: Any) -> int:
    function = f"Quantize_{dtype}_t"
    number = np.float32(_number(function, 1, value))
    step, zero = _step(function, scale), _offset(function, offset)
    if math.isnan(number):
        raise ValueError("The value is not a number (NaN), which no quantized value can stand for.")
    with np.errstate(over="ignore", invalid="ignore"):
        level = _rounded(number / step) + np.float32(zero)
    limits = np.iinfo(dtype)
    return limits.max if level >= limits.max else limits.min if level <= limits.min else int(level)


def _dequantized(dtype: str, value: Any, scale: Any, offset: Any) -> float:
    function, limits = f"Dequantize_{dtype}_t", np.iinfo(dtype)
    try:
        level = operator.index(value)
    except TypeError:
        raise _mismatch(function, 1, _C_TYPES[dtype]) from None
    if not limits.min <= level <= limits.max:
        raise OverflowError(str(_mismatch(function, 1, _C_TYPES[dtype])))
    step, zero = _step(function, scale), _offset(function, offset)
    return float(np.float32(level - zero) * step)


def _rounded(number: np.float32) -> np.float32:
    """Return the nearest integer, and of two that are equally near the one farther from zero, as C's ``round`` does."""
    whole = np.trunc(number)
    return np.float32(whole + np.copysign(np.float32(1), number)) if abs(number - whole) >= 0.5 else np.float32(whole)


def _step(function: str, scale: Any) -> np.float32:
    step = np.float32(_number(function, 2, scale))
    if step == 0:
        raise ValueError("The quantization scale is 0; it must be a number other than 0.")
    return step


def _number(function: str, position: int, value: Any) -> float:
    if isinstance(value, int | float | np.integer | np.floating):
        return float(value)
    raise _mismatch(function, position, "float")


def _offset(function: str, offset: Any) -> int:
    try:
        return operator.index(offset)
    except TypeError:
        raise _mismatch(function, 3, "int32_t") from None


def _mismatch(function: str, position: int, c_type: str) -> TypeError:
    return TypeError(f"in method '{function}', argument {position} of type '{c_type}'")
