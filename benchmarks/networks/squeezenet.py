"""SqueezeNet 1.1; images of 224 x 224."""

from __future__ import annotations

import onnx

from .graph import Graph

__all__ = ["squeezenet"]


def squeezenet(batch: int = 1) -> onnx.ModelProto:
    g = Graph("squeezenet", batch)
    x = g.conv(g.image(224), 64, 3, 2, pad=0)
    for group in ([(16, 64), (16, 64)], [(32, 128), (32, 128)], [(48, 192), (48, 192), (64, 256), (64, 256)]):
        x = g.max_pool(x, pad=0, ceil=True)
        for squeezed, expanded in group:
            x = _fire(g, x, squeezed, expanded)
    return g.finish(g.node("Flatten", g.node("GlobalAveragePool", g.conv(x, 1000))))


def _fire(g: Graph, x: str, squeezed: int, expanded: int) -> str:
    x = g.conv(x, squeezed)
    return g.concat(g.conv(x, expanded), g.conv(x, expanded, 3))
