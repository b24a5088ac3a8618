"""Loading, running and unloading networks, and what goes wrong there."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any, ClassVar

import numpy as np
import pytest

from interposer import CreationOptions, Network, OptimizerOptions, Runtime, TensorInfo, optimize
from interposer.backend import BackendContext, Options
from interposer.core.errors import (
    BackendUnavailableError,
    BindingError,
    ExecutionError,
    InvalidArgumentError,
    LoadError,
    UnknownNetworkError,
)
from interposer.core.schema import Op
from interposer.ops import Activation, ActivationFunction, MemCopy, MemImport
from interposer.plugins import process_registry
from tests.devices import Device, Sums, single

INFO = TensorInfo((2, 3))
X = np.float32([[-1, 2, -3], [4, -5, 6]])


@pytest.fixture
def device() -> Device:
    return Device()


@pytest.fixture
def runtime(device: Device) -> Iterator[Runtime]:
    with Runtime(CreationOptions(backend_options={"Device": {"clock": 3}})) as new_runtime:
        new_runtime.registry.register("Device", single(device))
        new_runtime.registry.register("Sums", Sums)
        yield new_runtime


def three_parts() -> Network:
    """Return a network of a sum, a ReLU and a sum: relu(x + x) + x."""
    network = Network("three")
    x = network.add_input_layer(0, INFO, name="x")
    first = network.add_addition_layer(x, x, name="first")
    middle = network.add_activation_layer(first, function=ActivationFunction.RELU, name="middle")
    last = network.add_addition_layer(middle, x, name="last")
    network.add_output_layer(0, last, name="y")
    return network


def load(runtime: Runtime, network: Network | None = None, **options: object) -> int:
    created = optimize(
        network or three_parts(), ["Sums", "Device"], runtime.device_spec, OptimizerOptions(**options)  # type: ignore[arg-type]
    )  # fmt: skip
    return runtime.load_network(created)


def test_two_backends_that_share_a_network_in_three_parts_compute_the_right_answer(runtime: Runtime) -> None:
    out = np.zeros((2, 3), np.float32)
    runtime.enqueue_workload(load(runtime), {0: X}, {0: out})
    np.testing.assert_array_equal(out, np.maximum(X + X, 0) + X)


def test_copies_stand_where_data_crosses_and_nowhere_else(runtime: Runtime) -> None:
    optimized = optimize(three_parts(), ["Sums", "Device"], runtime.device_spec)
    assert [(copy.value, copy.source, copy.target) for copy in optimized.copies] == [
        ("first", "Sums", "Device"),
        ("middle", "Device", "Sums"),
    ]


def test_the_explanation_says_why_each_other_backend_has_not_got_a_layer(runtime: Runtime) -> None:
    explanation = optimize(three_parts(), ["Device", "Sums"], runtime.device_spec).explain()
    said = {row["layer"]: (row["backend"], row["others"]) for row in explanation.to_dict()["layers"]}
    assert said == {
        "first": ("Sums", {"Device": ["no kernel for Addition"]}),
        "middle": ("Device", {"Sums": ["no kernel for Activation"]}),
        "last": ("Sums", {"Device": ["no kernel for Addition"]}),
    }


def test_outputs_are_made_where_none_are_given(runtime: Runtime) -> None:
    result = runtime.enqueue_workload(load(runtime), {0: X})
    np.testing.assert_array_equal(result[0], np.maximum(X + X, 0) + X)


def test_several_networks_are_loaded_at_once_and_run_in_turn(runtime: Runtime) -> None:
    first, second = load(runtime), load(runtime)
    assert runtime.loaded_networks == (first, second)
    for network_id, factor in ((first, 1), (second, 2), (first, 3)):
        result = runtime.enqueue_workload(network_id, {0: X * factor})
        np.testing.assert_array_equal(result[0], (np.maximum(X + X, 0) + X) * factor)


def test_contexts_are_told_before_and_after_loading_and_unloading(runtime: Runtime, device: Device) -> None:
    network_id = load(runtime)
    assert device.notes.log == [("before_load", 0), ("after_load", 0)]
    runtime.unload_network(network_id)
    assert device.notes.log[2:] == [("before_unload", 0), ("after_unload", 0)]
    assert device.options == {"clock": 3}


def test_a_context_that_says_no_stops_the_load_and_leaves_nothing_behind(runtime: Runtime, device: Device) -> None:
    device.notes.noes.add("before_load")
    with pytest.raises(LoadError) as caught:
        load(runtime)
    assert str(caught.value) == "network 0 is not loaded: the context of backend Device said no"
    assert runtime.loaded_networks == ()
    device.notes.noes.clear()
    runtime.enqueue_workload(load(runtime), {0: X})


def test_a_context_that_says_no_keeps_a_network_loaded(runtime: Runtime, device: Device) -> None:
    network_id = load(runtime)
    device.notes.noes.add("before_unload")
    with pytest.raises(LoadError, match="network 0 stays loaded: the context of backend Device said no"):
        runtime.unload_network(network_id)
    assert runtime.enqueue_workload(network_id, {0: X})
    device.notes.noes.clear()


def test_memory_is_acquired_before_the_first_run_and_released_at_unload(runtime: Runtime, device: Device) -> None:
    network_id = load(runtime)
    [heap] = device.heaps
    assert heap.log == []
    runtime.enqueue_workload(network_id, {0: X})
    runtime.enqueue_workload(network_id, {0: X})
    assert heap.log == ["acquire"]
    runtime.unload_network(network_id)
    assert heap.log == ["acquire", "release"]


def test_memory_that_was_never_acquired_is_not_released(runtime: Runtime, device: Device) -> None:
    runtime.unload_network(load(runtime))
    assert device.heaps[0].log == []


@pytest.mark.parametrize(
    ("inputs", "text"),
    [
        ({}, "no tensor was given for input 0 (x)"),
        ({0: X, 1: X}, "no input has the binding id 1; there are 0 (x)"),
        ({0: X[:1]}, "input 0 (x) has shape [1, 3]; expected [2, 3]"),
        ({0: X.astype(np.float64)}, "input 0 (x) is float64; expected float32"),
        ([X], "inputs must be a mapping from binding id to array, not list"),
        (
            {7: X},
            "2 errors:\n  - no tensor was given for input 0 (x)\n  - no input has the binding id 7; there are 0 (x)",
        ),
    ],
)
def test_inputs_that_do_not_fit_are_named(runtime: Runtime, inputs: dict[int, object], text: str) -> None:
    network_id = load(runtime)
    with pytest.raises(BindingError) as caught:
        runtime.enqueue_workload(network_id, inputs)
    assert str(caught.value) == text
    assert runtime.enqueue_workload(network_id, {0: X})


def test_outputs_that_do_not_fit_are_named(runtime: Runtime) -> None:
    network_id = load(runtime)
    frozen = np.zeros((2, 3), np.float32)
    frozen.flags.writeable = False
    wrong = {
        "output 0 (y) is read-only; give an array that can be written to": {0: frozen},
        "output 0 (y) cannot be used without a copy: a list has neither __dlpack__ nor the buffer protocol": {
            0: [[0.0] * 3] * 2
        },
        "output 0 (y) has shape [3]; expected [2, 3]": {0: np.zeros(3, np.float32)},
        "no tensor was given for output 0 (y)": {},
    }
    for text, outputs in wrong.items():
        with pytest.raises(BindingError) as caught:
            runtime.enqueue_workload(network_id, {0: X}, outputs)  # type: ignore[arg-type]
        assert str(caught.value) == text
    assert runtime.enqueue_workload(network_id, {0: X})


def test_a_network_that_is_not_loaded_is_named_with_those_that_are(runtime: Runtime) -> None:
    load(runtime)
    for call in (runtime.unload_network, lambda which: runtime.enqueue_workload(which, {0: X})):
        with pytest.raises(UnknownNetworkError) as caught:
            call(9)
        assert str(caught.value) == "no network 9 is loaded (loaded: 0)"
    for wrong, shown in (("0", "'0'"), ([], "[]"), (None, "None")):
        with pytest.raises(UnknownNetworkError) as caught:
            runtime.enqueue_workload(wrong, {0: X})  # type: ignore[arg-type]
        assert str(caught.value) == f"no network {shown} is loaded (loaded: 0)"


def test_tensor_infos_of_inputs_and_outputs_are_told_by_binding_id(runtime: Runtime) -> None:
    network_id = load(runtime)
    assert runtime.get_input_tensor_info(network_id, 0) == INFO
    assert runtime.get_output_tensor_info(network_id, 0) == INFO
    with pytest.raises(BindingError, match=r"no output has the binding id 3; there are 0 \(y\)"):
        runtime.get_output_tensor_info(network_id, 3)


def test_the_device_spec_lists_the_backends(runtime: Runtime) -> None:
    assert {"Device", "Sums"} <= set(runtime.device_spec.supported_backends)


def test_only_an_optimized_network_can_be_loaded(runtime: Runtime) -> None:
    with pytest.raises(InvalidArgumentError, match="load_network needs what optimize"):
        runtime.load_network(three_parts())  # type: ignore[arg-type]


@pytest.mark.parametrize(("options", "message"), [
    ({"backend_options": None}, "backend_options must be a mapping from backend's id to its options, not None"),
    ({"backend_options": {"Sums": 5}}, "the options of backend 'Sums' must be a mapping, not 5"),
    ({"disabled_backends": 5}, "disabled_backends: backends are named by their ids, such as 'CpuRef', not by 5"),
])  # fmt: skip
def test_options_of_the_wrong_kind_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidArgumentError) as caught:
        CreationOptions(**options)
    assert str(caught.value) == message


def test_a_runtime_takes_nothing_but_its_options() -> None:
    with pytest.raises(InvalidArgumentError, match=r"the options must be CreationOptions\(...\), not {'Sums': {}}"):
        Runtime({"Sums": {}})  # type: ignore[arg-type]


def test_a_debug_callback_that_cannot_be_called_is_refused(runtime: Runtime) -> None:
    network_id = load(runtime, debug=True)
    with pytest.raises(InvalidArgumentError, match="a debug callback must be a function or None, not 5"):
        runtime.register_debug_callback(network_id, 5)  # type: ignore[arg-type]


def test_debug_layers_show_every_tensor_to_the_callback(runtime: Runtime) -> None:
    network_id = load(runtime, debug=True)
    seen: dict[str, np.ndarray] = {}
    runtime.register_debug_callback(network_id, lambda name, slot, array: seen.update({name: array.copy()}))
    runtime.enqueue_workload(network_id, {0: X})
    assert list(seen) == ["x", "first", "middle", "last"]
    np.testing.assert_array_equal(seen["middle"], np.maximum(X + X, 0))


def test_debug_layers_print_json_where_there_is_no_callback(
    runtime: Runtime, capsys: pytest.CaptureFixture[str]
) -> None:
    runtime.enqueue_workload(load(runtime, debug=True), {0: X})
    first = capsys.readouterr().out.splitlines()[0]
    assert first == (
        '{"layerName": "x", "outputSlot": 0, "shape": [2, 3], "min": -5.0, "max": 6.0, '
        '"data": [[-1.0, 2.0, -3.0], [4.0, -5.0, 6.0]]}'
    )


@pytest.mark.parametrize(("call", "what"), [
    (lambda runtime, network_id: runtime.enqueue_workload(network_id, {0: X}), "run again"),
    (lambda runtime, network_id: runtime.unload_network(network_id), "unloaded"),
])  # fmt: skip
def test_a_callback_that_meddles_with_its_own_network_is_refused_and_does_not_wait_for_ever(
    runtime: Runtime, call: Callable[[Runtime, int], object], what: str
) -> None:
    network_id = load(runtime, debug=True)
    runtime.register_debug_callback(network_id, lambda *_: call(runtime, network_id))
    with pytest.raises(ExecutionError) as caught:
        runtime.enqueue_workload(network_id, {0: X})
    assert str(caught.value) == (
        "layer 'DebugLayerAfterx' (Debug) failed on backend Sums: "
        f"the network 'three' cannot be {what} from within its own run"
    )
    runtime.register_debug_callback(network_id, lambda *_: None)
    np.testing.assert_array_equal(runtime.enqueue_workload(network_id, {0: X})[0], np.maximum(X + X, 0) + X)


def test_debug_layers_print_infinities_and_nan_as_texts(runtime: Runtime, capsys: pytest.CaptureFixture[str]) -> None:
    runtime.enqueue_workload(load(runtime, debug=True), {0: np.float32([[1, np.inf, np.nan], [-np.inf, 5, 6]])})
    shown = json.loads(capsys.readouterr().out.splitlines()[0])
    assert shown["data"] == [[1.0, "inf", "nan"], ["-inf", 5.0, 6.0]]
    assert (shown["min"], shown["max"]) == ("nan", "nan")


@pytest.mark.parametrize("op", [MemCopy(), MemImport()])
def test_layers_of_the_runtime_may_be_added_by_hand(runtime: Runtime, op: Op) -> None:
    network = Network("by hand")
    passed = network.add_layer(op, network.add_input_layer(0, INFO))
    network.add_output_layer(0, network.add_addition_layer(passed, passed))
    np.testing.assert_array_equal(runtime.enqueue_workload(load(runtime, network), {0: X})[0], X + X)


def test_a_context_can_keep_a_network_that_was_to_be_unloaded_later(
    runtime: Runtime, device: Device, caplog: pytest.LogCaptureFixture
) -> None:
    kept_network = load(runtime)
    device.notes.noes.add("before_unload")
    runtime.unload_later(kept_network)
    others = load(runtime), load(runtime)
    assert runtime.loaded_networks == (kept_network, *others)
    assert caplog.messages == [
        "network 0 stays loaded: the context of backend Device said no, though nobody runs it any more"
    ]


def test_a_workload_that_fails_is_named_and_the_next_run_is_well(runtime: Runtime) -> None:
    network_id = load(runtime, debug=True)
    runtime.register_debug_callback(network_id, lambda *_: 1 / 0)
    with pytest.raises(ExecutionError) as caught:
        runtime.enqueue_workload(network_id, {0: X})
    assert str(caught.value) == (
        "layer 'DebugLayerAfterx' (Debug) failed on backend Sums: ZeroDivisionError: division by zero"
    )
    assert (caught.value.layer, caught.value.backend) == ("DebugLayerAfterx", "Sums")
    runtime.register_debug_callback(network_id, lambda *_: None)
    np.testing.assert_array_equal(runtime.enqueue_workload(network_id, {0: X})[0], np.maximum(X + X, 0) + X)


def test_an_input_that_goes_straight_to_an_output_and_a_constant_output_are_given(runtime: Runtime) -> None:
    network = Network("straight")
    network.add_output_layer(0, network.add_input_layer(0, INFO))
    network.add_output_layer(1, network.add_constant_layer(np.float32([7, 8])))
    result = runtime.enqueue_workload(load(runtime, network), {0: X})
    np.testing.assert_array_equal(result[0], X)
    np.testing.assert_array_equal(result[1], [7, 8])


def test_a_constant_reaches_a_device_with_memory_of_its_own(runtime: Runtime) -> None:
    network = Network("weights")
    x = network.add_input_layer(0, INFO)
    w = network.add_constant_layer(np.float32([[1, -1, 1]]))
    rectified = network.add_layer(Activation(ActivationFunction.RELU), network.add_addition_layer(x, w))
    network.add_output_layer(0, network.add_multiplication_layer(rectified, w))
    result = runtime.enqueue_workload(load(runtime, network), {0: X})[0]
    np.testing.assert_array_equal(result, np.maximum(X + [[1, -1, 1]], 0) * [[1, -1, 1]])


def test_a_network_with_unknown_extents_is_refused_when_loaded(runtime: Runtime) -> None:
    network = Network("open")
    x = network.add_input_layer(0, TensorInfo((None, 3)), name="x")
    network.add_output_layer(0, network.add_addition_layer(x, x))
    with pytest.raises(LoadError) as caught:
        load(runtime, network)
    assert str(caught.value) == "the tensor 'x' of shape [?, 3] has unknown dimensions; give the inputs' shapes"


def test_closing_unloads_everything_even_where_a_context_says_no(runtime: Runtime, device: Device) -> None:
    runtime.enqueue_workload(load(runtime), {0: X})
    device.notes.noes.add("before_unload")
    runtime.close()
    assert runtime.loaded_networks == ()
    assert device.heaps[0].log == ["acquire", "release"]


def test_all_contexts_can_be_created_with_the_runtime_and_told_of_every_network() -> None:
    created: list[Device] = []

    class Other(Device):
        id: ClassVar = "Other"

    class Gone(Device):
        id: ClassVar = "Gone"

        def create_backend_context(self, options: Options) -> BackendContext:
            raise BackendUnavailableError("Gone", "its driver is too old")

    def new(kind: type[Device]) -> Callable[[], Device]:
        def create() -> Device:
            created.append(kind())
            return created[-1]

        return create

    registry = process_registry()
    kinds: tuple[type[Device], ...] = (Device, Other, Gone)
    for kind in kinds:
        registry.register(kind.id, new(kind))
    try:
        with Runtime(CreationOptions(all_contexts=True, backend_options={"Other": {"clock": 5}})) as runtime:
            notes = {backend.id: backend.notes.log for backend in created}
            options = {backend.id: backend.options for backend in created}
            assert options == {"Device": {}, "Other": {"clock": 5}, "Gone": {}}
            network = Network()
            x = network.add_input_layer(0, INFO)
            network.add_output_layer(0, network.add_activation_layer(x, function=ActivationFunction.RELU))
            number = runtime.load_network(optimize(network, ["Device"], runtime.device_spec))
            runtime.unload_network(number)
        expected = [(f"{when}_{what}", number) for what in ("load", "unload") for when in ("before", "after")]
        assert notes == {"Device": expected, "Other": expected, "Gone": []}
    finally:
        for kind in kinds:
            registry.deregister(kind.id)


def test_a_context_that_cannot_be_created_with_the_runtime_is_an_error() -> None:
    class Broken(Device):
        id: ClassVar = "Broken"

        def create_backend_context(self, options: Options) -> BackendContext:
            raise OSError("no such device")

    process_registry().register("Broken", Broken)
    try:
        with pytest.raises(LoadError, match="^backend Broken could not make its context: OSError: no such device$"):
            Runtime(CreationOptions(all_contexts=True))
    finally:
        process_registry().deregister("Broken")


@pytest.mark.parametrize("backend", [None, "Absent"])
def test_a_layer_on_a_backend_that_the_network_lacks_is_an_error_of_loading(runtime, backend):
    created = optimize(three_parts(), ["Sums", "Device"], runtime.device_spec)
    created.graph.inputs[0].backend = backend
    where = "on no backend" if backend is None else "on backend 'Absent'"
    with pytest.raises(LoadError, match=f"would run {where}, but the network was divided among these backends: "):
        runtime.load_network(created)
