"""Operators that rearrange elements: concatenation, splitting, slicing, padding, tiling, transposition and reversal."""

from __future__ import annotations

from collections.abc import Iterator
from enum import Enum
from typing import Any, TypeAlias

from interposer.core.schema import Op, attribute, op, operand, result
from interposer.core.traits import Trait
from interposer.core.types import MAX_RANK, UNKNOWN, DataType, Dim, TensorInfo, TensorShape, differ
from interposer.ops.axes import axes_problems, normal_axis, quantized_axis_problems, same_shapes, transposed

__all__ = [
    "Concat",
    "Pad",
    "PaddingMode",
    "Permute",
    "ReverseV2",
    "Slice",
    "Splitter",
    "Stack",
    "StridedSlice",
    "Tile",
    "Transpose",
]


class PaddingMode(Enum):
    """How `Pad` fills the border that it adds."""

    CONSTANT = 0
    """A constant value."""
    REFLECT = 1
    """The tensor mirrored, without its edge."""
    SYMMETRIC = 2
    """The tensor mirrored, with its edge."""
    EDGE = 3
    """The nearest element of the edge."""
    WRAP = 4
    """The tensor repeated periodically."""


def _permutation_problems(axes: tuple[int, ...], rank: int, name: str) -> Iterator[str]:
    if sorted(axes) != list(range(rank)):
        yield f"{name} is {axes}; expected every axis of the input, 0 to {rank - 1}, once"


@op(traits=Trait.MOVES)
class Transpose(Op):
    """Permute the axes: axis i of the result is axis ``permutation[i]`` of the input.

    Shapes:
        input: any
        output: ``input.shape[permutation[i]]`` for each i

    Example:
        >>> compute(Transpose(permutation=(2, 0, 1)), np.zeros((5, 6, 7))).shape
        (7, 5, 6)
        >>> compute(Transpose(permutation=(1, 0)), [[1, 2, 3], [4, 5, 6]]).tolist()
        [[1, 4], [2, 5], [3, 6]]

    Source:
        ONNX Transpose-21; TFLite TRANSPOSE; NNAPI TRANSPOSE; Arm NN TransposeDescriptor.
    """

    input = operand()
    output = result(dtype_of="input")

    permutation: tuple[int, ...] = attribute(ge=0, doc="The input's axis for each axis of the result.")

    def check(self, input: TensorInfo) -> Iterator[str]:
        yield from _permutation_problems(self.permutation, input.rank, "permutation")

    def infer(self, input: TensorInfo) -> TensorInfo:
        return transposed(input, self.permutation)


@op(traits=Trait.MOVES)
class Permute(Op):
    """Permute the axes: axis i of the input becomes axis ``dim_mappings[i]`` of the result.

    Shapes:
        input: any
        output: ``output.shape[dim_mappings[i]] = input.shape[i]``

    Example:
        >>> compute(Permute(dim_mappings=(2, 0, 1)), np.zeros((5, 6, 7))).shape
        (6, 7, 5)
        >>> compute(Permute(dim_mappings=(1, 0)), [[1, 2, 3], [4, 5, 6]]).tolist()
        [[1, 4], [2, 5], [3, 6]]

    Source:
        Arm NN PermuteDescriptor. `Transpose` by the inverse permutation does the same.
    """

    input = operand()
    output = result(dtype_of="input")

    dim_mappings: tuple[int, ...] = attribute(ge=0, doc="The axis of the result for each axis of the input.")

    @property
    def permutation(self) -> tuple[int, ...]:
        """The permutation of the equivalent `Transpose`, the inverse of ``dim_mappings``."""
        return tuple(map(self.dim_mappings.index, range(len(self.dim_mappings))))

    def check(self, input: TensorInfo) -> Iterator[str]:
        yield from _permutation_problems(self.dim_mappings, input.rank, "dim_mappings")

    def infer(self, input: TensorInfo) -> TensorInfo:
        return transposed(input, self.permutation)


@op(traits=Trait.MOVES)
class Concat(Op):
    """Concatenate tensors along an axis; quantized inputs are requantized to the output's quantization if it differs.

    Shapes:
        inputs: the same rank, and the same dimensions except along ``axis``
        output: the inputs' shape with the sum of their dimensions along ``axis``

    Example:
        >>> compute(Concat(axis=0), [[1, 2]], [[3, 4], [5, 6]]).tolist()
        [[1, 2], [3, 4], [5, 6]]
        >>> compute(Concat(), [[1, 2]], [[3]]).tolist()
        [[1, 2, 3]]

    Source:
        ONNX Concat-13; TFLite CONCATENATION; NNAPI CONCATENATION; Arm NN ConcatDescriptor.
    """

    inputs = operand(rank=(1, MAX_RANK), variadic=True, same_dtype_as="inputs")
    output = result(dtype_of="inputs")

    axis: int = attribute(default=1, doc="The axis of concatenation; negative ones count from the end.")

    def check(self, inputs: tuple[TensorInfo, ...]) -> Iterator[str]:
        first_info = inputs[0]
        yield from axes_problems((self.axis,), first_info.rank)
        axis = normal_axis(self.axis, first_info.rank)
        for index, info in enumerate(inputs):
            if not same_shapes((first_info.shape, info.shape), axis):
                yield f"inputs[{index}] has shape {info.shape}; expected {first_info.shape} but for axis {axis}"
            yield from quantized_axis_problems(info, (axis,), "concatenate")

    def infer(self, inputs: tuple[TensorInfo, ...]) -> TensorInfo:
        first_info = inputs[0]
        axis = normal_axis(self.axis, first_info.rank)
        shape = [_first_known(dims_of_axis) for dims_of_axis in zip(*(info.shape for info in inputs), strict=True)]
        shape[axis] = sum(info.shape[axis] for info in inputs)
        return first_info.with_shape(shape)


def _first_known(dims: tuple[int, ...]) -> int:
    return next((dim for dim in dims if not isinstance(dim, Dim)), dims[0])


@op(traits=Trait.MOVES)
class Splitter(Op):
    """Split a tensor along an axis into pieces of given sizes.

    Shapes:
        input: any of rank 1 or more
        outputs: the input's shape with ``sizes[i]`` along ``axis``

    Example:
        >>> [piece.tolist() for piece in compute(Splitter(axis=1, sizes=(1, 2)), [[1, 2, 3], [4, 5, 6]])]
        [[[1], [4]], [[2, 3], [5, 6]]]

    Source:
        ONNX Split-18; TFLite SPLIT, SPLIT_V, UNPACK; NNAPI SPLIT; Arm NN ViewsDescriptor.
    """

    input = operand(rank=(1, MAX_RANK))
    outputs = result(variadic=True, dtype_of="input")

    axis: int = attribute(doc="The axis that is split; negative ones count from the end.")
    sizes: tuple[int, ...] = attribute(ge=0, doc="The dimension of each piece along the axis.")

    def num_results(self) -> int:
        return len(self.sizes)

    def check(self, input: TensorInfo) -> Iterator[str]:
        yield from axes_problems((self.axis,), input.rank)
        axis = normal_axis(self.axis, input.rank)
        if not 0 <= axis < input.rank:
            return
        if differ(sum(self.sizes), input.shape[axis]):
            yield f"sizes is {self.sizes}, {sum(self.sizes)} in all, but axis {axis} has size {input.shape[axis]}"
        yield from quantized_axis_problems(input, (axis,), "split")

    def infer(self, input: TensorInfo) -> tuple[TensorInfo, ...]:
        axis = normal_axis(self.axis, input.rank)
        leading_sizes, trailing_sizes = input.shape[:axis], input.shape[axis + 1 :]
        return tuple(input.with_shape((*leading_sizes, size, *trailing_sizes)) for size in self.sizes)


@op(traits=Trait.MOVES)
class Stack(Op):
    """Stack tensors of the same shape along a new axis.

    Shapes:
        inputs: all the same
        output: the inputs' shape with the number of inputs inserted as dimension number ``axis``

    Example:
        >>> compute(Stack(), [1, 2], [3, 4]).tolist()
        [[1, 2], [3, 4]]
        >>> compute(Stack(axis=-1), [1, 2], [3, 4]).tolist()
        [[1, 3], [2, 4]]

    Source:
        TFLite PACK; NNAPI PACK; Arm NN StackDescriptor; ONNX ConcatFromSequence-11 with a new axis.
    """

    inputs = operand(rank=(0, MAX_RANK - 1), variadic=True, same_dtype_as="inputs")
    output = result(dtype_of="inputs")

    axis: int = attribute(default=0, doc="The index of the new axis; negative ones count from the end of the result.")

    def check(self, inputs: tuple[TensorInfo, ...]) -> Iterator[str]:
        first_info = inputs[0]
        if not -first_info.rank - 1 <= self.axis <= first_info.rank:
            yield f"axis is {self.axis}, but the result has rank {first_info.rank + 1}"
        for index, info in enumerate(inputs):
            if not same_shapes((first_info.shape, info.shape)):
                yield f"inputs[{index}] has shape {info.shape}; expected {first_info.shape}"
            yield from quantized_axis_problems(info, range(MAX_RANK), "stack")

    def infer(self, inputs: tuple[TensorInfo, ...]) -> TensorInfo:
        shape = [_first_known(dims_of_axis) for dims_of_axis in zip(*(info.shape for info in inputs), strict=True)]
        shape.insert(normal_axis(self.axis, len(shape) + 1), len(inputs))
        return inputs[0].with_shape(shape)


@op(traits=Trait.MOVES)
class Slice(Op):
    """Extract a rectangular slice of a tensor.

    Shapes:
        input: any
        output: ``size``, where -1 means all elements from ``begin`` on

    Example:
        >>> compute(Slice(begin=(0, 1), size=(2, -1)), [[1, 2, 3], [4, 5, 6], [7, 8, 9]]).tolist()
        [[2, 3], [5, 6]]

    Source:
        ONNX Slice-13 with steps of 1; TFLite SLICE; NNAPI SLICE; Arm NN SliceDescriptor.
    """

    input = operand()
    output = result(dtype_of="input")

    begin: tuple[int, ...] = attribute(ge=0, doc="The first index along each axis.")
    size: tuple[int, ...] = attribute(ge=-1, doc="Number of elements along each axis; -1 means all from ``begin`` on.")

    def check(self, input: TensorInfo) -> Iterator[str]:
        if len(self.begin) != input.rank or len(self.size) != input.rank:
            yield f"begin is {self.begin} and size {self.size}; expected {input.rank} numbers each, the input's rank"
            return
        for axis, (begin, size, dim) in enumerate(zip(self.begin, self.size, input.shape, strict=True)):
            if begin + max(size, 0) > dim:
                yield f"elements {begin} to {begin + max(size, 0) - 1} of axis {axis} are out of range for size {dim}"
        sliced_axes = (axis for axis, size in enumerate(self.sizes(input.shape)) if differ(size, input.shape[axis]))
        yield from quantized_axis_problems(input, sliced_axes, "split")

    def sizes(self, shape: TensorShape) -> tuple[int, ...]:
        """Return the dimensions of the slice of an input of this shape.

        They are ``size``, with -1 replaced by the number of elements from ``begin`` on.
        """
        return tuple(
            dim - begin if size == -1 and begin else dim if size == -1 else size
            for begin, size, dim in zip(self.begin, self.size, shape, strict=True)
        )

    def infer(self, input: TensorInfo) -> TensorInfo:
        return input.with_shape(self.sizes(input.shape))


Index: TypeAlias = "slice | int | None"


@op(traits=Trait.MOVES)
class StridedSlice(Op):
    """Extract a strided slice of a tensor, as Python's ``x[begin:end:stride, ...]`` does.

    Bit i of a mask refers to element i of begin, end and stride.

    Shapes:
        input: any
        output: what indexing gives; shrunk axes are dropped, new axes of size 1 added

    Example:
        >>> numbers = [[1, 2, 3], [4, 5, 6]]
        >>> compute(StridedSlice(begin=(0, 2), end=(2, 0), stride=(1, -1)), numbers).tolist()
        [[3, 2], [6, 5]]
        >>> every_second = StridedSlice(begin=(1, 0), end=(0, 0), stride=(1, 2), shrink_axis_mask=0b01, end_mask=0b10)
        >>> compute(every_second, numbers).tolist()
        [4, 6]

    Source:
        TFLite STRIDED_SLICE; NNAPI STRIDED_SLICE; Arm NN StridedSliceDescriptor; ONNX Slice-13. Where bits of several
        masks are set for one element, the ellipsis goes before the new axis, and that before the shrunk one.
    """

    input = operand()
    output = result(dtype_of="input")

    begin: tuple[int, ...] = attribute(doc="The first index of each item; negative ones count from the end.")
    end: tuple[int, ...] = attribute(doc="The index before which each item stops.")
    stride: tuple[int, ...] = attribute(doc="The step of each item; not 0.")
    begin_mask: int = attribute(
        default=0, ge=0, doc="Items whose begin is ignored: they start at the beginning of the axis."
    )
    end_mask: int = attribute(default=0, ge=0, doc="Items whose end is ignored: they extend to the end of the axis.")
    shrink_axis_mask: int = attribute(default=0, ge=0, doc="Items that take the element at begin and drop the axis.")
    ellipsis_mask: int = attribute(
        default=0, ge=0, doc="The item that is an ellipsis, which stands for all axes that are not listed."
    )
    new_axis_mask: int = attribute(default=0, ge=0, doc="Items that insert an axis of size 1.")

    def check(self, input: TensorInfo) -> Iterator[str]:
        count = len(self.begin)
        if not count == len(self.end) == len(self.stride):
            yield f"begin, end and stride have {count}, {len(self.end)} and {len(self.stride)} items; expected as many"
            return
        if 0 in self.stride:
            yield f"stride is {self.stride}; a step must not be 0"
            return
        yield from self._item_problems(input)

    def _item_problems(self, input: TensorInfo) -> Iterator[str]:
        ellipses = [index for index in range(len(self.begin)) if self.ellipsis_mask >> index & 1]
        sliced_count = sum(
            1 for index in range(len(self.begin)) if index not in ellipses and not self.new_axis_mask >> index & 1
        )
        if len(ellipses) > 1:
            yield f"ellipsis_mask is {self.ellipsis_mask:#b}; at most one item may be an ellipsis"
        elif sliced_count > input.rank:
            yield f"{sliced_count} axes are sliced, but the input has rank {input.rank}"
        else:
            yield from self._axis_problems(input)

    def _axis_problems(self, input: TensorInfo) -> Iterator[str]:
        axes = (index for index in self.index(input.rank) if index is not None)
        for axis, (index, dim) in enumerate(zip(axes, input.shape, strict=True)):
            if isinstance(index, int) and (index >= dim or index < -dim):
                yield f"element {index} of axis {axis} is out of range for size {dim}"
            if index != slice(None, None, 1):
                yield from quantized_axis_problems(input, (axis,), "split")
        if self._result_rank(input.rank) > MAX_RANK:
            yield f"the result has rank {self._result_rank(input.rank)}; ranks 0 to {MAX_RANK} are supported"

    def _result_rank(self, rank: int) -> int:
        return sum(not isinstance(index, int) for index in self.index(rank))

    def index(self, rank: int) -> tuple[Index, ...]:
        """Return the index for a NumPy array of this rank: slices, integers for shrunk axes, None for new axes."""
        indices = [self._item(position) for position in range(len(self.begin))]
        unlisted_count = rank - sum(index is not None and index is not ... for index in indices)
        full_slices = [slice(None, None, 1)] * unlisted_count
        if ... not in indices:
            return (*indices, *full_slices)
        ellipsis_position = indices.index(...)
        return (*indices[:ellipsis_position], *full_slices, *indices[ellipsis_position + 1 :])

    def _item(self, position: int) -> Any:
        if self.ellipsis_mask >> position & 1:
            return ...
        if self.new_axis_mask >> position & 1:
            return None
        begin = None if self.begin_mask >> position & 1 else self.begin[position]
        if self.shrink_axis_mask >> position & 1:
            return begin or 0
        return slice(begin, None if self.end_mask >> position & 1 else self.end[position], self.stride[position])

    def infer(self, input: TensorInfo) -> TensorInfo:
        dims = iter(input.shape)
        shape: list[int] = []
        for index in self.index(input.rank):
            dim = 1 if index is None else next(dims)
            if isinstance(index, slice):
                shape.append(_sliced_size(index, dim))
            elif index is None:
                shape.append(1)
        per_axis = input.quantization is not None and input.quantization.per_axis
        return input.with_shape(shape) if not per_axis or len(shape) == input.rank else TensorInfo(shape, input.dtype)


def _sliced_size(index: slice, dim: int) -> int:
    if isinstance(dim, Dim):
        return dim if index.start in (None, 0) and index.stop is None and index.step == 1 else UNKNOWN
    return len(range(*index.indices(dim)))


@op
class Pad(Op):
    """Add a border to a tensor.

    Shapes:
        input: any
        output: each dimension with both of its pads added

    Example:
        >>> compute(Pad(pad_list=((0, 1), (2, 0)), pad_value=9.0), [[1, 2], [3, 4]]).tolist()
        [[9, 9, 1, 2], [9, 9, 3, 4], [9, 9, 9, 9]]
        >>> compute(Pad(pad_list=((2, 2),), padding_mode=PaddingMode.REFLECT), [1, 2, 3]).tolist()
        [3, 2, 1, 2, 3, 2, 1]
        >>> compute(Pad(pad_list=((2, 2),), padding_mode=PaddingMode.SYMMETRIC), [1, 2, 3]).tolist()
        [2, 1, 1, 2, 3, 3, 2]

    Source:
        ONNX Pad-21 (pads of 0 and more); TFLite PAD, PADV2, MIRROR_PAD; NNAPI PAD, PAD_V2, MIRROR_PAD;
        Arm NN PadDescriptor.
    """

    input = operand()
    output = result(dtype_of="input")

    pad_list: tuple[tuple[int, int], ...] = attribute(doc="Number of elements added before and after, for each axis.")
    pad_value: float = attribute(default=0.0, doc="Value of the border: a float value, also for quantized tensors.")
    padding_mode: PaddingMode = attribute(default=PaddingMode.CONSTANT, doc="How the border is filled.")

    @property
    def traits(self) -> Trait:
        return Trait.MOVES | (Trait.FILLS if self.padding_mode is PaddingMode.CONSTANT else Trait.NONE)

    def check(self, input: TensorInfo) -> Iterator[str]:
        if len(self.pad_list) != input.rank:
            yield f"pad_list has {len(self.pad_list)} pairs, but the input has rank {input.rank}"
            return
        for axis, (padding, dim) in enumerate(zip(self.pad_list, input.shape, strict=True)):
            yield from self._padding_problems(axis, padding, dim)
        if input.dtype is DataType.STRING:
            yield "a tensor of strings cannot be padded"
        yield from quantized_axis_problems(input, (i for i, padding in enumerate(self.pad_list) if any(padding)), "pad")

    def _padding_problems(self, axis: int, padding: tuple[int, int], dim: int) -> Iterator[str]:
        if min(padding) < 0:
            yield f"the pads of axis {axis} are {padding}; expected 0 or more"
        limits = {PaddingMode.REFLECT: dim - 1, PaddingMode.SYMMETRIC: dim, PaddingMode.WRAP: dim}
        limit = limits.get(self.padding_mode)
        if limit is not None and any(padding) and max(padding) > limit:
            yield f"the pads of axis {axis} are {padding}; {self.padding_mode.name} allows at most {limit} there"
        if self.padding_mode is PaddingMode.EDGE and any(padding) and not differ(dim, 0):
            yield from () if isinstance(dim, Dim) else (f"axis {axis} is empty and has no edge to repeat",)

    def infer(self, input: TensorInfo) -> TensorInfo:
        pads = map(sum, self.pad_list)
        return input.with_shape(
            [dim + padding if padding else dim for dim, padding in zip(input.shape, pads, strict=True)]
        )


@op(traits=Trait.MOVES)
class Tile(Op):
    """Repeat a tensor along its axes.

    Shapes:
        input: any
        output: each dimension times its multiple

    Example:
        >>> compute(Tile(multiples=(2, 3)), [[1, 2]]).tolist()
        [[1, 2, 1, 2, 1, 2], [1, 2, 1, 2, 1, 2]]

    Source:
        ONNX Tile-13; TFLite TILE; NNAPI TILE; Arm NN TileDescriptor.
    """

    input = operand()
    output = result(dtype_of="input")

    multiples: tuple[int, ...] = attribute(ge=0, doc="Number of repetitions along each axis.")

    def check(self, input: TensorInfo) -> Iterator[str]:
        if len(self.multiples) != input.rank:
            yield f"multiples is {self.multiples}; expected {input.rank} numbers, the input's rank"
        yield from quantized_axis_problems(
            input, (axis for axis, multiple in enumerate(self.multiples) if multiple != 1), "repeat"
        )

    def infer(self, input: TensorInfo) -> TensorInfo:
        dims_and_multiples = zip(input.shape, self.multiples, strict=True)
        return input.with_shape([dim if multiple == 1 else dim * multiple for dim, multiple in dims_and_multiples])


@op(traits=Trait.MOVES)
class ReverseV2(Op):
    """Reverse the order of the elements along some axes.

    Shapes:
        input, output: any, the same

    Example:
        >>> compute(ReverseV2(axis=(1,)), [[1, 2, 3], [4, 5, 6]]).tolist()
        [[3, 2, 1], [6, 5, 4]]
        >>> compute(ReverseV2(axis=(0, 1)), [[1, 2, 3], [4, 5, 6]]).tolist()
        [[6, 5, 4], [3, 2, 1]]

    Source:
        TFLite REVERSE_V2; NNAPI REVERSE; Arm NN ReverseV2Layer, whose second input is ``axis`` here.
    """

    input = operand()
    output = result(like="input")

    axis: tuple[int, ...] = attribute(doc="The axes that are reversed; negative ones count from the end.")

    def check(self, input: TensorInfo) -> Iterator[str]:
        yield from axes_problems(self.axis, input.rank)
        yield from quantized_axis_problems(input, (normal_axis(axis, input.rank) for axis in self.axis), "turn")
