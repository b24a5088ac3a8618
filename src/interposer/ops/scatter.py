"""Scatter operators, which write elements to positions that are data."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from enum import Enum
from typing import Final

from interposer.core.schema import Op, attribute, op, operand, result
from interposer.core.traits import Role, Trait
from interposer.core.types import (
    MAX_RANK,
    UNKNOWN,
    DataType,
    Dim,
    TensorInfo,
    TensorShape,
    differ,
    integer_range,
    largest_float,
)
from interposer.ops.axes import axes_problems, normal_axis, quantized_axis_problems, same_shapes
from interposer.ops.gather import elements_problems

__all__ = ["DynamicUpdateSlice", "ScatterElements", "ScatterFunction", "ScatterNd", "TensorScatter"]

_INDEX_TYPES: Final = (DataType.INT32, DataType.INT64)


class ScatterFunction(Enum):
    """How an update is combined with the element that it is written to."""

    UPDATE = "update"
    """The update replaces the element; of several updates of one element, the last one."""
    ADD = "add"
    """The sum of element and updates."""
    SUB = "sub"
    """The element minus the updates."""
    MAX = "max"
    """The maximum of element and updates."""
    MIN = "min"
    """The minimum of element and updates."""
    MUL = "mul"
    """The product of element and updates."""

    def neutral(self, dtype: DataType) -> float | int:
        """Return the number of a type that changes no finite element by ADD, MUL, MAX or MIN."""
        if self in {ScatterFunction.ADD, ScatterFunction.MUL}:
            return int(self is ScatterFunction.MUL)
        if dtype.is_float:
            return -largest_float(dtype) if self is ScatterFunction.MAX else largest_float(dtype)
        return integer_range(dtype)[0 if self is ScatterFunction.MAX else 1]


@op
class ScatterNd(Op):
    """Write slices to positions given by index tuples, which are stored along the last axis of ``indices``.

    Negative indices count from the end. If ``input_enabled`` is False, the first operand is a shape, and the slices are
    written to a tensor of zeros.

    Shapes:
        input: any of rank R, at least 1, or with ``input_enabled`` False a shape (R,)
        indices: (..., K), where K is at most R
        updates: indices.shape[:-1] + input.shape[K:]
        output: the shape of the input; without ``input_enabled``, the shape in ``input``

    Example:
        >>> compute(ScatterNd(), [1, 2, 3, 4], [[3], [0]], [40, 10]).tolist()
        [10, 2, 3, 40]
        >>> add = ScatterNd(function=ScatterFunction.ADD)
        >>> compute(add, [[1, 2], [3, 4]], [[0], [0]], [[10, 20], [100, 200]]).tolist()
        [[111, 222], [3, 4]]
        >>> compute(ScatterNd(input_enabled=False), [2, 3], [[1, 2]], [7.0]).tolist()
        [[0.0, 0.0, 0.0], [0.0, 0.0, 7.0]]

    Source:
        ONNX ScatterND-18; TFLite SCATTER_ND (ADD on zeros); Arm NN ScatterNdDescriptor.
    """

    input = operand(rank=(1, MAX_RANK))
    indices = operand(role=Role.INDICES, rank=(1, MAX_RANK), dtypes=_INDEX_TYPES)
    updates = operand(rank=(0, MAX_RANK))
    output = result(rank=(1, MAX_RANK), dtype_of="updates", dynamic=True)

    function: ScatterFunction = attribute(default=ScatterFunction.UPDATE, doc="How updates and elements are combined.")
    input_enabled: bool = attribute(default=True, doc="The first operand is a tensor, not a shape.")

    @property
    def traits(self) -> Trait:
        if self.function is not ScatterFunction.UPDATE:
            return Trait.NONE
        return Trait.MOVES if self.input_enabled else Trait.MOVES | Trait.FILLS

    def role(self, index: int) -> Role:
        return Role.SIZES if index == 0 and not self.input_enabled else super().role(index)

    def check(self, input: TensorInfo, indices: TensorInfo, updates: TensorInfo) -> Iterator[str]:
        errors = list(self._base_problems(input, updates))
        depth = indices.shape[-1]
        if isinstance(depth, Dim):
            errors.append("the last dimension of indices is not known")
        if errors:
            yield from errors
            return
        base_shape = self._shape(input)
        if depth > base_shape.rank:
            yield f"the last dimension of indices is {depth}, but there are only {base_shape.rank} axes"
            return
        expected = TensorShape((*indices.shape[:-1], *base_shape[depth:]))
        if not expected.accepts(updates.shape):
            yield f"updates has shape {updates.shape}; expected {expected}"
        yield from _range_problems(indices, base_shape[:depth])

    def _base_problems(self, input: TensorInfo, updates: TensorInfo) -> Iterator[str]:
        if self.input_enabled:
            if input.dtype is not updates.dtype:
                yield f"updates is {updates.dtype}; expected {input.dtype}, the type of input"
            yield from quantized_axis_problems(input, range(MAX_RANK), "write to")
        elif input.dtype not in _INDEX_TYPES or input.rank != 1:
            yield f"input is {input.dtype}{input.shape}; expected a shape, int32[R] or int64[R]"
        elif isinstance(input.shape[0], Dim):
            yield "the number of dimensions in input is not known"
        elif not 0 < input.shape[0] <= MAX_RANK:
            yield f"input has {input.shape[0]} dimensions; expected a shape of rank 1 to {MAX_RANK}"
        elif input.constant is not None and (input.constant < 0).any():
            yield f"input is {input.constant.tolist()}; a dimension must not be negative"

    def _shape(self, input: TensorInfo) -> TensorShape:
        """Return the shape of the result for the info of the first operand; dimensions may be unknown."""
        if self.input_enabled:
            return input.shape
        return TensorShape([UNKNOWN] * input.shape[0] if input.constant is None else input.constant.tolist())

    def infer(self, input: TensorInfo, indices: TensorInfo, updates: TensorInfo) -> TensorInfo:
        return (input if self.input_enabled else updates).with_shape(self._shape(input))


def _range_problems(indices: TensorInfo, dims: Sequence[int]) -> Iterator[str]:
    """Yield an error for every column of constant index tuples that is out of range for its axis.

    The last axis of `indices` holds the tuples, and `dims` are the sizes of the indexed axes.
    """
    if indices.constant is None or indices.constant.size == 0:
        return
    for axis_indices, dim in zip(indices.constant.reshape(-1, len(dims)).T, dims, strict=True):
        for extreme_index in (int(axis_indices.min()), int(axis_indices.max())):
            if extreme_index >= dim or extreme_index < -dim:
                yield f"index {extreme_index} is out of range for an axis of size {dim}"
                break


@op
class ScatterElements(Op):
    """Write single elements to positions along an axis; all other elements are unchanged.

    For rank 3 and ``axis`` 1, ``updates[i, j, k]`` is written to element (i, indices[i, j, k], k). Negative indices
    count from the end.

    Shapes:
        input, output: any of rank 1 or more, the same
        indices, updates: the same rank; except along ``axis``, no dimension is greater than that of the input

    Example:
        >>> compute(ScatterElements(axis=1), [[1, 2, 3]], [[2, 0]], [[7, 8]]).tolist()
        [[8, 2, 7]]
        >>> compute(ScatterElements(1, ScatterFunction.ADD), [[1, 2, 3]], [[1, 1]], [[7, 8]]).tolist()
        [[1, 17, 3]]

    Source:
        ONNX ScatterElements-18.
    """

    input = operand(rank=(1, MAX_RANK))
    indices = operand(role=Role.INDICES, rank=(1, MAX_RANK), dtypes=_INDEX_TYPES)
    updates = operand(rank=(1, MAX_RANK), same_dtype_as="input")
    output = result(like="input")

    axis: int = attribute(default=0, doc="The axis along which indices point; negative ones count from the end.")
    function: ScatterFunction = attribute(default=ScatterFunction.UPDATE, doc="How updates and elements are combined.")

    @property
    def traits(self) -> Trait:
        return Trait.MOVES if self.function is ScatterFunction.UPDATE else Trait.NONE

    def check(self, input: TensorInfo, indices: TensorInfo, updates: TensorInfo) -> Iterator[str]:
        errors = list(axes_problems((self.axis,), input.rank))
        axis = normal_axis(self.axis, input.rank)
        errors += () if errors else elements_problems(input, indices, "input", axis)
        yield from errors
        if not indices.shape.accepts(updates.shape):
            yield f"updates has shape {updates.shape}; expected {indices.shape}, the shape of indices"
        yield from quantized_axis_problems(input, range(MAX_RANK), "write to")
        if not errors:
            yield from _range_problems(indices, input.shape[axis : axis + 1])


@op(traits=Trait.MOVES)
class TensorScatter(Op):
    """Write new steps of sequences into a cache, at a separate start position for every sample.

    Shapes:
        input, output: (B, ..., T, ...), the cache, with T at ``axis``
        updates: (B, ..., S, ...), the new steps, with S at ``axis``
        start: (B,), the index of the first new step of every sample; 0 if absent

    Example:
        >>> compute(TensorScatter(axis=1), [[1, 2, 3], [4, 5, 6]], [[7], [8]], start=[2, 0]).tolist()
        [[1, 2, 7], [8, 5, 6]]

    Source:
        ONNX TensorScatter-24.
    """

    input = operand(rank=(2, MAX_RANK))
    updates = operand(rank=(2, MAX_RANK), same_dtype_as="input")
    start = operand(role=Role.SIZES, rank=1, dtypes=_INDEX_TYPES, optional=True)
    output = result(like="input")

    axis: int = attribute(default=-2, doc="The axis of the steps, which is not the first one.")
    circular: bool = attribute(default=False, doc="Wrap around: steps beyond the end are written at the beginning.")

    def check(self, input: TensorInfo, updates: TensorInfo, start: TensorInfo | None) -> Iterator[str]:
        errors = list(axes_problems((self.axis,), input.rank))
        axis = normal_axis(self.axis, input.rank)
        if axis == 0:
            errors.append("axis is 0, the axis of the samples; expected the axis of the steps")
        yield from errors
        if errors:
            return
        has_same_sizes = same_shapes((input.shape, updates.shape), axis)
        if not has_same_sizes or updates.shape[axis] > input.shape[axis]:
            yield f"updates has shape {updates.shape}; expected {input.shape} but for fewer steps along axis {axis}"
        if start is not None and differ(start.shape[0], input.shape[0]):
            yield f"start has {start.shape[0]} elements; expected {input.shape[0]}, one for each sample"
        yield from _other_quantization(input, updates)


@op(traits=Trait.MOVES)
class DynamicUpdateSlice(Op):
    """Overwrite a rectangular slice of a tensor at a position that is data; the position is clamped to fit.

    Shapes:
        input, output: any of rank R, at least 1, the same
        update: the same rank, and dimensions that are not greater
        start: (R,), the index of the first element along each axis

    Example:
        >>> compute(DynamicUpdateSlice(), [1, 2, 3, 4], [8, 9], start=[1]).tolist()
        [1, 8, 9, 4]
        >>> compute(DynamicUpdateSlice(), [1, 2, 3, 4], [8, 9], start=[3]).tolist()
        [1, 2, 8, 9]

    Source:
        TFLite DYNAMIC_UPDATE_SLICE.
    """

    input = operand(rank=(1, MAX_RANK))
    update = operand(rank=(1, MAX_RANK), same_dtype_as="input")
    start = operand(role=Role.SIZES, rank=1, dtypes=_INDEX_TYPES)
    output = result(like="input")

    def check(self, input: TensorInfo, update: TensorInfo, start: TensorInfo) -> Iterator[str]:
        if update.rank != input.rank or any(
            update_dim > dim for update_dim, dim in zip(update.shape, input.shape, strict=True)
        ):
            yield f"update has shape {update.shape}, which does not fit into {input.shape}"
        if differ(start.shape[0], input.rank):
            yield f"start has {start.shape[0]} elements; expected {input.rank}, the rank of input"
        yield from _other_quantization(input, update)


def _other_quantization(input: TensorInfo, updates: TensorInfo) -> Iterator[str]:
    if updates.quantization != input.quantization:
        yield "the update and the input have different quantizations; requantize one of them first"
