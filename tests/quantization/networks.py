"""Float networks for the tests of quantization, with weights from a seed."""

from __future__ import annotations

import numpy as np

from interposer import DataLayout, Network, TensorInfo
from interposer.ops import (
    Activation,
    ActivationFunction,
    Addition,
    Concat,
    Convolution2d,
    DepthwiseConvolution2d,
    FullyConnected,
    Pooling2d,
    PoolingAlgorithm,
    Reshape,
    Softmax,
)

NHWC = DataLayout.NHWC


def image_network(seed: int = 0, layout: DataLayout = NHWC) -> Network:
    """Return an image classifier: convolutions, a sum, a concatenation, pools, a dense layer and a softmax."""
    draw = np.random.default_rng(seed)
    network = Network("images")
    last = layout.channels_last
    x = network.add_input_layer(0, TensorInfo((1, 8, 8, 3) if last else (1, 3, 8, 8)), name="image")

    def constant(*shape: int) -> object:
        return network.add_constant_layer((draw.standard_normal(shape) / 3).astype(np.float32))

    def conv(x: object, channels: int, inputs: int, size: int, name: str, **attributes: int) -> object:
        weights = constant(*((channels, size, size, inputs) if last else (channels, inputs, size, size)))
        op = Convolution2d(data_layout=layout, **attributes)
        return network.add_layer(op, x, weights, constant(channels), name=name)

    relu = Activation(ActivationFunction.RELU)
    first = network.add_layer(relu, conv(x, 6, 3, 3, "first", pad_left=1, pad_right=1, pad_top=1, pad_bottom=1))
    depthwise = DepthwiseConvolution2d(data_layout=layout, pad_left=1, pad_right=1, pad_top=1, pad_bottom=1)
    deep = network.add_layer(depthwise, first, constant(1, 3, 3, 6), constant(6), name="deep")
    deep = network.add_layer(Activation(ActivationFunction.BOUNDED_RELU, 6.0, 0.0), deep)
    total = network.add_layer(Addition(), first, deep, name="total")
    both = network.add_layer(Concat(3 if last else 1), total, conv(deep, 4, 6, 1, "narrow"), name="both")
    halved = Pooling2d(pool_width=2, pool_height=2, stride_x=2, stride_y=2, data_layout=layout)
    pooled = network.add_layer(halved, both, name="halved")
    mean = network.add_layer(Pooling2d(PoolingAlgorithm.AVERAGE, data_layout=layout), pooled, name="mean")
    flat = network.add_layer(Reshape((1, 10)), mean, name="flat")
    scores = network.add_layer(FullyConnected(), flat, constant(10, 5), constant(5), name="scores")
    network.add_output_layer(0, network.add_layer(Softmax(), scores, name="probabilities"), name="classes")
    return network


def images(count: int = 8, seed: int = 1, layout: DataLayout = NHWC) -> np.ndarray:
    """Return random images for `image_network`."""
    shape = (count, 8, 8, 3) if layout.channels_last else (count, 3, 8, 8)
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)
