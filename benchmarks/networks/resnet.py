"""ResNet-50 with the stride in the 3 x 3 convolutions (v1.5); images of 224 x 224."""

from __future__ import annotations

import onnx

from .graph import Graph

__all__ = ["resnet50"]


def resnet50(batch: int = 1) -> onnx.ModelProto:
    g = Graph("resnet50", batch)
    x = g.max_pool(g.conv(g.image(224), 64, 7, 2))
    for stage, blocks in enumerate((3, 4, 6, 3)):
        for number in range(blocks):
            x = _bottleneck(g, x, 64 << stage, stride=2 if stage and not number else 1, first=not number)
    return g.finish(g.classify(x))


def _bottleneck(g: Graph, x: str, channels: int, stride: int, first: bool) -> str:
    y = g.conv(g.conv(x, channels), channels, 3, stride)
    y = g.conv(y, 4 * channels, act=None, gain=0.5)
    if first:
        x = g.conv(x, 4 * channels, 1, stride, act=None)
    return g.act(g.add(y, x), "Relu")
