"""JSON text, read and written by orjson if it is installed, otherwise by the standard library.

orjson is several times as fast for large tensors. What it refuses is read by the standard library, so that the accepted
requests and the messages are the same with and without it. Only lists nested more than 980 deep may be accepted with it
and refused without, as Python limits its recursion.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Sequence
from typing import Any, Final, NoReturn

import numpy as np

from interposer.core.types import Array
from interposer.serving.protocol.errors import ServingError, Status

try:
    import orjson
except ImportError:
    orjson = None

__all__ = ["json_bytes", "list_of", "long_array", "object_of", "quick_list_of", "quick_object_of"]

_NONCE: Final = os.urandom(16).hex()
_PIECE: Final = 1 << 15
"""Elements of an array that are written at once."""
_WRITABLE: Final = frozenset("?bBhHiIlLqQfd")
"""The characters of the NumPy types whose arrays orjson writes."""


def object_of(data: bytes | bytearray) -> dict[str, Any]:
    """Return the JSON object in these bytes; raise `ServingError` if they are not one."""
    parsed_value = _parsed(data)
    if not isinstance(parsed_value, dict):
        raise ServingError(Status.INVALID, "the request is not a JSON object")
    return parsed_value


def list_of(data: bytes) -> list[Any]:
    """Return the JSON list in these bytes, a piece of a longer one; raise `ServingError` if they are not one."""
    try:
        parsed_value = _parsed(data)
    except ServingError as error:
        if not isinstance(error.__context__, json.JSONDecodeError):
            raise
        problem = "a list has something that is no value, or a comma without one"  # positions in a piece say nothing
        raise ServingError(Status.INVALID, f"the request is not JSON: {problem}") from None
    assert isinstance(parsed_value, list)  # the text begins with a bracket
    return parsed_value


def _parsed(data: bytes | bytearray) -> Any:
    try:
        return json.loads(str(data, "utf-8"), parse_constant=_no_constant)
    except ServingError:
        raise
    except RecursionError:
        raise ServingError(Status.INVALID, "the request has too many nested lists") from None
    except (ValueError, MemoryError) as error:  # JSON errors, wrong UTF-8, integers of thousands of digits
        reason_text = f": {error}" if isinstance(error, json.JSONDecodeError) else ""
        raise ServingError(Status.INVALID, f"the request is not JSON{reason_text}") from None


def _no_constant(name: str) -> NoReturn:
    raise ServingError(Status.INVALID, f"the request has {name}, which JSON does not have; send it as binary data")


def quick_list_of(data: bytes) -> list[Any] | None:
    """Return the JSON list in these bytes; None if `list_of` has to read them."""
    if orjson is None:
        return None
    try:
        parsed_value = orjson.loads(data)
    except (ValueError, MemoryError):
        return None
    return parsed_value if isinstance(parsed_value, list) else None


def quick_object_of(data: bytes | bytearray | memoryview) -> dict[str, Any] | None:
    """Return the JSON object in these bytes; None if `object_of` has to read them.

    Integers of more than 64 bits are floats in the result.
    """
    if orjson is None:
        return None
    try:
        parsed_value = orjson.loads(data)
    except (ValueError, MemoryError):
        return None
    return parsed_value if isinstance(parsed_value, dict) else None


def long_array(index: int) -> str:
    """Return the text that stands for an array in the arguments of `json_bytes`; no client can know it."""
    return f"{_NONCE}{index}"


def json_bytes(data: Any, long_arrays: Sequence[Array] = ()) -> bytes:
    """Return JSON text without spaces. One-dimensional arrays of finite numbers or truth values become lists.

    Args:
        data: the object.
        long_arrays: arrays that are written in pieces, so that other threads have their turns. The object has the text
            `long_array` of their indices in their places, in the same order.

    Raises:
        TypeError: there is an object or an array that JSON does not have.
    """
    text = _written(data)
    json_parts = []
    for index, array in enumerate(long_arrays):
        text_before, _, text = text.partition(b'"%b"' % long_array(index).encode())
        json_parts += [text_before, b"[", *_pieces(array), b"]"]
    return b"".join([*json_parts, text]) if json_parts else text


def _pieces(array: Array) -> Iterator[bytes]:
    """Yield the elements of an array with their commas."""
    for begin in range(0, len(array), _PIECE):
        if begin:
            yield b","
        yield _written(array[begin : begin + _PIECE])[1:-1]


def _written(data: Any) -> bytes:
    if orjson is not None:
        try:
            encoded_json: bytes = orjson.dumps(data, _list_of, orjson.OPT_SERIALIZE_NUMPY)
        except TypeError:  # such as half of a surrogate pair in a text, which the standard library escapes
            pass
        else:
            return encoded_json
    return json.dumps(data, separators=(",", ":"), default=_list_of).encode()


def _list_of(array: Any) -> Any:
    if isinstance(array, np.ndarray) and array.dtype.char in _WRITABLE:
        return array.tolist()
    raise TypeError(f"JSON has no {type(array).__name__}")
