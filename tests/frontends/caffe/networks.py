"""Caffe networks in the form of well-known classifiers and a detector, smaller than the originals, as prototxt."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from interposer.frontends.caffe.proto import read_message
from interposer.types import Array
from tests.frontends.caffe.build import caffemodel, random_array

__all__ = ["NETWORKS", "Prototxt", "weights_of_network"]


class Prototxt:
    """The text of a network to which layers are added; `last` is the blob that the next layer reads."""

    def __init__(self, name: str, size: int) -> None:
        self.text = f'name: "{name}"\ninput: "data"\ninput_shape {{ dim: 1 dim: 3 dim: {size} dim: {size} }}\n'
        self.last, self.channels = "data", {"data": 3}
        self.shapes: dict[str, list[tuple[int, ...]]] = {}
        self._count = 0

    def layer(self, type: str, parameters: str = "", *bottoms: str, in_place: bool = False) -> str:
        """Add a layer that reads `bottoms`, by default the last blob, and return its top."""
        inputs = bottoms or (self.last,)
        self._count += 1
        name = f"{type.lower()}{self._count}"
        top = inputs[0] if in_place else name
        reads = " ".join(f'bottom: "{blob}"' for blob in inputs)
        self.text += f'layer {{ name: "{name}" type: "{type}" {reads} top: "{top}" {parameters} }}\n'
        self.channels[top] = self.channels[inputs[0]]
        self.last, self.name = top, name
        return top

    def conv(
        self, outputs: int, kernel: int = 3, stride: int = 1, pad: int = 0, group: int = 1, bias: bool = True
    ) -> str:
        """Add a convolution of the last blob, and return its top."""
        channels = self.channels[self.last]
        text = f"num_output: {outputs} kernel_size: {kernel} stride: {stride} pad: {pad} group: {group}"
        top = self.layer("Convolution", f"convolution_param {{ {text} bias_term: {str(bias).lower()} }}")
        self.shapes[self.name] = [(outputs, channels // group, kernel, kernel), *[(outputs,)] * bias]
        self.channels[top] = outputs
        return top

    def relu(self) -> str:
        """Add a ReLU in place."""
        return self.layer("ReLU", in_place=True)

    def batch_norm(self) -> str:
        """Add BatchNorm and Scale in place."""
        channels = self.channels[self.last]
        self.layer("BatchNorm", in_place=True)
        self.shapes[self.name] = [(channels,), (channels,), (1,)]
        self.layer("Scale", "scale_param { bias_term: true }", in_place=True)
        self.shapes[self.name] = [(channels,), (channels,)]
        return self.last

    def pool(self, kernel: int, stride: int, pad: int = 0, kind: str = "MAX") -> str:
        """Add a pooling layer."""
        return self.layer(
            "Pooling", f"pooling_param {{ pool: {kind} kernel_size: {kernel} stride: {stride} pad: {pad} }}"
        )

    def dense(self, inputs: int, outputs: int) -> str:
        """Add a fully connected layer for `inputs` numbers."""
        top = self.layer("InnerProduct", f"inner_product_param {{ num_output: {outputs} }}")
        self.shapes[self.name] = [(outputs, inputs), (outputs,)]
        return top


def alexnet() -> Prototxt:
    """Return a classifier with convolutions in groups, LRN, and three dense layers."""
    net = Prototxt("alexnet", 67)
    net.conv(24, 11, 4), net.relu()
    net.layer("LRN", "lrn_param { local_size: 5 alpha: 0.0001 beta: 0.75 }"), net.pool(3, 2)
    net.conv(32, 5, pad=2, group=2), net.relu()
    net.layer("LRN", "lrn_param { local_size: 5 alpha: 0.0001 beta: 0.75 }"), net.pool(3, 2)
    net.conv(48, 3, pad=1), net.relu(), net.conv(32, 3, pad=1, group=2), net.relu()
    net.dense(288, 64), net.relu(), net.layer("Dropout", "dropout_param { dropout_ratio: 0.5 }", in_place=True)
    net.dense(64, 10), net.layer("Softmax")
    return net


def googlenet() -> Prototxt:
    """Return a classifier of Inception blocks, whose branches are concatenated."""
    net = Prototxt("googlenet", 64)
    net.conv(16, 7, 2, 3), net.relu(), net.pool(3, 2)
    net.layer("LRN", "lrn_param { local_size: 5 alpha: 0.0001 beta: 0.75 }")
    for width in (8, 12):
        start, ends = net.last, []
        for reduced, kernel in ((0, 1), (width, 3), (width // 2, 5)):
            net.last = start
            if reduced:
                net.conv(reduced, 1), net.relu()
            ends.append((net.conv(width, kernel, pad=kernel // 2), net.relu())[0])
        net.last = start
        net.pool(3, 1, 1), net.conv(width, 1)
        net.layer("Concat", "", *ends, net.relu())
        net.channels[net.last] = 4 * width
        net.pool(3, 2)
    net.pool(4, 1, kind="AVE"), net.dense(48, 10), net.layer("Softmax")
    return net


def resnet() -> Prototxt:
    """Return a classifier of residual blocks with batch normalization."""
    net = Prototxt("resnet", 56)
    net.conv(16, 7, 2, 3, bias=False), net.batch_norm(), net.relu(), net.pool(3, 2)
    for width, stride in ((16, 1), (32, 2)):
        start = net.last
        net.conv(width, 1, stride, bias=False)
        shortcut = net.batch_norm()
        net.last = start
        net.conv(width, 3, stride, 1, bias=False), net.batch_norm(), net.relu()
        net.conv(width, 3, 1, 1, bias=False)
        net.layer("Eltwise", "", shortcut, net.batch_norm()), net.relu()
    net.layer("Pooling", "pooling_param { pool: AVE global_pooling: true }"), net.dense(32, 10), net.layer("Softmax")
    return net


def mobilenet() -> Prototxt:
    """Return a classifier of depthwise convolutions."""
    net = Prototxt("mobilenet", 64)
    net.conv(16, 3, 2, 1, bias=False), net.batch_norm(), net.relu()
    for width, stride in ((32, 1), (48, 2), (48, 1)):
        channels = net.channels[net.last]
        net.conv(channels, 3, stride, 1, channels, bias=False), net.batch_norm(), net.relu()
        net.conv(width, 1, bias=False), net.batch_norm(), net.relu()
    net.layer("Pooling", "pooling_param { pool: AVE global_pooling: true }"), net.conv(10, 1), net.layer("Softmax")
    return net


def ssd() -> Prototxt:
    """Return a detector: locations, confidences and prior boxes on two feature maps, and DetectionOutput."""
    net = Prototxt("ssd", 64)
    net.conv(16, 3, 2, 1), net.relu(), net.conv(24, 3, 2, 1), net.relu(), net.conv(32, 3, 2, 1)
    first = net.relu()
    net.conv(32, 3, 2, 1)
    features = [(first, 12, 24), (net.relu(), 24, 40)]
    ends: dict[str, list[str]] = {"locations": [], "confidences": [], "priors": []}
    for blob, least, most in features:
        net.last = blob
        boxes = (
            f"prior_box_param {{ min_size: {least} max_size: {most} aspect_ratio: 2 flip: true clip: false "
            "variance: 0.1 variance: 0.1 variance: 0.2 variance: 0.2 }"
        )
        ends["priors"].append(net.layer("PriorBox", boxes, blob, "data"))
        for kind, numbers in (("locations", 16), ("confidences", 12)):
            net.last = blob
            net.conv(numbers, 3, pad=1), net.layer("Permute", "permute_param { order: 0 order: 2 order: 3 order: 1 }")
            ends[kind].append(net.layer("Flatten"))
    axes = {"locations": 1, "confidences": 1, "priors": 2}
    joined = [net.layer("Concat", f"concat_param {{ axis: {axes[kind]} }}", *blobs) for kind, blobs in ends.items()]
    net.layer("Reshape", "reshape_param { shape { dim: 0 dim: -1 dim: 3 } }", joined[1])
    net.layer("Softmax", "softmax_param { axis: 2 }"), net.layer("Flatten")
    net.layer(
        "DetectionOutput",
        "detection_output_param { num_classes: 3 share_location: true background_label_id: 0 code_type: CENTER_SIZE "
        "nms_param { nms_threshold: 0.45 top_k: 100 } keep_top_k: 20 confidence_threshold: 0.3 }",
        joined[0], net.last, joined[2],
    )  # fmt: skip
    return net


NETWORKS: Final[dict[str, Callable[[], Prototxt]]] = {
    function.__name__: function for function in (alexnet, googlenet, resnet, mobilenet, ssd)
}


def weights_of_network(net: Prototxt) -> bytes:
    """Return a binary caffemodel with random weights, of a size with which activations neither vanish nor explode."""
    kinds = {layer.name: layer.type for layer in read_message(net.text.encode()).layer}
    return caffemodel(net.text, {name: _arrays(name, kinds[name], shapes) for name, shapes in net.shapes.items()})


def _arrays(name: str, kind: str, shapes: list[tuple[int, ...]]) -> list[Array]:
    arrays = [random_array(f"{name}{number}", shape) for number, shape in enumerate(shapes)]
    if kind == "BatchNorm":
        return [arrays[0], abs(arrays[1]) + 0.5, abs(arrays[2]) + 0.5]
    if kind == "Scale":
        return [arrays[0] * 0.2 + 1, arrays[1] * 0.1]
    spread = (6 / max(1, arrays[0][0].size)) ** 0.5
    return [arrays[0] * spread, *(array * 0.1 for array in arrays[1:])]
