"""Control flow that is known before running, and the borders of regions."""

from __future__ import annotations

import numpy as np
import pytest

from interposer import Network, OptimizerOptions, TensorInfo, load
from interposer.core.types import DataType
from interposer.ir.inference import infer_graph
from interposer.ir.text import parse_graph
from interposer.ir.verify import verify
from interposer.ops import ComparisonOperation
from interposer.optimizer.passes import DEFAULT_PASSES, TIDY_REGIONS, UNROLL, run_passes

INT64, BOOL = DataType.INT64, DataType.BOOL
VECTOR = TensorInfo((2,))


def region(name, inputs, build):
    network = Network(name)
    values = [network.add_input_layer(index, None, name=f"in{index}") for index in range(inputs)]
    for index, value in enumerate(build(network, *values)):
        network.add_output_layer(index, value, name=f"out{index}")
    return network


def given(network, value, dtype=np.float32):
    return network.add_constant_layer(np.array(value, dtype))


def finished(network):
    for index, value in enumerate(network.graph.layer("layer").outputs):
        network.add_output_layer(index, value, name=f"y{index}")
    return network


def choice(flag):
    network = Network("choice")
    x = network.add_input_layer(0, VECTOR, name="x")
    double = region("then", 1, lambda n, a: [n.add_addition_layer(a, a, name="sum")])
    square = region("else", 1, lambda n, a: [n.add_multiplication_layer(a, a, name="product")])
    network.add_if_layer(given(network, flag, bool), x, regions=(double, square), name="layer")
    return finished(network)


def counted(count, captured=3.0):
    """Adds iteration * x + a captured constant again and again, and collects the states."""
    network = Network("counted")
    x = network.add_input_layer(0, VECTOR, name="x")

    def body(n, iteration, condition, state, x, step):
        number = n.add_cast_layer(iteration, dtype=DataType.FLOAT32)
        moved = n.add_addition_layer(n.add_multiplication_layer(number, x), step)
        return [condition, n.add_addition_layer(state, moved, name="next"), state]

    values = x, x, given(network, captured)
    network.add_loop_layer(
        given(network, count, np.int64), None, *values, regions=[region("body", 5, body)],
        num_carried=1, num_scan_outputs=1, name="layer",
    )  # fmt: skip
    return finished(network)


def scanned(length, **attributes):
    network = Network("scanned")
    x = network.add_input_layer(0, VECTOR, name="x")
    rows = given(network, np.arange(2.0 * length).reshape(2, length))

    def body(n, state, row, x):
        total = n.add_addition_layer(state, n.add_multiplication_layer(row, x), name="next")
        return [total, total]

    network.add_scan_layer(
        x, rows, x, regions=[region("body", 3, body)], num_states=1, num_scan_outputs=1, input_axes=(1,),
        name="layer", **attributes,
    )  # fmt: skip
    return finished(network)


def bounded():
    """While the state is below a carried bound that no iteration changes."""
    network = Network("bounded")
    x = network.add_input_layer(0, TensorInfo((1,)), name="x")

    def goes_on(n, state, bound, unused):
        return [n.add_comparison_layer(state, bound, operation=ComparisonOperation.LESS)]

    def body(n, state, bound, unused):
        return [n.add_addition_layer(state, state, name="next"), bound]

    regions = region("condition", 3, goes_on), region("body", 3, body)
    network.add_while_layer(x, given(network, [50]), x, regions=regions, num_carried=2, name="layer")
    return finished(network)


def run(network, x, rewrite):
    return load(network, ["CpuRef"], options=OptimizerOptions(rewrite=rewrite)).run([np.float32(x)])


KNOWN = {
    "then": lambda: choice(True),
    "else": lambda: choice(False),
    "loop": lambda: counted(4),
    "one iteration": lambda: counted(1),
    "scan": lambda: scanned(3),
    "scan backwards": lambda: scanned(3, reverse_inputs=(True,), reverse_outputs=(True,), output_axes=(-1,)),
}


@pytest.mark.parametrize("name", KNOWN)
def test_what_is_known_to_run_stands_in_place_of_the_layer_and_gives_the_same(name):
    network = KNOWN[name]()
    graph = network.graph.clone()
    run_passes(graph, DEFAULT_PASSES)
    assert not any(layer.regions for layer in graph)
    assert all(value.known.is_concrete for layer in graph for value in layer.outputs)
    for result, expected in zip(run(network, [1, -2], True), run(network, [1, -2], False), strict=True):
        np.testing.assert_array_equal(result, expected)


def test_layers_that_were_in_a_region_are_called_after_it():
    graph = choice(True).graph
    run_passes(graph, [UNROLL])
    assert "layer/then/sum" in [layer.name for layer in graph]


@pytest.mark.parametrize("network", [counted(400), counted(0), scanned(600)], ids=["loop", "none", "scan"])
def test_loops_of_many_iterations_or_of_none_stay(network):
    graph = network.graph.clone()
    run_passes(graph, DEFAULT_PASSES)
    assert any(layer.regions for layer in graph)
    for result, expected in zip(run(network, [1, -2], True), run(network, [1, -2], False), strict=True):
        np.testing.assert_array_equal(result, expected)


def test_a_loop_that_may_end_early_stays():
    network = Network("early")
    x = network.add_input_layer(0, TensorInfo(()), name="x")

    def body(n, iteration, condition, state):
        return [n.add_comparison_layer(state, given(n, 5), operation=ComparisonOperation.LESS),
                n.add_addition_layer(state, state)]  # fmt: skip

    count = given(network, 4, np.int64)
    network.add_loop_layer(count, None, x, regions=[region("body", 3, body)], num_carried=1, name="layer")
    graph = finished(network).graph.clone()
    run_passes(graph, DEFAULT_PASSES)
    assert any(layer.regions for layer in graph)
    assert run(network, 3, True)[0] == 12


def test_the_condition_of_the_only_iteration_does_not_matter():
    network = Network("once")
    x = network.add_input_layer(0, TensorInfo(()), name="x")

    def body(n, iteration, condition, state):
        return [n.add_comparison_layer(state, given(n, 5), operation=ComparisonOperation.LESS),
                n.add_addition_layer(state, state)]  # fmt: skip

    count = given(network, 1, np.int64)
    network.add_loop_layer(count, None, x, regions=[region("body", 3, body)], num_carried=1, name="layer")
    graph = finished(network).graph.clone()
    run_passes(graph, DEFAULT_PASSES)
    assert not any(layer.regions for layer in graph)
    assert run(network, 30, True)[0] == run(network, 30, False)[0] == 60


def test_loops_in_loops_are_counted_together():
    network = Network("nested")
    x = network.add_input_layer(0, VECTOR, name="x")

    def inner(n, iteration, condition, state):
        return [condition, n.add_addition_layer(state, state)]

    def outer(n, iteration, condition, state):
        count = given(n, 40, np.int64)
        return [condition, n.add_loop_layer(count, None, state, regions=[region("in", 3, inner)], num_carried=1)]

    count = given(network, 40, np.int64)
    network.add_loop_layer(count, None, x, regions=[region("body", 3, outer)], num_carried=1, name="layer")
    graph = finished(network).graph
    run_passes(graph, [UNROLL])
    [loop] = [layer for layer in graph if layer.regions]
    assert not any(layer.regions for layer in loop.regions[0])


def test_constants_go_into_regions_and_what_nobody_takes_is_no_operand():
    graph = bounded().graph
    record = run_passes(graph, [TIDY_REGIONS])[0]
    assert record.counts == {"capture_unchanged": 1, "sink_constants": 1, "drop_operands": 2}
    layer = graph.layer("layer")
    assert [value.name for value in layer.values] == ["x"]
    assert [[item.kind for item in inner] for inner in layer.regions] == [
        ["Input", "Comparison", "Output", "Constant"],
        ["Input", "Addition", "Output"],
    ]
    verify(graph)
    expected = run(bounded(), [3], False)
    assert [array.tolist() for array in run(bounded(), [3], True)] == [array.tolist() for array in expected]
    assert [array.tolist() for array in expected] == [[96], [50]]


def test_a_condition_that_follows_from_shapes_is_known_where_these_are():
    network = parse_graph(
        """
        graph {
          %x = Input : float32[n]
          %shape = Shape %x
          %two = Constant(value=int32[1]{2})
          %c = Comparison %shape, %two
          %if = If %c, %x {
            graph {
              %a = Input
              %b = Addition %a, %a
              Output %b as "y"
            }
            graph {
              %a = Input
              Output %a as "y"
            }
          }
          Output %if as "y"
        }
        """
    )
    infer_graph(network)
    model = load(Network(graph=network), ["CpuRef"])
    assert model.run([np.float32([1, 2])])[0].tolist() == [2, 4]
    assert sorted(layer.kind for layer in model.optimized.graph) == ["Addition", "Input", "Output"]
    assert model.run([np.float32([1, 2, 3])])[0].tolist() == [1, 2, 3]
    assert sorted(layer.kind for layer in model.optimized.graph) == ["Input", "Output"]
