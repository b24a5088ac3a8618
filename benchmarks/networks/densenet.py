"""DenseNet-121, whose batch normalizations precede convolutions and cannot be folded; images of 224 x 224."""

from __future__ import annotations

import onnx

from .graph import Graph

__all__ = ["densenet121"]

GROWTH = 32


def densenet121(batch: int = 1) -> onnx.ModelProto:
    g = Graph("densenet121", batch)
    x = g.max_pool(g.conv(g.image(224), 64, 7, 2))
    for stage, layers in enumerate((6, 12, 24, 16)):
        if stage:
            x = g.average_pool(g.conv(_normal(g, x), g.channels[x] // 2, act=None, gain=2**0.5))
        for _ in range(layers):
            y = g.conv(_normal(g, x), 4 * GROWTH)
            x = g.concat(x, g.conv(y, GROWTH, 3, act=None))
    return g.finish(g.classify(_normal(g, x)))


def _normal(g: Graph, x: str) -> str:
    return g.act(g.batch_norm(x), "Relu")
