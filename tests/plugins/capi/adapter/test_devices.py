"""A plug-in with two devices, which users name by addresses."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import interposer
from interposer import CreationOptions, Network, OptimizerOptions, Runtime, TensorInfo, optimize
from interposer.backend import Backend
from interposer.cli.main import main
from interposer.core.errors import (
    BackendContractError,
    BackendUnavailableError,
    ExecutionError,
    InvalidArgumentError,
    UnknownBackendError,
)
from interposer.ops import Activation, ActivationFunction, Addition, Multiplication

INFO = TensorInfo((8,))
X = np.linspace(-1, 1, 8, dtype=np.float32)
RELU = Activation(ActivationFunction.RELU)
SECOND_BY_ID = "Fake:fake:1"


@pytest.fixture
def folder(natives, tmp_path):
    """Return a folder with the plug-in."""
    natives.install(tmp_path / "plugins", "Tests_Fake_backend.so", Path("fake_async.cpp"))
    return tmp_path / "plugins"


@pytest.fixture
def runtime_of_fake(folder):
    """Creates runtimes with the plug-in; keyword arguments are `CreationOptions`."""
    runtimes = []

    def runtime_of_fake(fault="", lacks="", **options):
        given = {"Fake": {name: value for name, value in (("Fault", fault), ("Lacks", lacks)) if value}}
        given |= options.pop("backend_options", {})
        runtimes.append(Runtime(CreationOptions(dynamic_backends_path=folder, backend_options=given, **options)))
        return runtimes[-1]

    yield runtime_of_fake
    for runtime in runtimes:
        runtime.close()


def chain(*ops):
    network = Network("chain")
    value = network.add_input_layer(0, INFO, name="x")
    for number, op in enumerate(ops):
        value = network.add_layer(op, *[value] * len(op.operands), name=f"layer {number}")
    network.add_output_layer(0, value, name="y")
    return network


def loaded(runtime, network, *backends, **options):
    return runtime.load_network(
        optimize(network, backends, runtime.device_spec, OptimizerOptions(rewrite=False, **options))
    )


@pytest.mark.parametrize("address", ["Fake", "Fake:0", "Fake:1", SECOND_BY_ID])
def test_a_device_is_named_by_its_index_or_its_id(address, runtime_of_fake):
    runtime = runtime_of_fake()
    number = loaded(runtime, chain(RELU), address)
    np.testing.assert_array_equal(runtime.enqueue_workload(number, {0: X})[0], np.maximum(X, 0))
    assert {backend for _, backend in runtime._loaded(number).steps} == {address}


def test_a_network_runs_on_two_devices_of_one_plug_in_which_copy_between_each_other(runtime_of_fake):
    runtime = runtime_of_fake()
    hints = {"layer 1": "Fake:1", "layer 2": "Fake:1"}
    number = loaded(runtime, chain(RELU, Addition(), Multiplication(), RELU), "Fake", "Fake:1", hints=hints)
    optimized = runtime._loaded(number).optimized
    assert [copy.how for copy in optimized.copies] == ["device copy"] * 4, "to the first, to the second, back, and out"
    for array in (X, 2 * X):
        expected = (2 * np.maximum(array, 0)) ** 2
        np.testing.assert_array_equal(runtime.enqueue_workload(number, {0: array})[0], expected)
    assert runtime.transfers(number).device_copies == 8
    assert runtime.transfers(number).copies == 0


def test_devices_are_listed_with_their_properties(runtime_of_fake):
    runtime = runtime_of_fake()
    first, second = runtime.registry.get("Fake").devices()
    assert (first.id, first.name, first.type, first.unified, first.simulated) == (
        "fake:0",
        "Fake one",
        "gpu",
        True,
        True,
    )
    assert (second.index, second.memory, second.dlpack, second.uuid[:1]) == (1, 1 << 31, (2, 1), b"\2")
    assert runtime.registry.get("Fake:1").capabilities.has("HasFp16", False)
    [record] = [record for record in runtime.registry.records() if record.id == "Fake"]
    assert [device["id"] for device in record.to_dict()["devices"]] == ["fake:0", "fake:1"]


@pytest.mark.parametrize("address", ["Fake:2", "Fake:-1", "Fake:01", "Fake:", "Fake:fake", "Fake:1:1"])
def test_an_unknown_device_is_an_unknown_backend_with_those_that_exist(address, runtime_of_fake):
    runtime = runtime_of_fake()
    assert address not in runtime.registry
    with pytest.raises(UnknownBackendError, match="known: Fake:0, Fake:fake:0, Fake:1, Fake:fake:1"):
        runtime.registry.get(address)


def test_backends_without_devices_have_no_addresses(runtime_of_fake):
    runtime = runtime_of_fake(lacks="devices")
    for address in ("Fake:0", "CpuRef:0", "Nothing:0"):
        assert address not in runtime.registry
        with pytest.raises(UnknownBackendError):
            runtime.registry.get(address)
    with pytest.raises(BackendContractError, match="no devices to choose from"):
        runtime.registry.get("CpuRef").on_device(0, "CpuRef:0")


def test_the_ids_of_new_backends_have_no_colons(runtime_of_fake):
    runtime = runtime_of_fake()
    with pytest.raises(InvalidArgumentError, match="blanks, commas or colons"):
        runtime.registry.register("Fake:7", Backend)


def test_a_disabled_backend_has_no_devices_and_a_device_is_disabled_alone(runtime_of_fake):
    alone = runtime_of_fake(disabled_backends=["Fake:1"])
    assert alone.registry.get("Fake").id == "Fake"
    for runtime in (alone, runtime_of_fake(disabled_backends=["Fake"])):
        with pytest.raises(BackendUnavailableError):
            runtime.registry.get("Fake:1")


def test_options_are_those_of_the_device(runtime_of_fake):
    runtime = runtime_of_fake()
    options = OptimizerOptions(model_options={"Fake:1": {"Fault": "fail@1"}})
    model = interposer.load(chain(RELU), backends=["Fake:1"], options=options, runtime=runtime, fallback=False)
    with model, pytest.raises(ExecutionError, match="on backend Fake:1: .*planted fault"):
        model.run([X])
    with interposer.load(chain(RELU), backends=["Fake:0"], runtime=runtime) as model:
        np.testing.assert_array_equal(model.run([X])[0], np.maximum(X, 0))


def test_only_the_device_that_failed_is_replaced(runtime_of_fake):
    runtime = runtime_of_fake()
    options = OptimizerOptions(model_options={"Fake:1": {"Fault": "lost@1"}})
    with interposer.load(chain(RELU), backends=["Fake:1", "Fake"], options=options, runtime=runtime) as model:
        np.testing.assert_array_equal(model.run([X])[0], np.maximum(X, 0))
        assert [event.backend for event in model.events] == ["Fake:1"]
        assert "on Fake" in str(model.explain()) or "Fake" in str(model.explain())


def test_a_device_runs_in_a_process_of_its_own(runtime_of_fake):
    runtime = runtime_of_fake(isolate={"Fake"})
    number = loaded(runtime, chain(RELU), "Fake:1")
    np.testing.assert_array_equal(runtime.enqueue_workload(number, {0: X})[0], np.maximum(X, 0))
    with pytest.raises((UnknownBackendError, BackendUnavailableError), match="Fake:2"):
        runtime.registry.get("Fake:2")


def test_devices_must_have_different_ids(opened):
    from interposer.plugins.capi.running.backend import DynamicBackend

    backend = DynamicBackend(opened("fake_async.cpp", options={"Fault": "nameless"}))
    with pytest.raises(BackendContractError, match="must have different ids"):
        backend.devices()


def test_the_command_line_takes_addresses(folder, capsys, tmp_path):
    network = str(tmp_path / "network.txt")
    Path(network).write_text(str(chain(RELU, Addition())), encoding="utf-8")
    assert main(["run", network, "--random", "--backend-path", str(folder), "--backends", "Fake:1"]) in (0, None)
    assert main(["explain", network, "--backend-path", str(folder), "--backends", SECOND_BY_ID]) in (
        0,
        None,
    )
    assert SECOND_BY_ID in capsys.readouterr().out
    assert main(["backends", "--backend-path", str(folder)]) in (0, None)
    assert "devices: 0 (fake:0, Fake one), 1 (fake:1, Fake two)" in capsys.readouterr().out
