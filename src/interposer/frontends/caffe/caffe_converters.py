"""The registry of converters: one function for each type of layer."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, TypeAlias

from interposer.core.errors import InvalidArgumentError
from interposer.frontends.caffe.node import Node
from interposer.ir.graph import Value

__all__ = ["Converter", "find", "is_loss", "layer", "layers"]

Converter: TypeAlias = Callable[[Node], Value | Sequence[Value]]

_TABLE: Final[dict[str, Converter]] = {}


def layer(*types: str) -> Callable[[Converter], Converter]:
    """Register the decorated function as the converter of these types of layers.

    It takes a `Node` and returns the value of the layer's output blob, or a sequence of them.

    Raises:
        InvalidArgumentError: a second function for the same type.
    """

    def register(convert: Converter) -> Converter:
        for name in types:
            if name in _TABLE:
                raise InvalidArgumentError(f"{name} has two functions")
            _TABLE[name] = convert
        return convert

    return register


def find(type: str) -> Converter | None:
    """Return the converter of a type of layer; None if it is not known."""
    return _TABLE.get(type)


def layers() -> list[str]:
    """Return the types of layers that are supported, in alphabetical order."""
    return sorted(_TABLE)


def is_loss(type: str) -> bool:
    """Return True for layers that only compare results with labels, or consume blobs; they are left out."""
    return "Loss" in type or "Accuracy" in type or type in {"DetectionEvaluate", "HDF5Output", "Silence"}
