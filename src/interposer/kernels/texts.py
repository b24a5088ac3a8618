"""Numbers as texts, and texts as numbers, as ONNX Runtime converts them."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from typing import Any, Final

import numpy as np

from interposer.core.errors import InvalidValueError
from interposer.core.types import Array, DataType

__all__ = ["numbers_of", "texts_of"]

_FLOAT: Final = re.compile(
    r"\s*([+-]?(?:inf(?:inity)?|nan|(?:\d+\.?\d*|\.\d+)(?:e[+-]?\d+)?))", re.IGNORECASE | re.ASCII
)
_INTEGER: Final = re.compile(r"\s*([+-]?\d+)", re.ASCII)


def texts_of(x: Array) -> Array:
    """Return numbers as texts: integers and bools with all digits, floats with 8 significant digits, as C's ``%.8g``.

    Infinities and NaN are ``INF``, ``-INF`` and ``NaN``.

    >>> texts_of(np.float32([0.1, 16777216, -np.inf])).tolist()
    ['0.1', '16777216', '-INF']
    """
    of_number: Callable[[Any], str] = _float_text if x.dtype.kind == "f" else lambda number: str(int(number))
    texts = np.empty(x.shape, object)
    texts.reshape(-1)[:] = [of_number(number) for number in x.reshape(-1).tolist()]
    return texts


def _float_text(number: float) -> str:
    if math.isnan(number):
        return "NaN"
    return f"{number:.8g}" if math.isfinite(number) else "INF" if number > 0 else "-INF"


def numbers_of(x: Array, dtype: DataType) -> Array:
    """Return the numbers with which texts begin; what follows a number is ignored, as C's ``strtod`` does.

    Integers are converted to narrower types modulo 2**bits.

    Raises:
        InvalidValueError: a text begins with no number, or with an integer of more than 64 bits.
    """
    is_float = dtype.is_float
    numbers = [_number(text, index, is_float, x.shape) for index, text in enumerate(x.reshape(-1).tolist())]
    if is_float:
        floats = np.array(numbers, np.float64)
        return floats.astype(dtype.numpy if dtype.bits >= 16 else np.float32).astype(dtype.numpy).reshape(x.shape)
    if dtype is DataType.BOOL:
        return np.array([number != 0 for number in numbers], bool).reshape(x.shape)
    integers = np.array([number % (1 << 64) for number in numbers], np.uint64).view(np.int64)
    return integers.astype(dtype.numpy).reshape(x.shape)


def _number(text: str, index: int, is_float: bool, shape: tuple[int, ...]) -> Any:
    match = (_FLOAT if is_float else _INTEGER).match(text)
    number: Any = None if match is None else (float if is_float else int)(match[1])
    if number is None or (not is_float and not -(1 << 63) <= number < 1 << 64):
        position = tuple(map(int, np.unravel_index(index, shape)))
        kind = "number" if is_float else "integer of 64 bits"
        raise InvalidValueError(
            f"the text {text[:40]!r} at {list(position)} begins with no {kind}",
            operand="input", position=position, value=text,
        )  # fmt: skip
    return number
