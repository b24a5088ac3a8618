"""Numbers and arrays of the text form."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Final, cast

import numpy as np

from interposer.core.codec import codec_of
from interposer.core.types import Array, DataType, integer_range

__all__ = ["array_of", "number"]

DIGITS: Final = 1000
_KINDS: Final[dict[DataType, type]] = {DataType.BOOL: bool, DataType.STRING: str}
_WIDE: Final = {DataType.BOOL: np.bool_, DataType.STRING: np.object_, DataType.UINT64: np.uint64}


def number(text: str) -> int | float:
    """Return the value of an integer or float literal; raise ValueError if it has too many digits."""
    if not text.lstrip("+-").isdigit():
        return float(text)
    if len(text) > DIGITS:
        raise ValueError(f"an integer of {len(text)} digits is too long")
    return int(text)


def array_of(dtype: DataType, shape: Sequence[int], values: Sequence[Any]) -> Array:
    """Return an array of these elements in row-major order; raise ValueError if they do not fit the type or shape."""
    if len(values) != math.prod(shape):
        raise ValueError(f"expected {math.prod(shape)} elements for {dtype}{list(shape)}, found {len(values)}")
    for value in values:
        _check_element(dtype, value)
    wide_array: Array = np.array(values, np.float64 if dtype.is_float else _WIDE.get(dtype, np.int64))
    with np.errstate(over="ignore"):
        array = wide_array.astype(dtype.numpy)
    return cast("Array", codec_of(Array).coerce(array.reshape(tuple(shape))))


def _check_element(dtype: DataType, value: Any) -> None:
    element_types = (int, float) if dtype.is_float else (_KINDS.get(dtype, int),)
    if type(value) not in element_types:
        raise ValueError(f"{value!r} is no element of {dtype}")
    if not dtype.is_integer:
        return
    low, high = integer_range(dtype)
    if not low <= value <= high:
        raise ValueError(f"{value} is no element of {dtype}, which holds {low} to {high}")
