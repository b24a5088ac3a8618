"""Sequences and optionals: stored as object arrays of rank 1, and presented to users as lists, elements and None."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import reduce
from typing import Any

import numpy as np

from interposer.core.errors import BindingError
from interposer.core.types import Array, DataType, TensorInfo

__all__ = ["as_given", "as_stored", "collected", "refined"]

ToTensor = Callable[[str, TensorInfo, Any], Array]
"""Converts a user's value to an array for a tensor: title for messages, info, value. Raises `BindingError`."""


def collected(elements: Iterable[Array]) -> Array:
    """Return the arrays as the stored form of a sequence or optional: an object array of rank 1."""
    arrays = list(elements)
    object_array = np.empty(len(arrays), object)
    for index, element in enumerate(arrays):
        object_array[index] = element
    return object_array


def as_stored(title: str, info: TensorInfo, value: Any, to_tensor: ToTensor) -> Array:
    """Return a user's value in its stored form.

    Args:
        title: name of the value in error messages.
        info: what the value must be: a tensor, a sequence or an optional.
        value: a list of arrays for a sequence; an element or None for an optional.
        to_tensor: converts the value of one tensor.

    Raises:
        BindingError: the value is of another kind, or an element does not fit; the message names the element.
    """
    if info.element is None:
        return to_tensor(title, info, value)
    if info.dtype is DataType.OPTIONAL:
        elements = [] if value is None else [np.array(as_stored(title, info.element, value, to_tensor))]
    else:
        elements = [
            _element(f"{title}[{index}]", info.element, element, to_tensor) for index, element in _items(title, value)
        ]
    if not info.shape.accepts(info.with_shape((len(elements),)).shape):
        raise BindingError(f"{title} has {_counted(len(elements))}; expected {info}")
    return collected(elements)


def _items(title: str, value: Any) -> Iterable[tuple[int, Any]]:
    is_object_array = isinstance(value, np.ndarray) and value.dtype == object and value.ndim == 1
    if not is_object_array and not isinstance(value, list | tuple):
        raise BindingError(f"{title} is a sequence; give a list of arrays, not {type(value).__name__}")
    return enumerate(value)


def _element(title: str, info: TensorInfo, value: Any, to_tensor: ToTensor) -> Array:
    """Return one element of a sequence as an array that shares no memory with the user's `value`.

    `title` names the element in messages, `info` is what it must be, and `to_tensor` converts it. Raises `BindingError`
    if the element is None.
    """
    if value is None:
        raise BindingError(f"{title} is None; expected {info}")
    return np.array(to_tensor(title, info, value))


def _counted(count: int) -> str:
    return "1 element" if count == 1 else f"{count} elements"


def as_given(info: TensorInfo, stored: Array) -> Any:
    """Return a stored value in the form in which users see it.

    A tensor is an array, a sequence is a list of arrays, and an optional is its element or None; `info` says which it
    is.
    """
    if info.element is None:
        return stored
    elements = [as_given(info.element, element) for element in stored]
    if info.dtype is DataType.SEQUENCE:
        return elements
    return elements[0] if elements else None


def refined(info: TensorInfo, stored: Array) -> TensorInfo:
    """Return `info` with what is known from a stored value: its shape and, for a collection, the infos of its elements.

    The elements' infos are reduced to what they have in common; dimensions that differ are unknown.
    """
    shaped = info.with_shape(stored.shape)
    if info.element is None or not len(stored):
        return shaped
    element = info.element
    return shaped.with_element(
        reduce(TensorInfo.joined, (refined(element, stored_element) for stored_element in stored))
    )
