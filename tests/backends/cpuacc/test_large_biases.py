"""Quantized layers that round half to even add biases that do not fit the 32-bit sums as the reference does."""

from __future__ import annotations

import numpy as np
import pytest

import interposer as ip
from interposer.core.types import DataLayout, Quantization, TensorInfo
from interposer.ops import Convolution2d, DepthwiseConvolution2d, FullyConnected, Requantization
from tests.backends.cpuacc.single import outcomes

pytestmark = [pytest.mark.usefixtures("shared_cpuacc"), pytest.mark.needs_cpuref]

LEAST, MOST = -(2**31), 2**31 - 1
BIASES = {
    "at both ends": [LEAST, MOST, LEAST + 1, MOST - 1, 2**30, -(2**30), 0, 1],
    "one of eight": [0, 1, -5, 1000, MOST, -3, 7, 2],
    "around half": [2**29, 2**29 - 1, 2**29 + 1, -(2**29), -(2**29) - 1, 2**28, -(2**28), 0],
}
ROUNDS = Requantization.HALF_TO_EVEN
LAYERS = {
    "convolution": (Convolution2d(data_layout=DataLayout.NCHW, requantization=ROUNDS), (1, 8, 7, 7), (8, 8, 3, 3)),
    "depthwise": (
        DepthwiseConvolution2d(data_layout=DataLayout.NCHW, requantization=ROUNDS),
        (1, 8, 7, 7),
        (1, 3, 3, 8),
    ),
    "fully connected": (FullyConnected(transpose_weight_matrix=True, requantization=ROUNDS), (5, 40), (8, 40)),
}
INPUT, WEIGHTS = Quantization(0.5, 128), Quantization(0.25)
STEP = 2.0**24
"""The scale of the result: the largest biases are 16 steps."""


@pytest.mark.parametrize("bias", BIASES.values(), ids=BIASES)
@pytest.mark.parametrize("layer", LAYERS)
def test_a_bias_near_the_ends_of_its_type_does_not_wrap(layer: str, bias: list[int]) -> None:
    op, shape, weights_shape = LAYERS[layer]
    rng, network = np.random.default_rng(1), ip.Network(layer)
    info = TensorInfo(shape, "uint8", INPUT)
    weights = network.add_constant_layer(rng.integers(-127, 127, weights_shape).astype(np.int8), WEIGHTS)
    integers = network.add_constant_layer(np.array(bias, np.int32), Quantization(0.125))
    x = network.add_input_layer(0, info)
    [inferred] = op.infer_infos(info, weights.output.info, integers.output.info)
    output = TensorInfo(inferred.shape, "uint8", Quantization(STEP, 128))
    network.add_output_layer(0, network.add_layer(op, x, weights, integers, outputs=output))
    given = [rng.integers(0, 255, shape, endpoint=True).astype(np.uint8)]
    ours, reference = outcomes(network, given)
    assert np.unique(reference[0]).size > 1
    np.testing.assert_array_equal(ours[0], reference[0])
