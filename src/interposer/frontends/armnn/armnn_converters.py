"""The registry of converters: one function for each kind of layer."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, TypeAlias

from interposer.frontends.armnn.node import Node
from interposer.frontends.converters import Converters
from interposer.ir.graph import Value

__all__ = ["Converter", "find", "layer", "layers"]

Converter: TypeAlias = Callable[[Node], Sequence[Value]]

_TABLE: Final = Converters[Converter]()
find: Final = _TABLE.find


def layer(*kinds: str) -> Callable[[Converter], Converter]:
    """Register the decorated function, which returns the values of a layer's outputs, for these kinds of layers."""
    return _TABLE.register(kinds, lambda convert, _: convert)


def layers() -> list[str]:
    """Return the kinds of layers that are supported, in alphabetical order."""
    return sorted([*_TABLE.names(), "Input", "Output"])
