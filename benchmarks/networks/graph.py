"""Helpers to build the networks: ONNX nodes with seeded weights, in float32, with images in NCHW.

Tensors of sequences have the dimensions batch, length and features.

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

__all__ = ["BLOCK", "Graph", "squeeze_excite"]

OPSET: Final = 17
IR_VERSION: Final = 8
BLOCKED_OPSET: Final = 21
BLOCKED_IR_VERSION: Final = 10
BLOCK: Final = 32
"""Weights with one scale, if weights are in blocks."""
RELU_GAIN: Final = math.sqrt(2)


class Graph:
    """A network under construction.

    Tensors are identified by their names. The channels of every image, and the features of every sequence are known.
    With `blocked`, the weights of `linear` are integers of 4 bits, with a scale for each block of `BLOCK` inputs.
    """

    def __init__(self, name: str, batch: int = 1, blocked: bool = False) -> None:
        self.name, self.batch, self.blocked = name, batch, blocked
        self.opset = BLOCKED_OPSET if blocked else OPSET
        self.channels: dict[str, int] = {}
        self._random = np.random.default_rng(0)
        self._nodes: list[Any] = []
        self._constants: list[Any] = []
        self._inputs: list[Any] = []

    def input(self, name: str, shape: Sequence[int], dtype: int = TensorProto.FLOAT) -> str:
        """Return an input of this shape, given without the batch dimension."""
        self._inputs.append(helper.make_tensor_value_info(name, dtype, [self.batch, *shape]))
        if shape:
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
        opsets = [helper.make_opsetid("", self.opset)]
        version = BLOCKED_IR_VERSION if self.blocked else IR_VERSION
        model = helper.make_model(graph, opset_imports=opsets, ir_version=version, producer_name="benchmark")
        return _typed(model)

    # --- layers -------------------------------------------------------------------------------------------------------

    def conv(
        self,
        x: str,
        channels: int,
        kernel: int | Sequence[int] = 1,
        stride: int | Sequence[int] = 1,
        groups: int = 1,
        act: str | None = "Relu",
        gain: float | None = None,
        pad: int | None = None,
        dilation: int = 1,
    ) -> str:
        """Add a convolution with bias and an activation.

        A kernel that is a sequence has the size of each axis; a number is the size of both axes of an image. Without
        `pad`, the padding is such that only the stride reduces the image.
        """
        sizes = [kernel] * 2 if isinstance(kernel, int) else [*kernel]
        strides = [stride] * len(sizes) if isinstance(stride, int) else [*stride]
        pads = [size // 2 * dilation if pad is None else pad for size in sizes] * 2
        depth = self.channels[x] // groups
        if gain is None:
            gain = 1.0 if act is None else RELU_GAIN
        weights = self.weights((channels, depth, *sizes), depth * math.prod(sizes), gain)
        where = {"kernel_shape": sizes, "strides": strides, "pads": pads, "group": groups}
        y = self.node("Conv", x, weights, self.bias(channels), **where, dilations=[dilation] * len(sizes))
        self.channels[y] = channels
        return self.act(y, act)

    def depthwise(
        self,
        x: str,
        kernel: int | Sequence[int] = 3,
        stride: int | Sequence[int] = 1,
        act: str | None = "Relu",
        dilation: int = 1,
    ) -> str:
        """Add a depthwise convolution."""
        channels = self.channels[x]
        return self.conv(x, channels, kernel, stride, groups=channels, act=act, dilation=dilation)

    def act(self, x: str, kind: str | None) -> str:
        """Add an activation by its ONNX name.

        Relu6, Swish, Gelu, GeluTanh and QuickGelu are several nodes, as exporters write them.
        """
        if kind is None:
            return x
        if kind in COMPOSED:
            return COMPOSED[kind](self, x)
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

    def linear(self, x: str, features: int, gain: float = 1.0, bias: bool = True) -> str:
        """Add a matrix product along the last axis, and a bias; `x` may have any rank."""
        depth = self.channels[x]
        weights = self._blocks(depth, features) if self.blocked else self.weights((depth, features), depth, gain)
        y = self.node("MatMul", x, weights)
        y = self.node("Add", self.bias(features), y) if bias else y
        self.channels[y] = features
        return y

    def _blocks(self, depth: int, features: int) -> str:
        """Return weights of 4 bits, with one scale for `BLOCK` inputs of each output."""
        name = f"constant_{len(self._constants)}"
        packed = self._random.integers(0, 256, depth * features // 2, np.uint8).tobytes()
        self._constants.append(helper.make_tensor(name, TensorProto.INT4, (depth, features), packed, raw=True))
        scales = self._random.uniform(0.5, 1.0, (depth // BLOCK, features)) * (0.3 / math.sqrt(depth))
        return str(self.node("DequantizeLinear", name, self.constant(scales), axis=0, block_size=BLOCK))

    def gemm(self, x: str, features: int, gain: float = 1.0) -> str:
        """Add a matrix product and a bias for rank 2, as one node."""
        depth = self.channels[x]
        y = self.node("Gemm", x, self.weights((features, depth), depth, gain), self.bias(features), transB=1)
        self.channels[y] = features
        return y

    def reshape(self, x: str, *shape: int) -> str:
        """Add a Reshape; the last dimension becomes the features."""
        y = self.node("Reshape", x, self.constant(shape, np.int64))
        self.channels[y] = shape[-1]
        return str(y)

    def transpose(self, x: str, *order: int) -> str:
        return str(self.node("Transpose", x, perm=list(order)))

    def slice(self, x: str, axis: int, start: int, end: int, step: int = 1) -> str:
        """Add a Slice of one axis."""
        return str(self.node("Slice", x, *(self.constant([value], np.int64) for value in (start, end, axis, step))))

    def mean(self, x: str, axis: int) -> str:
        """Add the mean over one axis, which stays as a dimension of 1."""
        if self.opset < 18:
            return str(self.node("ReduceMean", x, axes=[axis], keepdims=1))
        return str(self.node("ReduceMean", x, self.constant([axis], np.int64), keepdims=1))

    def embedding(self, ids: str, rows: int, features: int) -> str:
        """Look up the rows of a table of weights."""
        y = self.node("Gather", self.weights((rows, features), 1), ids, axis=0)
        self.channels[y] = features
        return str(y)

    def layer_norm(self, x: str, decomposed: bool = False, epsilon: float = 1e-5) -> str:
        """Add a layer normalization of the features: the operator, or the nodes of exporters before opset 17."""
        width = self.channels[x]
        scale = self.constant(1 + 0.1 * self._random.standard_normal(width, np.float32))
        if not decomposed:
            return str(self.node("LayerNormalization", x, scale, self.bias(width), axis=-1, epsilon=epsilon))
        centered = self.node("Sub", x, self.mean(x, -1))
        variance = self.mean(self.node("Pow", centered, self.constant(2.0)), -1)
        deviation = self.node("Sqrt", self.node("Add", variance, self.constant(epsilon)))
        return self.add(self.node("Mul", self.node("Div", centered, deviation), scale), self.bias(width))

    def rms_norm(self, x: str, epsilon: float = 1e-6) -> str:
        """Add a normalization by the root of the mean square, as exporters write it."""
        scale = self.constant(1 + 0.1 * self._random.standard_normal(self.channels[x], np.float32))
        square = self.mean(self.node("Pow", x, self.constant(2.0)), -1)
        root = self.node("Sqrt", self.node("Add", square, self.constant(epsilon)))
        normal = self.node("Mul", x, self.node("Div", self.constant(1.0), root))
        self.channels[normal] = self.channels[x]
        y = self.node("Mul", scale, normal)
        self.channels[y] = self.channels[x]
        return str(y)

    def group_norm(self, x: str, groups: int, *size: int) -> str:
        """Add a group normalization of an image of this size, as exporters write it."""
        channels = self.channels[x]
        ones, zeros = self.constant(np.ones(groups)), self.constant(np.zeros(groups))
        y = self.node("Reshape", x, self.constant([0, groups, -1], np.int64))
        y = self.node("InstanceNormalization", y, ones, zeros, epsilon=1e-5)
        y = self.node("Reshape", y, self.constant([self.batch, channels, *size], np.int64))
        each = [1] * len(size)
        scale = self.constant(1 + 0.1 * self._random.standard_normal((channels, *each), np.float32))
        y = self.add(self.node("Mul", y, scale), self.constant(np.zeros((channels, *each))))
        self.channels[y] = channels
        return y

    def classify(self, x: str, classes: int = 1000) -> str:
        """Average over the image, and return one number for each class."""
        return self.gemm(self.node("Flatten", self.node("GlobalAveragePool", x)), classes)


def squeeze_excite(g: Graph, x: str, fewer: int, act: str = "Relu", gate: str = "Sigmoid") -> str:
    """Multiply every channel by a gate that is computed from all channels."""
    y = g.conv(g.node("GlobalAveragePool", x), fewer, act=act)
    y = g.conv(y, g.channels[x], act=None)
    attributes = {"alpha": 1 / 6, "beta": 0.5} if gate == "HardSigmoid" else {}
    return str(g.node("Mul", x, g.node(gate, y, **attributes)))


def _relu6(g: Graph, x: str) -> str:
    return str(g.node("Clip", x, g.constant(0.0), g.constant(6.0)))


def _swish(g: Graph, x: str) -> str:
    return str(g.node("Mul", x, g.node("Sigmoid", x)))


def _gelu(g: Graph, x: str) -> str:
    error = g.node("Erf", g.node("Div", x, g.constant(math.sqrt(2))))
    return str(g.node("Mul", g.node("Mul", x, g.add(error, g.constant(1.0))), g.constant(0.5)))


def _gelu_tanh(g: Graph, x: str) -> str:
    cube = g.node("Mul", g.node("Pow", x, g.constant(3.0)), g.constant(0.044715))
    inner = g.node("Mul", g.add(x, cube), g.constant(math.sqrt(2 / math.pi)))
    half = g.node("Mul", x, g.constant(0.5))
    return str(g.node("Mul", half, g.add(g.node("Tanh", inner), g.constant(1.0))))


def _quick_gelu(g: Graph, x: str) -> str:
    return str(g.node("Mul", x, g.node("Sigmoid", g.node("Mul", x, g.constant(1.702)))))


COMPOSED: Final = {
    "Relu6": _relu6, "Swish": _swish, "Gelu": _gelu, "GeluTanh": _gelu_tanh, "QuickGelu": _quick_gelu,
}  # fmt: skip
"""Activations that exporters write as several nodes."""


def _typed(model: onnx.ModelProto) -> onnx.ModelProto:
    """Return the model with the inferred types and shapes of its outputs."""
    inferred = onnx.shape_inference.infer_shapes(_without_weights(model), strict_mode=True).graph.output
    for ours, inferred_output in zip(model.graph.output, inferred, strict=True):
        ours.CopyFrom(inferred_output)
    return model


def _without_weights(model: onnx.ModelProto) -> onnx.ModelProto:
    """Return a copy whose large constants are inputs, as shape inference serializes the whole model."""
    graph = model.graph
    small = [
        initializer
        for initializer in graph.initializer
        if initializer.data_type == TensorProto.INT64 or math.prod(initializer.dims) < 64
    ]
    kept_names = {initializer.name for initializer in small}
    heavy = [
        helper.make_tensor_value_info(initializer.name, initializer.data_type, initializer.dims)
        for initializer in graph.initializer
        if initializer.name not in kept_names
    ]
    light = helper.make_graph(graph.node, graph.name, [*graph.input, *heavy], graph.output, small)
    return helper.make_model(light, opset_imports=model.opset_import, ir_version=model.ir_version)
