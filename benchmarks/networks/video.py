"""Networks for 8 frames of 112 x 112 pixels: 3-D ResNet-18, and X3D with depthwise 3-D convolutions."""

from __future__ import annotations

import onnx

from .graph import Graph

__all__ = ["r3d", "x3d"]

CUBE = (3, 3, 3)
POINT = (1, 1, 1)
FRAMES = 8
SIZE = 112


def r3d(batch: int = 1) -> onnx.ModelProto:
    """Return 3-D ResNet-18 with one block in each of the first three stages."""
    g = Graph("r3d", batch)
    x = g.conv(_frames(g), 64, (3, 7, 7), (1, 2, 2))
    for stage in range(3):
        stride = 2 if stage else 1
        channels = 64 << stage
        y = g.conv(g.conv(x, channels, CUBE, stride), channels, CUBE, act=None, gain=0.5)
        x = g.conv(x, channels, POINT, stride, act=None) if stage else x
        x = g.act(g.add(y, x), "Relu")
    return g.finish(g.classify(x, 400))


def x3d(batch: int = 1) -> onnx.ModelProto:
    """Return X3D-S with two blocks in each stage."""
    g = Graph("x3d", batch)
    x = g.conv(_frames(g), 24, (1, 3, 3), (1, 2, 2), act=None)
    x = g.depthwise(x, (5, 1, 1))
    for channels in (24, 48, 96, 192):
        for number in range(2):
            x = _inverted(g, x, channels, (1, 1, 1) if number else (1, 2, 2))
    x = g.node("Flatten", g.node("GlobalAveragePool", g.conv(x, 432, POINT)))
    return g.finish(g.gemm(g.act(g.gemm(x, 2048), "Relu"), 400))


def _frames(g: Graph) -> str:
    return g.input("frames", (3, FRAMES, SIZE, SIZE))


def _inverted(g: Graph, x: str, channels: int, stride: tuple[int, int, int]) -> str:
    wide = channels * 9 // 4
    y = g.depthwise(g.conv(x, wide, POINT), CUBE, stride, None)
    y = g.conv(g.act(y, "Swish"), channels, POINT, act=None, gain=0.5)
    if stride != POINT or g.channels[x] != channels:
        x = g.conv(x, channels, POINT, stride, act=None)
    return g.act(g.add(y, x), "Relu")
