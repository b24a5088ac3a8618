"""Converters of layers that move blocks of images into the batch or the channels, and back."""

from __future__ import annotations

from interposer.core.schema import Op
from interposer.frontends.armnn.armnn_converters import layer
from interposer.frontends.armnn.node import Node
from interposer.ir.graph import Value
from interposer.ops.blocks import BatchToSpaceNd, ChannelShuffle, DepthToSpace, SpaceToBatchNd, SpaceToDepth
from interposer.ops.quantization import Dequantize, Quantize

__all__: list[str] = []


@layer("SpaceToBatchNd")
def space_to_batch(node: Node) -> list[Value]:
    """Convert SpaceToBatchNd."""
    return _rescaled(node, SpaceToBatchNd(node.integers("blockShape"), node.pairs("padList"), node.layout()))


@layer("BatchToSpaceNd")
def batch_to_space(node: Node) -> list[Value]:
    """Convert BatchToSpaceNd."""
    return _rescaled(node, BatchToSpaceNd(node.integers("blockShape"), node.pairs("crops"), node.layout()))


def _rescaled(node: Node, op: Op) -> list[Value]:
    """Add a layer that moves elements, and quantize them again if its output has another scale or zero point."""
    x, info = node.value(0), node.infos[0]
    if not info.is_quantized or info.quantization == x.known.quantization:
        return node.results(op, x)
    moved = node.step(op, x, quantization=x.known.quantization)
    return node.results(Quantize(info.dtype), node.step(Dequantize(), moved))


@layer("SpaceToDepth")
def space_to_depth(node: Node) -> list[Value]:
    """Convert SpaceToDepth."""
    return node.results(SpaceToDepth(node.descriptor["blockSize"], node.layout()), node.value(0))


@layer("DepthToSpace")
def depth_to_space(node: Node) -> list[Value]:
    """Convert DepthToSpace."""
    return node.results(DepthToSpace(node.descriptor["blockSize"], node.layout()), node.value(0))


@layer("ChannelShuffle")
def channel_shuffle(node: Node) -> list[Value]:
    """Convert ChannelShuffle."""
    return node.results(ChannelShuffle(node.descriptor["numGroups"], node.descriptor["axis"]), node.tensor(0))
