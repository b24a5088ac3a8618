"""A plug-in with tensors in memory of its own: a discrete device in C, whose copies are counted."""

from __future__ import annotations

import ctypes
import gc

import numpy as np
import pytest

from interposer import CreationOptions, Network, OptimizerOptions, Runtime, TensorInfo, optimize
from interposer.backend import CustomAllocator, MemorySource
from interposer.core.errors import (
    BackendContractError,
    BackendError,
    ExecutionError,
    IncompatibleMemoryError,
    LoadError,
)
from interposer.ops import Activation, ActivationFunction, Addition, Concat, Multiplication
from interposer.plugins.capi.running.backend import DynamicBackend
from interposer.runtime.allocators import use_allocators
from interposer.runtime.loaded import LoadedNetwork
from tests.devices import Sums

INFO = TensorInfo((2, 3, 5))
SIZE = 120
X = np.linspace(-3, 4, 30, dtype=np.float32).reshape(2, 3, 5)
RELU = Activation(ActivationFunction.RELU)
NAMES = ("uploads", "downloads", "uploaded", "downloaded", "nanoseconds", "pools", "tensors")


@pytest.fixture
def device(opened):
    """Builds the device with some flags: the backend, and what it counts."""

    def device(*flags):
        library = opened("discrete.c", *flags)
        counters = (ctypes.c_uint64 * 7).in_dll(ctypes.CDLL(library.path), "discrete_counters")
        return DynamicBackend(library), lambda: dict(zip(NAMES, counters, strict=True))

    return device


def loaded(runtime, network, *backends, allocators=None):
    runtime.registry.register("Sums", Sums)
    optimized = optimize(network, backends, runtime.device_spec, OptimizerOptions(rewrite=False))
    return LoadedNetwork(optimized, allocators=allocators)


def run(network, *arrays):
    outputs = network.bindings.new_outputs()
    network.run(dict(enumerate(arrays)), outputs)
    return outputs


def chain(*ops):
    network = Network()
    value = network.add_input_layer(0, INFO)
    for number, op in enumerate(ops):
        value = network.add_layer(op, *[value] * len(op.operands), name=f"layer {number}")
    network.add_output_layer(0, value)
    return network


def test_tensors_stay_on_the_device_between_its_layers(device, runtime_with):
    backend, counted = device()
    network = loaded(runtime_with(backend), chain(RELU, Addition(), Addition(), RELU), "DiscreteC")
    for array in (X, -X):
        np.testing.assert_array_equal(run(network, array)[0], 4 * np.maximum(array, 0))
    assert [(copy.value, copy.how) for copy in network.optimized.copies] == [
        ("input_0", "device copy"),
        ("layer 3", "device copy"),
    ]
    now = counted()
    assert (now["uploads"], now["downloads"], now["uploaded"], now["downloaded"]) == (2, 2, 2 * SIZE, 2 * SIZE)
    assert now["nanoseconds"] >= 4 * 10_000


def test_the_device_works_beside_backends_in_ordinary_memory(device, runtime_with):
    backend, counted = device()
    network = loaded(runtime_with(backend), chain(Addition(), Multiplication(), RELU), "DiscreteC", "Sums")
    twice = 2 * X
    np.testing.assert_array_equal(run(network, X)[0], np.maximum(twice * twice, 0))
    assert network.transfers.device_copies == 4
    assert network.transfers.copies == 0
    assert counted()["uploads"] == 2


@pytest.mark.parametrize("flags", [[], ["-DFACTORY_FLAGS=IPR_FACTORY_DEVICE_COPIES"]], ids=["with pieces", "without"])
def test_what_is_joined_lies_in_pieces_where_the_device_has_them(flags, device, runtime_with):
    backend, _ = device(*flags)
    network = Network()
    x = network.add_input_layer(0, INFO)
    parts = [network.add_layer(RELU, x), network.add_layer(Addition(), x, x)]
    network.add_output_layer(0, network.add_layer(RELU, network.add_layer(Concat(1), *parts)))
    loaded_network = loaded(runtime_with(backend), network, "DiscreteC")
    expected = np.maximum(np.concatenate([np.maximum(X, 0), 2 * X], 1), 0)
    np.testing.assert_array_equal(run(loaded_network, X)[0], expected)
    kinds = [loaded_network.optimized.graph.layer(name).kind for name, _ in loaded_network.steps]
    assert ("Concat" in kinds) == bool(flags)


def test_nothing_of_a_network_stays_on_the_device(device, runtime_with):
    backend, counted = device()
    network = loaded(runtime_with(backend), chain(RELU, Addition()), "DiscreteC")
    run(network, X)
    assert counted()["pools"] == 1
    assert counted()["tensors"] > 0
    network.release()
    del network
    gc.collect()
    backend.library.call("nothing", lambda *_: 0)
    assert (counted()["pools"], counted()["tensors"]) == (0, 0)


def test_runs_at_the_same_time_have_memory_of_their_own(device, runtime_with):
    backend, counted = device()
    network = loaded(runtime_with(backend), chain(RELU, Addition()), "DiscreteC")
    second = network.new_working_memory()
    outputs = network.bindings.new_outputs()
    network.run({0: X}, outputs, second)
    np.testing.assert_array_equal(run(network, -X)[0], 2 * np.maximum(-X, 0))
    np.testing.assert_array_equal(outputs[0], 2 * np.maximum(X, 0))
    assert counted()["pools"] == 2


def test_a_device_that_nobody_can_copy_from_is_told_with_both_offers(device, runtime_with):
    backend, _ = device("-DFACTORY_FLAGS=0")
    with pytest.raises(IncompatibleMemoryError) as caught:
        loaded(runtime_with(backend), chain(RELU), "DiscreteC")
    assert "'layer 0' (Activation) on DiscreteC (takes it) works on Tests/Discrete/Rows (cannot be mapped)" in str(
        caught.value
    )


def test_a_copy_that_fails_ends_the_run(device, runtime_with):
    backend, _ = device('-DAT_COPY=return fail(error, IPR_FAILED, "the cable is out");')
    network = loaded(runtime_with(backend), chain(RELU), "DiscreteC")
    with pytest.raises(ExecutionError, match="the cable is out"):
        run(network, X)


def test_a_tensor_that_cannot_be_made_prevents_loading(device, runtime_with):
    backend, _ = device('-DAT_CREATE=return fail(error, IPR_OUT_OF_MEMORY, "full");')
    with pytest.raises(
        LoadError, match="got no tensor handle on backend DiscreteC: create_tensor: out of memory: full"
    ):
        loaded(runtime_with(backend), chain(RELU), "DiscreteC")


def test_a_tensor_without_a_number_is_refused(device, runtime_with):
    backend, _ = device("-DAT_CREATE=*out = 0; return IPR_OK;")
    with pytest.raises(LoadError, match="the number 0"):
        loaded(runtime_with(backend), chain(RELU), "DiscreteC")


# --- allocators -------------------------------------------------------------------------------------------------------


class Counting(CustomAllocator):
    def __init__(self):
        self.out = []

    def allocate(self, size, alignment):
        raw = np.empty(size + alignment, np.uint8)
        start = -raw.ctypes.data % alignment
        self.out.append(raw[start : start + size])
        return self.out[-1]

    def free(self, memory):
        self.out = [item for item in self.out if item is not memory]


class Gralloc(Counting):
    memory_source = MemorySource.GRALLOC


class Empty(Counting):
    def allocate(self, size, alignment):
        raise MemoryError("all is given out")


def test_the_device_takes_its_memory_from_an_allocator_of_the_user(device, runtime_with):
    backend, _ = device()
    runtime, allocator = runtime_with(backend), Counting()
    use_allocators(runtime.registry, {"DiscreteC": allocator}, protected=False)
    network = loaded(runtime, chain(RELU, Addition()), "DiscreteC", allocators={"DiscreteC": allocator})
    np.testing.assert_array_equal(run(network, X)[0], 2 * np.maximum(X, 0))
    assert allocator.out
    network.release()
    assert allocator.out == []


def test_the_device_says_which_memory_it_cannot_use(device, runtime_with):
    backend, _ = device()
    with pytest.raises(BackendError) as caught:
        use_allocators(runtime_with(backend).registry, {"DiscreteC": Gralloc()}, protected=False)
    assert str(caught.value) == (
        "backend DiscreteC does not use the custom allocator Gralloc: the device can only reach ordinary memory"
    )


def test_an_allocator_that_has_nothing_left_ends_the_run(device, runtime_with):
    backend, _ = device()
    network = loaded(runtime_with(backend), chain(RELU), "DiscreteC", allocators={"DiscreteC": Empty()})
    with pytest.raises(ExecutionError, match="the device has no more memory"):
        run(network, X)


class Crooked(Counting):
    def allocate(self, size, alignment):
        return super().allocate(size, alignment)[:-1]

    def free(self, memory):
        self.out = []


def test_memory_that_is_too_short_goes_back_to_the_allocator(device, runtime_with):
    backend, _ = device()
    allocator = Crooked()
    network = loaded(runtime_with(backend), chain(RELU), "DiscreteC", allocators={"DiscreteC": allocator})
    with pytest.raises(ExecutionError, match="the device has no more memory"):
        run(network, X)
    assert allocator.out == []


class KeepsAll(Counting):
    def free(self, memory):
        raise OSError("nothing is taken back")


def test_an_allocator_that_takes_nothing_back_is_only_logged(device, runtime_with, caplog):
    backend, _ = device()
    network = loaded(runtime_with(backend), chain(RELU), "DiscreteC", allocators={"DiscreteC": KeepsAll()})
    np.testing.assert_array_equal(run(network, X)[0], np.maximum(X, 0))
    network.release()
    assert "the custom allocator KeepsAll could not free memory: OSError('nothing is taken back')" in caplog.text


def test_damaged_descriptions_of_memory_are_refused(opened):
    library = opened("discrete.c", "-DAT_DESCRIBE=out->factory_stride = 1;")
    with pytest.raises(BackendContractError, match="the handle factories has the stride 1"):
        DynamicBackend(library).handle_factory_preferences  # noqa: B018


def test_a_runtime_is_created_with_the_allocator(install_discrete):
    allocator = Counting()
    options = CreationOptions(dynamic_backends_path=install_discrete, custom_allocators={"DiscreteC": allocator})
    with Runtime(options) as runtime:
        optimized = optimize(chain(RELU, Addition()), ["DiscreteC"], runtime.device_spec)
        network_id = runtime.load_network(optimized)
        np.testing.assert_array_equal(runtime.enqueue_workload(network_id, {0: X})[0], 2 * np.maximum(X, 0))
        assert allocator.out
    assert allocator.out == []


@pytest.fixture
def install_discrete(built):
    """Return a folder with the device as a plug-in."""
    return built("discrete.c").parent
