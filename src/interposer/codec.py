"""How values of attributes are checked, compared, written as plain data and read back, by their annotated type."""

from __future__ import annotations

import base64
import types
import typing
from collections.abc import Iterable, Mapping
from enum import Enum
from functools import cache
from typing import Any

import numpy as np

from interposer.types import Array, DataType, Quantization, TensorInfo

__all__ = ["Codec", "array_from_plain", "array_to_plain", "codec_of", "info_from_plain", "info_to_plain"]


class Codec:
    """The treatment of one annotated type; `title` says in an error what was expected."""

    title = "a value"

    def coerce(self, value: Any) -> Any:
        """The value in its stored form; TypeError or ValueError where it cannot be meant."""
        return value

    def to_plain(self, value: Any) -> Any:
        """The value as JSON-compatible data."""
        return value

    def from_plain(self, plain: Any) -> Any:
        """The value that `to_plain` wrote."""
        return plain

    def equal(self, a: Any, b: Any) -> bool:
        """True where both values are the same."""
        return bool(a == b) or (a != a and b != b)  # noqa: PLR0124 - NaN equals NaN in a descriptor

    def hash(self, value: Any) -> int:
        """A hash that agrees with `equal`."""
        return 0 if value != value else hash(value)  # noqa: PLR0124


class _Number(Codec):
    def __init__(self, kind: type) -> None:
        self.kind = kind
        self.title = {bool: "True or False", int: "an integer", float: "a number", str: "a text"}[kind]

    def coerce(self, value: Any) -> Any:
        if isinstance(value, np.generic) or (isinstance(value, np.ndarray) and value.ndim == 0):
            value = value.item()
        allowed = (int, float) if self.kind is float else self.kind
        if not isinstance(value, allowed) or (isinstance(value, bool) and self.kind is not bool):
            raise TypeError(value)
        return self.kind(value)

    def to_plain(self, value: Any) -> Any:
        finite = not isinstance(value, float) or np.isfinite(value)
        return value if finite else repr(value)

    def from_plain(self, plain: Any) -> Any:
        return float(plain) if self.kind is float and isinstance(plain, str) else plain


class _EnumCodec(Codec):
    def __init__(self, kind: type[Enum]) -> None:
        self.kind = kind
        self.title = f"a {kind.__name__} ({', '.join(member.name for member in kind)})"

    def coerce(self, value: Any) -> Any:
        if not isinstance(value, self.kind):
            raise TypeError(value)
        return value

    def to_plain(self, value: Any) -> Any:
        return value.name

    def from_plain(self, plain: Any) -> Any:
        return self.kind[plain]


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

    def equal(self, a: Any, b: Any) -> bool:
        return a is b if a is None or b is None else self.inner.equal(a, b)

    def hash(self, value: Any) -> int:
        return 0 if value is None else self.inner.hash(value)


class _TupleCodec(Codec):
    def __init__(self, inner: Codec, count: int | None) -> None:
        self.inner, self.count = inner, count
        self.title = f"a tuple of {count if count is not None else 'any number'} items, each {inner.title}"

    def coerce(self, value: Any) -> Any:
        if isinstance(value, (str, bytes)) or not isinstance(value, Iterable):
            raise TypeError(value)
        made = tuple(self.inner.coerce(item) for item in value)
        if self.count is not None and len(made) != self.count:
            raise ValueError(value)
        return made

    def to_plain(self, value: Any) -> Any:
        return [self.inner.to_plain(item) for item in value]

    def from_plain(self, plain: Any) -> Any:
        return tuple(self.inner.from_plain(item) for item in plain)


class _ArrayCodec(Codec):
    title = "an array"

    def coerce(self, value: Any) -> Any:
        made = np.asarray(value)
        if made.dtype.kind == "O":
            made = made.copy()
        made = made.view()
        made.flags.writeable = False
        return made

    def to_plain(self, value: Any) -> Any:
        return array_to_plain(value)

    def from_plain(self, plain: Any) -> Any:
        return array_from_plain(plain)

    def equal(self, a: Any, b: Any) -> bool:
        if a is b:
            return True
        if a.shape != b.shape or a.dtype != b.dtype:
            return False
        return bool(a.tolist() == b.tolist() if a.dtype.kind == "O" else a.tobytes() == b.tobytes())

    def hash(self, value: Any) -> int:
        return hash((value.shape, str(value.dtype)))


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
    """An array as JSON-compatible data: type, shape, and its bytes (little endian) in base64."""
    plain: dict[str, Any] = {"dtype": str(DataType.of(value.dtype)), "shape": list(value.shape)}
    if value.dtype.kind == "O":
        return plain | {"data": [text if isinstance(text, str) else bytes(text).decode() for text in value.ravel()]}
    little = value.astype(value.dtype.newbyteorder("<")) if value.dtype.kind in "iufb" else value
    return plain | {"base64": base64.b64encode(little.tobytes()).decode("ascii")}


def array_from_plain(plain: Mapping[str, Any]) -> Array:
    """The array that `array_to_plain` wrote."""
    dtype, shape = DataType.of(plain["dtype"]).numpy, tuple(plain["shape"])
    if "data" in plain:
        return np.array(plain["data"], dtype=dtype).reshape(shape)
    return np.frombuffer(base64.b64decode(plain["base64"], validate=True), dtype=dtype).reshape(shape)


def info_to_plain(info: TensorInfo) -> dict[str, Any]:
    """A tensor's info as JSON-compatible data; an unknown extent is null or its name."""
    shape = [dim if type(dim) is int else getattr(dim, "name", None) for dim in info.shape]
    quantization = info.quantization and _QuantizationCodec().to_plain(info.quantization)
    return {"shape": shape, "dtype": str(info.dtype), "quantization": quantization}


def info_from_plain(plain: Mapping[str, Any]) -> TensorInfo:
    """The info that `info_to_plain` wrote."""
    quantization = plain.get("quantization")
    return TensorInfo(
        plain["shape"], plain["dtype"], _QuantizationCodec().from_plain(quantization) if quantization else None
    )


@cache
def codec_of(hint: Any) -> Codec:
    """The codec for an annotation: bool, int, float, str, an enum, an array, a quantization, and tuples of or None."""
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if hint in (bool, int, float, str):
        return _Number(hint)
    if isinstance(hint, type) and issubclass(hint, Enum):
        return _EnumCodec(hint)
    if hint is Quantization:
        return _QuantizationCodec()
    if origin is np.ndarray or hint is np.ndarray:
        return _ArrayCodec()
    if origin in (typing.Union, types.UnionType):
        return _OptionalCodec(codec_of(next(item for item in arguments if item is not type(None))))
    if origin is tuple:
        return _TupleCodec(codec_of(arguments[0]), None if Ellipsis in arguments else len(arguments))
    return Codec()
