"""ShuffleNet V2 1.0x; its shuffles are a Reshape, a Transpose and a Reshape, as exporters write them; 224 x 224."""

from __future__ import annotations

import numpy as np
import onnx

from .graph import Graph

__all__ = ["shufflenet_v2"]


def shufflenet_v2(batch: int = 1) -> onnx.ModelProto:
    g = Graph("shufflenet_v2", batch)
    x = g.max_pool(g.conv(g.image(224), 24, 3, 2))
    for channels, blocks, size in ((116, 4, 28), (232, 8, 14), (464, 4, 7)):
        x = _shuffle(g, _down(g, x, channels), size)
        for _ in range(blocks - 1):
            x = _shuffle(g, _unit(g, x), size)
    return g.finish(g.classify(g.conv(x, 1024)))


def _down(g: Graph, x: str, channels: int) -> str:
    half = channels // 2
    left = g.conv(g.depthwise(x, 3, 2, None), half)
    right = g.conv(g.depthwise(g.conv(x, half), 3, 2, None), half)
    return g.concat(left, right)


def _unit(g: Graph, x: str) -> str:
    half = g.channels[x] // 2
    left, right = g.node("Split", x, g.constant([half, half], np.int64), outputs=2, axis=1)
    g.channels |= {left: half, right: half}
    right = g.conv(g.depthwise(g.conv(right, half), 3, 1, None), half)
    return g.concat(left, right)


def _shuffle(g: Graph, x: str, size: int) -> str:
    """Interleave the channels of both halves."""
    channels = g.channels[x]
    y = g.node("Reshape", x, g.constant([g.batch, 2, channels // 2, size, size], np.int64))
    y = g.node("Transpose", y, perm=[0, 2, 1, 3, 4])
    return g.node("Reshape", y, g.constant([g.batch, channels, size, size], np.int64))
