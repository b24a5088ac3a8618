"""Errors for operators in a form that is not supported, or that is supported once more is known of the inputs."""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping
from enum import Enum
from types import MappingProxyType
from typing import NamedTuple

from interposer.core.errors import InterposerError
from interposer.core.schema import Op
from interposer.ir.graph import Layer, Value
from interposer.ops.control import Constant
from interposer.ops.reshape import Shape

__all__ = ["Needs", "UnboundFormError", "UnsupportedFormError", "needs_of"]


class UnsupportedFormError(InterposerError):
    """An operator is known, but the node has a form that is not supported, such as an attribute's value.

    The importer catches and collects these errors, so that a user sees all of them at once.
    """


class UnboundFormError(UnsupportedFormError):
    """A node has a form that is supported once `needs` (values or shapes of the model's inputs) are given."""

    def __init__(self, reason: str, needs: Needs) -> None:
        self.reason, self.needs = reason, needs
        super().__init__(f"{reason}; give {needs}")


# --- facts about inputs -----------------------------------------------------------------------------------------------


class Needs(NamedTuple):
    """What the caller of an import must still give so that an operand is known during the import.

    `values` are the names of inputs whose values are required (argument ``values=``); `shapes` says that the shapes of
    all inputs are (argument ``shapes=``).
    """

    values: frozenset[str] = frozenset()
    shapes: bool = False

    def __or__(self, other: Needs) -> Needs:
        return Needs(self.values | other.values, self.shapes or other.shapes)

    def __str__(self) -> str:
        values = f"the value of {', '.join(map(repr, sorted(self.values)))} with values=" if self.values else ""
        return " and ".join(filter(None, [values, "the inputs' shapes with shapes=" if self.shapes else ""]))


def needs_of(
    value: Value,
    inputs: Container[Layer],
    folds: Callable[[Op], bool],
    around: Mapping[Layer, Value] = MappingProxyType({}),
) -> Needs | None:
    """Return the inputs and shapes that determine a value; None if they cannot, as a layer in between is not folded.

    Args:
        value: the value that an operand requires to be known during the import.
        inputs: the input layers of the model.
        folds: whether the importer evaluates an operator as soon as its operands are known.
        around: for each input layer of a region, the value outside the region that it captures.
    """
    stack, seen_aspects = [(value, _Aspect.ELEMENTS)], set[tuple[Value, _Aspect]]()
    while stack:
        wanted_aspect = stack.pop()
        if wanted_aspect in seen_aspects:
            continue
        seen_aspects.add(wanted_aspect)
        determining = _determining(*wanted_aspect, inputs, folds, around)
        if determining is None:
            return None
        stack += determining
    sources = [found.producer for found, aspect in seen_aspects if aspect is _Aspect.ELEMENTS]
    values = frozenset([layer.name for layer in sources if layer in inputs and layer not in around])
    return Needs(values, any(aspect is _Aspect.SHAPE for _, aspect in seen_aspects))


class _Aspect(Enum):
    """What must be known of a value."""

    ELEMENTS = 0
    SHAPE = 1
    ELEMENTS_FOR_SHAPE = 2
    """Elements on which the shape of another value depends; those of an input count as known only at run time."""


def _determining(
    value: Value,
    aspect: _Aspect,
    inputs: Container[Layer],
    folds: Callable[[Op], bool],
    around: Mapping[Layer, Value],
) -> list[tuple[Value, _Aspect]] | None:
    """Return what determines an aspect of a value; None if it is only known at run time."""
    layer = value.producer
    if isinstance(layer.op, Constant) or (aspect is _Aspect.SHAPE and value.known.is_concrete):
        return []
    if layer in around:
        return [(around[layer], aspect)]
    if aspect is _Aspect.SHAPE:
        is_dynamic = any(result.dynamic for result in layer.op.results)
        return [(operand, _Aspect.ELEMENTS_FOR_SHAPE if is_dynamic else aspect) for operand in layer.values]
    if layer in inputs:
        return [] if aspect is _Aspect.ELEMENTS and layer.output.known.is_tensor else None
    if isinstance(layer.op, Shape):
        return [(layer.values[0], _Aspect.SHAPE)]
    return [(operand, aspect) for operand in layer.values] if layer.values and folds(layer.op) else None
