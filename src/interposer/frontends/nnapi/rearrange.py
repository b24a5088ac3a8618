"""NNAPI converters for operators that rearrange, reshape and select elements."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from interposer.core.types import Dim, TensorShape
from interposer.frontends.nnapi.nnapi_converters import operator
from interposer.frontends.nnapi.nnapi_windows import positive
from interposer.frontends.nnapi.node import Node
from interposer.frontends.pieces import equal_pieces, has_unknown_size
from interposer.ir.graph import Value
from interposer.kernels.fixedpoint import dequantize
from interposer.ops.axes import normal_axis
from interposer.ops.blocks import BatchToSpaceNd, ChannelShuffle, DepthToSpace, SpaceToBatchNd, SpaceToDepth
from interposer.ops.dynamic import DynamicBroadcastTo
from interposer.ops.elementwise import Addition
from interposer.ops.embedding import EmbeddingLookup, HashtableLookup, LshProjection, LshProjectionType
from interposer.ops.gather import Gather
from interposer.ops.rearrange import (
    Concat,
    Pad,
    PaddingMode,
    ReverseV2,
    Slice,
    Splitter,
    Stack,
    StridedSlice,
    Tile,
    Transpose,
)
from interposer.ops.reshape import BroadcastTo, Fill, Rank, Reshape

__all__: list[str] = []


@operator("TRANSPOSE", inputs=(1, 2))
def transpose(node: Node) -> list[Value]:
    """Convert TRANSPOSE; without a permutation the axes are reversed."""
    rank = node.info(0).rank
    if node.operand(1) is None:
        return node.results(Transpose(tuple(reversed(range(rank)))), node.value(0))
    return node.results(Transpose(node.integers_of(1, "the permutation")), node.value(0))


@operator("CONCATENATION", inputs=(2, None))
def concatenation(node: Node) -> list[Value]:
    """Convert CONCATENATION; the axis is the last input."""
    axis_index = node.num_inputs - 1
    values = [node.value(index) for index in range(axis_index)]
    return node.results(Concat(node.axis(axis_index, values[0].known.rank)), *values)


@operator("PACK", inputs=(2, None))
def pack(node: Node) -> list[Value]:
    """Convert PACK; the axis is the first input."""
    values = [node.value(index) for index in range(1, node.num_inputs)]
    return node.results(Stack(node.axis(0, values[0].known.rank + 1)), *values)


@operator("SPLIT", inputs=3)
def split(node: Node) -> list[Value]:
    """Convert SPLIT into equal pieces."""
    x = node.value(0)
    axis, count = node.axis(1, x.known.rank), node.integer_of(2, "the number of pieces")
    size, outputs = x.known.shape[axis], len(node.outputs)
    if count != outputs:
        node.fail(f"it has {outputs} outputs; expected {count}")
    if count > 0 and has_unknown_size(x, axis):
        return equal_pieces(node, x, axis, count)
    if count < 1 or size % count:
        node.fail(f"an axis of size {size} cannot be cut into {count} equal pieces")
    return node.results(Splitter(axis, (size // count,) * count), x)


@operator("SLICE", inputs=3)
def slice_(node: Node) -> list[Value]:
    """Convert SLICE; begin and size may be computed at run time if the document declares the output's size."""
    x, declared_shape = node.value(0), node.declared_shape()
    if node.is_computed(1):
        return [_sliced_from(node, x, node.value(1, rank=1), declared_shape or node.integers_of(2, "the size"))]
    sizes = declared_shape if declared_shape and node.is_computed(2) else node.integers_of(2, "the size")
    return node.results(Slice(node.integers_of(1, "the begin"), sizes), x)


def _sliced_from(node: Node, x: Value, begin: Value, sizes: tuple[int, ...]) -> Value:
    """Return the slice of `x` with these sizes from `begin` on, which is computed at run time.

    Along each axis, the elements are gathered at `begin` plus 0, 1, 2 and so on.
    """
    if len(sizes) != x.known.rank:
        node.fail(f"the size is {list(sizes)}; expected {x.known.rank} numbers, the rank of input 0")
    for axis, size in enumerate(sizes):
        if size < 0 or size > x.known.shape[axis]:
            node.fail(f"the size is {list(sizes)}; input 0 has shape {x.known.shape}, and -1 needs a known begin")
        axis_begin = node.step(Slice((axis,), (1,)), begin)
        places = node.step(Addition(), axis_begin, node.constant(np.arange(size, dtype=np.int32)))
        is_last_axis = axis == len(sizes) - 1
        op = Gather(axis)
        quantization = x.known.quantization
        x = node.results(op, x, places)[0] if is_last_axis else node.step(op, x, places, quantization=quantization)
    return x


@operator("STRIDED_SLICE", inputs=7)
def strided_slice(node: Node) -> list[Value]:
    """Convert STRIDED_SLICE; a shrunk axis takes the element at begin."""
    begin, end, strides = (
        node.integers_of(1, "the begin"),
        node.integers_of(2, "the end"),
        node.integers_of(3, "the strides"),
    )
    masks = [node.integer_of(index, "a mask") for index in (4, 5, 6)]
    rank = node.info(0).rank
    for index, values in ((1, begin), (2, end), (3, strides)):
        if len(values) != rank:
            node.fail(f"input {index} has {len(values)} elements; expected {rank}, the rank of input 0")
    op = StridedSlice(begin, end, strides, *masks)
    _check_shrunk(node, op)
    return node.results(op, node.value(0))


def _check_shrunk(node: Node, op: StridedSlice) -> None:
    """Fail unless each axis that is removed has a positive stride and selects exactly one element."""
    for axis, (size, stride) in enumerate(zip(node.info(0).shape, op.stride, strict=True)):
        if not op.shrink_axis_mask >> axis & 1:
            continue
        if stride < 1:
            node.fail(f"axis {axis} is shrunk with the stride {stride}; expected a positive one")
        begin = None if op.begin_mask >> axis & 1 else op.begin[axis]
        end = None if op.end_mask >> axis & 1 else op.end[axis]
        if isinstance(size, Dim):
            continue
        count = len(range(size)[begin:end:stride])
        if count != 1:
            node.fail(f"axis {axis} is shrunk, but {count} elements are selected; expected exactly one")


@operator("PAD", inputs=2)
def pad(node: Node) -> list[Value]:
    """Convert PAD with zeros; quantized tensors are padded with the zero point."""
    return node.results(Pad(node.pairs_of(1, "the paddings")), node.value(0))


@operator("PAD_V2", inputs=3)
def pad_with(node: Node) -> list[Value]:
    """Convert PAD_V2 with a value; for quantized tensors it is a quantized value."""
    quantization = node.info(0).quantization
    if quantization is None and not node.info(0).dtype.is_integer:
        padding_value = node.number_of(2, "the value")
    else:
        pad_value = node.integer_of(2, "the value")
        padding_value = (
            float(pad_value) if quantization is None else float(dequantize(np.array(pad_value), quantization))
        )
    return node.results(Pad(node.pairs_of(1, "the paddings"), padding_value), node.value(0))


@operator("MIRROR_PAD", inputs=3)
def mirror_pad(node: Node) -> list[Value]:
    """Convert MIRROR_PAD, with or without repeating the border elements."""
    modes = {0: PaddingMode.REFLECT, 1: PaddingMode.SYMMETRIC}
    number = node.integer_of(2, "the mode")
    mode = modes.get(number) or node.fail(f"the mode (input 2) is {number}; expected 0 (reflect) or 1 (symmetric)")
    return node.results(Pad(node.pairs_of(1, "the paddings"), padding_mode=mode), node.value(0))


@operator("TILE", inputs=2)
def tile(node: Node) -> list[Value]:
    """Convert TILE; multiples that are computed at run time are derived from the document's shapes."""
    declared_shape = node.declared_shape() if node.is_computed(1) else None
    multiples = _multiples(node, declared_shape) if declared_shape else node.integers_of(1, "the multiples")
    return node.results(Tile(multiples), node.value(0))


def _multiples(node: Node, output_shape: tuple[int, ...]) -> tuple[int, ...]:
    shape = node.info(0).shape
    fits = len(shape) == len(output_shape) and all(
        dim > 0 and size % dim == 0 for dim, size in zip(shape, output_shape, strict=True)
    )
    if not fits:
        node.fail(f"an input of shape {shape} cannot be repeated to shape {TensorShape(output_shape)}")
    return tuple(size // dim for dim, size in zip(shape, output_shape, strict=True))


@operator("REVERSE", inputs=2)
def reverse(node: Node) -> list[Value]:
    """Convert REVERSE along one axis."""
    axes = node.integers_of(1, "the axes")
    return node.results(ReverseV2(tuple(normal_axis(axis, node.info(0).rank) for axis in axes)), node.value(0))


# --- reshape ----------------------------------------------------------------------------------------------------------


@operator("RESHAPE", inputs=2)
def reshape(node: Node) -> list[Value]:
    """Convert RESHAPE; for a shape that is computed at run time, the document's output shape is used."""
    declared_shape = node.declared_shape() if node.is_computed(1) else None
    return node.results(Reshape(declared_shape or node.integers_of(1, "the shape")), node.value(0))


@operator("SQUEEZE", inputs=(1, 2))
def squeeze(node: Node) -> list[Value]:
    """Convert SQUEEZE: remove the given axes of size 1, or all of them."""
    shape = node.info(0).shape
    ones = [axis for axis, dim in enumerate(shape) if dim == 1]
    dropped_axes = ones if node.operand(1) is None else _dropped(node, shape)
    remaining_sizes = [dim for axis, dim in enumerate(shape) if axis not in dropped_axes]
    return node.results(_reshape_to(node, remaining_sizes or [1]), node.value(0))


def _dropped(node: Node, shape: TensorShape) -> list[int]:
    axes = node.integers_of(1, "the axes")
    for axis in axes:
        if not -len(shape) <= axis < len(shape) or shape[axis] > 1:
            node.fail(f"axis {axis} of shape {shape} cannot be dropped")
    return [normal_axis(axis, len(shape)) for axis in axes]


@operator("EXPAND_DIMS", inputs=2)
def expand_dims(node: Node) -> list[Value]:
    """Convert EXPAND_DIMS: insert an axis of size 1."""
    shape = list(node.info(0).shape)
    shape.insert(node.axis(1, len(shape) + 1), 1)
    return node.results(_reshape_to(node, shape), node.value(0))


def _reshape_to(node: Node, shape: Sequence[int]) -> Reshape:
    """Return the operator that reshapes the input to `shape`; fail if more than one dimension is unknown."""
    if sum(isinstance(dim, Dim) for dim in shape) > 1:
        node.fail("more than one dimension is not known; give build(..., shapes={...})")
    return Reshape(tuple(-1 if isinstance(dim, Dim) else dim for dim in shape))


@operator("RANK", inputs=1)
def rank_of(node: Node) -> list[Value]:
    """Convert RANK to a scalar."""
    return node.results(Rank(), node.value(0))


@operator("FILL", inputs=2)
def fill(node: Node) -> list[Value]:
    """Convert FILL with an integer or a float, which determines the type and may be computed at run time."""
    if node.is_computed(1):
        return _filled_with(node, node.scalar(1))
    is_integer = node.is_of(1, "INT32")
    fill_value = node.integer_of(1, "the value") if is_integer else node.number_of(1, "the value")
    return node.results(Fill(float(fill_value), node.outputs[0].dtype), node.value(0, rank=1))


def _filled_with(node: Node, value: Value) -> list[Value]:
    if node.is_computed(0):
        return node.results(DynamicBroadcastTo(), value, node.value(0, rank=1))
    return node.results(BroadcastTo(node.integers_of(0, "the dims")), value)


# --- blocks -----------------------------------------------------------------------------------------------------------


@operator("DEPTH_TO_SPACE", inputs=(2, 3))
def depth_to_space(node: Node) -> list[Value]:
    """Convert DEPTH_TO_SPACE."""
    op = DepthToSpace(positive(node, 1, "the block size"), node.layout(2))
    return node.results(op, node.value(0, rank=4))


@operator("SPACE_TO_DEPTH", inputs=(2, 3))
def space_to_depth(node: Node) -> list[Value]:
    """Convert SPACE_TO_DEPTH."""
    op = SpaceToDepth(positive(node, 1, "the block size"), node.layout(2))
    return node.results(op, node.value(0, rank=4))


@operator("BATCH_TO_SPACE_ND", inputs=(2, 3))
def batch_to_space(node: Node) -> list[Value]:
    """Convert BATCH_TO_SPACE_ND, which does not crop."""
    block = _block(node)
    op = BatchToSpaceNd(block, ((0, 0),) * len(block), node.layout(2))
    return node.results(op, node.value(0, rank=4))


@operator("SPACE_TO_BATCH_ND", inputs=(3, 4))
def space_to_batch(node: Node) -> list[Value]:
    """Convert SPACE_TO_BATCH_ND, with padding of height and width."""
    op = SpaceToBatchNd(_block(node), node.pairs_of(2, "the paddings"), node.layout(3))
    return node.results(op, node.value(0, rank=4))


def _block(node: Node) -> tuple[int, ...]:
    block = node.integers_of(1, "the block shape")
    if len(block) != 2 or min(block) < 1:
        node.fail(f"the block shape (input 1) is {list(block)}; expected two numbers of at least 1")
    return block


@operator("CHANNEL_SHUFFLE", inputs=3)
def channel_shuffle(node: Node) -> list[Value]:
    """Convert CHANNEL_SHUFFLE along any axis."""
    op = ChannelShuffle(positive(node, 1, "the number of groups"), node.axis(2, node.info(0).rank))
    return node.results(op, node.value(0))


# --- gather -----------------------------------------------------------------------------------------------------------


@operator("GATHER", inputs=3)
def gather(node: Node) -> list[Value]:
    """Convert GATHER along an axis."""
    return node.results(Gather(node.axis(1, node.info(0).rank)), node.value(0), node.value(2))


# --- embedding --------------------------------------------------------------------------------------------------------


_TYPES: Final = {member.value: member for member in LshProjectionType}


@operator("EMBEDDING_LOOKUP", inputs=2)
def embedding_lookup(node: Node) -> list[Value]:
    """Convert EMBEDDING_LOOKUP: rows by index."""
    return node.results(EmbeddingLookup(), node.value(0), node.value(1))


@operator("HASHTABLE_LOOKUP", inputs=3)
def hashtable_lookup(node: Node) -> list[Value]:
    """Convert HASHTABLE_LOOKUP: rows by key, and a flag for each key that was found."""
    return node.results(HashtableLookup(), *(node.value(index) for index in range(3)))


@operator("LSH_PROJECTION", inputs=4)
def lsh_projection(node: Node) -> list[Value]:
    """Convert LSH_PROJECTION; the weights of the elements are optional."""
    number = node.integer_of(3, "the type")
    kind = _TYPES.get(number) or node.fail(f"the type (input 3) is {number}; expected 1 to {max(_TYPES)}")
    return node.results(LshProjection(kind), node.value(0), node.value(1), node.optional(2))
