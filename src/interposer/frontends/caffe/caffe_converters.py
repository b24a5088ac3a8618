"""The registry of converters: one function for each type of layer."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, TypeAlias

from interposer.frontends.caffe.node import Node
from interposer.frontends.converters import Converters
from interposer.ir.graph import Value

__all__ = ["Converter", "find", "is_loss", "layer", "layers"]

Converter: TypeAlias = Callable[[Node], Value | Sequence[Value]]

_TABLE: Final = Converters[Converter]()
find: Final = _TABLE.find
layers: Final = _TABLE.names


def layer(*types: str) -> Callable[[Converter], Converter]:
    """Register the decorated function, which returns the value or values of a layer's tops, for these types."""
    return _TABLE.register(types, lambda convert, _: convert)


def is_loss(type: str) -> bool:
    """Return True for layers that only compare results with labels, or consume blobs; they are left out."""
    return "Loss" in type or "Accuracy" in type or type in {"DetectionEvaluate", "HDF5Output", "Silence"}
