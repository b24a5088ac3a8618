"""Operators that take as tensors what other operators take as attributes.

Each of these operators is equivalent to another operator once the values of its tensors are known; see `settled`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

import numpy as np

from interposer.core.errors import InvalidArgumentError, OutOfRangeError
from interposer.core.schema import Op, attribute, op, operand, result
from interposer.core.traits import Role, Trait
from interposer.core.types import MAX_RANK, UNKNOWN, Array, DataType, Dim, TensorInfo, TensorShape
from interposer.ops.axes import axes_problems, broadcast_shapes, normal_axis, quantized_axis_problems
from interposer.ops.choice import TopK
from interposer.ops.rearrange import Pad, PaddingMode, Splitter, StridedSlice, Tile
from interposer.ops.reshape import BroadcastTo, Reshape

__all__ = [
    "DynamicBroadcastTo",
    "DynamicOp",
    "DynamicPad",
    "DynamicReshape",
    "DynamicSlice",
    "DynamicSplitter",
    "DynamicTile",
    "DynamicTopK",
]

_INDEX_TYPES: Final = (DataType.INT32, DataType.INT64)
_LARGEST_INDEX: Final = (1 << 31) - 1


class DynamicOp(Op):
    """Base class of operators that take as tensors what are attributes of another operator, such as `Reshape`.

    The first operand is the data. Once the other operands are constant, the other operator can replace this one.
    """

    def settle(self, shape: TensorShape, *values: Array | None) -> Op:
        """Return the equivalent operator on the data alone, whose attributes are the values of the further operands.

        `shape` is the shape of the data. A value is None if the operand is absent.

        Raises:
            InvalidArgumentError: the values are invalid.
        """
        raise NotImplementedError

    def settled(self, *infos: TensorInfo | None) -> Op | None:
        """Return the equivalent operator on the data alone for these infos of all operands, or None.

        It is None if a further operand is not constant.

        Raises:
            InvalidArgumentError: the values are invalid.
        """
        data_info, *attribute_infos = self.arguments(infos)
        if data_info is None or any(info is not None and info.constant is None for info in attribute_infos):
            return None
        return self.settle(data_info.shape, *(None if info is None else info.constant for info in attribute_infos))

    def infer(self, *infos: Any) -> TensorInfo | tuple[TensorInfo | None, ...]:
        """Return what the equivalent operator infers if `settled` returns one, else what `unsettled` returns."""
        static_op = self.settled(*infos)
        return self.unsettled(*infos) if static_op is None else tuple(static_op.infer_infos(infos[0]))

    def unsettled(self, input: TensorInfo, *others: Any) -> TensorInfo | tuple[TensorInfo | None, ...]:
        """Return the infos of the results if a further operand is not constant.

        By default, there is one result, with the rank of the input and unknown dimensions.
        """
        return _with_unknown_sizes(input, input.rank)

    def _problems(self, *infos: TensorInfo | None) -> Iterator[str]:
        try:
            static_op = self.settled(*infos)
        except InvalidArgumentError as error:
            yield str(error)
            return
        if static_op is not None:
            yield from static_op.violations(infos[0])


def _length_problems(info: TensorInfo, operand_name: str, rank: int | None = None) -> Iterator[str]:
    count = info.shape[0]
    if isinstance(count, Dim):
        yield f"the number of elements of {operand_name} is not known"
    elif rank is not None and count != rank:
        yield f"{operand_name} holds {count} numbers for an input of rank {rank}"
    elif count > MAX_RANK:
        yield f"{operand_name} holds {count} dimensions; ranks 0 to {MAX_RANK} are supported"


def _check_not_negative(numbers: Array, message: str) -> None:
    """Raise `OutOfRangeError` with this message for the first number below 0."""
    for number in numbers[numbers < 0].tolist():
        raise OutOfRangeError(message, number, (0, None))


def _with_unknown_sizes(input: TensorInfo, rank: int, axes: Sequence[int] = ()) -> TensorInfo:
    """Return the info of a result of this rank like `input`, with unknown dimensions except along `axes`."""
    sizes = [input.shape[axis] if axis in axes else UNKNOWN for axis in range(rank)]
    per_axis = input.quantization is not None and input.quantization.per_axis
    return TensorInfo(sizes, input.dtype, None if per_axis else input.quantization)


@op(traits=Trait.MOVES)
class DynamicReshape(DynamicOp):
    """Reshape to a shape that is a tensor; the order of the elements stays the same.

    Shapes:
        input: any
        shape: (R,), where one dimension of -1 is inferred
        output: R dimensions

    Example:
        >>> compute(DynamicReshape(), [[1, 2, 3], [4, 5, 6]], [3, -1]).tolist()
        [[1, 2], [3, 4], [5, 6]]
        >>> compute(DynamicReshape(copy_zeros=True), [[1, 2, 3], [4, 5, 6]], [0, 1, -1]).shape
        (2, 1, 3)

    Source:
        ONNX Reshape-21; TFLite RESHAPE with a shape that is no constant.
    """

    input = operand()
    shape = operand(role=Role.SIZES, rank=1, dtypes=_INDEX_TYPES)
    output = result(dtype_of="input", dynamic=True)

    copy_zeros: bool = attribute(default=False, doc="A dimension of 0 copies the input's dimension at the same index.")

    def settle(self, shape: TensorShape, *values: Array | None) -> Op:
        [target_shape] = values
        assert target_shape is not None
        return Reshape(tuple(target_shape.tolist()), self.copy_zeros)

    def check(self, input: TensorInfo, shape: TensorInfo) -> Iterator[str]:
        yield from _length_problems(shape, "shape")
        yield from self._problems(input, shape)

    def unsettled(self, input: TensorInfo, *others: Any) -> TensorInfo:
        [target] = others
        return _with_unknown_sizes(input, target.shape[0])


@op(traits=Trait.MOVES)
class DynamicBroadcastTo(DynamicOp):
    """Broadcast to a shape that is a tensor, along axes of size 1 and along new axes at the front.

    A dimension of 1 in the shape leaves the input's dimension as it is.

    Shapes:
        input: any
        shape: (R,)
        output: what the input's shape and the dimensions in ``shape`` broadcast to by NumPy's rule

    Example:
        >>> compute(DynamicBroadcastTo(), [[1], [2]], [2, 3]).tolist()
        [[1, 1, 1], [2, 2, 2]]
        >>> compute(DynamicBroadcastTo(), [1, 2], [2, 1]).tolist()
        [[1, 2], [1, 2]]

    Source:
        ONNX Expand-13; TFLite BROADCAST_TO with a shape that is no constant.
    """

    input = operand()
    shape = operand(role=Role.SIZES, rank=1, dtypes=_INDEX_TYPES)
    output = result(dtype_of="input", dynamic=True)

    def settled(self, *infos: TensorInfo | None) -> Op | None:
        is_concrete = infos[0] is not None and infos[0].is_concrete
        return super().settled(*infos) if is_concrete else None

    def settle(self, shape: TensorShape, *values: Array | None) -> Op:
        [target_shape] = values
        assert target_shape is not None
        _check_not_negative(target_shape, f"shape is {target_shape.tolist()}; a dimension must not be negative")
        broadcast = broadcast_shapes(shape, TensorShape(target_shape.tolist()))
        if broadcast is None:
            raise InvalidArgumentError(f"an input of shape {shape} cannot be broadcast to {target_shape.tolist()}")
        return BroadcastTo(tuple(broadcast))

    def check(self, input: TensorInfo, shape: TensorInfo) -> Iterator[str]:
        yield from _length_problems(shape, "shape")
        yield from self._problems(input, shape)

    def unsettled(self, input: TensorInfo, *others: Any) -> TensorInfo:
        [target] = others
        target_dims = [UNKNOWN] * target.shape[0] if target.constant is None else target.constant.tolist()
        return _with_unknown_sizes(input, max(input.rank, len(target_dims))).with_shape(
            broadcast_shapes(input.shape, TensorShape(target_dims)) or [UNKNOWN] * max(input.rank, len(target_dims))
        )


@op(traits=Trait.MOVES)
class DynamicSlice(DynamicOp):
    """Slice a tensor along axes, with starts, ends and steps that are tensors.

    Negative indices count from the end of the axis, and indices out of range are clamped. A negative step goes
    backwards; its start is clamped to the first element, so that a start before it selects this element.

    Shapes:
        input: any of rank 1 or more
        starts, ends, steps: (N,), a number for each of ``axes``
        output: the input's shape, with as many elements along ``axes`` as there are from start to before the end

    Example:
        >>> compute(DynamicSlice(axes=(1,)), [[1, 2, 3], [4, 5, 6]], [1], [100]).tolist()
        [[2, 3], [5, 6]]
        >>> compute(DynamicSlice(axes=(0,)), [1, 2, 3], [-1], [-100], [-1]).tolist()
        [3, 2, 1]
        >>> compute(DynamicSlice(axes=(0,)), [1, 2, 3], [-7], [-100], [-1]).tolist()
        [1]

    Source:
        ONNX Slice-13; TFLite SLICE and STRIDED_SLICE with bounds that are no constants.
    """

    input = operand(rank=(1, MAX_RANK))
    starts = operand(role=Role.SIZES, rank=1, dtypes=_INDEX_TYPES)
    ends = operand(role=Role.SIZES, rank=1, dtypes=_INDEX_TYPES)
    steps = operand(role=Role.SIZES, rank=1, dtypes=_INDEX_TYPES, optional=True)
    output = result(dtype_of="input", dynamic=True)

    axes: tuple[int, ...] = attribute(doc="The axes that are sliced; negative ones count from the end.")

    def settled(self, *infos: TensorInfo | None) -> Op | None:
        data_info, *attribute_infos = self.arguments(infos)
        starts, _, steps = (None if info is None else info.constant for info in attribute_infos)
        if data_info is not None and starts is not None and steps is not None:
            axes = zip(self._normal_axes(data_info.rank), starts.tolist(), steps.tolist(), strict=True)
            if any(isinstance(data_info.shape[axis], Dim) and step < 0 and start < -1 for axis, start, step in axes):
                return None  # the first element depends on the size
        return super().settled(*infos)

    def settle(self, shape: TensorShape, *values: Array | None) -> Op:
        starts, ends, steps = values
        assert starts is not None and ends is not None
        strides = [1] * len(self.axes) if steps is None else steps.tolist()
        if 0 in strides:
            raise OutOfRangeError(f"steps is {strides}; a step must not be 0", 0)
        bounds_by_axis = dict(
            zip(self._normal_axes(len(shape)), zip(starts.tolist(), ends.tolist(), strides, strict=True), strict=True)
        )
        begin, end, stride = zip(
            *(bounds_by_axis.get(axis, (0, _LARGEST_INDEX, 1)) for axis in range(len(shape))), strict=True
        )
        return StridedSlice(
            begin=tuple(map(_first_index, begin, stride, shape)),
            end=tuple(map(_clamped_index, end)),
            stride=tuple(map(_clamped_index, stride)),
            begin_mask=sum(1 << axis for axis in range(len(shape)) if axis not in bounds_by_axis),
            end_mask=sum(1 << axis for axis in range(len(shape)) if end[axis] >= _LARGEST_INDEX and stride[axis] > 0),
        )

    def _normal_axes(self, rank: int) -> tuple[int, ...]:
        return tuple(normal_axis(axis, rank) for axis in self.axes)

    def check(self, input: TensorInfo, starts: TensorInfo, ends: TensorInfo, steps: TensorInfo | None) -> Iterator[str]:
        errors = list(axes_problems(self.axes, input.rank))
        for operand_name, info in (("starts", starts), ("ends", ends), ("steps", steps)):
            if info is not None and info.shape[0] != len(self.axes):
                errors.append(f"{operand_name} holds {info.shape[0]} numbers for {len(self.axes)} axes")
        yield from errors
        if not errors:
            yield from quantized_axis_problems(input, self._normal_axes(input.rank), "cut")
            yield from self._problems(input, starts, ends, steps)

    def unsettled(self, input: TensorInfo, *others: Any) -> TensorInfo:
        sliced_axes = self._normal_axes(input.rank)
        return input.with_shape([UNKNOWN if axis in sliced_axes else dim for axis, dim in enumerate(input.shape)])


def _first_index(start: int, step: int, size: int) -> int:
    """Return the start for `StridedSlice`, which selects nothing if a backward slice starts before the first element.

    Python's indices have this meaning; `DynamicSlice` starts at the first element instead.
    """
    is_before = step < 0 and start < -1 and not isinstance(size, Dim) and start < -size
    return _clamped_index(-size if is_before else start)


def _clamped_index(number: int) -> int:
    """Clamp an index to the range of int32; no axis is that long, so an index farther out has the same effect."""
    return max(-_LARGEST_INDEX, min(number, _LARGEST_INDEX))


@op(traits=Trait.MOVES)
class DynamicSplitter(DynamicOp):
    """Split a tensor along an axis into pieces whose sizes are a tensor.

    Shapes:
        input: any of rank 1 or more
        sizes: (N,), one number of 0 or more for each output; their sum is the input's dimension along ``axis``
        outputs: the input's shape with ``sizes[i]`` along ``axis``

    Example:
        >>> pieces = compute(DynamicSplitter(axis=1, num_outputs=2), [[1, 2, 3], [4, 5, 6]], [1, 2])
        >>> [piece.tolist() for piece in pieces]
        [[[1], [4]], [[2, 3], [5, 6]]]

    Source:
        ONNX Split-18 with sizes that are no constant.
    """

    input = operand(rank=(1, MAX_RANK))
    sizes = operand(role=Role.SIZES, rank=1, dtypes=_INDEX_TYPES)
    outputs = result(variadic=True, dtype_of="input", dynamic=True)

    axis: int = attribute(doc="The axis that is split; negative ones count from the end.")
    num_outputs: int = attribute(ge=1, doc="The number of pieces.")

    def num_results(self) -> int:
        return self.num_outputs

    def settle(self, shape: TensorShape, *values: Array | None) -> Op:
        [sizes] = values
        assert sizes is not None
        _check_not_negative(sizes, f"sizes is {sizes.tolist()}; expected 0 or more for each output")
        return Splitter(self.axis, tuple(sizes.tolist()))

    def check(self, input: TensorInfo, sizes: TensorInfo) -> Iterator[str]:
        errors = list(axes_problems((self.axis,), input.rank))
        if sizes.shape[0] != self.num_outputs:
            errors.append(f"sizes holds {sizes.shape[0]} numbers for {self.num_outputs} outputs")
        yield from errors
        if not errors:
            yield from quantized_axis_problems(input, (normal_axis(self.axis, input.rank),), "split")
            yield from self._problems(input, sizes)

    def unsettled(self, input: TensorInfo, *others: Any) -> tuple[TensorInfo | None, ...]:
        shape = list(input.shape)
        shape[normal_axis(self.axis, input.rank)] = UNKNOWN
        return (input.with_shape(shape),) * self.num_outputs


@op(traits=Trait.MOVES)
class DynamicTile(DynamicOp):
    """Repeat a tensor along each axis; the counts are a tensor.

    Shapes:
        input: any of rank R, at least 1
        multiples: (R,)
        output: the input's dimensions times ``multiples``

    Example:
        >>> compute(DynamicTile(), [[1, 2]], [2, 2]).tolist()
        [[1, 2, 1, 2], [1, 2, 1, 2]]

    Source:
        ONNX Tile-13; TFLite TILE with multiples that are no constant.
    """

    input = operand(rank=(1, MAX_RANK))
    multiples = operand(role=Role.SIZES, rank=1, dtypes=_INDEX_TYPES)
    output = result(dtype_of="input", dynamic=True)

    def settle(self, shape: TensorShape, *values: Array | None) -> Op:
        [multiples] = values
        assert multiples is not None
        _check_not_negative(multiples, f"multiples is {multiples.tolist()}; expected 0 or more for each axis")
        return Tile(tuple(multiples.tolist()))

    def check(self, input: TensorInfo, multiples: TensorInfo) -> Iterator[str]:
        errors = list(_length_problems(multiples, "multiples", input.rank))
        yield from errors or Tile((1,) * input.rank).violations(input)
        yield from () if errors else self._problems(input, multiples)


@op
class DynamicPad(DynamicOp):
    """Add a border to a tensor; the widths are a tensor.

    Shapes:
        input: any of rank R, at least 1
        pads: (R, 2), how much to add before and after along each axis
        output: the input's dimensions plus both pads

    Example:
        >>> compute(DynamicPad(pad_value=9), [1, 2], [[1, 2]]).tolist()
        [9, 1, 2, 9, 9]

    Source:
        ONNX Pad-21 and TFLite PADV2, MIRROR_PAD with pads that are no constant.
    """

    input = operand(rank=(1, MAX_RANK))
    pads = operand(role=Role.SIZES, rank=2, dtypes=_INDEX_TYPES)
    output = result(dtype_of="input", dynamic=True)

    pad_value: float = attribute(default=0.0, doc="Value of the border: a float value, also for quantized tensors.")
    padding_mode: PaddingMode = attribute(default=PaddingMode.CONSTANT, doc="How the border is filled.")

    @property
    def traits(self) -> Trait:
        return Trait.MOVES | (Trait.FILLS if self.padding_mode is PaddingMode.CONSTANT else Trait.NONE)

    def settle(self, shape: TensorShape, *values: Array | None) -> Op:
        [pads] = values
        assert pads is not None
        return Pad(tuple((before, after) for before, after in pads.tolist()), self.pad_value, self.padding_mode)

    def check(self, input: TensorInfo, pads: TensorInfo) -> Iterator[str]:
        if tuple(pads.shape) != (input.rank, 2):
            yield f"pads has shape {pads.shape}; expected [{input.rank}, 2]"
            return
        yield from Pad(((0, 0),) * input.rank, self.pad_value, self.padding_mode).violations(input)
        yield from self._problems(input, pads)


@op(traits=Trait.CHOOSES)
class DynamicTopK(DynamicOp):
    """The k largest (or smallest) elements along an axis and their indices, where k is a tensor.

    Of equal elements, the one with the lower index comes first.

    Shapes:
        input: any of rank 1 or more
        k: () or (1,)
        values, indices: the input's shape with the number in ``k`` at ``axis``

    Example:
        >>> values, indices = compute(DynamicTopK(), [3, 9, 9, 1], [2])
        >>> values.tolist(), indices.tolist()
        ([9, 9], [1, 2])

    Source:
        ONNX TopK-24 and TFLite TOPK_V2 with a k that is no constant.
    """

    input = operand(rank=(1, MAX_RANK))
    k = operand(role=Role.SIZES, rank=(0, 1), dtypes=_INDEX_TYPES)
    values = result(dtype_of="input", dynamic=True)
    indices = result(dtypes=_INDEX_TYPES, dynamic=True)

    axis: int = attribute(default=-1, doc="The axis that is searched; negative ones count from the end.")
    largest: bool = attribute(default=True, doc="Return the largest elements, not the smallest.")
    index_dtype: DataType = attribute(default=DataType.INT32, choices=_INDEX_TYPES, doc="The type of the indices.")

    def settle(self, shape: TensorShape, *values: Array | None) -> Op:
        [k] = values
        assert k is not None
        axis = normal_axis(self.axis, len(shape))
        count, size = int(np.reshape(k, -1)[0]), shape[axis]
        if not isinstance(size, Dim) and count > size:
            raise OutOfRangeError(f"k is {count}, but axis {axis} has only {size} elements", count, (0, size))
        _check_not_negative(k, f"k is {count}; expected 0 or more")
        return TopK(count, self.axis, self.largest, self.index_dtype)

    def check(self, input: TensorInfo, k: TensorInfo) -> Iterator[str]:
        errors = list(axes_problems((self.axis,), input.rank))
        if k.rank and k.shape[0] != 1:
            errors.append(f"k has shape {k.shape}; expected one number")
        yield from errors or TopK(0, self.axis).violations(input)
        yield from () if errors else self._problems(input, k)

    def unsettled(self, input: TensorInfo, *others: Any) -> tuple[TensorInfo | None, ...]:
        shape = list(input.shape)
        shape[normal_axis(self.axis, input.rank)] = UNKNOWN
        return input.with_shape(shape), TensorInfo(shape, self.index_dtype)
