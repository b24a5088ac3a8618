"""The registry of converters: one function for each kind of layer."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, TypeAlias

from interposer.core.errors import InvalidArgumentError
from interposer.frontends.armnn.node import Node
from interposer.ir.graph import Value

__all__ = ["Converter", "find", "layer", "layers"]

Converter: TypeAlias = Callable[[Node], Sequence[Value]]

_TABLE: Final[dict[str, Converter]] = {}


def layer(*kinds: str) -> Callable[[Converter], Converter]:
    """Register the decorated function as the converter of these kinds of layers.

    It takes a `Node` and returns the values of the layer's outputs.

    Raises:
        InvalidArgumentError: a second function for the same kind.
    """

    def register(convert: Converter) -> Converter:
        for kind in kinds:
            if kind in _TABLE:
                raise InvalidArgumentError(f"{kind} has two functions")
            _TABLE[kind] = convert
        return convert

    return register


def find(kind: str) -> Converter | None:
    """Return the converter of a kind of layer such as ``Convolution2d``; None if it is not known."""
    return _TABLE.get(kind)


def layers() -> list[str]:
    """Return the kinds of layers that are supported, in alphabetical order."""
    return sorted([*_TABLE, "Input", "Output"])
