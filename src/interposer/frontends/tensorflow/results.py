"""What the outputs of TensorFlow's nodes are during an import: values of the network, handles, or nothing."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from types import MappingProxyType
from typing import NamedTuple, TypeAlias

from interposer.core.types import DataType, TensorInfo
from interposer.ir.graph import Value

__all__ = ["Absent", "Complex", "Result", "TensorList", "Variable"]


class Variable(NamedTuple):
    """A handle of a variable; `name` is that of the node that creates it."""

    name: str


class TensorList(NamedTuple):
    """A list of `size` tensors whose shape is not known yet, as none was written.

    `element_info` is the shape and data type of the first element that was written, None before that.
    Once the shape is known, a list is a value: a tensor whose first axis has the elements. While a loop is unrolled,
    `elements` has the elements that were written, by their indices.
    """

    size: Value
    dtype: DataType
    element_info: TensorInfo | None = None
    elements: Mapping[int, Value] = MappingProxyType({})


class Complex(NamedTuple):
    """Complex numbers: a tensor whose last axis has the real and the imaginary part."""

    parts: Value


class Absent(Enum):
    """Outputs that have no value."""

    DEAD = "dead"
    """It is in a branch that is not taken."""
    MISSING = "missing"
    """It depends on an operator that is not supported."""


Result: TypeAlias = "Value | Variable | TensorList | Complex | Absent"
