"""Operators that write elements to places that are data."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from enum import Enum
from typing import Final

from interposer.ops.axes import quantized_axis_faults
from interposer.schema import Op, attribute, op, operand, result
from interposer.types import MAX_RANK, UNKNOWN, DataType, Dim, TensorInfo, TensorShape

__all__ = ["ScatterFunction", "ScatterNd"]

_INDEX_TYPES: Final = (DataType.INT32, DataType.INT64)


class ScatterFunction(Enum):
    """What becomes of an element that an update falls on."""

    UPDATE = "update"
    """The update; where several fall on it, the last one."""
    ADD = "add"
    """The sum."""
    SUB = "sub"
    """The element less the update."""
    MAX = "max"
    """The larger one."""
    MIN = "min"
    """The smaller one."""
    MUL = "mul"
    """The product."""


@op
class ScatterNd(Op):
    """Write slices to the places that tuples of indices name, which are the last axis of ``indices``.

    Negative indices count from the end. Without ``input_enabled``, the first operand is a shape, and the slices are
    written to a tensor of zeros.

    Shapes:
        input: any of rank R, at least 1, or with ``input_enabled`` False a shape (R,)
        indices: (..., K), where K is at most R
        updates: indices.shape[:-1] + input.shape[K:]
        output: the shape of the input, or the shape that it is

    Source:
        ONNX ScatterND-18; TFLite SCATTER_ND (ADD on zeros); Arm NN ScatterNdDescriptor.
    """

    input = operand(rank=(1, MAX_RANK))
    indices = operand(rank=(1, MAX_RANK), dtypes=_INDEX_TYPES)
    updates = operand(rank=(0, MAX_RANK))
    output = result(rank=(1, MAX_RANK), dtype_of="updates", dynamic=True)

    function: ScatterFunction = attribute(default=ScatterFunction.UPDATE, doc="How updates and elements are combined.")
    input_enabled: bool = attribute(default=True, doc="The first operand is a tensor, not a shape.")

    def check(self, input: TensorInfo, indices: TensorInfo, updates: TensorInfo) -> Iterator[str]:
        faults = list(self._base_faults(input, updates))
        depth = indices.shape[-1]
        if isinstance(depth, Dim):
            faults.append("the last extent of indices is not known")
        if faults:
            yield from faults
            return
        base = self._shape(input)
        if depth > base.rank:
            yield f"the last extent of indices is {depth}, but there are only {base.rank} axes"
            return
        wanted = TensorShape((*indices.shape[:-1], *base[depth:]))
        if not wanted.accepts(updates.shape):
            yield f"updates has shape {updates.shape}; expected {wanted}"
        yield from _range_faults(indices, base[:depth])

    def _base_faults(self, input: TensorInfo, updates: TensorInfo) -> Iterator[str]:
        if self.input_enabled:
            if input.dtype is not updates.dtype:
                yield f"updates is {updates.dtype}; expected {input.dtype}, the type of input"
            yield from quantized_axis_faults(input, range(MAX_RANK), "write to")
        elif input.dtype not in _INDEX_TYPES or input.rank != 1:
            yield f"input is {input.dtype}{input.shape}; expected a shape, int32[R] or int64[R]"
        elif isinstance(input.shape[0], Dim) or not 0 < input.shape[0] <= MAX_RANK:
            yield f"input has {input.shape[0]} extents; expected a shape of rank 1 to {MAX_RANK}"
        elif input.constant is not None and (input.constant < 0).any():
            yield f"input is {input.constant.tolist()}; an extent must not be negative"

    def _shape(self, input: TensorInfo) -> TensorShape:
        """The shape of the result, as far as it is known."""
        if self.input_enabled:
            return input.shape
        return TensorShape([UNKNOWN] * input.shape[0] if input.constant is None else input.constant.tolist())

    def infer(self, input: TensorInfo, indices: TensorInfo, updates: TensorInfo) -> TensorInfo:
        return (input if self.input_enabled else updates).with_shape(self._shape(input))


def _range_faults(indices: TensorInfo, dims: Sequence[int]) -> Iterator[str]:
    """Constant indices that point outside of the tensor."""
    if indices.constant is None or indices.constant.size == 0:
        return
    for column, dim in zip(indices.constant.reshape(-1, len(dims)).T, dims, strict=True):
        for found in (column.min(), column.max()):
            if found >= dim or found < -dim:
                yield f"index {found} is outside of an axis of extent {dim}"
                break
