"""CpuAcc on products with a small matrix along an axis that networks move to the end and back."""

from __future__ import annotations

import numpy as np
import pytest

import interposer as ip
from interposer import TensorInfo
from interposer.ops import Addition, FullyConnected, Transpose
from tests.backends.cpuacc.single import reference_results

RANDOM = np.random.default_rng(20261128)

pytestmark = pytest.mark.usefixtures("shared_cpuacc")


def floats(*shape):
    return RANDOM.standard_normal(shape).astype(np.float32)


def to_end(rank, axis):
    return (*(n for n in range(rank) if n != axis), axis)


def from_end(rank, axis):
    return tuple(np.argsort(to_end(rank, axis)).tolist())


def network_of(shape, axis, outputs, bias, turned=False, back=None, also_read=False):
    """Return a network that multiplies a matrix along an axis; `bias` is the bias's place: "layer", "operand" or ""."""
    network, inputs = ip.Network("mixed"), shape[axis]
    x = network.add_input_layer(0, TensorInfo(shape), name="x")
    moved = network.add_layer(Transpose(to_end(len(shape), axis)), x).output
    weights = network.add_constant_layer(floats(outputs, inputs) if turned else floats(inputs, outputs))
    row = network.add_constant_layer(floats(outputs))
    operands = (moved, weights, row) if bias == "operand" else (moved, weights)
    y = network.add_layer(FullyConnected(transpose_weight_matrix=turned, keep_dims=True), *operands).output
    if bias == "layer":
        y = network.add_layer(Addition(), row, y).output
    if also_read:
        network.add_output_layer(1, y, name="between")
    y = network.add_layer(Transpose(back or from_end(len(shape), axis)), y).output
    network.add_output_layer(0, network.add_layer(Addition(), y, y).output, name="y")
    return network


def assert_like_the_reference(network, x):
    expected = reference_results(network, [x])
    for threads in (1, 2):
        options = ip.OptimizerOptions(model_options={"CpuAcc": {"NumberOfThreads": threads}})
        results = ip.load(network, ["CpuAcc"], options=options).run([x])
        for result, right in zip(results, expected, strict=True):
            np.testing.assert_allclose(result, right, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("bias", ["layer", "operand", ""])
@pytest.mark.parametrize("turned", [False, True])
def test_heads_are_mixed_like_by_the_reference(bias, turned):
    for shape, axis, outputs in [
        ((1, 4, 14, 14), 1, 4),
        ((2, 3, 9, 31), 1, 6),
        ((5, 130), 0, 3),
        ((2, 3, 7, 65), 2, 5),
    ]:
        assert_like_the_reference(network_of(shape, axis, outputs, bias, turned), floats(*shape))


def test_many_heads_and_short_rows_are_mixed_like_by_the_reference():
    for shape, axis, outputs in [((1, 70, 8, 8), 1, 4), ((1, 4, 3, 3), 1, 4), ((1, 64, 8, 8), 1, 64), ((3, 8), 1, 2)]:
        assert_like_the_reference(network_of(shape, axis, outputs, "layer"), floats(*shape))


def test_an_axis_that_moves_elsewhere_stays_there():
    assert_like_the_reference(network_of((2, 4, 8, 9), 1, 4, "layer", back=(0, 3, 2, 1)), floats(2, 4, 8, 9))
    assert_like_the_reference(network_of((2, 4, 8, 9), 1, 4, "layer", back=(3, 0, 1, 2)), floats(2, 4, 8, 9))


def test_sums_that_are_an_output_too_are_like_those_of_the_reference():
    assert_like_the_reference(network_of((1, 4, 14, 14), 1, 4, "layer", also_read=True), floats(1, 4, 14, 14))


def test_a_row_that_is_longer_than_the_products_repeats_them():
    network = ip.Network("a long row")
    x = network.add_input_layer(0, TensorInfo((1, 4, 10, 10)), name="x")
    moved = network.add_layer(Transpose((0, 2, 3, 1)), x).output
    products = network.add_layer(FullyConnected(keep_dims=True), moved, network.add_constant_layer(floats(4, 1))).output
    sums = network.add_layer(Addition(), products, network.add_constant_layer(floats(5))).output
    network.add_output_layer(0, network.add_layer(Transpose((0, 3, 1, 2)), sums).output, name="y")
    assert_like_the_reference(network, floats(1, 4, 10, 10))


def test_rows_that_are_divided_into_shorter_ones_are_like_those_of_the_reference():
    network = ip.Network("short rows")
    x = network.add_input_layer(0, TensorInfo((6, 70)), name="x")
    moved = network.add_layer(Transpose((1, 0)), x).output
    products = network.add_layer(FullyConnected(), moved, network.add_constant_layer(floats(3, 4))).output
    y = network.add_layer(Transpose((1, 0)), products).output
    network.add_output_layer(0, network.add_layer(Addition(), y, y).output, name="y")
    assert_like_the_reference(network, floats(6, 70))
