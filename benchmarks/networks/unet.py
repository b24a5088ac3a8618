"""A U-Net of five levels, 32 to 512 channels, that segments an image of 256 x 256 into two classes."""

from __future__ import annotations

import onnx

from .graph import Graph

__all__ = ["unet"]


def unet(batch: int = 1) -> onnx.ModelProto:
    g = Graph("unet", batch)
    x = g.image(256)
    levels: list[str] = []
    for channels in (32, 64, 128, 256):
        levels.append(_twice(g, x, channels))
        x = g.max_pool(levels[-1], 2, 2, pad=0)
    x = _twice(g, x, 512)
    for level in reversed(levels):
        x = _twice(g, g.concat(_up(g, x), level), g.channels[level])
    return g.finish(g.conv(x, 2, act=None))


def _twice(g: Graph, x: str, channels: int) -> str:
    return g.conv(g.conv(x, channels, 3), channels, 3)


def _up(g: Graph, x: str) -> str:
    """Halve the channels and double the height and width; every result element depends on one input pixel."""
    depth = g.channels[x]
    weights = g.weights((depth, depth // 2, 2, 2), depth)
    y = g.node("ConvTranspose", x, weights, g.bias(depth // 2), kernel_shape=[2, 2], strides=[2, 2])
    g.channels[y] = depth // 2
    return y
