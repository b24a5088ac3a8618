"""The lists, mappings and pairs in the interfaces of the parsers; the parsers take plain ones as well."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from pyarmnn._proxy import Proxy
from pyarmnn._shapes import SHAPE, TensorInfo, TensorShape
from pyarmnn._vectors import Pair, Vector

__all__ = ["BindingPointInfo", "MapStringTensorShape", "StringVector"]

MODULE = "pyarmnn._generated.pyarmnn_tfliteparser"


class BindingPointInfo(Pair, module=MODULE, cpp="std::pair< int,armnn::TensorInfo >"):
    """A pair of a binding id and a `TensorInfo`."""

    _empty = TensorInfo


class StringVector(Vector, module=MODULE, cpp="std::vector< std::string >"):
    """A list of names."""


class MapStringTensorShape(
    Proxy, dict[str, TensorShape], module=MODULE, cpp="std::map< std::string,armnn::TensorShape >"
):
    """A mapping of names to shapes."""

    def __init__(self, items: Mapping[str, TensorShape] | Iterable[tuple[str, TensorShape]] = ()) -> None:
        dict.__init__(self, items)
        for shape in self.values():
            SHAPE(shape, "new_MapStringTensorShape", 1)

    __repr__ = Proxy.__repr__

    def asdict(self) -> dict[str, TensorShape]:
        """Return a plain dict with the same items."""
        return dict(self)

    def has_key(self, key: str) -> bool:
        """Return whether there is a shape of this name."""
        return key in self

    def count(self, x: str) -> int:
        """Return 1 if there is a shape of this name, else 0."""
        return int(x in self)

    def erase(self, key: str) -> int:
        """Remove the shape of this name if there is one, and return how many were removed."""
        return int(self.pop(key, None) is not None)

    def empty(self) -> bool:
        """Return whether there is no shape."""
        return not self

    def size(self) -> int:
        """Return the number of shapes."""
        return len(self)

    def __setitem__(self, key: str, value: Any) -> None:
        dict.__setitem__(self, key, SHAPE(value, "MapStringTensorShape___setitem__", 3))
