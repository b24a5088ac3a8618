"""Detectors without suppression, for images of 320 x 320: YOLO-like, SSD on MobileNet V2, and RetinaNet-like."""

from __future__ import annotations

import numpy as np
import onnx

from .graph import Graph
from .mobile import inverted
from .residual import DESIGNS, features

__all__ = ["retinanet", "ssd_mobilenet", "yolo"]

CLASSES = 80
ANCHORS = 3
SIZE = 320


def yolo(batch: int = 1) -> onnx.ModelProto:
    g = Graph("yolo", batch)
    x = _conv(g, g.image(SIZE), 32, 6, 2, pad=2)
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


def ssd_mobilenet(batch: int = 1) -> onnx.ModelProto:
    """Return SSDLite: depthwise heads on six levels; boxes are decoded from anchors."""
    g = Graph("ssd_mobilenet", batch)
    rows = inverted(g, g.image(SIZE))
    levels = [rows[4], g.conv(rows[6], 1280, act="Relu6")]
    for channels in (512, 256, 256, 64):
        x = g.depthwise(g.conv(levels[-1], channels // 2, act="Relu6"), 3, 2, "Relu6")
        levels.append(g.conv(x, channels, act="Relu6"))
    sizes = (20, 10, 5, 3, 2, 1)
    boxes = [_flat(g, _separable(g, x, 6 * 4), size, 6, 4) for x, size in zip(levels, sizes, strict=True)]
    scores = [_flat(g, _separable(g, x, 6 * 91), size, 6, 91) for x, size in zip(levels, sizes, strict=True)]
    probability = g.node("Softmax", g.node("Concat", *scores, axis=1), axis=-1)
    anchors = 6 * sum(size * size for size in sizes)
    return g.finish(_decoded(g, g.node("Concat", *boxes, axis=1), anchors), probability)


def _separable(g: Graph, x: str, channels: int) -> str:
    return g.conv(g.depthwise(x, 3, 1, "Relu6"), channels, act=None, gain=0.3)


def _flat(g: Graph, x: str, size: int, anchors: int, numbers: int) -> str:
    """Return one row of numbers for each anchor of each cell."""
    y = g.node("Transpose", x, perm=[0, 2, 3, 1])
    return g.reshape(y, g.batch, anchors * size * size, numbers)


def _decoded(g: Graph, x: str, count: int) -> str:
    """Return the corners of boxes that are given relative to anchors."""
    offsets, log_sizes = g.slice(x, 2, 0, 2), g.slice(x, 2, 2, 4)
    sizes = g.weights((1, count, 2), 100)
    center = g.node("Mul", g.node("Mul", offsets, g.constant(0.1)), sizes)
    center = g.add(center, g.weights((1, count, 2), 4))
    half = g.node("Mul", g.node("Exp", g.node("Mul", log_sizes, g.constant(0.2))), sizes)
    half = g.node("Div", half, g.constant(2.0))
    return str(g.node("Concat", g.node("Sub", center, half), g.add(center, half), axis=-1))


def retinanet(batch: int = 1) -> onnx.ModelProto:
    """Return a feature pyramid on ResNet-18, and two heads of four convolutions that all levels share."""
    g = Graph("retinanet", batch)
    levels = features(g, g.image(SIZE), DESIGNS["resnet18"])[1:]
    lateral = [g.conv(x, 256, act=None) for x in levels]
    for number in (1, 0):
        lateral[number] = g.add(lateral[number], g.upsample(lateral[number + 1]))
    pyramid = [g.conv(x, 256, 3, act=None) for x in lateral]
    heads = [_tower(g, numbers) for numbers in (9 * CLASSES, 9 * 4)]
    sizes = (40, 20, 10)
    outputs = []
    for tower, numbers in zip(heads, (CLASSES, 4), strict=True):
        rows = [_flat(g, _applied(g, x, tower), size, 9, numbers) for x, size in zip(pyramid, sizes, strict=True)]
        outputs.append(g.node("Concat", *rows, axis=1))
    count = 9 * sum(size * size for size in sizes)
    return g.finish(g.node("Sigmoid", outputs[0]), _decoded(g, outputs[1], count))


Tower = list[tuple[str, str, int]]


def _tower(g: Graph, outputs: int) -> Tower:
    """Return the weights, the biases and the channels of five convolutions."""
    gains = [(256, 2**0.5)] * 4 + [(outputs, 0.3)]
    return [(g.weights((n, 256, 3, 3), 9 * 256, gain), g.bias(n), n) for n, gain in gains]


def _applied(g: Graph, x: str, tower: Tower) -> str:
    for number, (weights, bias, channels) in enumerate(tower):
        x = g.node("Conv", x, weights, bias, kernel_shape=[3, 3], pads=[1] * 4)
        g.channels[x] = channels
        x = g.act(x, "Relu" if number < len(tower) - 1 else None)
    return x
