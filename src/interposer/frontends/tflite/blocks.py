"""TFLite converters for operators that move blocks between space and channels or batch."""

from __future__ import annotations

from interposer.core.types import DataLayout
from interposer.frontends.tflite.node import Node
from interposer.frontends.tflite.tflite_converters import operator
from interposer.ir.graph import Value
from interposer.ops.blocks import BatchToSpaceNd, DepthToSpace, SpaceToBatchNd, SpaceToDepth

__all__: list[str] = []

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
