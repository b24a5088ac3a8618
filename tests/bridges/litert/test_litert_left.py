"""What stays with LiteRT: control flow, variables, texts, sparse tensors, random numbers; and a backend that fails."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest

import interposer as ip
from interposer.ops import BatchMatMul, ComparisonOperation
from interposer.writers import tflite as writer
from tests.bridges.litert.hosting import (
    delegate,
    interpreter,
    last_report,
    perceptron,
    random_feeds,
    registered,
    reports,
    run,
)  # fmt: skip
from tests.failing import Failing
from tests.frontends.tflite.one_operator import T, one_operator

BOTH = {"backends": "CpuAcc,CpuRef", "min_nodes": "1"}


def since(before):
    """The reports that are not among those before; a process keeps only the latest ones."""
    return [report for report in reports() if report not in before]


def same_in_both(content, rounds=1):
    """Run a file with and without the delegate, and return the report of its main graph."""
    before = reports()
    hosted, plain = interpreter(content, [delegate(**BOTH)]), interpreter(content)
    for seed in range(rounds):
        feeds = random_feeds(plain, seed)
        for found, wanted in zip(run(hosted, feeds), run(plain, feeds), strict=True):
            np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-6)
    return since(before)[0]


def region(name, build):
    network = ip.Network(name)
    inputs = [network.add_input_layer(number, None, name=f"{name}_{number}") for number in range(2)]
    network.add_output_layer(0, build(network, *inputs), name=f"{name}_y")
    return network


def doubling_loop():
    """The file of a network that doubles a matrix by a product until its sum reaches a bound."""
    network = ip.Network("loop")
    x = network.add_input_layer(0, ip.TensorInfo((2, 4)), name="x")
    bound = network.add_input_layer(1, ip.TensorInfo((1, 1)), name="bound")

    def goes_on(inner, x, bound):
        total = inner.add_reduce_layer(x, axis=(0, 1), keep_dims=True, name="total")
        return inner.add_comparison_layer(
            inner.add_reshape_layer(total, target_shape=(1,), name="flat"),
            inner.add_reshape_layer(bound, target_shape=(1,), name="limit"),
            operation=ComparisonOperation.LESS,
            name="less",
        )

    def doubled(inner, x, bound):
        twice = inner.add_constant_layer(np.eye(4, dtype=np.float32) * 2, name="twice")
        return inner.add_batch_mat_mul_layer(x, twice, name="product")

    regions = [region("condition", goes_on), region("body", doubled)]
    layer = network.add_while_layer(x, bound, regions=regions, num_carried=1, name="while")
    network.add_output_layer(0, layer, name="y")
    return writer.write(network)


@pytest.mark.needs_cpuref
def test_a_loop_stays_and_its_body_is_taken():
    content, before = doubling_loop(), reports()
    hosted, plain = interpreter(content, [delegate(**BOTH)]), interpreter(content)
    feeds = [np.ones((2, 4), np.float32), np.float32([[100]])]
    assert run(hosted, feeds)[0].tolist() == run(plain, feeds)[0].tolist() == [[16] * 4] * 2
    nodes = {node.kind: node for report in since(before) for node in report.nodes}
    assert nodes["WHILE"].reasons == ("it runs other graphs of the model, which stay with the host",)
    assert nodes["BATCH_MATMUL"].part


def test_a_layer_with_states_stays_with_the_host_and_keeps_them_from_run_to_run():
    state = T((1, 2), more={"is_variable": True})
    weights = [T((2, 3), value=np.full((2, 3), 0.5, np.float32)), T((2, 2), value=np.full((2, 2), 0.25, np.float32))]
    bias = T((2,), value=np.zeros(2, np.float32))
    file = one_operator("RNN", [T((1, 3)), *weights, bias, state], [T((1, 2))], ("RNNOptions", {}))
    report = same_in_both(file, rounds=3)
    assert report.refused[0].reasons == ("it uses a variable, whose value the host has between calls",)


def test_random_numbers_are_those_of_the_host():
    shape = T((2,), "int32", value=np.int32([2, 3]))
    file = one_operator("RANDOM_UNIFORM", [shape], [T((2, 3))], ("RandomOptions", {"seed": 1, "seed2": 2}))
    assert same_in_both(file).refused[0].reasons == ("its random numbers are those of the host",)


def test_texts_stay_with_the_host():
    file = one_operator("SHAPE", [T((2,), "string")], [T((1,), "int32")], ("ShapeOptions", {"out_type": 2}))
    interpreter(file, [delegate(**BOTH)])
    assert last_report().refused[0].reasons == ("it uses texts, which stay with the host",)


# --- a backend that fails ---------------------------------------------------------------------------------------------


def with_failing(at):
    """A backend that takes matrix products as CpuRef does, and fails at a run or a step."""
    from interposer.plugins import process_registry

    return registered("Bad", partial(Failing, lambda: process_registry().get("CpuRef"), "Bad", at, only=[BatchMatMul]))


@pytest.mark.needs_cpuref
def test_another_backend_completes_the_run_of_one_that_fails():
    content = perceptron(softmax=False)
    with with_failing(4):
        hosted, plain = interpreter(content, [delegate(backends="Bad")]), interpreter(content)
        for seed in range(4):
            feeds = random_feeds(plain, seed)
            np.testing.assert_allclose(run(hosted, feeds)[0], run(plain, feeds)[0], rtol=1e-5, atol=1e-6)
        (event,) = last_report().parts[0].events
        assert "Bad" in event


@pytest.mark.needs_cpuref
def test_a_backend_that_cannot_compile_leaves_its_operators_to_another_or_to_the_host():
    content = perceptron(softmax=False)
    with with_failing("compile"):
        hosted, plain = interpreter(content, [delegate(backends="Bad")]), interpreter(content)
        feeds = random_feeds(plain)
        np.testing.assert_allclose(run(hosted, feeds)[0], run(plain, feeds)[0], rtol=1e-5, atol=1e-6)
