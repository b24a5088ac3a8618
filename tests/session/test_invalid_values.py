"""Values that a layer cannot use: the caller gets an error that names them, and nothing else happens."""

from __future__ import annotations

import os
import pickle
import threading
from contextlib import suppress
from typing import Any

import numpy as np
import pytest

import interposer as ip
from interposer import CreationOptions, Limits, Network, Runtime, TensorInfo
from interposer.backend import Backend, KernelTable, LayerSupport, Options, SubgraphView, Support
from interposer.backends.reference import ReferenceBackend
from interposer.core.errors import (
    ExecutionError,
    InterposerError,
    InvalidArgumentError,
    InvalidValueError,
    LimitExceededError,
)
from interposer.core.types import Array
from interposer.isolation import ENABLED_AGAIN, REPLACED
from interposer.kernels.value_checks import decisive_operands
from interposer.ops import Addition, ComparisonOperation, Gather
from interposer.testing.bad_values import with_bad_values
from interposer.testing.known_samples import sampled_ops, samples_of
from interposer.testing.sample import Sample
from tests.failing import Failing
from tests.isolating import needs_linux

pytestmark = [pytest.mark.needs_cpuref, pytest.mark.usefixtures("warm_python")]
INT64 = "int64"


def table_network(rows: Any = (2,)) -> Network:
    """Return a network that picks rows of a table of three by the input ``i``."""
    network = Network("table")
    table = network.add_constant_layer(np.arange(6, dtype=np.float32).reshape(3, 2))
    index = network.add_input_layer(0, TensorInfo(rows, INT64), name="i")
    network.add_output_layer(0, network.add_gather_layer(table, index, axis=0, name="pick"), name="y")
    return network


def sizes_network() -> Network:
    """Return a network that fills a tensor of the sizes in ``n`` with ones, and adds one to them."""
    network = Network("sizes")
    n = network.add_input_layer(0, TensorInfo((1,), INT64), name="n")
    filled = network.add_fill_layer(n, value=1.0, name="fill")
    network.add_output_layer(0, network.add_addition_layer(filled, filled, name="add"), name="y")
    return network


def test_the_error_says_where_which_value_and_what_is_allowed() -> None:
    model = ip.load(table_network((2, 2)), ["CpuRef"])
    with pytest.raises(InvalidValueError) as caught:
        model.run([np.array([[0, 1], [2, 9]])])
    error = pickle.loads(pickle.dumps(caught.value))
    assert isinstance(error, ExecutionError)
    assert isinstance(error, InvalidArgumentError)
    assert str(error) == (
        "layer 'pick' (Gather) cannot use its inputs: indices has 9 at [1, 1]; expected -3 to 2 (tensor 'i')"
    )
    assert (error.layer, error.backend, error.operand, error.tensor) == ("pick", "CpuRef", "indices", "i")
    assert (error.position, error.value, error.allowed) == ((1, 1), 9, (-3, 2))
    assert error.reason == "indices has 9 at [1, 1]; expected -3 to 2"


def lstm_network() -> Network:
    network = Network("rnn")
    x = network.add_input_layer(0, TensorInfo((4, 3, 6)), name="x")
    lengths = network.add_input_layer(1, TensorInfo((3,), "int32"), name="n")
    generator = np.random.default_rng(0)
    weights = [
        network.add_constant_layer(generator.standard_normal(shape, np.float32)) for shape in ((1, 20, 6), (1, 20, 5))
    ]
    layer = network.add_lstm_sequence_layer(x, *weights, sequence_lengths=lengths, name="lstm")
    for number, output in enumerate(layer.outputs):
        network.add_output_layer(number, output, name=f"y{number}")
    return network


@pytest.mark.parametrize("backends", [None, ["CpuRef"], ["CpuAcc", "CpuRef"]])
def test_a_wrong_length_changes_nothing_for_later_calls(backends: list[str] | None, cpuacc: object) -> None:
    model = ip.load(lstm_network(), backends)
    x, good = np.ones((4, 3, 6), np.float32), np.int32([4, 1, 2])
    expected = model.run({"x": x, "n": good})
    optimized = model.optimized
    for _ in range(3):
        with pytest.raises(InvalidValueError, match=r"sequence_lengths has 5 at \[1\]; expected 0 to 4"):
            model.run({"x": x, "n": np.int32([4, 5, 2])})
        for found, output in zip(model.run({"x": x, "n": good}), expected, strict=True):
            np.testing.assert_array_equal(found, output)
    assert model.optimized is optimized
    assert model.events == ()


@needs_linux
def test_an_isolated_backend_reports_the_value_as_any_other() -> None:
    with Runtime(CreationOptions(isolate="CpuRef")) as runtime:
        model = ip.load(table_network(), ["CpuRef"], runtime=runtime)
        for _ in range(2):
            assert model.run([np.array([0, 2])])[0].tolist() == [[0, 1], [4, 5]]
            with pytest.raises(InvalidValueError) as caught:
                model.run([np.array([0, 9])])
            error = caught.value
            assert str(error) == (
                "layer 'pick' (Gather) cannot use its inputs: indices has 9 at [1]; expected -3 to 2 (tensor 'i')"
            )
            assert (error.layer, error.tensor, error.position, error.value) == ("pick", "i", (1,), 9)
        sizes = ip.load(sizes_network(), ["CpuRef"], runtime=runtime, limits=Limits(max_bytes=1 << 20))
        with pytest.raises(LimitExceededError, match="but the limit is 1,048,576"):
            sizes.run([np.array([1 << 20])])
        assert sizes.run([np.array([3])])[0].tolist() == [2, 2, 2]
        assert runtime.events == ()


def test_every_way_to_call_a_model_reports_the_value() -> None:
    model, bad = ip.load(table_network(), ["CpuRef"]), np.array([0, 7])
    ways = {
        "run": lambda: model.run([bad]),
        "call": lambda: model(i=bad),
        "deadline": lambda: model.run([bad], deadline=60),
        "submit": lambda: model.submit([bad]).result(),
        "outputs": lambda: model.run([bad], [np.zeros((2, 2), np.float32)]),
        "names": lambda: model.run([bad], ["y"]),
        "bound": model.bind([bad]),
        "imported": lambda: model.run(model.import_inputs([bad])),
        "profile": lambda: model.run([bad], profile=ip.profile()),
    }
    for name, way in ways.items():
        with pytest.raises(InvalidValueError, match=r"indices has 7 at \[1\]"):
            way()
        assert model.run([np.array([0, 2])])[0].tolist() == [[0, 1], [4, 5]], name
    assert model.events == ()


def test_good_calls_of_other_threads_are_right_and_never_divide_the_network_again() -> None:
    model = ip.load(table_network(), ["CpuRef"])
    optimized, errors = model.optimized, list[BaseException]()

    def bad_calls() -> None:
        for value in range(50):
            with pytest.raises(InvalidValueError):
                model.run([np.array([0, 3 + value])])

    def good_calls() -> None:
        try:
            for _ in range(100):
                assert model.run([np.array([0, 2])])[0].tolist() == [[0, 1], [4, 5]]
                assert model.explain() is not None
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=target) for target in (bad_calls, good_calls, bad_calls, good_calls)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    assert model.optimized is optimized
    assert model.events == ()


def equal(a: Any, b: Any) -> bool:
    """Return True if two results are equal bit by bit; a sequence is a list of arrays."""
    if isinstance(a, list):
        return len(a) == len(b) and all(map(equal, a, b))
    return a is b or a.tobytes() == b.tobytes() or bool(np.array_equal(a, b))


# --- all operators ----------------------------------------------------------------------------------------------------


def decided(op: Any) -> list[Sample]:
    """Return a few samples of an operator that have indices or sizes among their inputs."""
    if not decisive_operands(op, len(op.operands)):  # creating the samples of all operators takes long
        return []
    fitting = [sample for sample in samples_of(op) if decided_inputs(sample)]
    return fitting[:: max(1, len(fitting) // 3)][:3]


def decided_inputs(sample: Sample) -> list[int]:
    """Return the binding ids of the inputs of a sample that are indices or sizes."""
    positions = decisive_operands(sample.op, len(sample.inputs))
    return [position for position in positions if (given := sample.inputs[position]) and not given.constant]


@pytest.mark.parametrize("op", [op for op in sampled_ops() if decided(op)], ids=lambda op: op.op_name())
def test_an_operator_refuses_values_as_the_callers_error(op: Any) -> None:
    for sample in decided(op):
        network, feeds = sample.network()
        model = ip.load(network, ["CpuRef"], limits=Limits(max_bytes=1 << 22, max_operations=10**7))
        arrays = {f"input_{number}": array for number, array in feeds.items()}
        names = [f"input_{number}" for number in decided_inputs(sample)]
        try:
            expected = model.run(arrays)
        except LimitExceededError:
            continue
        for changed in with_bad_values(arrays, names, np.random.default_rng(0)):
            with suppress(InvalidValueError, LimitExceededError):
                model.run(changed)
        assert model.events == ()
        if not sample.statistical:
            assert all(map(equal, model.run(arrays), expected))


# --- sizes and iterations ---------------------------------------------------------------------------------------------


def test_limits_hold_for_sizes_that_follow_from_values() -> None:
    model = ip.load(sizes_network(), ["CpuRef"], limits=Limits(max_bytes=1 << 20))
    assert model.run([np.array([3])])[0].tolist() == [2, 2, 2]
    for size in (1 << 18, 1 << 40, (1 << 62) - 1):
        with pytest.raises(LimitExceededError, match=r"of memory, but the limit is 1,048,576"):
            model.run([np.array([size])])
    assert model.run([np.array([1])])[0].tolist() == [2]
    assert model.events == ()


def test_without_limits_an_absurd_size_is_the_callers_error() -> None:
    model = ip.load(sizes_network(), ["CpuRef"], limits=Limits(max_bytes=None, max_operations=None))
    for size in (1 << 45, (1 << 62) - 1, -1):
        with pytest.raises(InvalidValueError):
            model.run([np.array([size])])
    assert model.run([np.array([1])])[0].tolist() == [2]


def counting_network() -> Network:
    """Return a network that adds one to ``x`` as often as ``count`` says, and collects all results."""
    network = Network("counting")
    count = network.add_input_layer(0, TensorInfo((), INT64), name="count")
    x = network.add_input_layer(1, TensorInfo((4,)), name="x")
    body = Network("body")
    body.add_input_layer(0, TensorInfo((), INT64), name="iteration")
    condition = body.add_input_layer(1, TensorInfo((), "bool"), name="condition")
    value = body.add_input_layer(2, TensorInfo((4,)), name="value")
    total = body.add_addition_layer(value, body.add_constant_layer(np.float32([1])), name="add")
    for number, output in enumerate((condition, total, total)):
        body.add_output_layer(number, output)
    loop = network.add_loop_layer(count, None, x, regions=[body], num_carried=1, num_scan_outputs=1, name="loop")
    for number, output in enumerate(loop.outputs):
        network.add_output_layer(number, output, name=f"y{number}")
    return network


def test_limits_hold_for_the_iterations_and_results_of_loops() -> None:
    few_bytes = ip.load(counting_network(), ["CpuRef"], limits=Limits(max_bytes=1 << 12))
    few_operations = ip.load(counting_network(), ["CpuRef"], limits=Limits(max_operations=1000))
    x = np.zeros(4, np.float32)
    for model, text in ((few_bytes, "bytes of memory"), (few_operations, "operations of arithmetic")):
        assert model.run([np.int64(3), x])[0].tolist() == [3] * 4
        with pytest.raises(LimitExceededError, match=text):
            model.run([np.int64(1 << 60), x])
        assert model.run([np.int64(3), x])[0].tolist() == [3] * 4


# --- backends that fail -----------------------------------------------------------------------------------------------


class Unchecked(Backend):
    """A backend whose kernel leaves it to NumPy to complain about an index, or ends its process for one."""

    id = "Unchecked"
    kernels = KernelTable()
    aborts = False


@Unchecked.kernels(Gather)
def unchecked_gather(op: Gather, params: Array, indices: Array) -> Array:
    if Unchecked.aborts and indices.max() >= params.shape[op.axis]:
        os.abort()
    return params.take(indices, op.axis)  # which raises IndexError


@Unchecked.kernels(Addition)
def unchecked_addition(op: Addition, a: Array, b: Array) -> Array:
    return a + b


class Aborting(Unchecked):
    """The same backend, whose process ends at an index that is out of range."""

    aborts = True


def picked(network: Network, index: Any) -> Any:
    table = network.add_constant_layer(np.arange(6, dtype=np.float32).reshape(3, 2))
    return network.add_gather_layer(table, index, axis=0, name="pick")


def computed_network() -> Network:
    """Return a network that adds one to the indices ``i`` before it picks rows."""
    network = Network("computed")
    index = network.add_input_layer(0, TensorInfo((2,), INT64), name="i")
    one = network.add_constant_layer(np.int64([1, 1]))
    network.add_output_layer(0, picked(network, network.add_addition_layer(index, one, name="add")), name="y")
    return network


def branching_network() -> Network:
    """Return a network that picks rows in a branch, which it takes for a positive first index."""
    network = Network("branching")
    index = network.add_input_layer(0, TensorInfo((2,), INT64), name="i")
    zero = network.add_constant_layer(np.int64([0, 0]))
    positive = network.add_comparison_layer(index, zero, operation=ComparisonOperation.GREATER, name="positive")
    condition = network.add_slice_layer(positive, begin=(0,), size=(1,), name="condition")
    then, other = Network("then"), Network("else")
    for region in (then, other):
        inside = region.add_input_layer(0, TensorInfo((2,), INT64), name="inside")
        result = picked(region, inside) if region is then else region.add_constant_layer(np.zeros((2, 2), np.float32))
        region.add_output_layer(0, result)
    layer = network.add_if_layer(condition, index, regions=[then, other], num_outputs=1, name="branch")
    network.add_output_layer(0, layer.outputs[0], name="y")
    return network


def remembering_network() -> Network:
    """Return a network that picks the rows of the indices of the call before."""
    network = Network("remembering")
    index = network.add_input_layer(0, TensorInfo((2,), INT64), name="i")
    before = network.add_state("before", TensorInfo((2,), INT64))
    network.set_state("before", index)
    network.add_output_layer(0, picked(network, before), name="y")
    return network


def open_network() -> Network:
    """Return a network that picks as many rows as ``i`` has indices."""
    return table_network((None,))


BAD = np.array([1, 7])
GOOD = np.array([1, 0])


@pytest.mark.parametrize("backends", [["Unchecked"], ["Unchecked", "CpuRef"]], ids=["alone", "with the reference"])
@pytest.mark.parametrize("network", [table_network, open_network, computed_network, branching_network])
def test_a_plain_exception_about_a_value_is_the_callers_error(network: Any, backends: list[str]) -> None:
    with Runtime() as runtime:
        runtime.registry.register("Unchecked", Unchecked)
        if network is branching_network:
            backends = ["Unchecked", "CpuRef"]
        model = ip.load(network(), backends, runtime=runtime)
        expected = model.run([GOOD])[0].tolist()
        optimized, bound = model.optimized, model.bind([BAD])
        ways = [lambda: model.run([BAD]), lambda: model.run({"i": BAD}, deadline=60), bound]
        ways.append(lambda: model.run(model.import_inputs([BAD])))
        for way in ways:
            with pytest.raises(InvalidValueError, match=r"indices has [78] at \[1\]; expected -3 to 2") as caught:
                way()
            assert isinstance(caught.value.__cause__, ExecutionError)
            assert caught.value.operand == "indices"
            assert model.run([GOOD])[0].tolist() == expected
        assert model.optimized is optimized
        assert model.events == ()


def test_a_wrong_value_in_a_state_is_the_callers_error_too() -> None:
    with Runtime() as runtime:
        runtime.registry.register("Unchecked", Unchecked)
        model = ip.load(remembering_network(), ["Unchecked", "CpuRef"], runtime=runtime)
        assert model.run([BAD])[0].tolist() == [[0, 1], [0, 1]]
        with pytest.raises(InvalidValueError, match="indices has 7"):
            model.run([GOOD])
        model.reset_state()
        assert model.run([GOOD])[0].tolist() == [[0, 1], [0, 1]]
        assert model.run([GOOD])[0].tolist() == [[2, 3], [0, 1]]
        assert model.events == ()


@needs_linux
def test_a_process_that_ends_at_a_wrong_value_begins_again() -> None:
    with Runtime(CreationOptions(isolate="Aborting")) as runtime:
        runtime.registry.register("Aborting", Aborting)
        model = ip.load(table_network(), ["Aborting", "CpuRef"], runtime=runtime)
        with pytest.raises(InvalidValueError, match="indices has 7"):
            model.run([BAD])
        assert model.run([GOOD])[0].tolist() == [[2, 3], [0, 1]]
        assert model.events == ()


def test_a_failure_on_good_values_is_still_the_backends_own() -> None:
    with Runtime() as runtime:
        backend = Failing(ReferenceBackend, "F", at=1)
        runtime.registry.register("F", lambda: backend)
        model = ip.load(table_network(), ["F", "CpuRef"], runtime=runtime)
        assert model.run([GOOD])[0].tolist() == [[2, 3], [0, 1]]
        assert [(event.backend, event.kind) for event in model.events] == [("F", REPLACED)]


def test_a_failure_after_which_no_division_is_possible_leaves_the_model_usable() -> None:
    with Runtime() as runtime:
        failing, few = Failing(ReferenceBackend, "F"), Failing(ReferenceBackend, "G", only=(Addition,))
        runtime.registry.register("F", lambda: failing)
        runtime.registry.register("G", lambda: few)
        model = ip.load(table_network(), ["F", "G"], runtime=runtime)
        for _ in range(2):
            failing.at = 1
            with pytest.raises(ExecutionError, match="failed on backend F: ValueError: out of sorts"):
                model.run([np.array([0, 2])])
            failing.at = 1 << 62
            assert model.run([np.array([0, 2])])[0].tolist() == [[0, 1], [4, 5]]


class OfTwoRows(Failing):
    """A backend that takes only layers whose results have two rows."""

    def layer_support(self, options: Options) -> LayerSupport:
        return _TwoRows()


class _TwoRows(LayerSupport):
    def query(self, view: SubgraphView) -> list[Support]:
        has_two_rows = [layer.output.known.shape[0] == 2 for layer in view]
        return [Support.yes() if fits else Support.no("not two rows") for fits in has_two_rows]


def test_a_backend_that_failed_is_used_again_for_shapes_that_no_other_can_run() -> None:
    with Runtime() as runtime:
        failing, few = Failing(ReferenceBackend, "F", at=1), OfTwoRows(ReferenceBackend, "G")
        runtime.registry.register("F", lambda: failing)
        runtime.registry.register("G", lambda: few)
        model = ip.load(table_network((None,)), ["F", "G"], runtime=runtime)
        assert model.run([np.array([2, 1])])[0].tolist() == [[4, 5], [2, 3]]
        failing.at = 1 << 62
        assert [event.kind for event in model.events] == [REPLACED]
        assert model.run([np.array([2])])[0].tolist() == [[4, 5]]
        assert [event.kind for event in model.events] == [REPLACED, ENABLED_AGAIN]


def test_after_a_failure_only_the_named_backends_are_made() -> None:
    made = []
    with Runtime() as runtime:
        backend = Failing(ReferenceBackend, "F", at=1)
        runtime.registry.register("F", lambda: backend)
        runtime.registry.register("Other", lambda: made.append("Other") or ReferenceBackend())  # type: ignore[func-returns-value]
        model = ip.load(table_network(), ["F", "CpuRef"], runtime=runtime)
        assert model.run([np.array([0, 2])])[0].tolist() == [[0, 1], [4, 5]]
        assert [event.kind for event in model.events] == [REPLACED]
        assert made == []


def test_a_value_that_decides_the_layers_and_fits_no_network_is_the_callers_error() -> None:
    onnx = pytest.importorskip("onnx")
    h = onnx.helper
    nodes = [h.make_node("Cast", ["x"], ["n"], to=7), h.make_node("ReduceSum", ["t", "n"], ["y"])]
    inputs = [h.make_tensor_value_info("t", 1, [2, 3]), h.make_tensor_value_info("x", 6, [1])]
    graph = h.make_graph(nodes, "g", inputs, [h.make_tensor_value_info("y", 1, None)])
    file = h.make_model(graph, opset_imports=[h.make_opsetid("", 21)], ir_version=9).SerializeToString()
    model, t = ip.load(file, ["CpuRef"]), np.ones((2, 3), np.float32)
    assert model.run({"t": t, "x": np.int32([1])})[0].tolist() == [[3], [3]]
    with pytest.raises(InterposerError) as caught:
        model.run({"t": t, "x": np.int32([7])})
    assert isinstance(caught.value, InvalidArgumentError)
    assert model.run({"t": t, "x": np.int32([0])})[0].tolist() == [[2, 2, 2]]
