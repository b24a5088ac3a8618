"""Inputs with values that an operator may refuse, such as indices out of range, to check how backends report them.

There are also inputs that a model refuses before it runs, and floats at the ends of their range.

A value that a layer cannot use is the caller's error: the run ends with `InvalidValueError`, nothing else changes, and
the next run is right.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final, TypeVar

import numpy as np

from interposer.core.types import Array, DataType, largest_float
from interposer.ir.graph import Graph, binding_id
from interposer.kernels.value_checks import decisive_operands
from interposer.ops.control import Input

__all__ = ["decisive_inputs", "with_bad_arrays", "with_bad_values", "with_extreme_floats"]

_Name = TypeVar("_Name")
_VALUES: Final = (-1, 1 << 31, -(1 << 31), 1 << 40, -(1 << 62), 1000, 0)
"""Integers that few operators accept as an index, a size or a length; each is saturated to the type of the operand."""


def decisive_inputs(graph: Graph) -> list[int]:
    """Return the binding ids of the inputs of a graph that layers use as indices or sizes."""
    bindings = []
    for layer in graph:
        for index in decisive_operands(layer.op, len(layer.inputs)):
            value = layer.inputs[index]
            if value is not None and isinstance(value.producer.op, Input):
                bindings.append(binding_id(value.producer))
    return sorted(set(bindings))


def with_bad_values(
    feeds: Mapping[_Name, Array], names: list[_Name], generator: np.random.Generator
) -> Iterator[dict[_Name, Array]]:
    """Yield copies of inputs in which one of the integer arrays in `names` has unusual values.

    First a single element is unusual, at a random position, and then all elements are.
    """
    for name in names:
        array = feeds[name]
        if array.dtype.kind not in "iu" or not array.size:
            continue
        limits = np.iinfo(array.dtype)
        for value in dict.fromkeys(min(max(value, int(limits.min)), int(limits.max)) for value in _VALUES):
            changed_array = array.copy()
            changed_array.reshape(-1)[int(generator.integers(changed_array.size))] = value
            yield {**feeds, name: changed_array}
            yield {**feeds, name: np.full_like(array, value)}


def with_extreme_floats(feeds: Mapping[_Name, Array]) -> Iterator[dict[_Name, Array]]:
    """Yield copies of inputs in which one float array is NaN, infinite, or has the largest magnitudes of its type."""
    for name, array in feeds.items():
        dtype = DataType.of(array.dtype)
        if dtype.is_float and array.size:
            largest = largest_float(dtype)
            for value in (np.nan, np.inf, -np.inf, largest, -largest):
                yield {**feeds, name: np.full_like(array, value)}


def with_bad_arrays(feeds: Mapping[_Name, Array]) -> Iterator[dict[_Name, Any]]:
    """Yield copies of inputs that a model of known shapes must refuse with `BindingError`, because of one of them.

    The input is missing, has another rank, has too many elements, or has a type that is never converted.
    """
    for name, array in feeds.items():
        yield {other_name: feed for other_name, feed in feeds.items() if other_name != name}
        yield {**feeds, name: array[np.newaxis]}
        yield {**feeds, name: np.zeros((*array.shape[:-1], 1 + array.shape[-1]) if array.ndim else (2,), array.dtype)}
        yield {**feeds, name: np.full(array.shape, 1j)}
