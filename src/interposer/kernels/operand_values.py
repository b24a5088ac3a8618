"""Checks of the values of operands, such as indices, sizes and lengths, which are only known while a network runs."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NoReturn

import numpy as np

from interposer.core.errors import InvalidArgumentError, InvalidValueError, OutOfRangeError
from interposer.core.room import check_room
from interposer.core.types import Array

__all__ = [
    "check_range",
    "check_tuples",
    "checked_count",
    "checked_shape",
    "range_text",
    "refuse_value",
    "value_error",
    "values_decide",
]


def check_range(operand: str, values: Array, low: float | None, high: float | None) -> None:
    """Check that all elements of an operand are from `low` to `high`; None stands for no bound.

    Raises:
        InvalidValueError: an element is outside of this range, or NaN; it has the first such element.
    """
    is_inside = np.ones(values.shape, np.bool_) if low is None else np.greater_equal(values, low)
    if high is not None:
        is_inside = is_inside & np.less_equal(values, high)
    if not np.all(is_inside):
        _refuse_first(operand, values, ~np.asarray(is_inside), (low, high))


def check_tuples(operand: str, indices: Array, sizes: Sequence[int]) -> None:
    """Check index tuples (..., K) into K axes of these sizes, where negative indices count from the end.

    Raises:
        InvalidValueError: an index is out of range; it has the first such one of the first such axis.
    """
    for column, size in enumerate(sizes):
        axis_indices = indices[..., column]
        is_outside = (axis_indices < -size) | (axis_indices >= size)
        if is_outside.any():
            is_column = np.arange(len(sizes)) == column
            _refuse_first(operand, indices, is_outside[..., np.newaxis] & is_column, (-size, size - 1))


def _refuse_first(
    operand: str, values: Array, is_outside: Array, allowed_range: tuple[float | None, float | None]
) -> NoReturn:
    position = tuple(np.argwhere(is_outside)[0].tolist())
    refuse_value(operand, values[position].item(), range_text(*allowed_range), position=position, allowed=allowed_range)


def refuse_value(
    operand: str,
    value: Any,
    requirement: str,
    *,
    position: tuple[int, ...] | None = None,
    allowed: tuple[float | None, float | None] | None = None,
) -> NoReturn:
    """Raise `InvalidValueError` for a value of an operand.

    Args:
        operand: the name of the operand.
        value: the value, a Python number or text.
        requirement: what is expected, such as "expected 0 or more".
        position: the index of the value in the operand; None or an empty tuple for the operand as a whole.
        allowed: the smallest and the largest valid value; None for no bound.
    """
    problem = f"has {value} at {list(position)}" if position else f"is {value}"
    raise InvalidValueError(
        f"{operand} {problem}; {requirement}", operand=operand, position=position, value=value, allowed=allowed
    )


def range_text(low: float | None, high: float | None) -> str:
    """Return what is expected of a value that has to be from `low` to `high`; None stands for no bound."""
    if low is not None and high is not None and high < low:
        return "no value is valid, because the dimension is 0"
    if high is None:
        return f"expected {low} or more"
    return f"expected {high} or less" if low is None else f"expected {low} to {high}"


def checked_count(operand: str, value: Array, low: int = 0) -> int:
    """Return the only element of an operand as a number of elements; raise `InvalidValueError` if it is below `low`."""
    count = int(value.reshape(-1)[0])
    if count < low:
        refuse_value(operand, count, f"expected {low} or more", position=(0,) * value.ndim, allowed=(low, None))
    return count


def checked_shape(operand: str, dims: Array, itemsize: int) -> tuple[int, ...]:
    """Return the elements of an operand as the shape of a new array with elements of `itemsize` bytes.

    Raises:
        InvalidValueError: a dimension is negative.
        LimitExceededError: the run would use more memory than its limit.
    """
    check_range(operand, dims, 0, None)
    shape = tuple(dims.tolist())
    check_room(shape, itemsize)
    return shape


@contextmanager
def values_decide(*operands: tuple[str, Array | None]) -> Iterator[None]:
    """Turn an `InvalidArgumentError` of the block into an `InvalidValueError`.

    For checks that are made before a run where it is possible, and during the run if they depend on values of inputs.
    `operands` are the operands that have these values, with their names; None stands for an absent one.
    """
    try:
        yield
    except InvalidValueError:
        raise
    except InvalidArgumentError as error:
        present_operands = [(name, array) for name, array in operands if array is not None]
        raise value_error(str(error), error, present_operands) from error


def value_error(reason: str, error: BaseException, operands: Sequence[tuple[str, Array]]) -> InvalidValueError:
    """Return the error for the values of operands that caused `error`, which has another `reason` as its message.

    It names the first element that is out of range if `error` or one of its causes says so. Otherwise, it has the only
    element or all elements of the operand, provided that this is the only one, or the only one that the message names.

    Args:
        reason: the message.
        error: the error that the values caused.
        operands: the names and elements of the operands that may have caused it.
    """
    named_operands = [operand for operand in operands if operand[0] in reason] or list(operands)
    problem = _out_of_range(error)
    for name, array in named_operands:
        position = None if problem is None else _position_of(problem.value, array)
        if problem is not None and position is not None:
            return InvalidValueError(
                reason, operand=name, position=position, value=problem.value, allowed=problem.allowed
            )
    if len(named_operands) != 1:
        return InvalidValueError(reason)
    [(name, array)] = named_operands
    position = (0,) * array.ndim if array.size == 1 else None
    return InvalidValueError(
        reason, operand=name, position=position, value=array.tolist() if position is None else array.item()
    )


def _out_of_range(error: BaseException | None) -> OutOfRangeError | None:
    while error is not None and not isinstance(error, OutOfRangeError):
        error = error.__cause__
    return error


def _position_of(number: float, array: Array) -> tuple[int, ...] | None:
    """Return the index of the first element that is this number, which may be NaN; None if there is none."""
    is_number = np.isnan(array) if math.isnan(number) else np.equal(array, number)
    places = np.argwhere(is_number)
    return tuple(places[0].tolist()) if len(places) else None
