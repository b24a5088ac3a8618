"""Networks that take microseconds, like those of MLPerf Tiny: an autoencoder, key words, images, and a decision."""

from __future__ import annotations

import onnx

from .graph import Graph

__all__ = ["tiny_autoencoder", "tiny_keywords", "tiny_mobilenet", "tiny_resnet"]


def tiny_autoencoder(batch: int = 1) -> onnx.ModelProto:
    """Return ten linear layers that find anomalies in a spectrum."""
    g = Graph("tiny_autoencoder", batch)
    x = g.input("spectrum", (640,))
    for width in (*[128] * 4, 8, *[128] * 4):
        x = g.act(g.gemm(x, width, 2**0.5), "Relu")
    return g.finish(g.gemm(x, 640))


def tiny_keywords(batch: int = 1) -> onnx.ModelProto:
    """Return a convolution and four depthwise separable ones for 49 frames of 10 features."""
    g = Graph("tiny_keywords", batch)
    x = g.conv(g.input("features", (1, 49, 10)), 64, (10, 4), 2, pad=2)
    for _ in range(4):
        x = g.conv(g.depthwise(x), 64)
    return g.finish(g.node("Softmax", g.classify(x, 12), axis=-1))


def tiny_resnet(batch: int = 1) -> onnx.ModelProto:
    """Return three residual blocks for images of 32 x 32."""
    g = Graph("tiny_resnet", batch)
    x = g.conv(g.image(32), 16, 3)
    for channels, stride in ((16, 1), (32, 2), (64, 2)):
        y = g.conv(g.conv(x, channels, 3, stride), channels, 3, act=None, gain=0.5)
        x = g.conv(x, channels, 1, stride, act=None) if stride > 1 else x
        x = g.act(g.add(x, y), "Relu")
    return g.finish(g.classify(x, 10))


def tiny_mobilenet(batch: int = 1) -> onnx.ModelProto:
    """Return MobileNet V1 with a quarter of the channels for images of 96 x 96, which finds persons."""
    g = Graph("tiny_mobilenet", batch)
    x = g.conv(g.image(96), 8, 3, 2)
    for channels, stride in [(16, 1), (32, 2), (32, 1), (64, 2), (64, 1), (128, 2), *[(128, 1)] * 5, (256, 2),
                             (256, 1)]:  # fmt: skip
        x = g.conv(g.depthwise(x, 3, stride), channels)
    return g.finish(g.classify(x, 2))
