"""Caffe files of the networks: a prototxt, and a binary caffemodel with the weights."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from benchmarks.formats.architectures import HEAD, Architecture, Array, batch_statistics, weights
from tests.frontends.tensorflow.graphs import block, number

__all__ = ["CaffeWriter", "caffe_files"]


def caffe_files(name: str, architecture: Architecture) -> tuple[str, bytes, bytes]:
    """Return the prototxt of a network, its caffemodel, and a binary file with both."""
    writer = CaffeWriter(name)
    architecture(writer)
    return writer.text, writer.caffemodel(), writer.whole()


class CaffeWriter:
    """Writes the layers of a network as text, and keeps their weights."""

    def __init__(self, name: str) -> None:
        self.text = f'name: "{name}"\n'
        self._blobs: dict[str, tuple[str, list[Array]]] = {}
        self._shapes: dict[str, tuple[int, int]] = {}
        """The channels and the height of the results, by name."""

    def caffemodel(self) -> bytes:
        """Return the weights of all layers as a binary file."""
        layers = (
            block(100, block(1, name) + block(2, kind) + b"".join(block(7, _blob(array)) for array in arrays))
            for name, (kind, arrays) in self._blobs.items()
        )
        return block(1, "weights") + b"".join(layers)

    def whole(self) -> bytes:
        """Return one binary file with the layers and the weights."""
        from interposer.frontends.caffe.proto import read_message  # noqa: PLC0415 - needs the package protobuf

        layers = read_message(self.text.encode()).layer
        blobs = (b"".join(block(7, _blob(array)) for array in self._arrays(layer.name)) for layer in layers)
        return b"".join(block(100, layer.SerializeToString() + own) for layer, own in zip(layers, blobs, strict=True))

    def _arrays(self, name: str) -> list[Array]:
        return self._blobs[name][1] if name in self._blobs else []

    def _layer(self, kind: str, bottoms: Sequence[str], parameters: str = "", top: str = "") -> str:
        name = f"{kind.lower()}_{self.text.count('layer {')}"
        reads = " ".join(f'bottom: "{bottom}"' for bottom in bottoms)
        self.text += f'layer {{ name: "{name}" type: "{kind}" {reads} top: "{top or name}" {parameters} }}\n'
        self._shapes[top or name] = self._shapes[bottoms[0]] if bottoms else (3, 0)
        self._name = name
        return top or name

    def _keep(self, kind: str, *arrays: Array) -> None:
        self._blobs[self._name] = kind, list(arrays)

    def image(self, size: int) -> str:
        shape = f"dim: 1 dim: 3 dim: {size} dim: {size}"
        self._layer("Input", [], f"input_param {{ shape {{ {shape} }} }}", "data")
        self._shapes["data"] = 3, size
        return "data"

    def conv(self, x: str, outputs: int, kernel: int, stride: int = 1, groups: int = 1, *, bias: bool = True) -> str:
        channels, size = self._shapes[x]
        text = f"num_output: {outputs} kernel_size: {kernel} stride: {stride} pad: {kernel // 2} group: {groups}"
        top = self._layer("Convolution", [x], f"convolution_param {{ {text} bias_term: {str(bias).lower()} }}")
        shape = (outputs, channels // groups, kernel, kernel)
        array = weights(self._name, shape, shape[1] * kernel * kernel)
        self._keep("Convolution", array, *[weights(f"{self._name}/bias", [outputs], 600)] * bias)
        self._shapes[top] = outputs, (size + 2 * (kernel // 2) - kernel) // stride + 1
        return top

    def head(self, x: str, outputs: int) -> str:
        top = self.conv(x, outputs, 3)
        self._blobs[self._name][1][0] *= HEAD
        return top

    def depthwise(self, x: str, kernel: int, stride: int) -> str:
        return self.conv(x, self._shapes[x][0], kernel, stride, self._shapes[x][0], bias=False)

    def batch_norm(self, x: str) -> str:
        channels, _ = self._shapes[x]
        self._layer("BatchNorm", [x], "batch_norm_param { eps: 0.001 }", x)
        mean, variance, factor, offset = batch_statistics(self._name, channels)
        self._keep("BatchNorm", mean, variance, np.ones(1, np.float32))
        self._layer("Scale", [x], "scale_param { bias_term: true }", x)
        self._keep("Scale", factor, offset)
        return x

    def relu(self, x: str) -> str:
        return self._layer("ReLU", [x], "", x)

    def lrn(self, x: str) -> str:
        return self._layer("LRN", [x], "lrn_param { local_size: 5 alpha: 0.0001 beta: 0.75 }")

    def max_pool(self, x: str, kernel: int, stride: int) -> str:
        channels, size = self._shapes[x]
        pad = kernel // 2 if stride == 1 else 0
        top = self._layer("Pooling", [x], f"pooling_param {{ kernel_size: {kernel} stride: {stride} pad: {pad} }}")
        self._shapes[top] = channels, -(-(size + 2 * pad - kernel) // stride) + 1
        return top

    def global_mean(self, x: str) -> str:
        top = self._layer("Pooling", [x], "pooling_param { pool: AVE global_pooling: true }")
        self._shapes[top] = self._shapes[x][0], 1
        return top

    def concat(self, *xs: str) -> str:
        top = self._layer("Concat", xs)
        self._shapes[top] = sum(self._shapes[x][0] for x in xs), self._shapes[xs[0]][1]
        return top

    def add(self, x: str, y: str) -> str:
        return self._layer("Eltwise", [x, y])

    def dense(self, x: str, outputs: int) -> str:
        channels, size = self._shapes[x]
        top = self._layer("InnerProduct", [x], f"inner_product_param {{ num_output: {outputs} }}")
        inputs = channels * size * size
        array = weights(self._name, (outputs, inputs), inputs)
        self._keep("InnerProduct", array, weights(f"{self._name}/bias", [outputs], 600))
        self._shapes[top] = outputs, 1
        return top

    def softmax(self, x: str) -> str:
        return self._layer("Softmax", [x])

    def detections(self, features: Sequence[str], size: int, classes: int) -> str:
        boxes: list[str] = []
        scores: list[str] = []
        priors: list[str] = []
        for index, feature in enumerate(features):
            least, most = size * (0.2 + 0.2 * index), size * (0.4 + 0.2 * index)
            text = f"min_size: {least} max_size: {most} aspect_ratio: 2 flip: true clip: false offset: 0.5"
            text += "".join(f" variance: {value}" for value in (0.1, 0.1, 0.2, 0.2))
            priors.append(self._layer("PriorBox", [feature, "data"], f"prior_box_param {{ {text} }}"))
            for ends, outputs in ((boxes, 16), (scores, 4 * classes)):
                x = self._layer("Permute", [self.head(feature, outputs)], _CHANNELS_LAST)
                ends.append(self._layer("Flatten", [x]))
        located, scored = (self._layer("Concat", ends, "concat_param { axis: 1 }") for ends in (boxes, scores))
        prior = self._layer("Concat", priors, "concat_param { axis: 2 }")
        shape = f"reshape_param {{ shape {{ dim: 0 dim: -1 dim: {classes} }} }}"
        x = self._layer("Softmax", [self._layer("Reshape", [scored], shape)], "softmax_param { axis: 2 }")
        text = f"num_classes: {classes} share_location: true background_label_id: 0 code_type: CENTER_SIZE "
        text += "nms_param { nms_threshold: 0.45 top_k: 100 } keep_top_k: 50 confidence_threshold: 0.2"
        flat = self._layer("Flatten", [x])
        return self._layer("DetectionOutput", [located, flat, prior], f"detection_output_param {{ {text} }}")


_CHANNELS_LAST = "permute_param { order: 0 order: 2 order: 3 order: 1 }"


def _blob(array: Array) -> bytes:
    shape = b"".join(number(1, int(size)) for size in array.shape)
    return block(5, np.ascontiguousarray(array, np.float32).tobytes()) + block(7, shape)
