"""Conversion of arrays to the element types of tensors; values that the target type cannot hold are refused."""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from interposer.core.errors import InvalidArgumentError
from interposer.core.types import Array, DataType, integer_range, largest_float

__all__ = ["converted"]

_RANKS: Final = {"b": 0, "i": 1, "u": 1, "f": 2, "c": 3}
"""Order of NumPy's kinds of numbers; a number may be converted to its own kind or to a later one."""
_TEXT: Final = "OUST"
_WITHOUT_SPECIAL_VALUES: Final = (DataType.FLOAT4_E2M1FN, DataType.FLOAT6_E2M3FN, DataType.FLOAT6_E3M2FN)
"""Float types with neither infinities nor NaN: NumPy converts infinities to their largest values, and NaN to -0."""


def converted(array: Array, target: DataType, *, numbers: Any = None) -> Array:
    """Return the array converted to the type `target`, or the array itself if it has this type.

    Booleans become 0 and 1. Integers become integers of another type or floats; floats become floats of another type.
    A conversion to a float type may round. Nothing else changes a value:

    - an integer must lie in the range of an integer type,
    - a finite number must stay finite in a float type, and infinities and NaN must be values of it,
    - floats never become integers, because that would truncate or quantize them.

    Args:
        numbers: the Python numbers that the array was created from, None if it was created from an array. Such numbers
            have no type, so that whole floats among them become integers too, and 0 and 1 become booleans.

    Raises:
        ValueError: the array cannot be converted. The text begins with "is" or "holds", and names the first value that
            does not fit, its position and the range of the type.
    """
    if target is DataType.STRING:
        return _texts(array)
    if array.dtype == target.numpy:
        return array
    if numbers is not None and array.dtype.kind in "Oif" and (target.is_integer or target is DataType.BOOL):
        array = _exact(array, numbers)
        _check_whole(array, target)
    elif _rank(array.dtype) > _rank(target.numpy):
        raise ValueError(f"is {array.dtype}; expected {target}; convert it explicitly")
    elif target.is_integer:
        _check_range(array, target)
    rounded_array = _rounded(array, target)
    if target.is_float and array.dtype.kind not in "b":
        _check_retained(array, rounded_array, target)
    return rounded_array


def _rounded(array: Array, target: DataType) -> Array:
    """Return the elements of an array as values of the type `target`, rounded to the nearest one.

    The conversion goes via float32 if NumPy has no direct one.
    """
    with np.errstate(all="ignore"):
        try:
            rounded_array: Array = array.astype(target.numpy)
        except TypeError:
            rounded_array = array.astype(np.float32).astype(target.numpy)
    return rounded_array


def _rank(dtype: np.dtype[Any]) -> int:
    """Return the position of a dtype among bool, integers, floats and complex numbers; other types come last.

    Numbers may be converted to a type of the same or a later position.
    """
    position = _RANKS.get(dtype.kind)
    if position is not None:
        return position
    try:
        data_type = DataType.of(dtype)  # a type of ml_dtypes
    except InvalidArgumentError:
        return len(_RANKS)
    return 1 if data_type.is_integer else 2 if data_type.is_float else len(_RANKS)


def _check_range(array: Array, target: DataType) -> None:
    if not array.size or array.dtype.kind == "b":
        return
    low, high = integer_range(target)
    if int(array.min()) < low or int(array.max()) > high:
        integers = array.astype(object)
        _refuse(array, (integers < low) | (integers > high), _whole(target))


def _exact(array: Array, numbers: Any) -> Array:
    """Return `numbers` as an array of Python integers if NumPy rounded large integers to floats in `array`.

    Returns `array` otherwise.
    """
    if array.dtype.kind != "f":
        return array
    exact_numbers = np.array(numbers, object)
    return exact_numbers if all(isinstance(number, int) for number in exact_numbers.flat) else array


def _check_whole(array: Array, target: DataType) -> None:
    """Check that the elements of an array are whole numbers in the range of `target`, an integer type or bool.

    Raises ValueError for the first element that is not.
    """
    low, high = (0, 1) if target is DataType.BOOL else integer_range(target)
    if array.dtype.kind in "f":
        is_valid = (array == np.trunc(array)) & (array >= low) & (array < float(high + 1))
        _refuse(array, ~is_valid, _whole(target))
        return
    if array.dtype.kind == "O" and not all(isinstance(number, int) for number in array.flat):
        raise ValueError(f"is {array.dtype}; expected {target}; convert it explicitly")
    if array.size and (array.min() < low or array.max() > high):
        integers = array.astype(object)
        _refuse(array, (integers < low) | (integers > high), _whole(target))


def _whole(target: DataType) -> str:
    low, high = (0, 1) if target is DataType.BOOL else integer_range(target)
    return f"{target}, whole numbers from {low} to {high}"


def _check_retained(array: Array, rounded: Array, target: DataType) -> None:
    """Check that a conversion to the float type `target` has changed `array` into `rounded` only by rounding.

    Finite numbers must be finite and in range afterwards, infinities infinite, and NaN still NaN. Raises ValueError for
    the first element that is not.
    """
    if target not in _WITHOUT_SPECIAL_VALUES and np.isfinite(rounded).all():
        return
    original = array if array.dtype.kind in "iuf" else array.astype(np.float32)
    finite = np.isfinite(original)
    largest, lowest = largest_float(target), -largest_float(target)
    if target in _WITHOUT_SPECIAL_VALUES:
        in_range = finite & (original >= lowest) & (original <= largest)
        _refuse(array, ~in_range, f"{target}, finite numbers up to {largest:.8g}")
        return
    _refuse(array, finite & ~np.isfinite(rounded), f"{target}, finite numbers up to {largest:.8g}")
    _refuse(array, np.isinf(original) & ~np.isinf(rounded), f"{target}, which has no infinities")


def _refuse(array: Array, is_bad: Array, expected: str) -> None:
    """Raise ValueError for the first element of `array` at which `is_bad` is True; return if there is none.

    The message has the element, its position, and the text `expected`.
    """
    is_bad = np.asarray(is_bad, np.bool_)
    if is_bad.any():
        index = tuple(map(int, np.argwhere(is_bad)[0]))
        where = f" at {list(index)}" if index else ""
        raise ValueError(f"is {array.dtype} and holds {array[index]}{where}; expected {expected}")


def _texts(array: Array) -> Array:
    """Return an array of texts as an array of str objects; bytes are decoded as UTF-8.

    Raises:
        ValueError: the array has another type, or an element that is neither str nor bytes in UTF-8.
    """
    if array.dtype.kind not in _TEXT:
        raise ValueError(f"is {array.dtype}; expected {DataType.STRING}; convert it explicitly")
    flat_objects = array.astype(object).ravel()
    indices_of_bytes = [index for index, text in enumerate(flat_objects) if not isinstance(text, str)]
    if not indices_of_bytes:
        return array if array.dtype.kind == "O" else array.astype(object)
    decoded_texts = np.empty(array.shape, object)
    decoded_texts.ravel()[:] = [
        _decoded(text, np.unravel_index(index, array.shape)) for index, text in enumerate(flat_objects)
    ]
    return decoded_texts


def _decoded(value: object, index: tuple[Any, ...]) -> str:
    """Return a text, decoding it from UTF-8 if it is bytes; raise ValueError with its `index` if it is neither."""
    if isinstance(value, str):
        return value
    location = f" at {[int(coordinate) for coordinate in index]}" if index else ""
    if not isinstance(value, bytes):
        raise ValueError(f"holds {value!r}{location}; expected {DataType.STRING}, texts")
    try:
        return value.decode()
    except UnicodeDecodeError as error:
        raise ValueError(f"holds {value!r}{location}, which is not UTF-8; expected {DataType.STRING}, texts") from error
