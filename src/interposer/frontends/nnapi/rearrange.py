"""NNAPI converters for operators that rearrange elements."""

from __future__ import annotations

import numpy as np

from interposer.core.types import Dim, TensorShape
from interposer.frontends.nnapi.nnapi_converters import operator
from interposer.frontends.nnapi.node import Node
from interposer.ir.graph import Value
from interposer.kernels.fixedpoint import dequantize
from interposer.ops.axes import normal_axis
from interposer.ops.elementwise import Addition
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
    last = node.num_inputs - 1
    values = [node.value(index) for index in range(last)]
    return node.results(Concat(node.axis(last, values[0].known.rank)), *values)


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
    size = x.known.shape[axis]
    if count < 1 or isinstance(size, Dim) or size % count:
        node.fail(f"an axis of size {size} cannot be cut into {count} equal pieces")
    return node.results(Splitter(axis, (size // count,) * count), x)


@operator("SLICE", inputs=3)
def slice_(node: Node) -> list[Value]:
    """Convert SLICE; begin and size may be computed at run time if the document declares the output's size."""
    x, declared = node.value(0), node.declared_shape()
    if node.is_computed(1):
        return [_sliced_from(node, x, node.value(1, rank=1), declared or node.integers_of(2, "the size"))]
    sizes = declared if declared and node.is_computed(2) else node.integers_of(2, "the size")
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
        first = node.step(Slice((axis,), (1,)), begin)
        places = node.step(Addition(), first, node.constant(np.arange(size, dtype=np.int32)))
        last = axis == len(sizes) - 1
        op = Gather(axis)
        quantization = x.known.quantization
        x = node.results(op, x, places)[0] if last else node.step(op, x, places, quantization=quantization)
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
        stored = node.integer_of(2, "the value")
        padding_value = float(stored) if quantization is None else float(dequantize(np.array(stored), quantization))
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
    declared = node.declared_shape() if node.is_computed(1) else None
    multiples = _multiples(node, declared) if declared else node.integers_of(1, "the multiples")
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
