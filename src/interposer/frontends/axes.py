"""Axes of nodes of model files, checked against the rank of a tensor."""

from __future__ import annotations

from collections.abc import Sequence

from interposer.core.errors import OutOfRangeError, ParseError
from interposer.ops.axes import axes_problems, normal_axis

__all__ = ["checked_axes", "checked_axis"]


def checked_axis(axis: int, rank: int, of: str = "the input") -> int:
    """Return the axis counted from the front; raise `ParseError` if it is not in range for this rank.

    `of` is the tensor that has the axis, for the message.
    """
    return checked_axes((axis,), rank, of, "axis")[0]


def checked_axes(axes: Sequence[int], rank: int, of: str = "the input", name: str = "axes") -> tuple[int, ...]:
    """Return the axes counted from the front, in the given order; `ParseError` if one is not in range or repeated.

    `of` is the tensor that has the axes, and `name` the operand that lists them, for the message.
    """
    for error in axes_problems(axes, rank, name, of):
        invalid_axis = next((axis for axis in axes if not -rank <= axis < rank), None)
        cause = None if invalid_axis is None else OutOfRangeError(error, invalid_axis, (-rank, rank - 1))
        raise ParseError(error) from cause
    return tuple(normal_axis(axis, rank) for axis in axes)
