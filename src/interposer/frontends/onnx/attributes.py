"""The attributes of an ONNX node, read with their expected types."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final, NoReturn

import numpy as np

from interposer.core.errors import ParseError
from interposer.frontends.onnx.proto import Message

__all__ = ["Attributes"]

_FLOAT, _INT, _STRING, _TENSOR, _GRAPH = 1, 2, 3, 4, 5
_FLOATS, _INTS, _STRINGS, _SPARSE, _TYPE = 6, 7, 8, 11, 13
_TITLES: Final = {
    _FLOAT: "a number",
    _INT: "an integer",
    _STRING: "a text",
    _TENSOR: "a tensor",
    _GRAPH: "a graph",
    _FLOATS: "numbers",
    _INTS: "integers",
    _STRINGS: "texts",
    _SPARSE: "a sparse tensor",
    _TYPE: "a type",
}


class Attributes:
    """The attributes of a node by name, converted to Python types and NumPy arrays.

    In all methods, an attribute that is read without a default is required.

    Raises from all methods:
        ParseError: an attribute is missing, or of another type.
    """

    def __init__(self, messages: Iterable[Message]) -> None:
        self._attributes: dict[str, Message] = {}
        for message in messages:
            if message.name in self._attributes:
                raise ParseError(f"the attribute {message.name!r} is given twice")
            self._attributes[message.name] = message

    def has_attribute(self, name: str) -> bool:
        """Return True if the node has the attribute."""
        return name in self._attributes

    def _attribute(self, name: str, kind: int) -> Message | None:
        attribute = self._attributes.get(name)
        if attribute is None:
            return None
        if attribute.ref_attr_name:
            raise ParseError(f"the attribute {name!r} refers to {attribute.ref_attr_name!r}, but this is no function")
        if attribute.type != kind and not (attribute.type == 0 and kind in (_INTS, _FLOATS, _STRINGS)):
            raise ParseError(f"the attribute {name!r} is not {_TITLES[kind]}")
        return attribute

    def _required(self, name: str) -> NoReturn:
        raise ParseError(f"it needs the attribute {name!r}")

    def integer(self, name: str, default: int | None = None) -> int:
        """Return an integer attribute, or the default if the node does not have it."""
        attribute = self._attribute(name, _INT) if name in self._attributes else None
        if attribute is not None:
            return int(attribute.i)
        return self._required(name) if default is None else default

    def flag(self, name: str, default: bool = False) -> bool:
        """Return an integer attribute as a boolean: True if it is not 0; the default if the node does not have it."""
        return self.integer(name, int(default)) != 0

    def number(self, name: str, default: float | None = None) -> float:
        """Return a float attribute, rounded to float32 as in the file, or the default if the node does not have it."""
        attribute = self._attribute(name, _FLOAT)
        if attribute is not None:
            return float(attribute.f)
        return self._required(name) if default is None else float(np.float32(default))

    def text(self, name: str, default: str | None = None) -> str:
        """Return a string attribute, or the default if the node does not have it."""
        attribute = self._attribute(name, _STRING)
        if attribute is not None:
            return str(attribute.s.decode("utf-8", "replace"))
        return self._required(name) if default is None else default

    def integers(self, name: str, default: Sequence[int] | None = None) -> tuple[int, ...]:
        """Return an attribute that is a list of integers, or the default if the node does not have it."""
        attribute = self._attribute(name, _INTS)
        if attribute is not None:
            return tuple(attribute.ints)
        return self._required(name) if default is None else tuple(default)

    def numbers(self, name: str, default: Sequence[float] | None = None) -> tuple[float, ...]:
        """Return an attribute that is a list of floats, or the default if the node does not have it."""
        attribute = self._attribute(name, _FLOATS)
        if attribute is not None:
            return tuple(attribute.floats)
        return self._required(name) if default is None else tuple(default)

    def texts(self, name: str) -> tuple[str, ...]:
        """Return an attribute that is a list of strings."""
        attribute = self._attribute(name, _STRINGS)
        return (
            self._required(name)
            if attribute is None
            else tuple(s.decode("utf-8", "replace") for s in attribute.strings)
        )

    def tensor(self, name: str) -> Message:
        """Return the `TensorProto` of an attribute."""
        attribute = self._attribute(name, _TENSOR)
        return self._required(name) if attribute is None else attribute.t

    def sparse_tensor(self, name: str) -> Message:
        """Return the `SparseTensorProto` of an attribute."""
        attribute = self._attribute(name, _SPARSE)
        return self._required(name) if attribute is None else attribute.sparse_tensor

    def type_proto(self, name: str) -> Message:
        """Return the `TypeProto` of an attribute."""
        attribute = self._attribute(name, _TYPE)
        return self._required(name) if attribute is None else attribute.tp

    def graph(self, name: str) -> Message:
        """Return the `GraphProto` of an attribute."""
        attribute = self._attribute(name, _GRAPH)
        return self._required(name) if attribute is None else attribute.g
