"""TFLite converters for operators that rearrange elements, also in blocks, sequences and diagonals."""

from __future__ import annotations

from interposer.core.types import DataLayout, Dim
from interposer.frontends.pieces import equal_pieces, has_unknown_size, pieces_of
from interposer.frontends.tflite.interior import padded
from interposer.frontends.tflite.node import Node
from interposer.frontends.tflite.reshape import reshape_to
from interposer.frontends.tflite.slices import computed_slice, computed_strided_slice
from interposer.frontends.tflite.tflite_converters import operator
from interposer.ir.graph import Value
from interposer.kernels.fixedpoint import dequantize
from interposer.ops.axes import normal_axis
from interposer.ops.blocks import BatchToSpaceNd, DepthToSpace, SpaceToBatchNd, SpaceToDepth
from interposer.ops.dynamic import DynamicPad, DynamicTile
from interposer.ops.matrices import MatrixDiag, MatrixSetDiag
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
from interposer.ops.sequence import CumSum, ReverseSequence

__all__: list[str] = []


@operator("TRANSPOSE")
def transpose(node: Node) -> Value:
    """Convert TRANSPOSE; the permutation is an input."""
    rank = node.info(0).rank
    permutation = tuple(normal_axis(axis, rank) for axis in node.integers_of(1, "the permutation"))
    return node.result(Transpose(permutation), node.value(0))


@operator("CONCATENATION", options=True)
def concatenation(node: Node) -> Value:
    """Convert CONCATENATION along an axis."""
    op = Concat(node.options["axis"])
    return node.result(op, *node.values(), activation=node.options["fused_activation_function"])


@operator("PACK", options=True)
def pack(node: Node) -> Value:
    """Convert PACK: concatenate along a new axis."""
    return node.result(Stack(node.options["axis"]), *node.values())


@operator("UNPACK", options=True)
def unpack(node: Node) -> list[Value]:
    """Convert UNPACK: slice along an axis, which is removed."""
    shape, count = node.info(0).shape, len(node.operator.outputs)
    axis = _axis(node, node.options["axis"])
    if sum(isinstance(dim, Dim) for dim in shape[:axis] + shape[axis + 1 :]) > 1:
        return [node.output(index, _element(index, axis, len(shape)), node.value(0)) for index in range(count)]
    pieces = node.steps(Splitter(axis, (1,) * count), node.value(0))
    op = reshape_to(node, [*shape[:axis], *shape[axis + 1 :]])
    return [node.output(index, op, piece) for index, piece in enumerate(pieces)]


def _element(index: int, axis: int, rank: int) -> StridedSlice:
    """Return the operator that selects one index along an axis, which is removed."""
    begin = tuple(index if i == axis else 0 for i in range(rank))
    end = tuple(index + 1 if i == axis else 1 for i in range(rank))
    whole_axes = (1 << rank) - 1 - (1 << axis)
    return StridedSlice(begin, end, (1,) * rank, begin_mask=whole_axes, end_mask=whole_axes, shrink_axis_mask=1 << axis)


@operator("SPLIT")
def split(node: Node) -> list[Value]:
    """Convert SPLIT into equal pieces, one for each output."""
    x, count = node.value(1), len(node.operator.outputs)
    axis = _axis(node, node.integer_of(0, "the axis"), of=1)
    size = x.known.shape[axis]
    if count and has_unknown_size(x, axis):
        return equal_pieces(node, x, axis, count)
    if not count or size % count:
        node.fail(f"an axis of size {size} cannot be cut into {count} equal pieces")
    return node.results(Splitter(axis, (size // count,) * count), x)


@operator("SPLIT_V")
def split_sizes(node: Node) -> list[Value]:
    """Convert SPLIT_V into pieces of given sizes, one of which may be -1 for the remainder."""
    axis = _axis(node, node.integer_of(2, "the axis"))
    return pieces_of(node, node.value(0), axis, node.integers_of(1, "the sizes"))


def _axis(node: Node, axis: int, of: int = 0) -> int:
    """Return an axis of input number `of`, counted from the front; fail if it is out of range."""
    rank = node.info(of).rank
    if not -rank <= axis < rank:
        node.fail(f"axis {axis} is not one of shape {node.info(of).shape}")
    return normal_axis(axis, rank)


@operator("SLICE")
def slice_(node: Node) -> Value:
    """Convert SLICE; a size of -1 means all elements up to the end of the axis."""
    if node.is_computed(1, 2):
        return node.result(*computed_slice(node))
    return node.result(Slice(node.integers_of(1, "begin"), node.integers_of(2, "size")), node.value(0))


@operator("STRIDED_SLICE", options=True)
def strided_slice(node: Node) -> Value:
    """Convert STRIDED_SLICE; with the option `offset`, ends are relative to the starts."""
    if node.is_computed(1, 2):
        return computed_strided_slice(node)
    options, begin, end = node.options, node.integers_of(1, "begin"), node.integers_of(2, "end")
    if options["offset"]:
        end = tuple(start + length for start, length in zip(begin, end, strict=True))
    masks = {name: options[name] for name in options if name.endswith("_mask")}
    return node.result(StridedSlice(begin, end, node.integers_of(3, "strides"), **masks), node.value(0))


@operator("PAD")
def pad(node: Node) -> Value:
    """Convert PAD, which pads with zeros; in a quantized tensor, these are the zero point."""
    return _padded(node)


@operator("PADV2")
def pad_with(node: Node) -> Value:
    """Convert PADV2: the third input is the padding value, one element, which may be quantized or computed."""
    if node.info(2).constant is None:
        low, high = zip(*node.pairs_of(1, "the paddings"), strict=True)
        return padded(node, node.value(0), low, high, node.scalar(2))
    filler, quantization = node.array(2, "the value"), node.info(2).quantization
    if filler.size != 1:
        node.fail(f"the value has shape {filler.shape}; expected one number")
    number = filler if quantization is None else dequantize(filler, quantization)
    return _padded(node, float(number.ravel()[0]))


@operator("MIRROR_PAD", options=True)
def mirror_pad(node: Node) -> Value:
    """Convert MIRROR_PAD, with or without repeating the border elements."""
    modes = {0: PaddingMode.REFLECT, 1: PaddingMode.SYMMETRIC}
    mode = modes.get(node.options["mode"]) or node.fail(f"mode {node.options['mode']} is not known")
    return _padded(node, mode=mode)


def _padded(node: Node, filler: float = 0.0, mode: PaddingMode = PaddingMode.CONSTANT) -> Value:
    if node.is_computed(1):
        return node.result(DynamicPad(filler, mode), node.value(0), node.value(1))
    return node.result(Pad(node.pairs_of(1, "the paddings"), filler, mode), node.value(0))


@operator("TILE")
def tile(node: Node) -> Value:
    """Convert TILE: repeat along every axis."""
    if node.is_computed(1):
        return node.result(DynamicTile(), node.value(0), node.value(1))
    return node.result(Tile(node.integers_of(1, "the multiples")), node.value(0))


@operator("REVERSE_V2")
def reverse(node: Node) -> Value:
    """Convert REVERSE_V2, which reverses the order of elements along constant axes."""
    return node.result(ReverseV2(node.integers_of(1, "the axes")), node.value(0))


# --- blocks -----------------------------------------------------------------------------------------------------------


NHWC = DataLayout.NHWC


@operator("SPACE_TO_BATCH_ND")
def space_to_batch(node: Node) -> Value:
    """Convert SPACE_TO_BATCH_ND; block shape and paddings are inputs."""
    op = SpaceToBatchNd(node.integers_of(1, "the block's shape"), node.pairs_of(2, "the paddings"), NHWC)
    return node.result(op, node.value(0))


@operator("BATCH_TO_SPACE_ND")
def batch_to_space(node: Node) -> Value:
    """Convert BATCH_TO_SPACE_ND; block shape and crops are inputs."""
    op = BatchToSpaceNd(node.integers_of(1, "the block's shape"), node.pairs_of(2, "the crops"), NHWC)
    return node.result(op, node.value(0))


@operator("SPACE_TO_DEPTH", options=True)
def space_to_depth(node: Node) -> Value:
    """Convert SPACE_TO_DEPTH with square blocks."""
    return node.result(SpaceToDepth(node.options["block_size"], NHWC), node.value(0))


@operator("DEPTH_TO_SPACE", options=True)
def depth_to_space(node: Node) -> Value:
    """Convert DEPTH_TO_SPACE with square blocks."""
    return node.result(DepthToSpace(node.options["block_size"], NHWC), node.value(0))


# --- sequence ---------------------------------------------------------------------------------------------------------


@operator("CUMSUM", options=True)
def running_sum(node: Node) -> Value:
    """Convert CUMSUM; the axis is an input."""
    op = CumSum(node.integer_of(1, "the axis"), node.options["exclusive"], node.options["reverse"])
    return node.result(op, node.value(0))


@operator("REVERSE_SEQUENCE", options=True)
def reverse_sequence(node: Node) -> Value:
    """Convert REVERSE_SEQUENCE; time and batch axes are options."""
    op = ReverseSequence(node.options["seq_dim"], node.options["batch_dim"])
    return node.result(op, node.value(0), node.value(1))


# --- matrices ---------------------------------------------------------------------------------------------------------


@operator("MATRIX_DIAG")
def matrix_diagonal(node: Node) -> Value:
    """Convert MATRIX_DIAG: rows become diagonals of matrices."""
    return node.result(MatrixDiag(), node.value(0))


@operator("MATRIX_SET_DIAG")
def set_diagonal(node: Node) -> Value:
    """Convert MATRIX_SET_DIAG: replace the diagonals of matrices."""
    return node.result(MatrixSetDiag(), node.value(0), node.value(1))
