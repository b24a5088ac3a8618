"""Networks of residual blocks: ResNet (v1.5), ResNeXt and RegNet-Y; images of 224 x 224."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import onnx

from .graph import Graph, squeeze_excite

__all__ = ["DESIGNS", "Residual", "features", "residual"]


@dataclass(frozen=True)
class Residual:
    """A residual network; sequences have one number for each stage.

    Args:
        depths: the number of blocks.
        widths: the channels of the 3 x 3 convolutions.
        expansion: output channels of a block for each channel of `widths`.
        basic: a block is two 3 x 3 convolutions instead of a 3 x 3 convolution between two of 1 x 1.
        groups: groups of the 3 x 3 convolutions.
        strides: the strides of the first blocks.
        dilations: the dilations of the 3 x 3 convolutions.
        gated: every block has squeeze and excite, and the stem is one 3 x 3 convolution, as in RegNet-Y.
    """

    depths: Sequence[int]
    widths: Sequence[int] = (64, 128, 256, 512)
    expansion: int = 4
    basic: bool = False
    groups: Sequence[int] = (1, 1, 1, 1)
    strides: Sequence[int] = (1, 2, 2, 2)
    dilations: Sequence[int] = (1, 1, 1, 1)
    gated: bool = False


DESIGNS: Final = {
    "resnet18": Residual((2, 2, 2, 2), expansion=1, basic=True),
    "resnet50": Residual((3, 4, 6, 3)),
    "resnext50": Residual((3, 4, 6, 3), (128, 256, 512, 1024), 2, groups=(32, 32, 32, 32)),
    "regnet_y_400mf": Residual(
        (1, 3, 6, 6), (48, 104, 208, 440), 1, groups=(6, 13, 26, 55), strides=(2, 2, 2, 2), gated=True
    ),
}


def residual(name: str, batch: int) -> onnx.ModelProto:
    g = Graph(name, batch)
    return g.finish(g.classify(features(g, g.image(224), DESIGNS[name])[-1]))


def features(g: Graph, image: str, design: Residual) -> list[str]:
    """Return the result of each stage."""
    x = g.conv(image, 32, 3, 2) if design.gated else g.max_pool(g.conv(image, 64, 7, 2))
    results = []
    for stage, depth in enumerate(design.depths):
        for number in range(depth):
            x = _block(g, x, design, stage, 1 if number else design.strides[stage])
        results.append(x)
    return results


def _block(g: Graph, x: str, design: Residual, stage: int, stride: int) -> str:
    width, dilation, groups = design.widths[stage], design.dilations[stage], design.groups[stage]
    outputs = width * design.expansion
    if design.basic:
        y = g.conv(g.conv(x, width, 3, stride, dilation=dilation), outputs, 3, act=None, gain=0.5)
    else:
        y = g.conv(g.conv(x, width), width, 3, stride, groups=groups, dilation=dilation)
        y = squeeze_excite(g, y, g.channels[x] // 4) if design.gated else y
        y = g.conv(y, outputs, act=None, gain=1.0 if design.gated else 0.5)
    if stride > 1 or g.channels[x] != outputs:
        x = g.conv(x, outputs, 1, stride, act=None)
    return g.act(g.add(y, x), "Relu")
