"""Inception V3 without its second head; images of 299 x 299."""

from __future__ import annotations

import onnx

from .graph import Graph

__all__ = ["inception_v3"]


def inception_v3(batch: int = 1) -> onnx.ModelProto:
    g = Graph("inception_v3", batch)
    x = g.conv(g.conv(g.image(299), 32, 3, 2, pad=0), 32, 3, pad=0)
    x = g.max_pool(g.conv(x, 64, 3), pad=0)
    x = g.max_pool(g.conv(g.conv(x, 80), 192, 3, pad=0), pad=0)
    for pooled in (32, 64, 64):
        x = _a(g, x, pooled)
    x = _down_a(g, x)
    for inner in (128, 160, 160, 192):
        x = _b(g, x, inner)
    x = _down_b(g, x)
    for _ in range(2):
        x = _c(g, x)
    return g.finish(g.classify(x))


def _pooled(g: Graph, x: str, channels: int) -> str:
    y = g.node("AveragePool", x, kernel_shape=[3, 3], strides=[1, 1], pads=[1] * 4, count_include_pad=1)
    return g.conv(y, channels)


def _chain(g: Graph, x: str, *layers: tuple[int, int | tuple[int, int]]) -> str:
    """Add convolutions one after the other; each has a number of channels and a kernel size."""
    for channels, kernel in layers:
        x = g.conv(x, channels, kernel)
    return x


def _a(g: Graph, x: str, pooled: int) -> str:
    five = _chain(g, x, (48, 1), (64, 5))
    three = _chain(g, x, (64, 1), (96, 3), (96, 3))
    return g.concat(g.conv(x, 64), five, three, _pooled(g, x, pooled))


def _down_a(g: Graph, x: str) -> str:
    three = g.conv(_chain(g, x, (64, 1), (96, 3)), 96, 3, 2, pad=0)
    return g.concat(g.conv(x, 384, 3, 2, pad=0), three, g.max_pool(x, pad=0))


def _b(g: Graph, x: str, inner: int) -> str:
    seven = _chain(g, x, (inner, 1), (inner, (1, 7)), (192, (7, 1)))
    twice = _chain(g, x, (inner, 1), (inner, (7, 1)), (inner, (1, 7)), (inner, (7, 1)), (192, (1, 7)))
    return g.concat(g.conv(x, 192), seven, twice, _pooled(g, x, 192))


def _down_b(g: Graph, x: str) -> str:
    three = g.conv(g.conv(x, 192), 320, 3, 2, pad=0)
    seven = g.conv(_chain(g, x, (192, 1), (192, (1, 7)), (192, (7, 1))), 192, 3, 2, pad=0)
    return g.concat(three, seven, g.max_pool(x, pad=0))


def _c(g: Graph, x: str) -> str:
    once = g.conv(x, 384)
    twice = _chain(g, x, (448, 1), (384, 3))
    parts = [g.conv(y, 384, kernel) for y in (once, twice) for kernel in ((1, 3), (3, 1))]
    return g.concat(g.conv(x, 320), *parts, _pooled(g, x, 192))
