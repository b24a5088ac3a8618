"""Operators on sequences of tensors, and on optionals, which hold one element or none.

Whether an element exists is only checked at run time: networks test for the element first, and read it in a branch.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import reduce
from typing import Final

import numpy as np

from interposer.core.errors import InvalidArgumentError
from interposer.core.schema import Op, attribute, op, operand, result
from interposer.core.traits import Role
from interposer.core.types import ANY_TYPE, MAX_RANK, UNKNOWN, UNRANKED, Array, DataType, Dim, TensorInfo, differ
from interposer.ops.axes import axes_problems, normal_axis, quantized_axis_problems

__all__ = [
    "ConcatFromSequence",
    "OptionalConstruct",
    "OptionalEmpty",
    "OptionalGetElement",
    "OptionalHasElement",
    "SequenceAt",
    "SequenceConstruct",
    "SequenceEmpty",
    "SequenceErase",
    "SequenceInsert",
    "SequenceLength",
    "SplitToSequence",
]

_INDEX_TYPES: Final = (DataType.INT32, DataType.INT64)
_SEQUENCE: Final = (DataType.SEQUENCE,)
_OPTIONAL: Final = (DataType.OPTIONAL,)


def _element(info: TensorInfo) -> TensorInfo:
    assert info.element is not None
    return info.element


def _sequence(length: int, element: TensorInfo) -> TensorInfo:
    return TensorInfo((length,), DataType.SEQUENCE, element=element)


def _merged(a: TensorInfo, b: TensorInfo) -> TensorInfo | None:
    try:
        return a.joined(b)
    except InvalidArgumentError:
        return None


def _position_problems(position: TensorInfo | None) -> Iterator[str]:
    if position is not None and differ(position.num_elements, 1):
        yield f"position has shape {position.shape}; expected one number"


# --- sequences --------------------------------------------------------------------------------------------------------


@op
class SequenceEmpty(Op):
    """An empty sequence.

    Shapes:
        output: a sequence of 0 elements

    Example:
        >>> compute(SequenceEmpty())
        []

    Source:
        ONNX SequenceEmpty-11.
    """

    output = result(dtypes=_SEQUENCE)

    dtype: DataType = attribute(
        default=DataType.FLOAT32, choices=sorted(ANY_TYPE, key=str), doc="The type of the elements."
    )

    def infer(self) -> TensorInfo:
        return _sequence(0, TensorInfo(UNRANKED, self.dtype))


@op
class SequenceConstruct(Op):
    """A sequence of tensors of one type; their shapes may differ.

    Shapes:
        inputs: any
        output: a sequence of as many elements as there are inputs

    Example:
        >>> compute(SequenceConstruct(), [1.0, 2.0], [[3.0]])
        [array([1., 2.], dtype=float32), array([[3.]], dtype=float32)]

    Source:
        ONNX SequenceConstruct-11.
    """

    inputs = operand(variadic=True)
    output = result(dtypes=_SEQUENCE)

    def check(self, inputs: tuple[TensorInfo, ...]) -> Iterator[str]:
        unshaped_first = inputs[0].with_shape(...)
        for index, info in enumerate(inputs):
            if info != inputs[0] and _merged(unshaped_first, info.with_shape(...)) is None:
                yield f"inputs[{index}] is {info}; expected {unshaped_first}, the type of the first input"
            yield from quantized_axis_problems(info, range(MAX_RANK), "collect")

    def infer(self, inputs: tuple[TensorInfo, ...]) -> TensorInfo:
        return _sequence(len(inputs), reduce(TensorInfo.joined, dict.fromkeys(inputs)))


@op
class SequenceInsert(Op):
    """Insert a tensor into a sequence.

    Shapes:
        sequence: a sequence of N elements
        tensor: any, of the elements' type
        position: one number from -N to N, the new index; negative ones count from the end, absent: append
        output: a sequence of N + 1 elements

    Example:
        >>> compute(SequenceInsert(), [np.int32([1]), np.int32([2])], np.int32([9]), -1)
        [array([1], dtype=int32), array([9], dtype=int32), array([2], dtype=int32)]

    Source:
        ONNX SequenceInsert-11.
    """

    sequence = operand(dtypes=_SEQUENCE)
    tensor = operand()
    position = operand(role=Role.INDICES, rank=(0, 1), dtypes=_INDEX_TYPES, optional=True)
    output = result(dtypes=_SEQUENCE, dynamic=True)

    def check(self, sequence: TensorInfo, tensor: TensorInfo, position: TensorInfo | None) -> Iterator[str]:
        if _merged(_element(sequence).with_shape(...), tensor.with_shape(...)) is None:
            yield f"tensor is {tensor}; expected {_element(sequence).with_shape(...)}, as the elements of the sequence"
        yield from quantized_axis_problems(tensor, range(MAX_RANK), "collect")
        yield from _position_problems(position)

    def infer(self, sequence: TensorInfo, tensor: TensorInfo, position: TensorInfo | None) -> TensorInfo:
        inserted = _sequence(1, tensor.with_constant(None))
        return _sequence(sequence.shape[0] + 1, _element(sequence.joined(inserted)))


@op
class SequenceErase(Op):
    """Remove a tensor from a sequence.

    Shapes:
        sequence: a sequence of N elements
        position: one number from -N to N - 1; negative ones count from the end, absent: the last element
        output: a sequence of N - 1 elements

    Example:
        >>> compute(SequenceErase(), [np.int32([1]), np.int32([2])], 0)
        [array([2], dtype=int32)]

    Source:
        ONNX SequenceErase-11.
    """

    sequence = operand(dtypes=_SEQUENCE)
    position = operand(role=Role.INDICES, rank=(0, 1), dtypes=_INDEX_TYPES, optional=True)
    output = result(dtypes=_SEQUENCE, dynamic=True)

    def check(self, sequence: TensorInfo, position: TensorInfo | None) -> Iterator[str]:
        yield from _position_problems(position)

    def infer(self, sequence: TensorInfo, position: TensorInfo | None) -> TensorInfo:
        length = sequence.shape[0]
        return _sequence(length if length == 0 else length - 1, _element(sequence))


@op
class SequenceAt(Op):
    """The tensor at a position of a sequence.

    Shapes:
        sequence: a sequence of N elements
        position: one number from -N to N - 1; negative ones count from the end
        output: the shape of the element

    Example:
        >>> compute(SequenceAt(), [np.int32([1]), np.int32([2, 3])], -1).tolist()
        [2, 3]

    Source:
        ONNX SequenceAt-11.
    """

    sequence = operand(dtypes=_SEQUENCE)
    position = operand(role=Role.INDICES, rank=(0, 1), dtypes=_INDEX_TYPES)
    output = result(dynamic=True)

    def check(self, sequence: TensorInfo, position: TensorInfo) -> Iterator[str]:
        yield from _position_problems(position)

    def infer(self, sequence: TensorInfo, position: TensorInfo) -> TensorInfo:
        return _element(sequence)


@op
class SequenceLength(Op):
    """The number of tensors in a sequence.

    Shapes:
        sequence: any sequence
        output: ()

    Example:
        >>> int(compute(SequenceLength(), [np.int32([1]), np.int32([2, 3])]))
        2

    Source:
        ONNX SequenceLength-11.
    """

    sequence = operand(dtypes=_SEQUENCE)
    output = result(dtypes=(DataType.INT64,))

    def infer(self, sequence: TensorInfo) -> TensorInfo:
        length = sequence.shape[0]
        constant = None if isinstance(length, Dim) else np.array(length, np.int64)
        return TensorInfo((), DataType.INT64, constant=constant)


@op
class ConcatFromSequence(Op):
    """Concatenate the tensors of a sequence along an axis, or stack them along a new one.

    Shapes:
        sequence: a sequence of one element at least, all of one rank and the same sizes but for ``axis`` (for a new
            axis, all the same)
        output: the sum of the dimensions along ``axis``; for a new axis, the number of elements there

    Example:
        >>> compute(ConcatFromSequence(axis=0), [np.int32([1]), np.int32([2, 3])]).tolist()
        [1, 2, 3]
        >>> compute(ConcatFromSequence(axis=1, new_axis=True), [np.int32([1, 2]), np.int32([3, 4])]).tolist()
        [[1, 3], [2, 4]]

    Source:
        ONNX ConcatFromSequence-11.
    """

    sequence = operand(dtypes=_SEQUENCE)
    output = result(dynamic=True)

    axis: int = attribute(
        doc="The axis, or the position of the new one; negative ones count from the end of the result."
    )
    new_axis: bool = attribute(default=False, doc="Stack along a new axis.")

    def check(self, sequence: TensorInfo) -> Iterator[str]:
        element = _element(sequence)
        if element.is_ranked:
            rank = element.rank + self.new_axis
            if not -rank <= self.axis < rank:
                yield f"axis is {self.axis}, but the result has rank {rank}"

    def infer(self, sequence: TensorInfo) -> TensorInfo:
        element, length = _element(sequence), sequence.shape[0]
        if not element.is_ranked:
            return element
        shape = list(element.shape)
        if self.new_axis:
            shape.insert(normal_axis(self.axis, element.rank + 1), length)
        else:
            axis = normal_axis(self.axis, element.rank)
            shape[axis] = shape[axis] * length
        return element.with_shape(shape)


@op
class SplitToSequence(Op):
    """Split a tensor along an axis into a sequence of pieces.

    Shapes:
        input: any of rank 1 or more
        split: a scalar is the size of every piece (the last one may be smaller), (N,) the sizes of N pieces; absent
            stands for pieces of size 1
        output: a sequence of the pieces

    Example:
        >>> compute(SplitToSequence(), [1, 2, 3], np.int64(2))
        [array([1, 2], dtype=int32), array([3], dtype=int32)]
        >>> compute(SplitToSequence(keepdims=False), [[1, 2], [3, 4]])
        [array([1, 2], dtype=int32), array([3, 4], dtype=int32)]

    Source:
        ONNX SplitToSequence-24.
    """

    input = operand(rank=(1, MAX_RANK))
    split = operand(role=Role.SIZES, rank=(0, 1), dtypes=_INDEX_TYPES, optional=True)
    output = result(dtypes=_SEQUENCE, dynamic=True)

    axis: int = attribute(default=0, doc="The axis that is split; negative ones count from the end.")
    keepdims: bool = attribute(default=True, doc="Keep the axis with size 1 if ``split`` is absent.")

    def piece_sizes(self, dimension: int, split: Array | None) -> list[int]:
        """Return the sizes of the pieces of an axis of this dimension; `split` is the operand's value, None if absent.

        Raises:
            InvalidArgumentError: the sizes do not match the axis.
        """
        if split is not None and split.ndim:
            return self._checked_sizes(split, dimension)
        size = 1 if split is None else self._checked_sizes(split, dimension)[0]
        return [min(size, dimension - start) for start in range(0, dimension, size)]

    def _checked_sizes(self, split: Array, size: int) -> list[int]:
        sizes: list[int] = split.reshape(-1).tolist()
        if not split.ndim and sizes[0] < 1:
            raise InvalidArgumentError(f"split is {sizes[0]}; expected 1 or more")
        if min(sizes, default=0) < 0:
            raise InvalidArgumentError(f"split is {sizes}; a dimension must not be negative")
        if split.ndim and differ(sum(sizes), size):
            raise InvalidArgumentError(f"split is {sizes}, {sum(sizes)} in all, but axis {self.axis} has {size}")
        return sizes

    def pieces(self, size: int, split: TensorInfo | None) -> tuple[int, int]:
        """Return the number of pieces of an axis of this size, and the size of each piece.

        Each is an unknown dimension if it depends on a split that is not constant, or if the pieces have different
        sizes.

        Raises:
            InvalidArgumentError: the sizes do not match the axis.
        """
        if split is None:
            return size, 1
        if split.constant is None:
            return (split.shape[0] if split.rank else UNKNOWN), UNKNOWN
        sizes = self._checked_sizes(split.constant, size)
        if split.rank:
            return len(sizes), sizes[0] if len(set(sizes)) == 1 else UNKNOWN
        if isinstance(size, Dim):
            return UNKNOWN, UNKNOWN
        return -(-size // sizes[0]), min(sizes[0], size) if size % sizes[0] in (0, size) else UNKNOWN

    def check(self, input: TensorInfo, split: TensorInfo | None) -> Iterator[str]:
        yield from axes_problems((self.axis,), input.rank)
        if not -input.rank <= self.axis < input.rank:
            return
        yield from quantized_axis_problems(input, range(MAX_RANK), "cut")
        try:
            self.pieces(input.shape[self.axis], split)
        except InvalidArgumentError as error:
            yield str(error)

    def infer(self, input: TensorInfo, split: TensorInfo | None) -> TensorInfo:
        axis = normal_axis(self.axis, input.rank)
        count, size = self.pieces(input.shape[axis], split)
        split_axis_sizes = () if split is None and not self.keepdims else (size,)
        return _sequence(count, input.with_shape((*input.shape[:axis], *split_axis_sizes, *input.shape[axis + 1 :])))


# --- optionals --------------------------------------------------------------------------------------------------------


@op
class OptionalConstruct(Op):
    """An optional that holds a tensor or a sequence.

    Shapes:
        input: any tensor or sequence
        output: an optional of 1 element

    Example:
        >>> compute(OptionalConstruct(), [1.0, 2.0])
        array([1., 2.], dtype=float32)

    Source:
        ONNX Optional-15 with an input.
    """

    input = operand(dtypes=ANY_TYPE | {DataType.SEQUENCE})
    output = result(dtypes=_OPTIONAL)

    def infer(self, input: TensorInfo) -> TensorInfo:
        return TensorInfo((1,), DataType.OPTIONAL, element=input)


@op
class OptionalEmpty(Op):
    """An empty optional.

    Shapes:
        output: an optional of 0 elements

    Example:
        >>> print(compute(OptionalEmpty()))
        None

    Source:
        ONNX Optional-15 without an input.
    """

    output = result(dtypes=_OPTIONAL)

    dtype: DataType = attribute(
        default=DataType.FLOAT32,
        choices=sorted(ANY_TYPE, key=str),
        doc="The type of the tensors that the optional may hold.",
    )
    of_sequence: bool = attribute(default=False, doc="The optional may hold a sequence of such tensors.")

    def infer(self) -> TensorInfo:
        tensor = TensorInfo(UNRANKED, self.dtype)
        element = _sequence(UNKNOWN, tensor) if self.of_sequence else tensor
        return TensorInfo((0,), DataType.OPTIONAL, element=element)


@op
class OptionalHasElement(Op):
    """True if an optional holds an element.

    Shapes:
        input: any optional
        output: ()

    Example:
        >>> bool(compute(OptionalHasElement(), [1.0, 2.0]))
        True

    Source:
        ONNX OptionalHasElement-28.
    """

    input = operand(dtypes=_OPTIONAL)
    output = result(dtypes=(DataType.BOOL,))

    def infer(self, input: TensorInfo) -> TensorInfo:
        count = input.shape[0]
        return TensorInfo((), DataType.BOOL, constant=None if isinstance(count, Dim) else np.array(count == 1))


@op
class OptionalGetElement(Op):
    """The element of an optional, which must not be empty.

    Shapes:
        input: any optional
        output: the element, a tensor or a sequence

    Example:
        >>> compute(OptionalGetElement(), [1.0, 2.0]).tolist()
        [1.0, 2.0]

    Source:
        ONNX OptionalGetElement-28.
    """

    input = operand(dtypes=_OPTIONAL)
    output = result(dtypes=ANY_TYPE | {DataType.SEQUENCE}, dynamic=True)

    def infer(self, input: TensorInfo) -> TensorInfo:
        return _element(input)
