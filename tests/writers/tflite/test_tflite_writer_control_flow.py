"""Layers with regions, as subgraphs of the file."""

from __future__ import annotations

import numpy as np
import pytest

import interposer as ip
from interposer import Network, TensorInfo
from interposer.core.errors import UnwritableError
from interposer.frontends.tflite import load
from interposer.frontends.tflite.container import read_model
from interposer.ops import ComparisonOperation
from interposer.writers.tflite import write

pytestmark = pytest.mark.needs_cpuref


def region(name, build, count):
    network = Network(name)
    inputs = [network.add_input_layer(k, None, name=f"{name}_{k}") for k in range(count)]
    for number, value in enumerate(build(network, *inputs)):
        network.add_output_layer(number, value, name=f"{name}_y{number}")
    return network


def run(network, *arrays):
    return ip.load(network, backends=["CpuRef"]).run(list(arrays))


def chosen():
    network = Network("chosen")
    condition = network.add_input_layer(0, TensorInfo((), "bool"), name="condition")
    x = network.add_input_layer(1, TensorInfo((1, 2, 3, 3)), name="x")
    sums = region("then", lambda item, x: [item.add_addition_layer(x, x, name="sum")], 1)
    means = region("else", lambda item, x: [item.add_pooling2d_layer(x, pool_width=3, pool_height=3, stride_x=1,
                   stride_y=1, pad_left=1, pad_right=1, pad_top=1, pad_bottom=1, name="pool")], 1)  # fmt: skip
    layer = network.add_if_layer(condition, x, regions=[sums, means], name="if")
    network.add_output_layer(0, layer, name="y")
    return network


@pytest.mark.parametrize("condition", [True, False])
def test_one_of_two_regions(condition):
    network, x = chosen(), np.random.default_rng(0).normal(size=(1, 2, 3, 3)).astype(np.float32)
    content = write(network)
    assert [[operator.name for operator in graph.operators] for graph in read_model(content).subgraphs] == [
        ["IF"], ["ADD"], ["TRANSPOSE", "MAX_POOL_2D", "TRANSPOSE"],
    ]  # fmt: skip
    [result], [expected] = run(load(content), np.array(condition), x), run(network, np.array(condition), x)
    np.testing.assert_allclose(result, expected, rtol=1e-6)


def counted():
    """Doubles x until it reaches a bound, which the regions capture."""
    network = Network("counted")
    x = network.add_input_layer(0, TensorInfo((2,)), name="x")
    bound = network.add_input_layer(1, TensorInfo((1,)), name="bound")

    def goes_on(one, x, bound):
        total = one.add_reduce_layer(x, axis=(0,), keep_dims=True, name="total")
        return [one.add_comparison_layer(total, bound, operation=ComparisonOperation.LESS, name="less")]

    condition = region("condition", goes_on, 2)
    body = region("body", lambda item, x, bound: [item.add_addition_layer(x, x, name="doubled")], 2)
    layer = network.add_while_layer(x, bound, regions=[condition, body], num_carried=1, name="while")
    network.add_output_layer(0, layer, name="y")
    return network


def test_a_loop_carries_what_it_captures():
    network = counted()
    content = write(network)
    main, condition, body = read_model(content).subgraphs
    assert [operator.name for operator in main.operators] == ["WHILE"]
    assert (len(condition.outputs), len(body.inputs), len(body.outputs)) == (1, 2, 2)
    arrays = np.float32([1, 2]), np.float32([100])
    [result], [expected] = run(load(content), *arrays), run(network, *arrays)
    np.testing.assert_array_equal(result, expected)
    assert expected.tolist() == [64, 128]


def test_what_cannot_be_written_in_a_region_is_named():
    network = Network("outer")
    condition = network.add_input_layer(0, TensorInfo((), "bool"), name="condition")
    x = network.add_input_layer(1, TensorInfo((2, 2)), name="x")
    same = region("then", lambda item, x: [item.add_addition_layer(x, x, name="sum")], 1)
    odd = region("else", lambda item, x: [item.add_cum_prod_layer(x, axis=0, name="product")], 1)
    network.add_output_layer(0, network.add_if_layer(condition, x, regions=[same, odd], name="if"))
    with pytest.raises(UnwritableError, match=r"'if' \(If\): in its region 'else', layer 'product' \(CumProd\)"):
        write(network)
