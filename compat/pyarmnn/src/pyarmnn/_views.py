"""The descriptors of Concat and Splitter, which say where each view begins and how large it is."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pyarmnn._arguments import UINT, UINT32, count_error, overload_error
from pyarmnn._proxy import Proxy, borrowed
from pyarmnn._shapes import TensorShape

__all__ = ["ConcatDescriptor", "CreateDescriptorForConcatenation", "SplitterDescriptor"]


class _Views(Proxy, module=None, destructor=False):
    """A number of views of a tensor, each with an origin: one coordinate for each dimension."""

    def __init__(self, *args: Any) -> None:
        name = type(self).__name__
        if len(args) > 2:
            raise count_error(f"new_{name}", 2, len(args), self._overload_error())
        if not all(map(UINT32.accepts, args)):
            raise self._overload_error()
        self._views, self._dimensions = map(int, (*args, *((0, 0), (4,), ())[len(args)]))
        self._origins = [[0] * self._dimensions for _ in range(self._views)]

    def _overload_error(self) -> TypeError:
        name = type(self).__name__
        prototypes = [(), ("uint32_t", "uint32_t"), ("uint32_t",)]
        return overload_error(f"new_{name}", f"armnn::{name}::{name}", prototypes)

    def GetNumViews(self) -> int:
        """Return the number of views."""
        return self._views

    def GetNumDimensions(self) -> int:
        """Return the number of dimensions."""
        return self._dimensions

    def GetViewOrigin(self, idx: int) -> list[int]:
        """Return coordinates of the origin of a view: as many as there are views, which is what PyArmNN returns."""
        return self._listed(self._origins, "GetViewOrigin", idx)

    def _listed(self, rows: list[list[int]], method: str, idx: int) -> list[int]:
        """Return the first numbers of a row, as many as there are views; numbers that do not exist are 0."""
        index = UINT32(idx, f"{type(self).__name__}_{method}", 2)
        if index >= self._views:
            if not self._views:
                return []
            raise RuntimeError(f"There is no view {index}; the descriptor has {self._views}.")
        return (rows[index] + [0] * self._views)[: self._views]

    def SetViewOriginCoord(self, view: int, coord: int, value: int) -> None:
        """Set a coordinate of the origin of a view.

        Raises:
            RuntimeError: there is no such view or coordinate.
        """
        if not self._set(self._origins, "SetViewOriginCoord", view, coord, value):
            raise RuntimeError("Failed to set view origin coordinates.")

    def _set(self, rows: list[list[int]], method: str, *numbers: int) -> bool:
        name = f"{type(self).__name__}_{method}"
        view, coord, value = (UINT32(number, name, index) for index, number in enumerate(numbers, 2))
        if view >= self._views or coord >= self._dimensions:
            return False
        rows[view][coord] = value
        return True


class ConcatDescriptor(_Views):
    """Several tensors along an axis; `CreateDescriptorForConcatenation` creates it from their shapes.

    Args:
        args: the number of inputs, 0 by default; and the number of dimensions, 4 by default.
    """

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self._axis = 1

    def GetConcatAxis(self) -> int:
        """Return the axis."""
        return self._axis

    def SetConcatAxis(self, concatAxis: int) -> None:
        """Set the axis."""
        self._axis = UINT(concatAxis, "ConcatDescriptor_SetConcatAxis", 2)

    def _copy(self) -> ConcatDescriptor:
        copy = ConcatDescriptor(self._views, self._dimensions)
        copy._axis, copy._origins = self._axis, [list(row) for row in self._origins]
        return copy

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, ConcatDescriptor):
            return False
        mine, others = ((each._views, each._dimensions, each._axis, each._origins) for each in (self, other))
        return mine == others

    __hash__ = None  # type: ignore[assignment]


class SplitterDescriptor(_Views):
    """Parts of a tensor, each with its origin and its size in each dimension.

    Args:
        args: the number of parts, 0 by default; and the number of dimensions, 4 by default.
    """

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self._sizes = [[0] * self._dimensions for _ in range(self._views)]

    def SetViewSize(self, view: int, coord: int, value: int) -> None:
        """Set the size of a part in a dimension.

        Raises:
            RuntimeError: there is no such part or dimension.
        """
        if not self._set(self._sizes, "SetViewSize", view, coord, value):
            raise RuntimeError("Failed to set view size.")

    def GetViewSizes(self, idx: int) -> list[int]:
        """Return sizes of a part: as many as there are parts, which is what PyArmNN returns."""
        return self._listed(self._sizes, "GetViewSizes", idx)

    def GetOrigins(self) -> ConcatDescriptor:
        """Return the origins of all parts."""
        descriptor = ConcatDescriptor(self._views, self._dimensions)
        descriptor._origins = [list(row) for row in self._origins]
        return borrowed(descriptor)

    def _copy(self) -> SplitterDescriptor:
        copy = SplitterDescriptor(self._views, self._dimensions)
        copy._origins = [list(row) for row in self._origins]
        copy._sizes = [list(row) for row in self._sizes]
        return copy

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, SplitterDescriptor):
            return False
        mine, others = ((each._views, each._dimensions, each._origins, each._sizes) for each in (self, other))
        return mine == others

    __hash__ = None  # type: ignore[assignment]


def CreateDescriptorForConcatenation(shapes: Sequence[TensorShape], concatenationDimension: int) -> ConcatDescriptor:
    """Return the descriptor that concatenates tensors of these shapes along a dimension.

    Raises:
        TypeError: an argument has the wrong type.
        RuntimeError: there are less than two shapes, they do not fit, or there is no such dimension.
    """
    name = "CreateDescriptorForConcatenation"
    values: Any = shapes
    if not isinstance(values, Sequence) or not all(isinstance(shape, TensorShape) for shape in values):
        vector = "std::vector< armnn::TensorShape,std::allocator< armnn::TensorShape > >"
        raise TypeError(f"in method '{name}', argument 1 of type '{vector}'")
    axis = UINT(concatenationDimension, name, 2)
    sizes = [list(shape) for shape in shapes]
    problem = _concatenation_problem(sizes, axis)
    if problem:
        raise RuntimeError(problem)
    descriptor = ConcatDescriptor(len(sizes), len(sizes[0]))
    descriptor._axis = axis
    for index, row in enumerate(descriptor._origins):
        row[axis] = sum(size[axis] for size in sizes[:index])
    return descriptor


def _concatenation_problem(sizes: list[list[int]], axis: int) -> str:
    if len(sizes) < 2:
        return "Concatenation requires at least 2 inputs"
    rank = len(sizes[0])
    if axis >= rank:
        return "concatenationDimension must be between 0 and the number of dimensions."
    if any(len(size) != rank for size in sizes):
        return "All inputs to concatenation must have the same number of dimensions"
    others = {(*size[:axis], *size[axis + 1 :]) for size in sizes}
    if len(others) > 1:
        return (
            "All inputs to concatenation must be the same size along all dimensions  except the concatenation dimension"
        )
    return ""
