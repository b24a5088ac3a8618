"""Codecs of attribute values, by annotated type: validation, comparison, and conversion to and from JSON data."""

from __future__ import annotations

import base64
import math
import types
import typing
from collections.abc import Iterable, Mapping
from enum import Enum
from functools import cache
from typing import Any, Final, cast

import numpy as np
from numpy.typing import NDArray

from interposer.core.errors import InvalidArgumentError, as_int
from interposer.core.masks import plain_array
from interposer.core.types import COLLECTIONS, Array, DataType, Dim, Quantization, TensorInfo, TensorShape

__all__ = [
    "Codec",
    "array_from_plain",
    "array_to_plain",
    "codec_of",
    "info_from_plain",
    "info_to_plain",
    "same_constant",
]

_PUBLIC: Final = {"interposer.ops.": "interposer.ops", "interposer.core.types": "interposer.types"}
"""The public modules from which enums are imported, by the beginning of the name of the module that declares them."""


class Codec:
    """Checks, compares and converts the values of one annotated type, such as the attributes of an operator.

    It converts values to JSON-compatible data and back. `title` names the expected value in error messages.
    """

    title = "a value"

    def coerce(self, value: Any) -> Any:
        """Return the value in its canonical stored form.

        TypeError or ValueError is raised if the value is not valid, and `BindingError` if its elements are masked.
        """
        return value

    def to_plain(self, value: Any) -> Any:
        """Return the value as JSON-compatible data."""
        return value

    def from_plain(self, plain: Any) -> Any:
        """Return the value that `to_plain` wrote; raise TypeError, ValueError or KeyError if the data is not valid."""
        return plain

    def named(self, word: str) -> Any:
        """Return the value that a bare word of the text format denotes; raise KeyError if there is none."""
        raise KeyError(word)

    def equal(self, a: Any, b: Any) -> bool:
        """Return True if both values, in their stored form, are the same."""
        return bool(a == b)

    def hash(self, value: Any) -> int:
        """Return a hash of a value in its stored form; values that are `equal` have the same hash."""
        return hash(value)


class _AnyCodec(Codec):
    """The codec of the annotation Any.

    Objects are equal if they are identical; numbers, texts, bytes and None by value.

    Only booleans, integers and texts are written as data; any other value is written as None.
    """

    simple_types = (bool, int, float, str, bytes, type(None))

    def to_plain(self, value: Any) -> Any:
        return value if isinstance(value, (bool, int, str)) else None

    def equal(self, a: Any, b: Any) -> bool:
        return a is b or (type(a) is type(b) and isinstance(a, self.simple_types) and a == b)

    def hash(self, value: Any) -> int:
        return hash(value) if isinstance(value, self.simple_types) else 0


class _Number(Codec):
    def __init__(self, type_: type) -> None:
        self.kind = type_
        self.title = {bool: "True or False", int: "an integer", float: "a number", str: "a text"}[type_]

    def coerce(self, value: Any) -> Any:
        if type(value) is self.kind:
            return value  # a fast path, since networks have thousands of attributes
        if isinstance(value, np.generic) or (isinstance(value, np.ndarray) and value.ndim == 0):
            value = value.item()
        elif self.kind is int and type(value) is not int and hasattr(type(value), "__index__"):
            return as_int(value, self.title)
        allowed_types = (int, float) if self.kind is float else self.kind
        if not isinstance(value, allowed_types) or (isinstance(value, bool) and self.kind is not bool):
            raise TypeError(value)
        return self.kind(value)


class _FloatCodec(_Number):
    def coerce(self, value: Any) -> Any:
        try:
            return super().coerce(value)
        except OverflowError as error:
            raise ValueError(value) from error

    def to_plain(self, value: Any) -> Any:
        return value if math.isfinite(value) else repr(value)

    def from_plain(self, plain: Any) -> Any:
        return float(plain) if isinstance(plain, str) else plain

    def equal(self, a: Any, b: Any) -> bool:
        """Return True if both floats have the same bits, except that NaN always equals NaN; 0.0 differs from -0.0."""
        return repr(a) == repr(b)

    def hash(self, value: Any) -> int:
        return hash(repr(value))


class _EnumCodec(Codec):
    def __init__(self, enum_type: type[Enum]) -> None:
        self.kind = enum_type
        self.members = [member for member in enum_type if member not in COLLECTIONS]  # attributes describe tensors only
        self.title = f"a member of {_public_name(enum_type)} ({', '.join(member.name for member in self.members)})"

    def coerce(self, value: Any) -> Any:
        if type(value) is not self.kind or value not in self.members:  # 1 equals a member of an IntEnum, but is none
            raise TypeError(value)
        return value

    def equal(self, a: Any, b: Any) -> bool:
        return a is b

    def hash(self, value: Any) -> int:
        return id(value)  # members are unique, and the hash of an Enum hashes its name

    def to_plain(self, value: Any) -> Any:
        return value.name

    def from_plain(self, plain: Any) -> Any:
        return self.kind[plain]

    def named(self, word: str) -> Any:
        return DataType.of(word) if self.kind is DataType else self.kind[word]


def _public_name(enum_type: type[Enum]) -> str:
    """Return the name of an enum, with the public module from which it is imported if it is one of Interposer's own."""
    public_module = next((module for prefix, module in _PUBLIC.items() if enum_type.__module__.startswith(prefix)), "")
    return f"{public_module}.{enum_type.__name__}" if public_module else enum_type.__name__


class _OptionalCodec(Codec):
    def __init__(self, inner: Codec) -> None:
        self.inner = inner
        self.title = f"{inner.title} or None"

    def coerce(self, value: Any) -> Any:
        return None if value is None else self.inner.coerce(value)

    def to_plain(self, value: Any) -> Any:
        return None if value is None else self.inner.to_plain(value)

    def from_plain(self, plain: Any) -> Any:
        return None if plain is None else self.inner.from_plain(plain)

    def named(self, word: str) -> Any:
        return self.inner.named(word)

    def equal(self, a: Any, b: Any) -> bool:
        return a is b if a is None or b is None else self.inner.equal(a, b)

    def hash(self, value: Any) -> int:
        return 0 if value is None else self.inner.hash(value)


class _TupleCodec(Codec):
    def __init__(self, inner: Codec, count: int | None) -> None:
        self.inner, self.count = inner, count
        self.title = f"a tuple of {count if count is not None else 'any number of'} items, each {inner.title}"

    def coerce(self, value: Any) -> Any:
        if isinstance(value, (str, bytes)) or not isinstance(value, Iterable):
            raise TypeError(value)
        elements = tuple(self.inner.coerce(element) for element in value)
        if self.count is not None and len(elements) != self.count:
            raise ValueError(value)
        return elements

    def to_plain(self, value: Any) -> Any:
        return [self.inner.to_plain(element) for element in value]

    def from_plain(self, plain: Any) -> Any:
        if isinstance(plain, (str, Mapping)):
            raise TypeError(f"expected a list, not {plain!r}")
        return tuple(self.inner.from_plain(element) for element in plain)

    def named(self, word: str) -> Any:
        return self.inner.named(word)

    def equal(self, a: Any, b: Any) -> bool:
        return len(a) == len(b) and all(map(self.inner.equal, a, b))

    def hash(self, value: Any) -> int:
        return hash(tuple(map(self.inner.hash, value)))


class _ArrayCodec(Codec):
    title = "an array"

    def coerce(self, value: Any) -> Any:
        array = plain_array(value)
        array = _texts(array) if DataType.of(array.dtype) is DataType.STRING else array
        array = (array if array.dtype.isnative else array.astype(array.dtype.newbyteorder("="))).view()
        array.flags.writeable = False
        return array

    def to_plain(self, value: Any) -> Any:
        return array_to_plain(value)

    def from_plain(self, plain: Any) -> Any:
        return array_from_plain(plain)

    def equal(self, a: Any, b: Any) -> bool:
        if a is b:
            return True
        if a.shape != b.shape or a.dtype != b.dtype:
            return False
        if a.dtype.kind == "O":
            return bool(a.tolist() == b.tolist())
        return np.array_equal(_bytes(a), _bytes(b))

    def hash(self, value: Any) -> int:
        first_elements = tuple(value.flat[:8]) if value.dtype.kind == "O" else value.flat[:8].tobytes()
        return hash((value.shape, str(value.dtype), first_elements))


def _bytes(value: Array) -> Array:
    return np.ascontiguousarray(value).reshape(-1).view(np.uint8)


def _texts(value: Array) -> Array:
    texts = [text.decode() if isinstance(text, bytes) else text for text in value.astype(object).ravel()]
    for text in texts:
        if not isinstance(text, str):
            raise TypeError(f"an array of objects may hold texts only, not {text!r}")
    return np.array([str(text) for text in texts], dtype=object).reshape(value.shape)


class _QuantizationCodec(Codec):
    title = "a Quantization"

    def coerce(self, value: Any) -> Any:
        if not isinstance(value, Quantization):
            raise TypeError(value)
        return value

    def to_plain(self, value: Any) -> Any:
        return {"scales": list(value.scales), "zero_points": list(value.zero_points), "axis": value.axis}

    def from_plain(self, plain: Any) -> Any:
        return Quantization(plain["scales"], plain["zero_points"], plain["axis"])


def array_to_plain(value: Array) -> dict[str, Any]:
    """Return an array as JSON-compatible data: its type, its shape, and its little-endian bytes in base64.

    Texts are written as a list instead of bytes.
    """
    value = _ArrayCodec().coerce(value)
    plain: dict[str, Any] = {"dtype": str(DataType.of(value.dtype)), "shape": list(value.shape)}
    if value.dtype.kind == "O":
        return plain | {"data": value.ravel().tolist()}
    little_endian = value.astype(_little_endian(value.dtype), copy=False)
    return plain | {"base64": base64.b64encode(little_endian.tobytes()).decode("ascii")}


def array_from_plain(plain: Mapping[str, Any]) -> Array:
    """Return the array that `array_to_plain` wrote; raise TypeError, ValueError or KeyError if the data is invalid."""
    dtype, shape = DataType.of(plain["dtype"]).numpy, tuple(TensorShape(plain["shape"]))
    if dtype.kind == "O":
        array = np.array(plain["data"], dtype=dtype)
    else:
        array = np.frombuffer(base64.b64decode(plain["base64"], validate=True), dtype=_little_endian(dtype))
    if array.size != math.prod(shape):
        raise ValueError(f"{array.size} elements were given for the shape {list(shape)}")
    return cast("Array", _ArrayCodec().coerce(array.reshape(shape)))


def _little_endian(dtype: np.dtype[Any]) -> np.dtype[Any]:
    return dtype.newbyteorder("<") if dtype.kind in "iufb" else dtype


def info_to_plain(info: TensorInfo) -> dict[str, Any]:
    """Return a tensor info as JSON-compatible data, without the constant.

    An unknown dimension is its name or null, and the shape of a tensor of unknown rank is null. The info of the
    elements of a sequence or an optional is written under "element".
    """
    shape = [_dim_to_plain(dim) for dim in info.shape] if info.is_ranked else None
    quantization = info.quantization and _QuantizationCodec().to_plain(info.quantization)
    plain = {"shape": shape, "dtype": str(info.dtype), "quantization": quantization}
    return plain if info.element is None else plain | {"element": info_to_plain(info.element)}


def _dim_to_plain(dim: int) -> int | str | None:
    return dim.name if isinstance(dim, Dim) else dim


def info_from_plain(plain: Mapping[str, Any]) -> TensorInfo:
    """Return the info that `info_to_plain` wrote; raise TypeError, ValueError or KeyError if the data is not valid."""
    quantization, element = plain.get("quantization"), plain.get("element")
    return TensorInfo(
        ... if plain["shape"] is None else plain["shape"],
        plain["dtype"],
        _QuantizationCodec().from_plain(quantization) if quantization else None,
        element=info_from_plain(element) if element else None,
    )


@cache
def codec_of(hint: Any) -> Codec:
    """Return the codec for the annotation of an attribute.

    Supported are bool, int, float, str, enums, arrays, `Quantization`, tuples of these, ``X | None``, and Any.

    Raises:
        InvalidArgumentError: there is no codec for the annotation.
    """
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if hint is float:
        return _FloatCodec(float)
    if hint in (bool, int, str):
        return _Number(hint)
    if isinstance(hint, type) and issubclass(hint, Enum):
        return _EnumCodec(hint)
    if hint is Quantization:
        return _QuantizationCodec()
    if hint is np.ndarray or origin in (np.ndarray, NDArray):  # NDArray[Any] is a separate alias since NumPy 2.5
        return _ArrayCodec()
    if origin in (typing.Union, types.UnionType):
        return _OptionalCodec(codec_of(_only(argument for argument in arguments if argument is not type(None))))
    if origin is tuple:
        count = None if Ellipsis in arguments else len(arguments)
        return _TupleCodec(codec_of(_only(set(arguments) - {Ellipsis})), count)
    if hint is Any:
        return _AnyCodec()
    raise InvalidArgumentError(f"an attribute cannot be annotated with {hint}")


def _only(hints: Iterable[Any]) -> Any:
    alternatives = list(hints)
    if len(alternatives) != 1:
        raise InvalidArgumentError(f"an attribute cannot be annotated with a choice of {alternatives or 'nothing'}")
    return alternatives[0]


def same_constant(a: TensorInfo | None, b: TensorInfo | None) -> bool:
    """Return True if both infos carry the same value, bit for bit, or neither carries one."""
    constant_a, constant_b = (None if info is None else info.constant for info in (a, b))
    if constant_a is None or constant_b is None:
        return constant_a is constant_b
    codec = codec_of(Array)
    return constant_a is constant_b or codec.equal(codec.coerce(constant_a), codec.coerce(constant_b))
