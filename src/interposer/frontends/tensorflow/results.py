"""What the outputs of TensorFlow's nodes are during an import: values of the network, handles, or nothing."""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple, TypeAlias

from interposer.ir.graph import Value

__all__ = ["Absent", "Result", "TensorList", "Variable"]


class Variable(NamedTuple):
    """A handle of a variable; `name` is that of the node that creates it."""

    name: str


class TensorList(NamedTuple):
    """A list of tensors of one shape, stored as one tensor with an axis for the elements.

    `stacked` is None for an empty list, whose elements' shape is not known yet; `size` is then its reserved size.
    """

    stacked: Value | None
    size: Value | None = None


class Absent(Enum):
    """Outputs that have no value."""

    DEAD = "dead"
    """It is in a branch that is not taken."""
    MISSING = "missing"
    """It depends on an operator that is not supported."""


Result: TypeAlias = "Value | Variable | TensorList | Absent"
