"""MobileNet V1, V2 and V3-large, and EfficientNet-lite0, which consists of the same blocks; images of 224 x 224."""

from __future__ import annotations

from typing import Final

import onnx

from .graph import Graph

__all__ = ["efficientnet_lite0", "mobilenet_v1", "mobilenet_v2", "mobilenet_v3"]

# Of MobileNet V2 and EfficientNet-lite0: expansion, channels, blocks, stride of the first one, kernel.
V2: Final = [(1, 16, 1, 1, 3), (6, 24, 2, 2, 3), (6, 32, 3, 2, 3), (6, 64, 4, 2, 3), (6, 96, 3, 1, 3),
             (6, 160, 3, 2, 3), (6, 320, 1, 1, 3)]  # fmt: skip
LITE0: Final = [(1, 16, 1, 1, 3), (6, 24, 2, 2, 3), (6, 40, 2, 2, 5), (6, 80, 3, 2, 3), (6, 112, 3, 1, 5),
                (6, 192, 4, 2, 5), (6, 320, 1, 1, 3)]  # fmt: skip
# Of MobileNet V3: kernel, expanded channels, channels, whether there is an attention to channels, activation, stride.
V3: Final = [
    (3, 16, 16, False, "Relu", 1), (3, 64, 24, False, "Relu", 2), (3, 72, 24, False, "Relu", 1),
    (5, 72, 40, True, "Relu", 2), (5, 120, 40, True, "Relu", 1), (5, 120, 40, True, "Relu", 1),
    (3, 240, 80, False, "HardSwish", 2), (3, 200, 80, False, "HardSwish", 1), (3, 184, 80, False, "HardSwish", 1),
    (3, 184, 80, False, "HardSwish", 1), (3, 480, 112, True, "HardSwish", 1), (3, 672, 112, True, "HardSwish", 1),
    (5, 672, 160, True, "HardSwish", 2), (5, 960, 160, True, "HardSwish", 1), (5, 960, 160, True, "HardSwish", 1),
]  # fmt: skip


def mobilenet_v1(batch: int = 1) -> onnx.ModelProto:
    g = Graph("mobilenet_v1", batch)
    x = g.conv(g.image(224), 32, 3, 2, act="Relu6")
    for channels, stride in [(64, 1), (128, 2), (128, 1), (256, 2), (256, 1), (512, 2), *[(512, 1)] * 5,
                             (1024, 2), (1024, 1)]:  # fmt: skip
        x = g.conv(g.depthwise(x, 3, stride, "Relu6"), channels, act="Relu6")
    return g.finish(g.classify(x))


def mobilenet_v2(batch: int = 1) -> onnx.ModelProto:
    return _inverted("mobilenet_v2", V2, batch)


def efficientnet_lite0(batch: int = 1) -> onnx.ModelProto:
    return _inverted("efficientnet_lite0", LITE0, batch)


def _inverted(name: str, table: list[tuple[int, int, int, int, int]], batch: int) -> onnx.ModelProto:
    g = Graph(name, batch)
    x = g.conv(g.image(224), 32, 3, 2, act="Relu6")
    for expansion, channels, blocks, stride, kernel in table:
        for number in range(blocks):
            x = _block(g, x, expansion * g.channels[x], channels, kernel, 1 if number else stride)
    return g.finish(g.classify(g.conv(x, 1280, act="Relu6")))


def _block(g: Graph, x: str, expanded: int, channels: int, kernel: int, stride: int) -> str:
    y = x if expanded == g.channels[x] else g.conv(x, expanded, act="Relu6")
    y = g.depthwise(y, kernel, stride, "Relu6")
    same = stride == 1 and channels == g.channels[x]
    y = g.conv(y, channels, act=None, gain=0.5 if same else 1.0)
    return g.add(x, y) if same else y


def mobilenet_v3(batch: int = 1) -> onnx.ModelProto:
    g = Graph("mobilenet_v3", batch)
    x = g.conv(g.image(224), 16, 3, 2, act="HardSwish")
    for row in V3:
        x = _block_v3(g, x, *row)
    x = g.conv(x, 960, act="HardSwish")
    x = g.node("Flatten", g.node("GlobalAveragePool", x))
    return g.finish(g.gemm(g.act(g.gemm(x, 1280), "HardSwish"), 1000))


def _block_v3(g: Graph, x: str, kernel: int, expanded: int, channels: int, attend: bool, act: str, stride: int) -> str:
    y = x if expanded == g.channels[x] else g.conv(x, expanded, act=act)
    y = g.depthwise(y, kernel, stride, act)
    if attend:
        y = _attend(g, y)
    same = stride == 1 and channels == g.channels[x]
    y = g.conv(y, channels, act=None, gain=(0.5 if same else 1.0) * (2 if attend else 1))
    return g.add(x, y) if same else y


def _attend(g: Graph, x: str) -> str:
    """Add squeeze and excite: every channel is multiplied by a gate that is computed from all channels."""
    channels = g.channels[x]
    fewer = (channels // 4 + 7) // 8 * 8
    y = g.conv(g.node("GlobalAveragePool", x), fewer)
    y = g.node("HardSigmoid", g.conv(y, channels, act=None), alpha=1 / 6, beta=0.5)
    return g.node("Mul", x, y)
