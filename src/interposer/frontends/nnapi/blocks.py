"""NNAPI converters for operators that move blocks between space and channels or batch."""

from __future__ import annotations

from interposer.frontends.nnapi.nnapi_converters import operator
from interposer.frontends.nnapi.nnapi_windows import positive
from interposer.frontends.nnapi.node import Node
from interposer.ir.graph import Value
from interposer.ops.blocks import BatchToSpaceNd, ChannelShuffle, DepthToSpace, SpaceToBatchNd, SpaceToDepth

__all__: list[str] = []


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
