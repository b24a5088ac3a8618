"""Helpers to build the networks: ONNX nodes with seeded weights, in float32, with images in NCHW.

Batch normalizations that can be folded into a convolution are already folded. The variance of weights is 2 / fan-in
before a ReLU and 1 / fan-in elsewhere, so that the magnitude of tensors is about the same in all layers.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

__all__ = ["Graph"]

OPSET: Final = 17
IR_VERSION: Final = 8
RELU_GAIN: Final = math.sqrt(2)


class Graph:
    """A network under construction.

    Tensors are identified by their names, and the channels of every image are known.
    """

    def __init__(self, name: str, batch: int = 1) -> None:
        self.name, self.batch = name, batch
        self.channels: dict[str, int] = {}
        self._random = np.random.default_rng(0)
        self._nodes: list[Any] = []
        self._constants: list[Any] = []
        self._inputs: list[Any] = []

    def input(self, name: str, shape: Sequence[int], dtype: int = TensorProto.FLOAT) -> str:
        """Return an input of this shape, given without the batch dimension."""
        self._inputs.append(helper.make_tensor_value_info(name, dtype, [self.batch, *shape]))
        self.channels[name] = shape[0]
        return name

    def image(self, size: int, channels: int = 3) -> str:
        """Return a square image."""
        return self.input("image", (channels, size, size))

    def node(self, kind: str, *inputs: str, outputs: int = 1, **attributes: Any) -> Any:
        """Add a node, and return the name of its output, or a list of names if there are several."""
        name = f"{kind}_{len(self._nodes)}"
        names = [name] if outputs == 1 else [f"{name}_{number}" for number in range(outputs)]
        self._nodes.append(helper.make_node(kind, inputs, names, name, **attributes))
        if inputs and inputs[0] in self.channels:
            self.channels |= dict.fromkeys(names, self.channels[inputs[0]])
        return name if outputs == 1 else names

    def constant(self, value: Any, dtype: type = np.float32) -> str:
        """Return a constant tensor."""
        name = f"constant_{len(self._constants)}"
        self._constants.append(numpy_helper.from_array(np.asarray(value, dtype), name))
        return name

    def weights(self, shape: Sequence[int], fan_in: int, gain: float = 1.0) -> str:
        """Return normally distributed weights with a standard deviation of gain / sqrt(fan-in)."""
        drawn = self._random.standard_normal(shape, np.float32)
        return self.constant(drawn * np.float32(gain / math.sqrt(fan_in)))

    def bias(self, size: int) -> str:
        """Return a constant of small random numbers."""
        return self.constant(0.1 * self._random.standard_normal(size, np.float32))

    def finish(self, *outputs: str) -> onnx.ModelProto:
        """Return the model with these outputs, whose shapes are inferred."""
        results = [onnx.ValueInfoProto(name=name) for name in outputs]
        graph = helper.make_graph(self._nodes, self.name, self._inputs, results, self._constants)
        opsets = [helper.make_opsetid("", OPSET)]
        model = helper.make_model(graph, opset_imports=opsets, ir_version=IR_VERSION, producer_name="benchmark")
        return _typed(model)

    # --- layers -------------------------------------------------------------------------------------------------------

    def conv(
        self,
        x: str,
        channels: int,
        kernel: int | tuple[int, int] = 1,
        stride: int = 1,
        groups: int = 1,
        act: str | None = "Relu",
        gain: float | None = None,
        pad: int | None = None,
    ) -> str:
        """Add a convolution with bias and an activation; the padding is such that only the stride reduces the image."""
        height, width = (kernel, kernel) if isinstance(kernel, int) else kernel
        pads = [height // 2, width // 2] * 2 if pad is None else [pad] * 4
        depth = self.channels[x] // groups
        if gain is None:
            gain = 1.0 if act is None else RELU_GAIN
        weights = self.weights((channels, depth, height, width), depth * height * width, gain)
        where = {"kernel_shape": [height, width], "strides": [stride] * 2, "pads": pads, "group": groups}
        y = self.node("Conv", x, weights, self.bias(channels), **where)
        self.channels[y] = channels
        return self.act(y, act)

    def depthwise(self, x: str, kernel: int = 3, stride: int = 1, act: str | None = "Relu") -> str:
        """Add a depthwise convolution."""
        channels = self.channels[x]
        return self.conv(x, channels, kernel, stride, groups=channels, act=act)

    def act(self, x: str, kind: str | None) -> str:
        """Add an activation by its ONNX name; Relu6 and Swish are several nodes, as exporters write them."""
        if kind is None:
            return x
        if kind == "Relu6":
            return self.node("Clip", x, self.constant(0.0), self.constant(6.0))
        if kind == "Swish":
            return self.node("Mul", x, self.node("Sigmoid", x))
        return self.node(kind, x)

    def add(self, a: str, b: str) -> str:
        return self.node("Add", a, b)

    def concat(self, *parts: str) -> str:
        """Concatenate tensors along the channels."""
        y = self.node("Concat", *parts, axis=1)
        self.channels[y] = sum(self.channels[part] for part in parts)
        return y

    def max_pool(self, x: str, kernel: int = 3, stride: int = 2, pad: int | None = None, ceil: bool = False) -> str:
        pads = [kernel // 2 if pad is None else pad] * 4
        where = {"kernel_shape": [kernel] * 2, "strides": [stride] * 2, "pads": pads}
        return self.node("MaxPool", x, **where, ceil_mode=int(ceil))

    def average_pool(self, x: str, kernel: int = 2, stride: int = 2) -> str:
        return self.node("AveragePool", x, kernel_shape=[kernel] * 2, strides=[stride] * 2)

    def upsample(self, x: str) -> str:
        """Double the height and the width by repeating each pixel four times."""
        scales = self.constant([1, 1, 2, 2])
        how = {"mode": "nearest", "coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}
        return self.node("Resize", x, "", scales, **how)

    def batch_norm(self, x: str) -> str:
        """Add a batch normalization that cannot be folded into a convolution."""
        channels = self.channels[x]
        scale = self.constant(1 + 0.1 * self._random.standard_normal(channels, np.float32))
        variance = self.constant(1 + 0.1 * self._random.random(channels, np.float32))
        return self.node("BatchNormalization", x, scale, self.bias(channels), self.bias(channels), variance)

    def linear(self, x: str, features: int, gain: float = 1.0) -> str:
        """Add a matrix product along the last axis, and a bias; `x` may have any rank."""
        depth = self.channels[x]
        y = self.add(self.node("MatMul", x, self.weights((depth, features), depth, gain)), self.bias(features))
        self.channels[y] = features
        return y

    def gemm(self, x: str, features: int, gain: float = 1.0) -> str:
        """Add a matrix product and a bias for rank 2, as one node."""
        depth = self.channels[x]
        y = self.node("Gemm", x, self.weights((features, depth), depth, gain), self.bias(features), transB=1)
        self.channels[y] = features
        return y

    def classify(self, x: str, classes: int = 1000) -> str:
        """Average over the image, and return one number for each class."""
        return self.gemm(self.node("Flatten", self.node("GlobalAveragePool", x)), classes)


def _typed(model: onnx.ModelProto) -> onnx.ModelProto:
    """Return the model with the inferred types and shapes of its outputs."""
    inferred = onnx.shape_inference.infer_shapes(_without_weights(model), strict_mode=True).graph.output
    for ours, result in zip(model.graph.output, inferred, strict=True):
        ours.CopyFrom(result)
    return model


def _without_weights(model: onnx.ModelProto) -> onnx.ModelProto:
    """Return a copy whose large constants are inputs, as shape inference serializes the whole model."""
    graph = model.graph
    small = [item for item in graph.initializer if item.data_type == TensorProto.INT64 or math.prod(item.dims) < 64]
    cached = {item.name for item in small}
    heavy = [
        helper.make_tensor_value_info(item.name, item.data_type, item.dims)
        for item in graph.initializer
        if item.name not in cached
    ]
    light = helper.make_graph(graph.node, graph.name, [*graph.input, *heavy], graph.output, small)
    return helper.make_model(light, opset_imports=model.opset_import, ir_version=model.ir_version)
