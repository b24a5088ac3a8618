"""Layers with control flow while they run: worked examples, borders between backends, errors, interruption."""

from __future__ import annotations

import threading

import numpy as np
import pytest

from interposer import Network, OptimizerOptions, Runtime, TensorInfo, load, optimize
from interposer.core.errors import (
    DeadlineExceededError,
    InvalidArgumentError,
    InvalidValueError,
    RunCancelledError,
)
from interposer.core.types import DataType
from interposer.ops import Activation, ActivationFunction, BinaryOperation, ComparisonOperation
from interposer.runtime import RunControl
from tests.devices import Device, Sums, single

BOOL, INT32, INT64 = DataType.BOOL, DataType.INT32, DataType.INT64
SCALAR = TensorInfo((), DataType.FLOAT32)
VECTOR = TensorInfo((3,))
RELU = Activation(ActivationFunction.RELU)


def region(name, inputs, build):
    """A network of so many inputs whose info follows from outside; `build` gives what it gives."""
    network = Network(name)
    values = [network.add_input_layer(index, None, name=f"in{index}") for index in range(inputs)]
    for index, value in enumerate(build(network, *values)):
        network.add_output_layer(index, value, name=f"out{index}")
    return network


def constant(network, value, dtype=np.float32):
    return network.add_constant_layer(np.array(value, dtype))


def run(network, *arrays, backends=("CpuRef",), runtime=None, **options):
    model = load(network, list(backends), runtime=runtime, **options)
    return model.run(list(arrays))


# --- If ---------------------------------------------------------------------------------------------------------------


def choice() -> Network:
    network = Network("choice")
    condition = network.add_input_layer(0, TensorInfo((), BOOL), name="c")
    x = network.add_input_layer(1, VECTOR, name="x")
    double = region("then", 1, lambda n, a: [n.add_addition_layer(a, a, name="sum")])
    negate = region("else", 1, lambda n, a: [n.add_subtraction_layer(constant(n, 0), a)])
    network.add_output_layer(0, network.add_if_layer(condition, x, regions=(double, negate), name="if"), name="y")
    return network


def test_if_runs_the_region_that_the_condition_chooses():
    x = np.float32([1, -2, 3])
    model = load(choice(), ["CpuRef"])
    assert model.run([True, x])[0].tolist() == [2, -4, 6]
    assert model.run([False, x])[0].tolist() == [-1, 2, -3]


def test_branches_of_different_shapes_give_a_result_whose_shape_is_found_while_running():
    network = Network("shapes")
    condition = network.add_input_layer(0, TensorInfo((), BOOL), name="c")
    x = network.add_input_layer(1, VECTOR, name="x")
    once = region("then", 1, lambda n, a: [a])
    twice = region("else", 1, lambda n, a: [n.add_concat_layer(a, a, axis=0)])
    chosen = network.add_if_layer(condition, x, regions=(once, twice))
    network.add_output_layer(0, network.add_addition_layer(chosen, chosen), name="y")
    model = load(network, ["CpuRef"])
    assert [model.run([flag, np.float32([1, 2, 3])])[0].tolist() for flag in (True, False)] == [
        [2, 4, 6],
        [2, 4, 6, 2, 4, 6],
    ]


# --- Loop -------------------------------------------------------------------------------------------------------------


def powers(num_scan_outputs: int = 1) -> Network:
    """Double x a number of times while it is below 100; collect the earlier values."""
    network = Network("powers")
    count = network.add_input_layer(0, TensorInfo((), INT64), name="count")
    x = network.add_input_layer(1, SCALAR, name="x")

    def body(n, iteration, condition, value):
        doubled = n.add_addition_layer(value, value, name="sum")
        below = n.add_comparison_layer(doubled, constant(n, 100), operation=ComparisonOperation.LESS)
        return [below, doubled, *[value] * num_scan_outputs]

    loop = network.add_loop_layer(
        count, None, x, regions=[region("body", 3, body)], num_carried=1, num_scan_outputs=num_scan_outputs, name="loop"
    )
    for index, value in enumerate(loop.outputs):
        network.add_output_layer(index, value, name=f"y{index}")
    return network


@pytest.mark.parametrize(("count", "last", "seen"), [(3, 8, [1, 2, 4]), (0, 1, []), (-5, 1, [])])
def test_a_loop_runs_as_often_as_its_count_says(count, last, seen):
    result, collected = run(powers(), np.int64(count), np.float32(1))
    assert (result, collected.tolist()) == (last, seen)
    assert collected.dtype == np.float32


def test_a_loop_ends_when_its_own_condition_does():
    result, collected = run(powers(), np.int64(1000), np.float32(1))
    assert (result, collected.tolist()) == (128, [1, 2, 4, 8, 16, 32, 64])


def test_a_condition_that_is_false_at_first_lets_no_iteration_run():
    network = Network()
    condition = network.add_input_layer(0, TensorInfo((1,), BOOL), name="go")
    x = network.add_input_layer(1, VECTOR, name="x")
    body = region("body", 3, lambda n, i, c, v: [constant(n, False, bool), n.add_addition_layer(v, v)])
    loop = network.add_loop_layer(None, condition, x, regions=[body], num_carried=1)
    network.add_output_layer(0, loop)
    model = load(network, ["CpuRef"])
    assert model.run([[False], [1, 2, 3]])[0].tolist() == [1, 2, 3]
    assert model.run([[True], [1, 2, 3]])[0].tolist() == [2, 4, 6]


def growing() -> Network:
    """Appends one captured element in every iteration."""
    network = Network("growing")
    count = network.add_input_layer(0, TensorInfo((), INT64), name="count")
    x = network.add_input_layer(1, TensorInfo((1,)), name="x")
    step = network.add_input_layer(2, TensorInfo((1,)), name="step")

    def body(n, iteration, condition, value, step):
        return [condition, n.add_concat_layer(value, step, axis=0, name="append")]

    loop = network.add_loop_layer(count, None, x, step, regions=[region("body", 4, body)], num_carried=1, name="loop")
    network.add_output_layer(0, loop, name="y")
    return network


def test_a_carried_value_may_grow():
    network = growing()
    assert str(network.graph.layer("loop").output.info) == "float32[?]"
    model = load(network, ["CpuRef"])
    assert model.run([np.int64(3), [1.0], [7.0]])[0].tolist() == [1, 7, 7, 7]
    assert model.run([np.int64(0), [1.0], [7.0]])[0].tolist() == [1]


def multiplication_table() -> Network:
    """Return a loop in a loop with rows (outer iteration + 1) * (inner iteration + 1)."""
    network = Network("table")
    rows = network.add_input_layer(0, TensorInfo((), INT64), name="rows")
    columns = network.add_input_layer(1, TensorInfo((), INT64), name="columns")

    def inner(n, iteration, condition, row):
        item = constant(n, 1, np.int64)
        return [condition, n.add_multiplication_layer(row, n.add_addition_layer(iteration, item))]

    def outer(n, iteration, condition, columns):
        row = n.add_addition_layer(iteration, constant(n, 1, np.int64))
        body = region("inner", 3, inner)
        return [condition, n.add_loop_layer(columns, None, row, regions=[body], num_scan_outputs=1)]

    body = region("outer", 3, outer)
    network.add_output_layer(0, network.add_loop_layer(rows, None, columns, regions=[body], num_scan_outputs=1))
    return network


def test_loops_nest():
    [result] = run(multiplication_table(), np.int64(3), np.int64(4))
    assert result.tolist() == [[1, 2, 3, 4], [2, 4, 6, 8], [3, 6, 9, 12]]


# --- Scan and While ---------------------------------------------------------------------------------------------------


def running_sum(**attributes) -> Network:
    network = Network("sums")
    start = network.add_input_layer(0, TensorInfo((2,)), name="start")
    x = network.add_input_layer(1, TensorInfo((2, 3)), name="x")

    def body(n, state, piece):
        total = n.add_addition_layer(state, piece)
        return [total, total]

    scan = network.add_scan_layer(
        start, x, regions=[region("body", 2, body)], num_states=1, num_scan_outputs=1, input_axes=(1,), **attributes
    )
    for index, value in enumerate(scan.outputs):
        network.add_output_layer(index, value)
    return network


def test_scan_goes_along_an_axis_and_collects():
    x = np.float32([[1, 2, 3], [10, 20, 30]])
    last, sums = run(running_sum(), np.zeros(2, np.float32), x)
    assert last.tolist() == [6, 60]
    assert sums.tolist() == [[1, 10], [3, 30], [6, 60]]
    assert str(running_sum().graph.layer("scan").outputs[1].info) == "float32[3, 2]"


def test_scan_along_a_vector_reads_scalars():
    network = Network("sums")
    numbers = network.add_input_layer(0, TensorInfo((1000,)), name="x")
    body = region("body", 2, lambda n, total, x: [(after := n.add_addition_layer(total, x)), after])
    scan = network.add_scan_layer(constant(network, 0), numbers, regions=[body], num_states=1, num_scan_outputs=1)
    for index, value in enumerate(scan.outputs):
        network.add_output_layer(index, value, name=f"y{index}")
    last, sums = run(network, np.ones(1000, np.float32))
    assert last.shape == () and last == 1000
    assert sums.tolist() == list(range(1, 1001))


def test_scan_can_go_backwards_and_collect_along_another_axis():
    x = np.float32([[1, 2, 3], [10, 20, 30]])
    network = running_sum(reverse_inputs=(True,), reverse_outputs=(True,), output_axes=(-1,))
    last, sums = run(network, np.zeros(2, np.float32), x)
    assert last.tolist() == [6, 60]
    assert sums.tolist() == [[6, 5, 3], [60, 50, 30]]


def test_while_asks_before_every_iteration():
    network = Network("gcd")
    a = network.add_input_layer(0, TensorInfo((), INT64), name="a")
    b = network.add_input_layer(1, TensorInfo((), INT64), name="b")

    def body(n, a, b):
        rest = n.add_elementwise_binary_layer(a, b, operation=BinaryOperation.MOD)
        return [b, rest]

    def goes_on(n, a, b):
        return [n.add_comparison_layer(b, constant(n, 0, np.int64), operation=ComparisonOperation.GREATER)]

    regions = region("condition", 2, goes_on), region("body", 2, body)
    loop = network.add_while_layer(a, b, regions=regions, num_carried=2)
    network.add_output_layer(0, loop.outputs[0])
    model = load(network, ["CpuRef"])
    assert [model.run([np.int64(x), np.int64(y)])[0] for x, y in ((48, 18), (7, 0), (17, 5))] == [6, 7, 1]


def test_captured_values_of_one_region_are_kept_while_the_other_one_runs():
    network = Network("bounded")
    x, step, limit = (network.add_input_layer(index, TensorInfo((1,)), name=name) for index, name in enumerate("xsl"))

    def goes_on(n, x, step, limit):
        return [n.add_comparison_layer(x, limit, operation=ComparisonOperation.LESS)]

    def body(n, x, step, limit):
        return [n.add_addition_layer(x, n.add_multiplication_layer(step, n.add_addition_layer(step, step)))]

    loop = network.add_while_layer(x, step, limit, regions=[region("condition", 3, goes_on), region("body", 3, body)])
    network.add_output_layer(0, loop)
    assert run(network, np.float32([0]), np.float32([1]), np.float32([5]))[0].tolist() == [6]


# --- backends ---------------------------------------------------------------------------------------------------------


def ramp() -> Network:
    """relu(x + step), again and again, where the device with its own heap does the relu and Sums the sum."""
    network = Network("ramp")
    count = network.add_input_layer(0, TensorInfo((), INT64), name="count")
    x = network.add_input_layer(1, VECTOR, name="x")
    step = network.add_layer(RELU, network.add_input_layer(2, VECTOR, name="step"), name="positive")

    def body(n, iteration, condition, value, step):
        moved = n.add_addition_layer(value, step, name="move")
        return [condition, n.add_layer(RELU, moved, name="clamp")]

    loop = network.add_loop_layer(count, None, x, step, regions=[region("body", 4, body)], num_carried=1, name="loop")
    network.add_output_layer(0, network.add_layer(RELU, loop, name="last"), name="y")
    return network


@pytest.fixture
def device() -> Device:
    return Device()


@pytest.fixture
def runtime(device: Device) -> Runtime:
    with Runtime() as new_runtime:
        new_runtime.registry.register("Device", single(device))
        new_runtime.registry.register("Sums", Sums)
        yield new_runtime


def test_two_backends_share_a_region(runtime, device):
    optimized = optimize(ramp(), ["Device", "Sums", "CpuRef"], runtime.device_spec)
    body = optimized.graph.layer("loop").regions[0]
    assert {layer.name: layer.backend for layer in body if layer.op.executable} == {"move": "Sums", "clamp": "Device"}
    network_id = runtime.load_network(optimized)
    inputs = {0: np.array(3, np.int64), 1: np.float32([-5, 0, 1]), 2: np.float32([1, 2, -1])}
    for _ in range(2):
        assert runtime.enqueue_workload(network_id, inputs)[0].tolist() == [2, 6, 1]
    runtime.unload_network(network_id)
    assert device.heaps[0].log == ["acquire", "release"]
    assert [what for what, _ in device.notes.log] == ["before_load", "after_load", "before_unload", "after_unload"]


def test_an_explanation_names_layers_of_regions_with_what_is_around_them(runtime):
    result = optimize(ramp(), ["Device", "Sums", "CpuRef"], runtime.device_spec).explain()
    rows = {placement.layer: placement.backend for placement, _ in result.rows}
    assert rows == {"positive": "Device", "loop/body/move": "Sums", "loop/body/clamp": "Device", "last": "Device"}
    assert "loop/body/move: no kernel" not in str(result)
    assert "layer 'loop' (Loop) is run by the runtime, and its regions' layers by their backends" in str(result)
    assert [copy.value for copy in result.copies] == ["loop/body/move"]


def test_a_hint_reaches_into_a_region(runtime):
    options = OptimizerOptions(hints={"loop/body/move": "CpuRef"})
    optimized = optimize(ramp(), ["Device", "Sums", "CpuRef"], runtime.device_spec, options)
    assert optimized.graph.layer("loop").regions[0].layer("move").backend == "CpuRef"


def test_debug_layers_in_regions_tell_the_callback_where_they_are(runtime):
    options = OptimizerOptions(debug=True)
    network_id = runtime.load_network(optimize(ramp(), ["CpuRef"], runtime.device_spec, options))
    seen = []
    runtime.register_debug_callback(network_id, lambda name, slot, array: seen.append((name, array.tolist())))
    inputs = {0: np.array(2, np.int64), 1: np.float32([0, 0, 0]), 2: np.float32([1, 2, 3])}
    runtime.enqueue_workload(network_id, inputs)
    assert [values for name, values in seen if name == "loop/body/move"] == [[1, 2, 3], [2, 4, 6]]


def test_halves_are_used_inside_of_regions_too(runtime):
    options = OptimizerOptions(reduce_fp32_to_fp16=True)
    optimized = optimize(ramp(), ["CpuRef"], runtime.device_spec, options)
    body = optimized.graph.layer("loop").regions[0]
    assert body.layer("move").output.known.dtype is DataType.FLOAT16
    network_id = runtime.load_network(optimized)
    inputs = {0: np.array(3, np.int64), 1: np.float32([-5, 0, 1]), 2: np.float32([1, 2, -1])}
    assert runtime.enqueue_workload(network_id, inputs)[0].tolist() == [2, 6, 1]


# --- errors and ends --------------------------------------------------------------------------------------------------


def test_an_error_names_layer_region_and_iteration():
    network = Network("failing")
    count = network.add_input_layer(0, TensorInfo((), INT64), name="count")
    x = network.add_input_layer(1, TensorInfo((1,)), name="x")
    table = network.add_input_layer(2, TensorInfo((2,)), name="table")

    def body(n, iteration, condition, value, table):
        picked = n.add_addition_layer(n.add_concat_layer(value, value, axis=0, name="grow"), table, name="meet")
        return [condition, picked]

    loop = network.add_loop_layer(count, None, x, table, regions=[region("body", 4, body)], num_carried=1, name="loop")
    network.add_output_layer(0, loop)
    model = load(network, ["CpuRef"])
    assert model.run([np.int64(1), [1.0], [1.0, 2.0]])[0].tolist() == [2, 3]
    with pytest.raises(InvalidValueError) as caught:
        model.run([np.int64(2), [1.0], [1.0, 2.0]])
    assert str(caught.value).startswith(
        "layer 'loop' (Loop): in iteration 1 of region 'body': layer 'meet' (Addition) cannot use its inputs: the "
        "shapes do not broadcast"
    )
    assert caught.value.layer == "loop/body/meet"


def test_an_endless_loop_can_be_interrupted_and_the_network_runs_again(runtime):
    network = Network("endless")
    x = network.add_input_layer(0, SCALAR, name="x")

    def body(n, iteration, condition, value):
        return [condition, n.add_addition_layer(value, constant(n, 1), name="count")]

    loop = network.add_loop_layer(None, None, x, regions=[region("body", 3, body)], num_carried=1, name="loop")
    network.add_output_layer(0, loop)
    network_id = runtime.load_network(optimize(network, ["CpuRef"], runtime.device_spec, OptimizerOptions(debug=True)))
    seen = []

    def stop_at_three(name, slot, array):
        seen.append(name)
        if seen.count("loop/body/count") == 3:
            raise KeyboardInterrupt

    runtime.register_debug_callback(network_id, stop_at_three)
    for _ in range(2):
        seen.clear()
        with pytest.raises(KeyboardInterrupt):
            runtime.enqueue_workload(network_id, {0: np.float32(0)})
    runtime.unload_network(network_id)


def endless(runtime, debug=False, empty=False):
    """A loop in a loop that never ends; where it is empty, no layer is in it."""
    network = Network("endless")
    x = network.add_input_layer(0, SCALAR, name="x")

    def inner(n, iteration, condition, value):
        return [condition, value if empty else n.add_addition_layer(value, value, name="sum")]

    def outer(n, iteration, condition, value):
        loop = n.add_loop_layer(None, None, value, regions=[region("body", 3, inner)], num_carried=1, name="inner")
        return [condition, loop]

    loop = network.add_loop_layer(None, None, x, regions=[region("body", 3, outer)], num_carried=1, name="outer")
    network.add_output_layer(0, loop)
    return runtime.load_network(optimize(network, ["CpuRef"], runtime.device_spec, OptimizerOptions(debug=debug)))


def test_a_run_in_a_loop_stops_when_it_is_cancelled_and_not_again(runtime):
    network_id, control, seen = endless(runtime, debug=True), RunControl(), []

    def stop(name, slot, array):
        seen.append(name)
        if len(seen) == 20:
            control.cancel()

    runtime.register_debug_callback(network_id, stop)
    with pytest.raises(RunCancelledError) as caught:
        runtime.enqueue_workload(network_id, {0: np.float32(0)}, control=control)
    assert caught.value.layer.startswith("outer/body/inner")
    assert len(seen) == 20
    with pytest.raises(KeyboardInterrupt):
        runtime.register_debug_callback(network_id, interrupted)
        runtime.enqueue_workload(network_id, {0: np.float32(0)})


def interrupted(name, slot, array):
    raise KeyboardInterrupt


@pytest.mark.parametrize("empty", [False, True])
def test_an_endless_loop_ends_at_its_deadline_and_so_does_its_thread(runtime, empty):
    network_id = endless(runtime, empty=empty)
    before = set(threading.enumerate())
    with pytest.raises(DeadlineExceededError) as caught:
        runtime.enqueue_workload(network_id, {0: np.float32(0)}, deadline=0.1)
    assert caught.value.layer.startswith("outer/body/inner")
    assert caught.value.backend == "CpuRef"
    for thread in set(threading.enumerate()) - before:
        thread.join(300)
        assert not thread.is_alive()
    runtime.unload_network(network_id)


def test_a_run_has_a_deadline_or_a_control(runtime):
    with pytest.raises(InvalidArgumentError, match="a deadline or a control, which may have one, not both"):
        runtime.enqueue_workload(endless(runtime), {0: np.float32(0)}, deadline=1, control=RunControl())
