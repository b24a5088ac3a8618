"""ConvNeXt, and VGG with an average before its last layers; images of 224 x 224."""

from __future__ import annotations

import onnx

from .graph import Graph

__all__ = ["convnext", "vgg11"]


def convnext(batch: int = 1) -> onnx.ModelProto:
    """Return ConvNeXt-T with blocks (2, 2, 4, 2); its layers of 1 x 1 are matrix products on NHWC."""
    g = Graph("convnext", batch)
    x = _norm(g, g.conv(g.image(224), 96, 4, 4, act=None, pad=0))
    for stage, depth in enumerate((2, 2, 4, 2)):
        if stage:
            x = g.conv(_norm(g, x), 96 << stage, 2, 2, act=None, pad=0)
        for _ in range(depth):
            x = _block(g, x)
    x = g.node("GlobalAveragePool", x)
    return g.finish(g.gemm(g.node("Flatten", _norm(g, x)), 1000))


def _norm(g: Graph, x: str) -> str:
    """Normalize the channels of each pixel."""
    return g.transpose(g.layer_norm(g.transpose(x, 0, 2, 3, 1), epsilon=1e-6), 0, 3, 1, 2)


def _block(g: Graph, x: str) -> str:
    width = g.channels[x]
    y = g.layer_norm(g.transpose(g.depthwise(x, 7, act=None), 0, 2, 3, 1), epsilon=1e-6)
    y = g.linear(g.act(g.linear(y, 4 * width), "Gelu"), width)
    y = g.node("Mul", g.bias(width), y)
    g.channels[y] = width
    return g.add(x, g.transpose(y, 0, 3, 1, 2))


def vgg11(batch: int = 1) -> onnx.ModelProto:
    g = Graph("vgg11", batch)
    x = g.image(224)
    for stage, depth in enumerate((1, 1, 2, 2, 2)):
        for _ in range(depth):
            x = g.conv(x, min(64 << stage, 512), 3)
        x = g.max_pool(x, 2, 2, pad=0)
    x = g.node("Flatten", g.node("GlobalAveragePool", x))
    for _ in range(2):
        x = g.act(g.gemm(x, 4096, 2**0.5), "Relu")
    return g.finish(g.gemm(x, 1000))
