"""Control flow as ONNX: the same graphs in the attributes of nodes, or ones that do the same."""

from __future__ import annotations

import numpy as np
import onnx
import pytest

import interposer as ip
from interposer import Network, TensorInfo
from interposer.core.errors import UnwritableError
from interposer.core.types import DataType
from interposer.frontends.onnx import load
from interposer.ir.graph import Graph
from interposer.ops import (
    Addition,
    Comparison,
    ComparisonOperation,
    Multiplication,
    StandIn,
)
from interposer.ops.control import Input, Output
from interposer.ops.control_flow import If, Loop, Scan, While
from interposer.writers.onnx import write

pytestmark = pytest.mark.needs_cpuref
NUMBERS = TensorInfo((2,))
TRUTH = TensorInfo((), DataType.BOOL)
COUNT = TensorInfo((), DataType.INT64)


def region(name, *infos):
    graph = Graph(name)
    created = [graph.add(Input(i), (), name=f"in{i}", outputs=[info]) for i, info in enumerate(infos)]
    for layer, info in zip(created, infos, strict=True):
        layer.output.info = info
    return graph, [layer.output for layer in created]


def closed(graph, *values):
    for number, value in enumerate(values):
        graph.add(Output(number), [value], name=f"out{number}")
    return graph


def network_of(op, regions, *infos, outputs):
    network = Network("control")
    inputs = [network.add_input_layer(i, info, name=f"x{i}") for i, info in enumerate(infos)]
    layer = network.graph.add(op, [item and item.output for item in inputs], name="control")
    layer.regions = tuple(regions)
    for number in range(outputs):
        network.add_output_layer(number, layer.outputs[number], name=f"y{number}")
    network.validate()
    return network


def check_round_trip(network, *arrays):
    model = write(network)
    onnx.checker.check_model(model, full_check=True)
    with ip.load(network, backends=["CpuRef"]) as before, ip.load(load(model), backends=["CpuRef"]) as after:
        for expected, result in zip(before.run(list(arrays)), after.run(list(arrays)), strict=True):
            np.testing.assert_array_equal(result, expected)
    return model


def two_branches(other=Multiplication):
    then, (x, y) = region("then", NUMBERS, NUMBERS)
    closed(then, then.add(Addition(), [x, y], name="sum").output)
    rest, (x, y) = region("else", NUMBERS, NUMBERS)
    closed(rest, rest.add(other(), [x, y], name="product", outputs=[NUMBERS]).output)
    return network_of(If(1), [then, rest], TRUTH, NUMBERS, NUMBERS, outputs=1)


@pytest.mark.parametrize("condition", [True, False])
def test_a_choice_has_both_of_its_graphs(condition):
    model = check_round_trip(two_branches(), np.array(condition), np.float32([1, 2]), np.float32([3, 4]))
    [node] = model.graph.node
    assert [attribute.name for attribute in node.attribute] == ["else_branch", "then_branch"]
    assert list(node.input) == ["x0"]


@pytest.mark.parametrize("trips", [0, 1, 5])
def test_a_loop_carries_collects_and_sees_what_is_around_it(trips):
    body, (_, go_on, x, step) = region("body", COUNT, TRUTH, NUMBERS, NUMBERS)
    more = body.add(Addition(), [x, step], name="more").output
    closed(body, go_on, more, more)
    network = network_of(Loop(1, 1), [body], COUNT, TRUTH, NUMBERS, NUMBERS, outputs=2)
    check_round_trip(network, np.array(trips), np.array(True), np.float32([1, 2]), np.float32([3, 4]))


def test_a_scan_keeps_its_axes_and_directions():
    row = TensorInfo((2,))
    body, (state, slices) = region("body", row, row)
    total = body.add(Addition(), [state, slices], name="total").output
    closed(body, total, total)
    op = Scan(1, 1, 1, input_axes=(1,), output_axes=(1,), reverse_inputs=(True,), reverse_outputs=(True,))
    network = network_of(op, [body], row, TensorInfo((2, 3)), outputs=2)
    check_round_trip(network, np.float32([0, 0]), np.arange(6, dtype=np.float32).reshape(2, 3))


@pytest.mark.parametrize("start", [1.0, 50.0])
def test_a_loop_with_a_graph_for_its_condition_computes_that_behind_each_iteration(start):
    number = TensorInfo((1,))
    condition, (x, limit) = region("condition", number, number)
    below = Comparison(ComparisonOperation.LESS)
    closed(condition, condition.add(below, [x, limit], name="below").output)
    body, (x, _) = region("body", number, number)
    closed(body, body.add(Addition(), [x, x], name="twice").output)
    network = network_of(While(1), [condition, body], number, number, outputs=1)
    model = check_round_trip(network, np.float32([start]), np.float32([20.0]))
    assert "Loop" in [node.op_type for node in model.graph.node]


def test_what_cannot_be_written_of_a_region_is_named_with_the_region():
    network = two_branches(lambda: StandIn(description="Magic"))
    with pytest.raises(UnwritableError, match=r"in its region 'else', layer 'product' \(StandIn\): it stands in for M"):
        write(network)
