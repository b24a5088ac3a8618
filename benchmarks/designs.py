"""Small copies of well-known designs with seeded weights, for both image layouts; nothing is fused."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

import numpy as np

from interposer import DataLayout, Network, TensorInfo
from interposer.ir.graph import Layer
from interposer.ops import ActivationFunction, PoolingAlgorithm

__all__ = ["DESIGNS", "adding"]


class Images:
    """Builds a network of images; the padding is such that only the stride reduces the image."""

    def __init__(self, name: str, layout: DataLayout, size: int) -> None:
        self.network, self.layout = Network(name), layout
        self._random = np.random.default_rng(0)
        shape = (1, size, size, 3) if layout is DataLayout.NHWC else (1, 3, size, size)
        self.input = self.network.add_input_layer(0, TensorInfo(shape), name="image")

    def finish(self, x: Layer) -> Network:
        """Return the network with this output."""
        self.network.add_output_layer(0, x, name="result")
        return self.network

    def relu(self, x: Layer) -> Layer:
        return self.network.add_activation_layer(x, function=ActivationFunction.RELU)

    def conv(self, x: Layer, channels: int, kernel: int = 1, stride: int = 1) -> Layer:
        """Return a convolution and its ReLU."""
        _, _, depth = self._image(x)
        window = (kernel, kernel, depth) if self.layout is DataLayout.NHWC else (depth, kernel, kernel)
        weights, bias = self._weights((channels, *window), depth * kernel * kernel, channels)
        where = self._window(x, kernel, stride)
        return self.relu(self.network.add_convolution2d_layer(x, weights, bias, data_layout=self.layout, **where))

    def linear(self, x: Layer, channels: int) -> Layer:
        """Return a 1x1 convolution without ReLU."""
        _, _, depth = self._image(x)
        window = (1, 1, depth) if self.layout is DataLayout.NHWC else (depth, 1, 1)
        weights, bias = self._weights((channels, *window), depth, channels)
        return self.network.add_convolution2d_layer(x, weights, bias, data_layout=self.layout)

    def depthwise(self, x: Layer, stride: int) -> Layer:
        """Return a 3x3 convolution of each channel by itself, and its ReLU."""
        _, _, depth = self._image(x)
        weights, bias = self._weights((1, 3, 3, depth), 9, depth)
        where = self._window(x, 3, stride)
        layer = self.network.add_depthwise_convolution2d_layer(x, weights, bias, data_layout=self.layout, **where)
        return self.relu(layer)

    def pool(self, x: Layer, kernel: int, stride: int) -> Layer:
        where = self._window(x, kernel, stride)
        return self.network.add_pooling2d_layer(
            x, pool_type=PoolingAlgorithm.MAX, pool_width=kernel, pool_height=kernel, data_layout=self.layout,
            **{"stride_x": stride, "stride_y": stride, **where},
        )  # fmt: skip

    def double(self, x: Layer) -> Layer:
        """Double the height and the width."""
        height, width, _ = self._image(x)
        return self.network.add_resize_layer(
            x, target_width=2 * width, target_height=2 * height, data_layout=self.layout
        )

    def add(self, a: Layer, b: Layer) -> Layer:
        return self.network.add_addition_layer(a, b)

    def concat(self, *parts: Layer) -> Layer:
        return self.network.add_concat_layer(*parts, axis=3 if self.layout is DataLayout.NHWC else 1)

    def _image(self, x: Layer) -> tuple[int, int, int]:
        shape = [int(dim) for dim in x.output.known.shape]
        return (shape[1], shape[2], shape[3]) if self.layout is DataLayout.NHWC else (shape[2], shape[3], shape[1])

    def _weights(self, shape: tuple[int, ...], fan: int, channels: int) -> tuple[Layer, Layer]:
        weights = self._random.standard_normal(shape).astype(np.float32) * np.float32((2 / fan) ** 0.5)
        bias = np.zeros(channels, np.float32)
        return self.network.add_constant_layer(weights), self.network.add_constant_layer(bias)

    def _window(self, x: Layer, kernel: int, stride: int) -> dict[str, int]:
        height, width, _ = self._image(x)
        rows, columns = (max((-(-size // stride) - 1) * stride + kernel - size, 0) for size in (height, width))
        return {
            "stride_x": stride, "stride_y": stride, "pad_top": rows // 2, "pad_bottom": rows - rows // 2,
            "pad_left": columns // 2, "pad_right": columns - columns // 2,
        }  # fmt: skip


def mobilenet_v2(layout: DataLayout) -> Network:
    """Return MobileNetV2 up to the last convolution: inverted residuals of full width, images of 224 x 224."""
    net = Images("MobileNetV2", layout, 224)
    x = net.conv(net.input, 32, 3, 2)
    depth = 32
    for expansion, channels, count, first in (
        (1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1), (6, 160, 3, 2), (6, 320, 1, 1),
    ):  # fmt: skip
        for number in range(count):
            wide = net.conv(x, depth * expansion) if expansion > 1 else x
            narrow = net.linear(net.depthwise(wide, first if number == 0 else 1), channels)
            x = net.add(x, narrow) if number else narrow
            depth = channels
    return net.finish(net.conv(x, 1280))


def inception(layout: DataLayout) -> Network:
    """Return a network in which four branches of one input are concatenated, several times."""
    net = Images("Inception-like", layout, 128)
    x = net.pool(net.conv(net.conv(net.input, 32, 3, 2), 64, 3), 3, 2)
    for narrow, wide in ((16, 32), (24, 48), (32, 64)):
        for _ in range(2):
            near = net.conv(x, wide)
            middle = net.conv(net.conv(x, narrow), wide, 3)
            far = net.conv(net.conv(net.conv(x, narrow), wide, 3), wide, 3)
            pooled = net.conv(net.pool(x, 3, 1), narrow)
            x = net.concat(near, middle, far, pooled)
        x = net.pool(x, 3, 2)
    return net.finish(x)


def u_net(layout: DataLayout) -> Network:
    """Return a network that reduces and enlarges an image.

    Each step up is concatenated with the step down of its size.
    """
    net = Images("U-Net", layout, 128)
    x, skipped = net.input, []
    for channels in (16, 32, 64):
        x = net.conv(net.conv(x, channels, 3), channels, 3)
        skipped.append((channels, x))
        x = net.pool(x, 2, 2)
    x = net.conv(net.conv(x, 128, 3), 128, 3)
    for channels, left in reversed(skipped):
        x = net.concat(left, net.conv(net.double(x), channels, 3))
        x = net.conv(net.conv(x, channels, 3), channels, 3)
    return net.finish(net.linear(x, 2))


def dense_net(layout: DataLayout) -> Network:
    """Return a network of blocks in which every layer reads the results of all layers before it."""
    net = Images("DenseNet-like", layout, 128)
    x = net.pool(net.conv(net.input, 32, 3, 2), 3, 2)
    channels = 32
    for count in (4, 6, 8):
        for _ in range(count):
            x = net.concat(x, net.conv(net.conv(net.relu(x), 64), 16, 3))
        channels = (channels + 16 * count) // 2
        x = net.pool(net.conv(x, channels), 2, 2)
    return net.finish(x)


def adding() -> Network:
    """Return a network of one Addition of two tensors of four numbers."""
    network = Network("Addition")
    a, b = (network.add_input_layer(number, TensorInfo((4,))) for number in range(2))
    network.add_output_layer(0, network.add_addition_layer(a, b))
    return network


DESIGNS: Final[Mapping[str, Callable[[DataLayout], Any]]] = {
    "MobileNetV2, float": mobilenet_v2, "Inception-like": inception, "U-Net": u_net, "DenseNet-like": dense_net,
}  # fmt: skip
