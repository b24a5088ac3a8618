"""Tensors from bytes, from JSON numbers and from typed contents, and back.

All sizes are compared before an array is created, so that a small request cannot ask for a large array.
"""

from __future__ import annotations

import math
import struct
from array import array
from collections.abc import Sequence
from itertools import chain
from typing import Any, Final

import numpy as np

from interposer.core.types import MAX_RANK, Array, DataType
from interposer.core.types import integer_range as range_of
from interposer.serving.protocol.datatypes import BINARY_ONLY, data_type
from interposer.serving.protocol.errors import ServingError, Status
from interposer.serving.protocol.long_lists import LongList
from interposer.serving.protocol.reading import UNLIMITED, Reading

__all__ = ["check_size", "checked_shape", "from_bytes", "from_contents", "from_json", "size_of", "to_bytes", "to_json"]

_MAX_ELEMENTS: Final = 1 << 48
"""More elements than any memory holds; NumPy computes the sizes of larger shapes wrongly or refuses them."""
_STRING: Final = 80
"""Bytes that a text needs beside its characters."""
_SOME: Final = 1 << 14
"""Elements that are read before other threads have their turns."""
_KINDS: Final[dict[str, set[type]]] = {"i": {int}, "u": {int}, "f": {int, float}, "b": {bool}, "O": {str}}
_EXPECTED: Final = {"i": "integers", "u": "integers", "f": "numbers", "b": "true and false", "O": "strings"}


def _refused(name: str, problem: str) -> ServingError:
    return ServingError(Status.INVALID, f"input {name!r} {problem}")


def checked_shape(name: str, shape: Any) -> tuple[int, ...]:
    """Return the shape of an input as a tuple.

    Raises:
        ServingError: it is not a list of whole numbers from 0 on, or it has too many dimensions or elements.
    """
    if type(shape) is list and len(shape) <= MAX_RANK and _is_small(shape):
        return tuple(shape)
    if not isinstance(shape, Sequence) or isinstance(shape, str) or any(type(size) is not int for size in shape):
        raise _refused(name, "has a shape that is not a list of whole numbers")
    if len(shape) > MAX_RANK:
        raise _refused(name, f"has {len(shape)} dimensions; at most {MAX_RANK} are possible")
    if any(size < 0 for size in shape):
        raise _refused(name, f"has the shape {list(shape)}; sizes must not be negative")
    if math.prod(max(size, 1) for size in shape) > _MAX_ELEMENTS:
        raise _refused(name, "has a shape with too many elements")
    return tuple(shape)


def _is_small(sizes: list[Any]) -> bool:
    """Return True if these are whole numbers from 0 on, and their product is not too large."""
    product = 1
    for size in sizes:
        if type(size) is not int or size < 0:
            return False
        product *= size or 1
    return product <= _MAX_ELEMENTS


def from_bytes(
    name: str, datatype: str, shape: tuple[int, ...], data: memoryview, reading: Reading = UNLIMITED
) -> Array:
    """Return the tensor whose elements are in `data`, in row-major order and little-endian.

    The array of a numeric type shares the memory of `data` if that is aligned. `reading` limits the number of strings.

    Raises:
        ServingError: the number of bytes does not fit the shape.
    """
    dtype = data_type(datatype)
    if dtype is DataType.STRING:
        return _strings(name, shape, data, reading)
    check_size(name, datatype, shape, len(data))
    count = math.prod(shape)
    array: Array = np.frombuffer(data, dtype.numpy, count).reshape(shape) if count else np.zeros(shape, dtype.numpy)
    if dtype is DataType.BOOL and count and array.view(np.uint8).max() > 1:
        raise _refused(name, "has bytes other than 0 and 1; BOOL has only these")
    return array if array.flags.aligned else array.copy()


def check_size(name: str, datatype: str, shape: tuple[int, ...], size: int) -> None:
    """Check that `size` bytes can be a tensor of this shape; raise `ServingError` if not. Strings have any size."""
    dtype = data_type(datatype)
    needed_size = math.prod(shape) * dtype.itemsize if dtype is not DataType.STRING else size
    if size != needed_size:
        raise _refused(name, f"has {size} bytes; {datatype} with the shape {list(shape)} needs {needed_size}")


def size_of(array: Array) -> int:
    """Return about how many bytes the elements of an array need, with the characters of texts."""
    return array.nbytes + (sum(len(str(text)) for text in array.reshape(-1)) if array.dtype.kind == "O" else 0)


def _strings(name: str, shape: tuple[int, ...], data: memoryview, reading: Reading) -> Array:
    """Return a tensor of texts, each of which has its length in bytes before it, as 4 bytes."""
    count = math.prod(shape)
    if len(data) < 4 * count:
        raise _refused(name, f"has {len(data)} bytes, too few for the lengths of {count} strings")
    reading.check_values(count)
    reading.take(count * _STRING + len(data))
    texts, offset = [], 0
    for index in range(count):
        if index % _SOME == 0:
            reading.check_time()
        if offset + 4 > len(data):
            raise _refused(name, f"ends before its {count} strings")
        size = int.from_bytes(data[offset : offset + 4], "little")
        offset += 4
        if size > len(data) - offset:
            raise _refused(name, f"has a string of {size} bytes, of which only {len(data) - offset} are there")
        texts.append(_text(name, bytes(data[offset : offset + size])))
        offset += size
    if offset != len(data):
        raise _refused(name, f"has {len(data) - offset} bytes after its {count} strings")
    return _objects(texts, shape)


def _text(name: str, encoded_text: bytes) -> str:
    try:
        return encoded_text.decode("utf-8")
    except UnicodeDecodeError:
        raise _refused(name, "has a string that is not UTF-8") from None


def _objects(texts: Sequence[str], shape: tuple[int, ...]) -> Array:
    array = np.empty(len(texts), object)
    array[:] = texts
    return array.reshape(shape)


def from_json(name: str, datatype: str, shape: tuple[int, ...], data: Any) -> Array:
    """Return the tensor whose elements are in a list, which is flat in row-major order or nested like the shape.

    Raises:
        ServingError: the elements have another type, do not fit the data type, or do not fit the shape; or the protocol
            sends the data type as bytes only.
    """
    dtype = data_type(datatype)
    if datatype in BINARY_ONLY:
        raise _refused(name, f"is {datatype}, which JSON cannot express; send it as binary data")
    if isinstance(data, LongList):
        array_type = np.dtype(object) if dtype is DataType.STRING else dtype.numpy
        return data.array(name, shape, array_type, lambda elements: _elements(name, datatype, elements))
    if not isinstance(data, list):
        raise _refused(name, "has data that is not a list")
    flat_list = _flattened(name, shape, data)
    if len(flat_list) != math.prod(shape):
        raise _refused(name, f"has {len(flat_list)} elements; the shape {list(shape)} needs {math.prod(shape)}")
    return _elements(name, datatype, flat_list).reshape(shape)


def _elements(name: str, datatype: str, flat_list: Sequence[Any]) -> Array:
    """Return elements as an array with one dimension; raise `ServingError` if they do not fit the data type."""
    dtype = data_type(datatype)
    numbers = _quick_numbers(dtype, flat_list)
    if numbers is not None:
        return numbers
    kind = "f" if dtype.is_float else dtype.numpy.kind
    if not set(map(type, flat_list)) <= _KINDS[kind]:
        raise _refused(name, f"has elements that are not {_EXPECTED[kind]}, as {datatype} needs")
    return _filled(name, datatype, flat_list, (len(flat_list),))


def _quick_numbers(dtype: DataType, flat_list: Sequence[Any]) -> Array | None:
    """Return numbers as an array of a type; None if an element is no such number, or if the type has no numbers.

    Python's arrays refuse other elements while they copy them. They accept truth values, as 0 and 1.
    """
    try:
        numbers = _wide_numbers(dtype, flat_list)
    except (TypeError, ValueError, OverflowError):
        return None
    if numbers is None or _has_truth_values(flat_list, numbers):
        return None
    with np.errstate(over="ignore"):
        converted_numbers: Array = numbers.astype(dtype.numpy, copy=False)
    if dtype.is_float:
        return converted_numbers if np.isfinite(converted_numbers).all() else None
    return converted_numbers if np.array_equal(converted_numbers, numbers) else None


def _has_truth_values(flat_list: Sequence[Any], numbers: Array) -> bool:
    """Return True if an element is a truth value; `numbers` are the elements as numbers."""
    indices = np.flatnonzero((numbers == 0) | (numbers == 1))
    if 4 * len(indices) > len(flat_list):
        return bool in set(map(type, flat_list))
    return any(type(flat_list[index]) is bool for index in indices.tolist())


def _wide_numbers(dtype: DataType, flat_list: Sequence[Any]) -> Array | None:
    if not flat_list:
        return np.empty(0)
    if dtype is DataType.UINT8:
        return np.frombuffer(bytes(flat_list), np.uint8)
    code = "d" if dtype.is_float else {"i": "q", "u": "Q"}.get(dtype.numpy.kind)
    return None if code is None else np.frombuffer(array(code, flat_list), code)


def _flattened(name: str, shape: tuple[int, ...], data: list[Any]) -> list[Any]:
    """Return the elements of a list that is flat, or nested exactly like the shape."""
    flat_list, level = data, 0
    while flat_list and type(flat_list[0]) is list:
        if level >= len(shape) - 1 or len(flat_list) != math.prod(shape[: level + 1]):
            raise _refused(name, f"has lists that do not have the shape {list(shape)}")
        size = shape[level + 1]
        if set(map(type, flat_list)) != {list} or set(map(len, flat_list)) != {size}:
            raise _refused(name, f"has lists that do not have the shape {list(shape)}")
        flat_list = list(chain.from_iterable(flat_list))
        level += 1
    if level and level != len(shape) - 1 and flat_list:
        raise _refused(name, f"has lists that do not have the shape {list(shape)}")
    return flat_list


def _filled(name: str, datatype: str, flat_list: Sequence[Any], shape: tuple[int, ...]) -> Array:
    """Return an array of numbers, truth values or texts of the right Python type; check that they fit the data type."""
    dtype = data_type(datatype)
    if dtype is DataType.STRING:
        if any(max(text, default="") >= "\ud800" for text in flat_list) and not _are_encodable(flat_list):
            raise _refused(name, "has a string with half of a surrogate pair")
        return _objects(flat_list, shape)
    if dtype.is_integer:
        return _integers(name, datatype, flat_list, shape)
    if not dtype.is_float:
        return np.array(flat_list, dtype.numpy).reshape(shape)
    return _floats(name, datatype, flat_list, shape)


def _integers(name: str, datatype: str, flat_list: Sequence[Any], shape: tuple[int, ...]) -> Array:
    dtype = data_type(datatype)
    array = _quick_numbers(dtype, flat_list)
    if array is not None:
        return array.reshape(shape)
    low, high = range_of(dtype)
    outlier = next(number for number in (min(flat_list), max(flat_list)) if not low <= number <= high)
    raise _refused(name, f"has the element {_shown(outlier)}; {datatype} has {low} to {high}")


def _are_encodable(texts: Sequence[str]) -> bool:
    try:
        "".join(texts).encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True


def _floats(name: str, datatype: str, flat_list: Sequence[Any], shape: tuple[int, ...]) -> Array:
    try:
        doubles = np.array(flat_list, np.float64)
    except OverflowError:
        raise _refused(name, f"has an element that is too large for {datatype}") from None
    with np.errstate(over="ignore"):
        array: Array = doubles.astype(data_type(datatype).numpy)
    if not np.isfinite(array).all():
        problem = f"has an element that is too large for {datatype}, or not a number"
        raise _refused(name, f"{problem}; send infinities and NaN as binary data")
    return array.reshape(shape)


def _shown(number: int) -> str:
    return str(number) if abs(number) < 1 << 64 else "of more than 64 bits"


def from_contents(
    name: str, datatype: str, shape: tuple[int, ...], values: Sequence[Any], reading: Reading = UNLIMITED
) -> Array:
    """Return the tensor whose elements gRPC has sent in typed contents; `values` is the field for the data type.

    Raises:
        ServingError: the number of elements does not fit the shape, an element does not fit the data type, or the
            protocol sends the data type as bytes only.
    """
    dtype = data_type(datatype)
    if datatype in BINARY_ONLY:
        raise _refused(name, f"is {datatype}, which has no typed contents; send it in raw_input_contents")
    if len(values) != math.prod(shape):
        raise _refused(name, f"has {len(values)} elements; the shape {list(shape)} needs {math.prod(shape)}")
    array = np.empty(len(values), object if dtype is DataType.STRING else dtype.numpy)
    for begin in range(0, len(values), _SOME):  # in pieces, so that other threads have their turns
        reading.check_time()
        piece = values[begin : begin + _SOME]
        array[begin : begin + len(piece)] = _of_contents(name, datatype, piece)
    return array.reshape(shape)


def _of_contents(name: str, datatype: str, values: Sequence[Any]) -> Array:
    dtype = data_type(datatype)
    if dtype is DataType.STRING:
        return _objects([_text(name, text) for text in values], (len(values),))
    if dtype.is_float:
        return np.array(values, dtype.numpy)
    return _filled(name, datatype, values, (len(values),))


def to_bytes(array: Array) -> bytes:
    """Return the elements in row-major order and little-endian; texts have their lengths before them."""
    if array.dtype.kind != "O":
        return array.tobytes()
    encoded_parts = []
    for element in array.reshape(-1):
        encoded_text = str(element).encode("utf-8", "surrogatepass")
        encoded_parts += [struct.pack("<I", len(encoded_text)), encoded_text]
    return b"".join(encoded_parts)


def to_json(name: str, datatype: str, array: Array) -> Array | list[Any]:
    """Return the elements in row-major order: numbers and truth values as an array with one dimension, texts as a list.

    Raises:
        ServingError: JSON cannot express the data type or an element, and the client has to ask for binary data.
    """
    advice = "ask for it with the output parameter binary_data"
    if datatype in BINARY_ONLY:
        raise ServingError(Status.INVALID, f"output {name!r} is {datatype}, which JSON cannot express; {advice}")
    if array.dtype.kind == "f" and not np.isfinite(array).all():
        raise ServingError(
            Status.INVALID, f"output {name!r} has infinities or NaN, which JSON cannot express; {advice}"
        )
    flat_array: Array = array.reshape(-1)
    return flat_array.tolist() if array.dtype.kind == "O" else flat_array
