"""Batch normalization that becomes part of the convolution before it."""

import numpy as np
import pytest

from interposer.core.types import DataLayout, TensorInfo
from interposer.ir.network import Network
from interposer.ops import (
    BatchNormalization,
    Convolution2d,
    DepthwiseConvolution2d,
    TransposeConvolution2d,
)
from interposer.optimizer.passes import RewritePass, run_passes
from interposer.optimizer.rewrites.batchnorm import BATCH_NORMALIZATIONS
from tests.optimizer.rewriting import assert_same_results

NHWC, NCHW = DataLayout.NHWC, DataLayout.NCHW


def normalized(op, weights_shape, layout, *, bias=True, dtype="float32", norm_layout=None, shared=False, variance=None):
    """Return a network of a convolution and its normalization."""
    rng = np.random.default_rng(3)
    network = Network()
    channels = weights_shape[3] if op is DepthwiseConvolution2d else weights_shape[0]

    def constant(*shape, least=None):
        values = rng.normal(size=shape) if least is None else rng.uniform(least, 2, size=shape)
        return network.add_constant_layer(values.astype(np.dtype(dtype)))

    x = network.add_input_layer(0, TensorInfo((2, 4, 4, 4), dtype), name="x")
    operands = [constant(*weights_shape)] + ([constant(channels)] if bias else [])
    convolution = network.add_layer(op(data_layout=layout), x, *operands, name="conv")
    spread = constant(channels, least=0.5) if variance is None else network.add_constant_layer(variance)
    norm = BatchNormalization(eps=1e-3, data_layout=norm_layout or layout)
    y = network.add_layer(
        norm, convolution, constant(channels), spread, constant(channels), constant(channels), name="bn"
    )
    network.add_output_layer(0, y)
    if shared:
        network.add_output_layer(1, convolution)
    network.validate()
    return network.graph


def fold(graph):
    before = graph.clone()
    [record] = run_passes(graph, [RewritePass("test", BATCH_NORMALIZATIONS)])
    return before, record


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize(
    ("op", "shape", "layout"),
    [
        (Convolution2d, (4, 3, 3, 4), NHWC),
        (Convolution2d, (4, 4, 3, 3), NCHW),
        (DepthwiseConvolution2d, (1, 2, 2, 8), NHWC),
        (DepthwiseConvolution2d, (1, 2, 2, 8), NCHW),
        (TransposeConvolution2d, (3, 2, 2, 4), NHWC),
    ],
)
def test_a_normalized_convolution_is_a_convolution_with_other_weights(op, shape, layout, bias):
    graph = normalized(op, shape, layout, bias=bias)
    before, record = fold(graph)
    assert record.counts == {"fold_batch_normalization": 1}
    assert [layer.name for layer in graph if layer.op.executable] == ["conv"]
    assert graph.layer("conv").replaced == ("conv", "bn")
    assert_same_results(before, graph, rtol=1e-4, atol=1e-5)


def test_half_precision_weights_stay_in_half_precision():
    graph = normalized(Convolution2d, (4, 3, 3, 4), NHWC, dtype="float16")
    before, record = fold(graph)
    assert record.changed
    assert {str(value.known.dtype) for value in graph.layer("conv").values} == {"float16"}
    assert_same_results(before, graph, rtol=2e-2, atol=5e-2)


def test_the_constants_keep_their_names():
    network = Network()
    x = network.add_input_layer(0, TensorInfo((1, 1, 2, 2)))
    weights = network.add_constant_layer(np.ones((1, 1, 1, 1), np.float32), name="weights")
    ones = network.add_constant_layer(np.ones(1, np.float32), name="one")
    convolution = network.add_layer(Convolution2d(), x, weights, name="conv")
    network.add_output_layer(0, network.add_layer(BatchNormalization(), convolution, ones, ones, ones, ones, name="bn"))
    fold(network.graph)
    assert [value.name for value in network.graph.layer("conv").values] == ["input_0", "weights", "bias-conv"]


@pytest.mark.parametrize(
    "obstacle",
    [
        {"shared": True},
        {"norm_layout": NCHW},
        {"variance": np.array([1, 1, 1, -1], np.float32)},
    ],
    ids=["another user of the convolution", "channels elsewhere", "a negative variance"],
)
def test_a_normalization_stays_where_it_cannot_be_folded(obstacle):
    graph = (
        normalized(Convolution2d, (4, 3, 3, 4), NHWC, **obstacle)
        if "norm_layout" not in obstacle
        else normalized(Convolution2d, (2, 3, 3, 4), NHWC, **obstacle)
    )
    _, record = fold(graph)
    assert not record.changed


def test_a_normalization_by_statistics_that_are_no_constants_stays():
    network = Network()
    x = network.add_input_layer(0, TensorInfo((1, 1, 2, 2)))
    mean = network.add_input_layer(1, TensorInfo((1,)))
    ones = network.add_constant_layer(np.ones(1, np.float32))
    weights = network.add_constant_layer(np.ones((1, 1, 1, 1), np.float32))
    convolution = network.add_layer(Convolution2d(), x, weights)
    network.add_output_layer(0, network.add_layer(BatchNormalization(), convolution, mean, ones, ones, ones))
    _, record = fold(network.graph)
    assert not record.changed
