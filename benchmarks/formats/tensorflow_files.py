"""TensorFlow files of the networks: a frozen graph, and a SavedModel with the weights in a checkpoint."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.formats.architectures import HEAD, Architecture, Array, batch_statistics, weights
from tests.frontends.tensorflow.graphs import (
    Shape,
    Type,
    checkpoint,
    const,
    graph,
    node,
    placeholder,
    saved_model,
)

__all__ = ["OUTPUT", "TensorFlowWriter", "frozen_graph", "write_saved_model"]

OUTPUT = "output"
"""The name of the node with the result."""
_FLOAT = Type("float32")


def frozen_graph(architecture: Architecture) -> bytes:
    """Return a network as a GraphDef whose weights are constants."""
    writer = TensorFlowWriter()
    writer.finish(architecture(writer))
    return graph(*writer.nodes, *(const(name, array) for name, array in writer.weights.items()))


def write_saved_model(architecture: Architecture, folder: Path) -> None:
    """Write a network as a SavedModel whose weights are variables."""
    writer = TensorFlowWriter()
    writer.finish(architecture(writer))
    content = saved_model(graph(*writer.nodes, *_variables(writer.weights)), *writer.signature())
    index, data = checkpoint(writer.weights)
    (folder / "variables").mkdir(parents=True)
    (folder / "saved_model.pb").write_bytes(content)
    (folder / "variables" / "variables.index").write_bytes(index)
    (folder / "variables" / "variables.data-00000-of-00001").write_bytes(data)


def _variables(arrays: dict[str, Array]) -> list[bytes]:
    """Return the nodes that read variables, and those that restore them from the checkpoint."""
    nodes = [
        placeholder("save/file", (), "str"),
        const("save/names", np.array(list(arrays))),
        const("save/slices", np.array([""] * len(arrays))),
        node("RestoreV2", "save/restore", "save/file", "save/names", "save/slices", dtypes=[_FLOAT] * len(arrays)),
    ]
    for index, (name, array) in enumerate(arrays.items()):
        handle = f"{name}/variable"
        nodes += [
            node("VarHandleOp", handle, dtype=_FLOAT, shape=Shape(array.shape), shared_name=name),
            node("ReadVariableOp", name, handle, dtype=_FLOAT),
            node("Identity", f"{name}/restored", f"save/restore:{index}", T=_FLOAT),
            node("AssignVariableOp", f"{name}/assign", handle, f"{name}/restored", dtype=_FLOAT),
        ]
    return nodes


class TensorFlowWriter:
    """Writes the layers of a network as nodes in the layout NHWC, and keeps their weights."""

    def __init__(self) -> None:
        self.nodes: list[bytes] = []
        self.weights: dict[str, Array] = {}
        self._shapes: dict[str, tuple[int, int]] = {}
        """The channels and the height of the results, by name."""
        self._size = 0

    def signature(self) -> tuple[dict[str, str], dict[str, str], dict[str, Any]]:
        """Return the inputs and outputs of the model by name, and the shapes of the inputs."""
        return {"image": "image:0"}, {"result": f"{OUTPUT}:0"}, {"image": (1, self._size, self._size, 3)}

    def finish(self, x: str) -> None:
        """Add the node with the result."""
        self.nodes.append(node("Identity", OUTPUT, x, T=_FLOAT))

    def _node(self, op: str, *inputs: str, like: str = "", **attributes: Any) -> str:
        name = f"{op.lower()}_{len(self.nodes)}"
        kind = {} if {"T", "Tidx"} & {*attributes} or op.startswith("NonMax") else {"T": _FLOAT}
        self.nodes.append(node(op, name, *inputs, **kind, **attributes))
        self._shapes[name] = self._shapes.get(like or inputs[0], (0, 0))
        return name

    def _constant(self, array: Any) -> str:
        name = f"const_{len(self.nodes)}"
        self.nodes.append(const(name, array))
        return name

    def _weights(self, name: str, array: Array) -> str:
        self.weights[name] = array
        return name

    def image(self, size: int) -> str:
        self.nodes.append(placeholder("image", (1, size, size, 3)))
        self._shapes["image"], self._size = (3, size), size
        return "image"

    def conv(self, x: str, outputs: int, kernel: int, stride: int = 1, groups: int = 1, *, bias: bool = True) -> str:
        if groups > 1:
            return self._grouped(x, outputs, kernel, stride, groups)
        channels, size = self._shapes[x]
        name = f"conv{len(self.nodes)}/weights"
        array = weights(name, (kernel, kernel, channels, outputs), kernel * kernel * channels)
        top = self._window("Conv2D", x, self._weights(name, array), stride)
        self._shapes[top] = outputs, -(-size // stride)
        return self._biased(top, outputs) if bias else top

    def _grouped(self, x: str, outputs: int, kernel: int, stride: int, groups: int) -> str:
        channels, size = self._shapes[x]
        split = self._node("Split", self._constant(np.array(3, np.int32)), x, num_split=groups)
        parts = []
        for index in range(groups):
            part = f"{split}:{index}" if index else split
            self._shapes[part] = channels // groups, size
            parts.append(self.conv(part, outputs // groups, kernel, stride))
        return self.concat(*parts)

    def _window(self, op: str, x: str, array: str, stride: int) -> str:
        return self._node(op, x, array, strides=[1, stride, stride, 1], padding="SAME", data_format="NHWC")

    def _biased(self, x: str, outputs: int) -> str:
        name = f"{x}/bias"
        return self._node("BiasAdd", x, self._weights(name, weights(name, [outputs], 600)), data_format="NHWC")

    def head(self, x: str, outputs: int) -> str:
        name = f"conv{len(self.nodes)}/weights"
        top = self.conv(x, outputs, 3)
        self.weights[name] *= HEAD
        return top

    def depthwise(self, x: str, kernel: int, stride: int) -> str:
        channels, size = self._shapes[x]
        name = f"depthwise{len(self.nodes)}/weights"
        array = self._weights(name, weights(name, (kernel, kernel, channels, 1), kernel * kernel))
        top = self._window("DepthwiseConv2dNative", x, array, stride)
        self._shapes[top] = channels, -(-size // stride)
        return top

    def batch_norm(self, x: str) -> str:
        mean, variance, factor, offset = batch_statistics(x, self._shapes[x][0])
        inputs_by_name = {"gamma": factor, "beta": offset, "mean": mean, "variance": variance}
        names = [self._weights(f"{x}/{name}", array) for name, array in inputs_by_name.items()]
        more = {"epsilon": 0.001, "is_training": False, "data_format": "NHWC", "U": _FLOAT}
        return self._node("FusedBatchNormV3", x, *names, **more)

    def relu(self, x: str) -> str:
        return self._node("Relu", x)

    def lrn(self, x: str) -> str:
        return self._node("LRN", x, depth_radius=2, bias=1.0, alpha=0.0001 / 5, beta=0.75)

    def max_pool(self, x: str, kernel: int, stride: int) -> str:
        channels, size = self._shapes[x]
        more = {"ksize": [1, kernel, kernel, 1], "strides": [1, stride, stride, 1]}
        top = self._node("MaxPool", x, **more, padding="SAME", data_format="NHWC")
        self._shapes[top] = channels, -(-size // stride)
        return top

    def global_mean(self, x: str) -> str:
        axes = self._constant(np.array([1, 2], np.int32))
        top = self._node("Mean", x, axes, keep_dims=True, T=_FLOAT, Tidx=Type("int32"))
        self._shapes[top] = self._shapes[x][0], 1
        return top

    def concat(self, *xs: str) -> str:
        axis = self._constant(np.array(3, np.int32))
        top = self._node("ConcatV2", *xs, axis, N=len(xs), T=_FLOAT, Tidx=Type("int32"))
        self._shapes[top] = sum(self._shapes[x][0] for x in xs), self._shapes[xs[0]][1]
        return top

    def add(self, x: str, y: str) -> str:
        return self._node("AddV2", x, y)

    def dense(self, x: str, outputs: int) -> str:
        channels, size = self._shapes[x]
        inputs = channels * size * size
        flat = self._reshaped(x, [-1, inputs]) if size else x
        name = f"dense{len(self.nodes)}/weights"
        top = self._node("MatMul", flat, self._weights(name, weights(name, (inputs, outputs), inputs)))
        self._shapes[top] = outputs, 1
        return self._biased(top, outputs)

    def _reshaped(self, x: str, shape: Sequence[int]) -> str:
        sizes = self._constant(np.array(shape, np.int32))
        return self._node("Reshape", x, sizes, T=_FLOAT, Tshape=Type("int32"))

    def softmax(self, x: str) -> str:
        return self._node("Softmax", x)

    def detections(self, features: Sequence[str], size: int, classes: int) -> str:
        boxes: list[str] = []
        scores: list[str] = []
        anchors: list[Array] = []
        for index, feature in enumerate(features):
            anchors.append(_anchors(self._shapes[feature][1], 0.2 + 0.2 * index))
            boxes.append(self._reshaped(self.head(feature, 16), [-1, 4]))
            scores.append(self._reshaped(self.head(feature, 4 * classes), [-1, classes]))
        located, scored = (self._joined(parts, 0) for parts in (boxes, scores))
        corners = self._decoded(located, np.concatenate(anchors))
        best = self._node("Max", self._node("Sigmoid", scored), self._constant(np.array([1], np.int32)),
                          T=_FLOAT, Tidx=Type("int32"))  # fmt: skip
        limits = [self._constant(np.array(50, np.int32)), *(self._constant(np.float32(n)) for n in (0.5, 0.6))]
        chosen = self._node("NonMaxSuppressionV3", corners, best, *limits)
        kinds = {"Tparams": _FLOAT, "Tindices": Type("int32"), "Taxis": Type("int32")}
        first = self._constant(np.array(0, np.int32))
        picked = [self._gathered(x, chosen, first, kinds) for x in (corners, self._reshaped(best, [-1, 1]))]
        return self._joined(picked, 1)

    def _gathered(self, x: str, indices: str, axis: str, kinds: dict[str, Type]) -> str:
        name = f"gather_{len(self.nodes)}"
        self.nodes.append(node("GatherV2", name, x, indices, axis, **kinds))
        return name

    def _joined(self, xs: Sequence[str], axis: int) -> str:
        place = self._constant(np.array(axis, np.int32))
        return self._node("ConcatV2", *xs, place, N=len(xs), T=_FLOAT, Tidx=Type("int32"))

    def _decoded(self, x: str, anchors: Array) -> str:
        """Return the corners of boxes whose center and size are relative to anchors."""
        axis = self._constant(np.array(1, np.int32))
        split = self._node("Split", axis, x, num_split=4, like=x)
        y, x, height, width = (split, *(f"{split}:{index}" for index in (1, 2, 3)))
        ends = []
        for place, (center, length) in enumerate(((y, height), (x, width))):
            scale = self._constant(anchors[:, 2 + place, None])
            middle = self._node("Mul", self._node("Mul", center, self._constant(np.float32(0.1))), scale)
            middle = self._node("AddV2", middle, self._constant(anchors[:, place, None]))
            half = self._node(
                "Mul", self._node("Exp", self._node("Mul", length, self._constant(np.float32(0.2)))), scale
            )
            half = self._node("Mul", half, self._constant(np.float32(0.5)))
            ends.append((self._node("Sub", middle, half), self._node("AddV2", middle, half)))
        return self._joined([ends[0][0], ends[1][0], ends[0][1], ends[1][1]], 1)


def _anchors(size: int, scale: float) -> Array:
    """Return the centers, heights and widths of four boxes at each position of a feature map."""
    places = (np.arange(size, dtype=np.float32) + np.float32(0.5)) / np.float32(size)
    y, x = np.meshgrid(places, places, indexing="ij")
    boxes = [(scale, scale), (scale * 1.4, scale * 0.7), (scale * 0.7, scale * 1.4), (scale * 1.2, scale * 1.2)]
    rows = [np.stack([y, x, np.full_like(y, height), np.full_like(x, width)], -1) for height, width in boxes]
    return np.stack(rows, 2).reshape(-1, 4).astype(np.float32)
