"""An activation function or a sum after a layer is computed, whether CpuAcc fuses it with the layer or not."""

import numpy as np
import pytest

import interposer as ip
from interposer.ops import ActivationFunction, PoolingAlgorithm, ReduceOperation, UnaryOperation

pytestmark = [pytest.mark.usefixtures("shared_cpuacc"), pytest.mark.needs_cpuref]

SHAPE = (2, 4, 6, 8)
LAYERS = {
    "Transpose": lambda net, x: net.add_transpose_layer(x, permutation=(0, 3, 1, 2)),
    "Reshape": lambda net, x: net.add_reshape_layer(x, target_shape=(8, 48)),
    "Concat": lambda net, x: net.add_concat_layer(x, x, axis=1),
    "StridedSlice": lambda net, x: net.add_strided_slice_layer(x, begin=(0, 1, 0, 0), end=SHAPE, stride=(1, 2, 1, 1)),
    "Pad": lambda net, x: net.add_pad_layer(x, pad_list=((0, 0), (1, 1), (1, 1), (0, 0))),
    "Pooling2d": lambda net, x: net.add_pooling2d_layer(
        x, pool_type=PoolingAlgorithm.MAX, pool_height=2, pool_width=2, stride_y=2, stride_x=2
    ),
    "Reduce": lambda net, x: net.add_reduce_layer(x, axis=(1,), operation=ReduceOperation.SUM),
    "Softmax": lambda net, x: net.add_softmax_layer(x),
    "ElementwiseUnary": lambda net, x: net.add_elementwise_unary_layer(x, operation=UnaryOperation.SIN),
    "Multiplication": lambda net, x: net.add_multiplication_layer(x, x),
}


def given_by(kind, behind, backends, array):
    net = ip.Network(kind)
    layer = LAYERS[kind](net, net.add_input_layer(0, ip.TensorInfo(array.shape), name="x"))
    net.add_output_layer(0, behind(net, layer), name="y")
    [result] = ip.load(net, backends).run([array])
    return result


def added(net, layer):
    other = net.add_constant_layer(np.full(tuple(layer.output.known.shape), 0.5, np.float32))
    return net.add_addition_layer(layer, other)


BEHIND = {
    "sigmoid": lambda net, layer: net.add_activation_layer(layer, function=ActivationFunction.SIGMOID),
    "relu": lambda net, layer: net.add_activation_layer(layer, function=ActivationFunction.RELU),
    "sum": added,
}


@pytest.mark.parametrize("behind", BEHIND)
@pytest.mark.parametrize("kind", LAYERS)
def test_what_stands_behind_a_layer_is_done(kind, behind):
    array = np.random.default_rng(0).standard_normal(SHAPE).astype(np.float32)

    expected = given_by(kind, BEHIND[behind], ["CpuRef"], array)
    result = given_by(kind, BEHIND[behind], ["CpuAcc", "CpuRef"], array)

    np.testing.assert_allclose(result, expected, rtol=0, atol=1e-5 * np.abs(expected).max())
