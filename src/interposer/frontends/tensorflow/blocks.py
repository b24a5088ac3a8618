"""TensorFlow converters for operators that move blocks between space and channels or batch."""

from __future__ import annotations

from interposer.core.types import DataLayout
from interposer.frontends.tensorflow.layouts import layout_of
from interposer.frontends.tensorflow.node import Node
from interposer.frontends.tensorflow.tensorflow_converters import operator
from interposer.ir.graph import Value
from interposer.ops.blocks import BatchToSpaceNd, DepthToSpace, SpaceToBatchNd, SpaceToDepth

__all__: list[str] = []

NHWC = DataLayout.NHWC


@operator("SpaceToBatchND")
def space_to_batch_nd(node: Node) -> Value:
    """Convert SpaceToBatchND; block shape and paddings are operands."""
    op = SpaceToBatchNd(node.integers_of(1, "block shape"), node.pairs_of(2, "paddings"), NHWC)
    return node.result(op, node.value(0))


@operator("BatchToSpaceND")
def batch_to_space_nd(node: Node) -> Value:
    """Convert BatchToSpaceND; block shape and crops are operands."""
    op = BatchToSpaceNd(node.integers_of(1, "block shape"), node.pairs_of(2, "crops"), NHWC)
    return node.result(op, node.value(0))


@operator("SpaceToBatch")
def space_to_batch(node: Node) -> Value:
    """Convert SpaceToBatch with square blocks."""
    block = node.integer("block_size")
    return node.result(SpaceToBatchNd((block, block), node.pairs_of(1, "paddings"), NHWC), node.value(0))


@operator("BatchToSpace")
def batch_to_space(node: Node) -> Value:
    """Convert BatchToSpace with square blocks."""
    block = node.integer("block_size")
    return node.result(BatchToSpaceNd((block, block), node.pairs_of(1, "crops"), NHWC), node.value(0))


@operator("SpaceToDepth")
def space_to_depth(node: Node) -> Value:
    """Convert SpaceToDepth with square blocks."""
    return node.result(SpaceToDepth(node.integer("block_size"), layout_of(node)), node.value(0))


@operator("DepthToSpace")
def depth_to_space(node: Node) -> Value:
    """Convert DepthToSpace with square blocks."""
    return node.result(DepthToSpace(node.integer("block_size"), layout_of(node)), node.value(0))
