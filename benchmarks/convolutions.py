"""`python benchmarks/run.py convolutions`: convolutions of many shapes, each as a network of one layer.

CpuAcc, ONNX Runtime and OpenVINO run each layer on one thread, in one process, in turns. A time is the minimum over all
turns, and the ratio is the time of the fastest other engine divided by the time of CpuAcc.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

import numpy as np

from benchmarks.single_layers import run

__all__ = ["SHAPES", "Shape", "main"]


@dataclass(frozen=True)
class Shape:
    """One convolution; `size`, `kernel` and the attributes have a number for each spatial axis."""

    channels: int
    size: tuple[int, ...]
    outputs: int
    kernel: tuple[int, ...]
    stride: int = 1
    dilation: int = 1
    groups: int = 1
    batch: int = 1
    pads: int | None = None
    transposed: bool = False
    output_padding: int = 0

    def attributes(self) -> dict[str, Any]:
        """Return the attributes of the ONNX node; without `pads`, only the stride makes the image smaller."""
        pads = [(k - 1) * self.dilation // 2 if self.pads is None else self.pads for k in self.kernel]
        axes = len(self.size)
        attributes: dict[str, Any] = {
            "kernel_shape": list(self.kernel),
            "strides": [self.stride] * axes,
            "dilations": [self.dilation] * axes,
            "pads": pads * 2,
            "group": self.groups,
        }
        if self.output_padding:
            attributes["output_padding"] = [self.output_padding] * axes
        return attributes

    def weights(self) -> tuple[int, ...]:
        """Return the shape of the weights."""
        if self.transposed:
            return (self.channels, self.outputs // self.groups, *self.kernel)
        return (self.outputs, self.channels // self.groups, *self.kernel)


def _square(channels: int, size: int, outputs: int, kernel: int, **more: Any) -> Shape:
    return Shape(channels, (size, size), outputs, (kernel, kernel), **more)


def _depthwise(channels: int, size: int, kernel: int, **more: Any) -> Shape:
    return _square(channels, size, channels, kernel, groups=channels, **more)


def _grouped(channels: int, size: int, groups: int, **more: Any) -> Shape:
    return _square(channels, size, channels, 3, groups=groups, **more)


def _volume(
    channels: int, size: tuple[int, int, int], outputs: int, kernel: tuple[int, int, int], **more: Any
) -> Shape:
    return Shape(channels, size, outputs, kernel, **more)


SHAPES: Final[dict[str, Shape]] = {
    "3x3 64@56": _square(64, 56, 64, 3),
    "1x1 256@14": _square(256, 14, 64, 1),
    "1x1 stride 2": _square(256, 28, 512, 1, stride=2),
    "3x3 stride 2": _square(128, 56, 128, 3, stride=2),
    **{f"3x3 dilation {n}": _square(64, 56, 64, 3, dilation=n) for n in (2, 4, 8, 16, 32, 64)},
    **{f"ASPP rate {n}": _square(320, 17, 256, 3, dilation=n) for n in (6, 12, 18, 24, 36)},
    "ASPP 33 rate 12": _square(512, 33, 256, 3, dilation=12),
    **{f"grouped {n} of 64@56": _grouped(64, 56, n) for n in (2, 4, 8, 16, 32)},
    "RegNet 48@28 / 24": _grouped(48, 28, 2),
    "RegNet 120@14 / 24": _grouped(120, 14, 5),
    "RegNet 336@14 / 8": _grouped(336, 14, 42),
    "RegNet 64@56 / 16 stride 2": _grouped(64, 56, 4, stride=2),
    "ResNeXt 128@56 / 4": _grouped(128, 56, 32),
    "ResNeXt 256@28 / 8": _grouped(256, 28, 32),
    "ResNeXt 512@14 / 16": _grouped(512, 14, 32),
    "ResNeXt 1024@7 / 32": _grouped(1024, 7, 32),
    "grouped 1x1 240@28 / 3": _square(240, 28, 240, 1, groups=3),
    "grouped 1x1 96@28 / 8": _square(96, 28, 96, 1, groups=8),
    **{f"depthwise {k}x{k} 96@56": _depthwise(96, 56, k) for k in (3, 5, 7, 9)},
    "depthwise 13x13 64@28": _depthwise(64, 28, 13),
    "depthwise 31x31 64@28": _depthwise(64, 28, 31),
    "depthwise 7x7 768@7": _depthwise(768, 7, 7),
    "depthwise 3x3 dilation 2": _depthwise(256, 33, 3, dilation=2),
    "depthwise 5x5 dilation 4": _depthwise(64, 56, 5, dilation=4),
    "depthwise 3x3 dilation 12": _depthwise(256, 33, 3, dilation=12),
    "depthwise 7x7 dilation 3": _depthwise(64, 56, 7, dilation=3),
    "depthwise 7x7 stride 2": _depthwise(96, 56, 7, stride=2),
    "depthwise multiplier 2": _square(64, 28, 128, 3, groups=64),
    "conv3d 3x3x3 64": _volume(64, (8, 28, 28), 64, (3, 3, 3)),
    "conv3d 1x3x3 64": _volume(64, (8, 28, 28), 128, (1, 3, 3)),
    "conv3d 3x1x1 64": _volume(64, (8, 28, 28), 64, (3, 1, 1)),
    "conv3d 1x1x1 64": _volume(64, (8, 28, 28), 128, (1, 1, 1)),
    "conv3d 3x3x3 stride 2": _volume(64, (8, 28, 28), 128, (3, 3, 3), stride=2),
    "conv3d first 3x7x7": _volume(3, (8, 56, 56), 64, (3, 7, 7), stride=2),
    "conv3d 3x3x3 512 small": _volume(256, (2, 7, 7), 256, (3, 3, 3)),
    "conv3d depthwise 3x3x3": _volume(96, (8, 28, 28), 96, (3, 3, 3), groups=96),
    "conv1d 7 64@1000": Shape(64, (1000,), 64, (7,)),
    "conv1d 3 dilation 64": Shape(64, (1000,), 64, (3,), dilation=64),
    "conv1d first 400 samples 10": Shape(1, (8000,), 256, (10,), stride=5, pads=0),
    "conv1d depthwise 31": Shape(144, (400,), 144, (31,), groups=144),
    "conv1d 5 of 256@50": Shape(256, (50,), 256, (5,)),
    "conv1d positions 128 / 16": Shape(768, (49,), 768, (127,), groups=16),
    "transposed 2x2 stride 2": _square(128, 28, 64, 2, stride=2, pads=0, transposed=True),
    "transposed 4x4 stride 2": _square(64, 28, 64, 4, stride=2, pads=1, transposed=True),
    "transposed 3x3 stride 2": _square(64, 28, 32, 3, stride=2, pads=1, output_padding=1, transposed=True),
    "transposed 3x3 stride 1": _square(64, 28, 64, 3, transposed=True),
    "transposed grouped": _square(64, 28, 64, 4, stride=2, pads=1, groups=8, transposed=True),
    "transposed depthwise": _square(64, 28, 64, 4, stride=2, pads=1, groups=64, transposed=True),
    "transposed 1d": Shape(256, (200,), 128, (16,), stride=8, pads=4, transposed=True),
    "transposed 3d": _volume(32, (4, 14, 14), 32, (2, 2, 2), stride=2, pads=0, transposed=True),
    "small 3x3 512@7": _square(512, 7, 512, 3),
    "small 3x3 512@4": _square(512, 4, 512, 3),
    "small 5x5 128@3": _square(128, 3, 128, 5),
    "small 3x3 256@1": _square(256, 1, 256, 3),
    "odd 3x3 17 to 33@28": _square(17, 28, 33, 3),
    "odd 1x1 20 to 40@28": _square(20, 28, 40, 1),
    "odd 3x3 5 to 7@64": _square(5, 64, 7, 3),
    "odd 3x3 64 to 3@56": _square(64, 56, 3, 3),
    "odd 9x9 64 to 3@56": _square(64, 56, 3, 9),
    "odd 1x1 64 to 1@56": _square(64, 56, 1, 1),
    "first 3x3 1 to 32@28": _square(1, 28, 32, 3),
    "first 3x3 3 to 32 stride 2@224": _square(3, 224, 32, 3, stride=2, pads=1),
    "first 7x7 3 to 64 stride 2@224": _square(3, 224, 64, 7, stride=2, pads=3),
    "first 3x3 4 to 64@64": _square(4, 64, 64, 3),
    "first 4x4 3 to 96 stride 4@224": _square(3, 224, 96, 4, stride=4, pads=0),
    "first 16x16 3 to 192 stride 16@224": _square(3, 224, 192, 16, stride=16, pads=0),
    "batch 8 3x3 64@14": _square(64, 14, 64, 3, batch=8),
}


def main(words: Sequence[str] | None = None) -> int:
    """Measure the shapes whose names match a pattern."""
    return run("convolutions", __doc__, {name: partial(_layer, shape) for name, shape in SHAPES.items()}, words)


def _layer(shape: Shape) -> tuple[Any, list[Any]]:
    """Return the model of a convolution, and its input."""
    x = np.random.default_rng(1).standard_normal((shape.batch, shape.channels, *shape.size), np.float32)
    return _model(shape), [x]


def _model(shape: Shape) -> Any:
    """Return the ONNX model of one convolution with a bias."""
    from onnx import TensorProto, helper, numpy_helper  # noqa: PLC0415 - it is optional

    random = np.random.default_rng(0)
    weights = random.standard_normal(shape.weights(), np.float32)
    constants = {"weights": weights, "bias": random.standard_normal(shape.outputs, np.float32)}
    kind = "ConvTranspose" if shape.transposed else "Conv"
    node = helper.make_node(kind, ["x", "weights", "bias"], ["y"], **shape.attributes())
    dimensions = [shape.batch, shape.channels, *shape.size]
    graph = helper.make_graph(
        [node],
        "convolution",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, dimensions)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [None] * len(dimensions))],
        [numpy_helper.from_array(array, name) for name, array in constants.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
