"""Sequences and optionals as they are stored, arrays of objects of rank 1, and as a user has them: lists and None."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import reduce
from typing import Any

import numpy as np

from interposer.core.errors import BindingError
from interposer.core.types import Array, DataType, TensorInfo

__all__ = ["as_given", "as_stored", "collected", "refined"]

ToTensor = Callable[[str, TensorInfo, Any], Array]
"""Makes an array for a tensor of what a user gave; gets a title for messages first. Raises `BindingError`."""


def collected(elements: Iterable[Array]) -> Array:
    """Return arrays as a sequence or optional holds them."""
    value = list(elements)
    stored = np.empty(len(value), object)
    for index, element in enumerate(value):
        stored[index] = element
    return stored


def as_stored(title: str, info: TensorInfo, value: Any, to_tensor: ToTensor) -> Array:
    """Return what a user gave, as it is stored: a list of arrays for a sequence; an element or None for an optional.

    Raises:
        BindingError: something else, or elements that do not fit; says which.
    """
    if info.element is None:
        return to_tensor(title, info, value)
    if info.dtype is DataType.OPTIONAL:
        elements = [] if value is None else [np.array(as_stored(title, info.element, value, to_tensor))]
    else:
        elements = [_element(f"{title}[{i}]", info.element, item, to_tensor) for i, item in _items(title, value)]
    if not info.shape.accepts(info.with_shape((len(elements),)).shape):
        raise BindingError(f"{title} has {_counted(len(elements))}; expected {info}")
    return collected(elements)


def _items(title: str, value: Any) -> Iterable[tuple[int, Any]]:
    plain = isinstance(value, np.ndarray) and value.dtype == object and value.ndim == 1
    if not plain and not isinstance(value, list | tuple):
        raise BindingError(f"{title} is a sequence; give a list of arrays, not {type(value).__name__}")
    return enumerate(value)


def _element(title: str, info: TensorInfo, value: Any, to_tensor: ToTensor) -> Array:
    """Return a tensor in memory of its own, as it may be handed on."""
    if value is None:
        raise BindingError(f"{title} is None; expected {info}")
    return np.array(to_tensor(title, info, value))


def _counted(count: int) -> str:
    return "1 element" if count == 1 else f"{count} elements"


def as_given(info: TensorInfo, stored: Array) -> Any:
    """Return what is stored, as a user has it: the array of a tensor, a list of arrays; an element or None."""
    if info.element is None:
        return stored
    elements = [as_given(info.element, item) for item in stored]
    if info.dtype is DataType.SEQUENCE:
        return elements
    return elements[0] if elements else None


def refined(info: TensorInfo, stored: Array) -> TensorInfo:
    """Return what is known of a tensor, a sequence or an optional whose value this is."""
    known = info.with_shape(stored.shape)
    if info.element is None or not len(stored):
        return known
    element = info.element
    return known.with_element(reduce(TensorInfo.joined, (refined(element, item) for item in stored)))
