"""Operators whose output size depends on the data: selection by a condition, non-zero and unique elements."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from interposer.core.schema import Op, attribute, op, operand, result
from interposer.core.traits import Role, Trait
from interposer.core.types import MAX_RANK, UNKNOWN, DataType, TensorInfo, TensorShape
from interposer.ops.axes import axes_problems, normal_axis, quantized_axis_problems

__all__ = ["Compress", "NonZero", "Unique"]

_INDEX_TYPES: Final = (DataType.INT32, DataType.INT64)


@op(traits=Trait.EXACT)
class NonZero(Op):
    """The indices of all non-zero elements, in row-major order.

    Shapes:
        input: any of rank R, at least 1
        output: (R, K), a row of indices for each axis

    Example:
        >>> compute(NonZero(), [[0, 5, 0], [7, 0, 8]]).tolist()
        [[0, 1, 1], [1, 0, 2]]

    Source:
        ONNX NonZero-13; TFLite WHERE with one input (transposed).
    """

    input = operand(rank=(1, MAX_RANK))
    output = result(rank=2, dtypes=[DataType.INT64], dynamic=True)

    def check(self, input: TensorInfo) -> Iterator[str]:
        if input.dtype is DataType.STRING:
            yield "input is string, which has no zero; expected another type"

    def infer(self, input: TensorInfo) -> TensorInfo:
        return TensorInfo((input.rank, UNKNOWN), DataType.INT64)


@op(traits=Trait.MOVES)
class Compress(Op):
    """Keep the slices along an axis, or without ``axis`` the elements, where a condition is true.

    Elements after the end of the condition are dropped.

    Shapes:
        input: any of rank 1 or more
        condition: (N,), where N is at most the dimension along ``axis``, or the number of all elements
        output: the input's shape with K at ``axis``, or (K,)

    Example:
        >>> compute(Compress(axis=1), [[1, 2, 3], [4, 5, 6]], [True, False, True]).tolist()
        [[1, 3], [4, 6]]
        >>> compute(Compress(), [[1, 2, 3], [4, 5, 6]], [False, True, False, True]).tolist()
        [2, 4]

    Source:
        ONNX Compress-11.
    """

    input = operand(rank=(1, MAX_RANK))
    condition = operand(role=Role.CONDITION, rank=1, dtypes=[DataType.BOOL])
    output = result(dtype_of="input", dynamic=True)

    axis: int | None = attribute(
        default=None, doc="The axis along which slices are selected; None selects from the flattened tensor."
    )

    def check(self, input: TensorInfo, condition: TensorInfo) -> Iterator[str]:
        errors = list(axes_problems([] if self.axis is None else [self.axis], input.rank))
        yield from errors
        if errors:
            return
        size = input.num_elements if self.axis is None else input.shape[self.axis]
        if condition.shape[0] > size:
            yield f"condition has {condition.shape[0]} elements, but there are {size} to choose from"
        axes = range(MAX_RANK) if self.axis is None else [normal_axis(self.axis, input.rank)]
        yield from quantized_axis_problems(input, axes, "choose from")

    def infer(self, input: TensorInfo, condition: TensorInfo) -> TensorInfo:
        count = UNKNOWN if condition.constant is None else int(condition.constant.sum())
        return input.with_shape(_replaced(input.shape, self.axis, count))


@op(traits=Trait.CHOOSES)
class Unique(Op):
    """The distinct elements (with ``axis``: the distinct slices along this axis) and their indices.

    With ``sorted`` (the default), the values are in increasing order, else in the order of their first occurrence.
    ``indices`` has the index of the first occurrence of each value in the input. ``inverse_indices`` has the index in
    ``values`` of each element of the input. ``counts`` has the number of occurrences of each value.

    Shapes:
        input: any of rank 1 or more
        values: (K,), or with ``axis`` the input's shape with K there
        indices, counts: (K,)
        inverse_indices: (N,), where N is the number of all elements, or the dimension along ``axis``

    Example:
        >>> values, indices, inverse_indices, counts = compute(Unique(), [3, 1, 1, 3, 2])
        >>> values.tolist(), indices.tolist(), inverse_indices.tolist(), counts.tolist()
        ([1, 2, 3], [1, 4, 0], [2, 0, 0, 2, 1], [2, 1, 2])
        >>> compute(Unique(sorted=False), [3, 1, 1, 3, 2])[0].tolist()
        [3, 1, 2]

    Source:
        ONNX Unique-11; TFLite UNIQUE (not sorted, values and inverse indices).
    """

    input = operand(rank=(1, MAX_RANK))
    values = result(dtype_of="input", dynamic=True)
    indices = result(rank=1, dtypes=_INDEX_TYPES, dynamic=True)
    inverse_indices = result(rank=1, dtypes=_INDEX_TYPES)
    counts = result(rank=1, dtypes=_INDEX_TYPES, dynamic=True)

    axis: int | None = attribute(default=None, doc="The axis whose slices are compared; None compares elements.")
    sorted: bool = attribute(default=True, doc="Sort the values, instead of keeping the order of first occurrence.")
    index_dtype: DataType = attribute(default=DataType.INT64, choices=_INDEX_TYPES, doc="The type of the indices.")

    def check(self, input: TensorInfo) -> Iterator[str]:
        yield from axes_problems([] if self.axis is None else [self.axis], input.rank)
        yield from quantized_axis_problems(input, range(MAX_RANK), "compare")

    def infer(self, input: TensorInfo) -> tuple[TensorInfo, ...]:
        size = input.num_elements if self.axis is None else input.shape[self.axis]
        values = input.with_shape(_replaced(input.shape, self.axis, UNKNOWN))
        distinct, inverse_indices = (TensorInfo((count,), self.index_dtype) for count in (UNKNOWN, size))
        return values, distinct, inverse_indices, distinct


def _replaced(shape: TensorShape, axis: int | None, size: int) -> list[int]:
    """Return the shape with `size` at the axis, or the shape (size,) if the axis is None; the axis may be negative."""
    if axis is None:
        return [size]
    replaced_axis = normal_axis(axis, len(shape))
    return [*shape[:replaced_axis], size, *shape[replaced_axis + 1 :]]
