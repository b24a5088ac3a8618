"""A detector like YOLO: a backbone, paths up and down, three heads, no suppression; images of 320 x 320."""

from __future__ import annotations

import numpy as np
import onnx

from .graph import Graph

__all__ = ["yolo"]

CLASSES = 80
ANCHORS = 3


def yolo(batch: int = 1) -> onnx.ModelProto:
    g = Graph("yolo", batch)
    x = _conv(g, g.image(320), 32, 6, 2, pad=2)
    x = _partial(g, _conv(g, x, 64, 3, 2), 64, 1)
    eighth = _partial(g, _conv(g, x, 128, 3, 2), 128, 2)
    sixteenth = _partial(g, _conv(g, eighth, 256, 3, 2), 256, 3)
    x = _pyramid(g, _partial(g, _conv(g, sixteenth, 512, 3, 2), 512, 1))

    top = _conv(g, x, 256)
    middle = _conv(g, _partial(g, g.concat(g.upsample(top), sixteenth), 256, 1, add=False), 128)
    small = _partial(g, g.concat(g.upsample(middle), eighth), 128, 1, add=False)
    medium = _partial(g, g.concat(_conv(g, small, 128, 3, 2), middle), 256, 1, add=False)
    large = _partial(g, g.concat(_conv(g, medium, 256, 3, 2), top), 512, 1, add=False)
    heads = [_head(g, x, size) for x, size in ((small, 40), (medium, 20), (large, 10))]
    return g.finish(g.node("Concat", *heads, axis=1))


def _conv(g: Graph, x: str, channels: int, kernel: int = 1, stride: int = 1, pad: int | None = None) -> str:
    return g.conv(x, channels, kernel, stride, act="Swish", gain=1.4, pad=pad)


def _partial(g: Graph, x: str, channels: int, blocks: int, add: bool = True) -> str:
    """Pass half of the channels through blocks of two convolutions, and concatenate the other half."""
    half = channels // 2
    y = _conv(g, x, half)
    for _ in range(blocks):
        inner = _conv(g, _conv(g, y, half), half, 3)
        y = g.add(y, inner) if add else inner
    return _conv(g, g.concat(y, _conv(g, x, half)), channels)


def _pyramid(g: Graph, x: str) -> str:
    """Concatenate maxima over windows of increasing size."""
    levels = [_conv(g, x, 256)]
    for _ in range(3):
        levels.append(g.max_pool(levels[-1], 5, 1))
    return _conv(g, g.concat(*levels), 512)


def _head(g: Graph, x: str, size: int) -> str:
    """Return one row per anchor and cell: the box, the confidence, and the classes."""
    numbers = 5 + CLASSES
    y = g.conv(x, ANCHORS * numbers, act=None, gain=0.3)
    y = g.node("Reshape", y, g.constant([g.batch, ANCHORS, numbers, size, size], np.int64))
    y = g.node("Sigmoid", g.node("Transpose", y, perm=[0, 1, 3, 4, 2]))
    return g.node("Reshape", y, g.constant([g.batch, ANCHORS * size * size, numbers], np.int64))
