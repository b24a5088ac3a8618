"""MobileNet V1 to V4, and EfficientNet, which consists of the same blocks; images of 224 x 224."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import onnx

from .graph import Graph, squeeze_excite

__all__ = ["efficientnet_b0", "efficientnet_lite0", "inverted", "mobilenet_v1", "mobilenet_v2", "mobilenet_v3",
           "mobilenet_v4"]  # fmt: skip

# Of MobileNet V2 and EfficientNet: expansion, channels, blocks, stride of the first one, kernel.
Row = tuple[int, int, int, int, int]
V2: Final = [(1, 16, 1, 1, 3), (6, 24, 2, 2, 3), (6, 32, 3, 2, 3), (6, 64, 4, 2, 3), (6, 96, 3, 1, 3),
             (6, 160, 3, 2, 3), (6, 320, 1, 1, 3)]  # fmt: skip
B0: Final = [(1, 16, 1, 1, 3), (6, 24, 2, 2, 3), (6, 40, 2, 2, 5), (6, 80, 3, 2, 3), (6, 112, 3, 1, 5),
             (6, 192, 4, 2, 5), (6, 320, 1, 1, 3)]  # fmt: skip
# Of MobileNet V3: kernel, expanded channels, channels, whether there is an attention to channels, activation, stride.
V3: Final = [
    (3, 16, 16, False, "Relu", 1), (3, 64, 24, False, "Relu", 2), (3, 72, 24, False, "Relu", 1),
    (5, 72, 40, True, "Relu", 2), (5, 120, 40, True, "Relu", 1), (5, 120, 40, True, "Relu", 1),
    (3, 240, 80, False, "HardSwish", 2), (3, 200, 80, False, "HardSwish", 1), (3, 184, 80, False, "HardSwish", 1),
    (3, 184, 80, False, "HardSwish", 1), (3, 480, 112, True, "HardSwish", 1), (3, 672, 112, True, "HardSwish", 1),
    (5, 672, 160, True, "HardSwish", 2), (5, 960, 160, True, "HardSwish", 1), (5, 960, 160, True, "HardSwish", 1),
]  # fmt: skip
# Of MobileNet V4: the kernels of the depthwise convolutions before and after the expansion (0: there is none), stride,
# channels, expansion.
V4: Final = [(5, 5, 2, 96, 3), *[(0, 3, 1, 96, 2)] * 4, (3, 0, 1, 96, 4), (3, 3, 2, 128, 6), (5, 5, 1, 128, 4),
             (0, 5, 1, 128, 4), (0, 5, 1, 128, 3), *[(0, 3, 1, 128, 4)] * 2]  # fmt: skip


def mobilenet_v1(batch: int = 1) -> onnx.ModelProto:
    g = Graph("mobilenet_v1", batch)
    x = g.conv(g.image(224), 32, 3, 2, act="Relu6")
    for channels, stride in [(64, 1), (128, 2), (128, 1), (256, 2), (256, 1), (512, 2), *[(512, 1)] * 5,
                             (1024, 2), (1024, 1)]:  # fmt: skip
        x = g.conv(g.depthwise(x, 3, stride, "Relu6"), channels, act="Relu6")
    return g.finish(g.classify(x))


def mobilenet_v2(batch: int = 1) -> onnx.ModelProto:
    return _classifier("mobilenet_v2", batch, V2, "Relu6")


def efficientnet_lite0(batch: int = 1) -> onnx.ModelProto:
    return _classifier("efficientnet_lite0", batch, B0, "Relu6")


def efficientnet_b0(batch: int = 1) -> onnx.ModelProto:
    return _classifier("efficientnet_b0", batch, B0, "Swish", gated=True)


def _classifier(name: str, batch: int, table: Sequence[Row], act: str, gated: bool = False) -> onnx.ModelProto:
    g = Graph(name, batch)
    x = inverted(g, g.image(224), table, act, gated)[-1]
    return g.finish(g.classify(g.conv(x, 1280, act=act)))


def inverted(
    g: Graph, image: str, table: Sequence[Row] = V2, act: str = "Relu6", gated: bool = False, largest: int = 32
) -> list[str]:
    """Return the result of each row of inverted residuals; beyond a stride of `largest`, they are dilated."""
    x, total, dilation = g.conv(image, 32, 3, 2, act=act), 2, 1
    results = []
    for expansion, channels, blocks, first, kernel in table:
        for number in range(blocks):
            stride = 1 if number or total * first > largest else first
            dilation *= first if not number and stride < first else 1
            total *= stride
            x = _block(g, x, expansion * g.channels[x], channels, (kernel, stride, dilation), act, gated)
        results.append(x)
    return results


def _block(g: Graph, x: str, expanded: int, channels: int, window: tuple[int, int, int], act: str, gated: bool) -> str:
    kernel, stride, dilation = window
    y = x if expanded == g.channels[x] else g.conv(x, expanded, act=act)
    y = g.depthwise(y, kernel, stride, act, dilation)
    y = squeeze_excite(g, y, g.channels[x] // 4, "Swish") if gated else y
    has_shortcut = stride == 1 and channels == g.channels[x]
    y = g.conv(y, channels, act=None, gain=(0.5 if has_shortcut else 1.0) * (2 if gated else 1))
    return g.add(x, y) if has_shortcut else y


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
        y = squeeze_excite(g, y, (g.channels[y] // 4 + 7) // 8 * 8, gate="HardSigmoid")
    has_shortcut = stride == 1 and channels == g.channels[x]
    y = g.conv(y, channels, act=None, gain=(0.5 if has_shortcut else 1.0) * (2 if attend else 1))
    return g.add(x, y) if has_shortcut else y


def mobilenet_v4(batch: int = 1) -> onnx.ModelProto:
    g = Graph("mobilenet_v4", batch)
    x = g.conv(g.conv(g.image(224), 32, 3, 2), 32, 3, 2)
    x = g.conv(g.conv(g.conv(x, 32), 96, 3, 2), 64)
    for row in V4:
        x = _block_v4(g, x, *row)
    x = g.node("GlobalAveragePool", g.conv(x, 960))
    return g.finish(g.gemm(g.node("Flatten", g.conv(x, 1280)), 1000))


def _block_v4(g: Graph, x: str, before: int, after: int, stride: int, channels: int, expansion: int) -> str:
    depth = g.channels[x]
    y = g.depthwise(x, before, 1 if after else stride, None) if before else x
    y = g.conv(y, expansion * depth)
    y = g.depthwise(y, after, stride) if after else y
    has_shortcut = stride == 1 and channels == depth
    y = g.conv(y, channels, act=None, gain=0.5 if has_shortcut else 1.0)
    return g.add(x, y) if has_shortcut else y
