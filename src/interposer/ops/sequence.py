"""Operators on sequences: cumulative sums and products, reversal, and ranges."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Final

import numpy as np

from interposer.core.schema import Op, attribute, op, operand, result
from interposer.core.traits import Role, Trait
from interposer.core.types import MAX_RANK, UNKNOWN, Array, DataType, TensorInfo, differ
from interposer.ops.axes import axes_problems, normal_axis, quantized_axis_problems

__all__ = ["CumProd", "CumSum", "Range", "ReverseSequence"]

_INDEX_TYPES: Final = (DataType.INT32, DataType.INT64)


class _Accumulation(Op):
    """Base class of `CumSum` and `CumProd`, which have one axis and an output like their input."""

    input = operand(rank=(1, MAX_RANK))
    output = result(like="input")

    axis: int

    def check(self, input: TensorInfo) -> Iterator[str]:
        yield from axes_problems([self.axis], input.rank)


@op
class CumSum(_Accumulation):
    """The cumulative sum along an axis; integers wrap around.

    Shapes:
        input, output: any of rank 1 or more, the same

    Example:
        >>> compute(CumSum(), [[1, 2, 3], [10, 20, 30]]).tolist()
        [[1, 3, 6], [10, 30, 60]]
        >>> compute(CumSum(axis=0), [[1, 2, 3], [10, 20, 30]]).tolist()
        [[1, 2, 3], [11, 22, 33]]
        >>> compute(CumSum(exclusive=True, reverse=True), [1, 2, 3]).tolist()
        [5, 3, 0]

    Source:
        ONNX CumSum-14; TFLite CUMSUM.
    """

    axis: int = attribute(default=-1, doc="The axis of the cumulative sum.")
    exclusive: bool = attribute(default=False, doc="Exclude the element itself.")
    reverse: bool = attribute(default=False, doc="Accumulate from the end of the axis.")


@op
class CumProd(_Accumulation):
    """The cumulative product along an axis; integers wrap around.

    Shapes:
        input, output: any of rank 1 or more, the same

    Example:
        >>> compute(CumProd(), [1, 2, 3, 4]).tolist()
        [1, 2, 6, 24]
        >>> compute(CumProd(exclusive=True), [1, 2, 3, 4]).tolist()
        [1, 1, 2, 6]

    Source:
        ONNX CumProd-26.
    """

    axis: int = attribute(default=-1, doc="The axis of the cumulative product.")
    exclusive: bool = attribute(default=False, doc="Exclude the element itself.")
    reverse: bool = attribute(default=False, doc="Accumulate from the end of the axis.")


@op(traits=Trait.MOVES)
class ReverseSequence(Op):
    """Reverse the first elements along an axis, with a separate length for every sample; the others are unchanged.

    Shapes:
        input, output: any of rank 2 or more, the same
        lengths: the dimension of ``batch_axis``

    Example:
        >>> op = ReverseSequence(time_axis=1, batch_axis=0)
        >>> compute(op, [[1, 2, 3, 4], [5, 6, 7, 8]], lengths=[3, 2]).tolist()
        [[3, 2, 1, 4], [6, 5, 7, 8]]

    Source:
        ONNX ReverseSequence-10; TFLite REVERSE_SEQUENCE.
    """

    input = operand(rank=(2, MAX_RANK))
    lengths = operand(role=Role.SIZES, rank=1, dtypes=_INDEX_TYPES)
    output = result(like="input")

    time_axis: int = attribute(default=0, doc="The axis that is reversed.")
    batch_axis: int = attribute(default=1, doc="The axis of the samples.")

    def check(self, input: TensorInfo, lengths: TensorInfo) -> Iterator[str]:
        errors = list(axes_problems([self.time_axis, self.batch_axis], input.rank, "time_axis, batch_axis"))
        yield from errors
        if errors:
            return
        samples = input.shape[self.batch_axis]
        if differ(lengths.shape[0], samples):
            yield f"lengths has {lengths.shape[0]} elements; expected {samples}, one for each sample"
        yield from quantized_axis_problems(input, [normal_axis(self.time_axis, input.rank)], "turn")


@op
class Range(Op):
    """The numbers start, start + delta, start + 2 * delta, ... up to limit (exclusive).

    Shapes:
        start, limit, delta: one element each
        output: (N,), where N = max(0, ceil((limit - start) / delta))

    Example:
        >>> compute(Range(), 2, 11, 3).tolist()
        [2, 5, 8]
        >>> compute(Range(), 1.0, 0.0, -0.25).tolist()
        [1.0, 0.75, 0.5, 0.25]

    Source:
        ONNX Range-11; TFLite RANGE.
    """

    start = operand(rank=(0, 1))
    limit = operand(rank=(0, 1), same_dtype_as="start")
    delta = operand(rank=(0, 1), same_dtype_as="start")
    output = result(rank=1, dtype_of="start", dynamic=True)

    def check(self, start: TensorInfo, limit: TensorInfo, delta: TensorInfo) -> Iterator[str]:
        for name, info in (("start", start), ("limit", limit), ("delta", delta)):
            if differ(info.num_elements, 1):
                yield f"{name} has shape {info.shape}; expected one element"
        if delta.constant is not None and not delta.constant.any():
            yield "delta is 0; expected another number"

    def infer(self, start: TensorInfo, limit: TensorInfo, delta: TensorInfo) -> TensorInfo:
        constants = [info.constant for info in (start, limit, delta) if info.constant is not None]
        return TensorInfo((range_length(*constants) if len(constants) == 3 else UNKNOWN,), start.dtype)


def range_length(start: Array, limit: Array, delta: Array) -> int:
    """Return the number of elements of `Range` from start to limit (exclusive) in steps of delta, which is not 0.

    It is exact for integers, and 0 if one of the numbers is not finite.
    """
    if start.dtype.kind in "iu":
        return max(0, -int((start.item() - limit.item()) // delta.item()))
    start_value, limit_value, step = (number.astype(np.float64).item() for number in (start, limit, delta))
    length = (limit_value - start_value) / step
    return max(0, math.ceil(length)) if math.isfinite(length) else 0
