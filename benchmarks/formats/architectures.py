"""The networks that are written in each format: classifiers and a detector in the size of the originals."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Sequence
from typing import Any, Final, Protocol

import numpy as np

__all__ = ["ARCHITECTURES", "HEAD", "Architecture", "Array", "Writer", "batch_statistics", "weights"]

Array = np.ndarray[Any, Any]


class Writer(Protocol):
    """What writes the layers of a network in one format; each method adds layers and returns the name of the result."""

    def image(self, size: int) -> str:
        """Declare the input: a batch of one image with three channels."""

    def conv(self, x: str, outputs: int, kernel: int, stride: int = 1, groups: int = 1, *, bias: bool = True) -> str:
        """Convolve, so that the size of the image is divided by the stride."""

    def head(self, x: str, outputs: int) -> str:
        """Convolve with a window of 3 and a bias, with larger weights, so that some scores are large."""

    def depthwise(self, x: str, kernel: int, stride: int) -> str:
        """Convolve each channel by itself, without a bias."""

    def batch_norm(self, x: str) -> str:
        """Normalize by recorded statistics, then multiply and add."""

    def relu(self, x: str) -> str:
        """Apply a ReLU."""

    def lrn(self, x: str) -> str:
        """Normalize across five channels."""

    def max_pool(self, x: str, kernel: int, stride: int) -> str:
        """Return the maxima of windows."""

    def global_mean(self, x: str) -> str:
        """Return the mean of each channel, with height and width 1."""

    def concat(self, *xs: str) -> str:
        """Concatenate channels."""

    def add(self, x: str, y: str) -> str:
        """Add two tensors."""

    def dense(self, x: str, outputs: int) -> str:
        """Multiply all elements of an image by a matrix, and add a bias."""

    def softmax(self, x: str) -> str:
        """Apply a softmax over the classes."""

    def detections(self, features: Sequence[str], size: int, classes: int) -> str:
        """Predict boxes at every position of some feature maps, and select the best ones without overlap."""


Architecture = Callable[[Writer], str]
HEAD: Final = np.float32(8)
"""The factor of the weights that predict boxes and scores."""


def weights(name: str, shape: Sequence[int], inputs: int) -> Array:
    """Return random weights from a seed, so that activations of layers with `inputs` inputs keep their size."""
    return (_random(name, shape) * np.sqrt(6 / inputs)).astype(np.float32)


def batch_statistics(name: str, channels: int) -> tuple[Array, Array, Array, Array]:
    """Return random means, variances, factors and offsets of a batch normalization."""
    mean, variance, factor, offset = (_random(f"{name}/{i}", [channels]) for i in range(4))
    return (
        mean * np.float32(0.1),
        variance * np.float32(0.5) + 2,
        factor * np.float32(0.2) + 1,
        offset * np.float32(0.1),
    )


def _random(name: str, shape: Sequence[int]) -> Array:
    return np.random.default_rng(zlib.crc32(name.encode())).uniform(-1, 1, tuple(shape)).astype(np.float32)


def alexnet(net: Writer) -> str:
    """Write AlexNet: convolutions in groups, LRN, and three dense layers."""
    x = net.relu(net.conv(net.image(227), 96, 11, 4))
    x = net.max_pool(net.lrn(x), 3, 2)
    x = net.relu(net.conv(x, 256, 5, groups=2))
    x = net.max_pool(net.lrn(x), 3, 2)
    x = net.relu(net.conv(x, 384, 3))
    x = net.relu(net.conv(x, 384, 3, groups=2))
    x = net.max_pool(net.relu(net.conv(x, 256, 3, groups=2)), 3, 2)
    x = net.relu(net.dense(x, 4096))
    return net.softmax(net.dense(net.relu(net.dense(x, 4096)), 1000))


_INCEPTION: Final = (
    (64, 96, 128, 16, 32, 32), (128, 128, 192, 32, 96, 64), None, (192, 96, 208, 16, 48, 64),
    (160, 112, 224, 24, 64, 64), (128, 128, 256, 24, 64, 64), (112, 144, 288, 32, 64, 64),
    (256, 160, 320, 32, 128, 128), None, (256, 160, 320, 32, 128, 128), (384, 192, 384, 48, 128, 128),
)  # fmt: skip
"""The channels of each Inception block of GoogLeNet; None is a pooling layer."""


def googlenet(net: Writer) -> str:
    """Write GoogLeNet: Inception blocks, whose branches are concatenated."""

    def conv(x: str, outputs: int, kernel: int, stride: int = 1) -> str:
        return net.relu(net.conv(x, outputs, kernel, stride))

    x = net.lrn(net.max_pool(conv(net.image(224), 64, 7, 2), 3, 2))
    x = net.max_pool(net.lrn(conv(conv(x, 64, 1), 192, 3)), 3, 2)
    for block in _INCEPTION:
        if block is None:
            x = net.max_pool(x, 3, 2)
            continue
        single, three_in, three, five_in, five, pooled = block
        branches = conv(conv(x, three_in, 1), three, 3), conv(conv(x, five_in, 1), five, 5)
        x = net.concat(conv(x, single, 1), *branches, conv(net.max_pool(x, 3, 1), pooled, 1))
    return net.softmax(net.dense(net.global_mean(x), 1000))


def resnet50(net: Writer) -> str:
    """Write ResNet-50: residual blocks with batch normalization."""

    def conv(x: str, outputs: int, kernel: int, stride: int = 1) -> str:
        return net.batch_norm(net.conv(x, outputs, kernel, stride, bias=False))

    x = net.max_pool(net.relu(conv(net.image(224), 64, 7, 2)), 3, 2)
    for number, (width, blocks) in enumerate(((64, 3), (128, 4), (256, 6), (512, 3))):
        for block in range(blocks):
            stride = 2 if number and not block else 1
            shortcut = x if block else conv(x, 4 * width, 1, stride)
            inner = net.relu(conv(net.relu(conv(x, width, 1, stride)), width, 3))
            x = net.relu(net.add(shortcut, conv(inner, 4 * width, 1)))
    return net.softmax(net.dense(net.global_mean(x), 1000))


_MOBILE: Final = ((64, 1), (128, 2), (128, 1), (256, 2), (256, 1), (512, 2), *[(512, 1)] * 5, (1024, 2), (1024, 1))
"""The channels and strides of MobileNet's blocks."""


def _mobile_blocks(net: Writer, size: int) -> list[str]:
    x = net.relu(net.batch_norm(net.conv(net.image(size), 32, 3, 2, bias=False)))
    blocks = []
    for outputs, stride in _MOBILE:
        x = net.relu(net.batch_norm(net.depthwise(x, 3, stride)))
        x = net.relu(net.batch_norm(net.conv(x, outputs, 1, bias=False)))
        blocks.append(x)
    return blocks


def mobilenet(net: Writer) -> str:
    """Write MobileNet: depthwise convolutions."""
    x = _mobile_blocks(net, 224)[-1]
    return net.softmax(net.dense(net.global_mean(x), 1000))


def ssd(net: Writer) -> str:
    """Write a detector: MobileNet for images of 300 by 300, four feature maps, and the selection of boxes."""
    blocks = _mobile_blocks(net, 300)
    features = [blocks[10], blocks[12]]
    for width in (512, 256):
        x = net.relu(net.batch_norm(net.conv(features[-1], width // 2, 1, bias=False)))
        features.append(net.relu(net.batch_norm(net.conv(x, width, 3, 2, bias=False))))
    return net.detections(features, 300, 21)


ARCHITECTURES: Final[dict[str, Architecture]] = {
    function.__name__: function for function in (alexnet, googlenet, resnet50, mobilenet, ssd)
}
