"""JSON text, read and written by orjson if it is installed, otherwise by the standard library.

orjson is several times as fast for large tensors. What it refuses is read by the standard library, so that the accepted
requests and the messages are the same with and without it. Only lists nested more than 980 deep may be accepted with it
and refused without, as Python limits its recursion.
"""

from __future__ import annotations

import json
from typing import Any, Final, NoReturn

import numpy as np

from interposer.serving.protocol.errors import ServingError, Status

try:
    import orjson
except ImportError:
    orjson = None

__all__ = ["json_bytes", "object_of", "quick_object_of"]

_WRITABLE: Final = frozenset("?bBhHiIlLqQfd")
"""The characters of the NumPy types whose arrays orjson writes."""


def object_of(data: bytes) -> dict[str, Any]:
    """Return the JSON object in these bytes; raise `ServingError` if they are not one."""
    try:
        parsed = json.loads(data, parse_constant=_no_constant)
    except ServingError:
        raise
    except RecursionError:
        raise ServingError(Status.INVALID, "the request has too many nested lists") from None
    except (ValueError, MemoryError) as error:  # JSON errors, wrong UTF-8, integers of thousands of digits
        text = f": {error}" if isinstance(error, json.JSONDecodeError) else ""
        raise ServingError(Status.INVALID, f"the request is not JSON{text}") from None
    if not isinstance(parsed, dict):
        raise ServingError(Status.INVALID, "the request is not a JSON object")
    return parsed


def _no_constant(name: str) -> NoReturn:
    raise ServingError(Status.INVALID, f"the request has {name}, which JSON does not have; send it as binary data")


def quick_object_of(data: bytes | memoryview) -> dict[str, Any] | None:
    """Return the JSON object in these bytes; None if `object_of` has to read them.

    Integers of more than 64 bits are floats in the result.
    """
    if orjson is None:
        return None
    try:
        parsed = orjson.loads(data)
    except (ValueError, MemoryError):
        return None
    return parsed if isinstance(parsed, dict) else None


def json_bytes(data: Any) -> bytes:
    """Return JSON text without spaces. One-dimensional arrays of finite numbers or truth values become lists.

    Raises:
        TypeError: there is an object or an array that JSON does not have.
    """
    if orjson is not None:
        try:
            encoded: bytes = orjson.dumps(data, _list_of, orjson.OPT_SERIALIZE_NUMPY)
        except TypeError:  # such as half of a surrogate pair in a text, which the standard library escapes
            pass
        else:
            return encoded
    return json.dumps(data, separators=(",", ":"), default=_list_of).encode()


def _list_of(array: Any) -> Any:
    if isinstance(array, np.ndarray) and array.dtype.char in _WRITABLE:
        return array.tolist()
    raise TypeError(f"JSON has no {type(array).__name__}")
