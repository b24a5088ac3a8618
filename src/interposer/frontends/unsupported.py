"""Errors for operators in a form that is not supported, or that is supported once more is known of the inputs."""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping
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
    values: set[str] = set()
    shapes = False
    pending, seen = [value], set[Layer]()
    while pending:
        layer = pending.pop().producer
        if layer in seen or isinstance(layer.op, Constant):
            continue
        seen.add(layer)
        if layer in around:
            pending.append(around[layer])
        elif layer in inputs:
            if not layer.output.known.is_tensor:
                return None
            values.add(layer.name)
        elif isinstance(layer.op, Shape):
            if _has_shape_from_data(layer.values[0], inputs, folds, around):
                return None
            shapes = True
        elif folds(layer.op) and layer.values:
            pending += layer.values
        else:
            return None
    return Needs(frozenset(values), shapes)


def _has_shape_from_data(
    value: Value, inputs: Container[Layer], folds: Callable[[Op], bool], around: Mapping[Layer, Value]
) -> bool:
    """Return True if a value's shape depends on elements of tensors, as that of NonZero's result does."""
    pending, seen = [value], set[Value]()
    while pending:
        shaped_value = pending.pop()
        if shaped_value in seen or shaped_value.known.is_concrete:
            continue
        seen.add(shaped_value)
        layer = shaped_value.producer
        if layer in around:
            pending.append(around[layer])
        elif any(result.dynamic for result in layer.op.results):
            needs = [needs_of(operand, inputs, folds, around) for operand in layer.values]
            if any(need is None or need.values for need in needs):
                return True
        else:
            pending += layer.values
    return False
