"""Caches that CpuAcc updates in place: an output in the memory of an input, and states."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

import interposer as ip
from interposer import Network, OptimizerOptions, Runtime, TensorInfo
from interposer.backends.reference import ReferenceBackend
from interposer.core.errors import ExecutionError, InvalidValueError
from interposer.core.types import Array
from interposer.ir.graph import Layer
from interposer.ops import (
    Addition,
    Concat,
    DynamicUpdateSlice,
    ReduceOperation,
    ScatterElements,
    ScatterFunction,
    ScatterNd,
    Slice,
    Softmax,
    TensorScatter,
)
from tests.failing import Failing

pytestmark = pytest.mark.usefixtures("shared_cpuacc")

SHAPE = (1, 2, 2048, 4)
UPDATE = (1, 2, 1, 4)
Write = Callable[[Network, Layer, Layer, Layer], Layer]


def tensor_scatter(network: Network, past: Layer, x: Layer, at: Layer) -> Layer:
    return network.add_layer(TensorScatter(-2), past, x, at)


def scatter_nd(network: Network, past: Layer, x: Layer, at: Layer) -> Layer:
    """Write a row by its indices (0, 0, at)."""
    zeros = network.add_constant_layer(np.zeros((1, 2), np.int64))
    indices = network.add_layer(Concat(1), zeros, network.add_reshape_layer(at, target_shape=(1, 1)))
    row = network.add_reshape_layer(network.add_layer(Slice((0, 0, 0, 0), (1, 1, 1, 4)), x), target_shape=(1, 4))
    return network.add_layer(ScatterNd(ScatterFunction.ADD), past, indices, row)


def scatter_elements(network: Network, past: Layer, x: Layer, at: Layer) -> Layer:
    ones = network.add_constant_layer(np.zeros(UPDATE, np.int64))
    return network.add_layer(ScatterElements(2), past, network.add_addition_layer(ones, at), x)


def update_slice(network: Network, past: Layer, x: Layer, at: Layer) -> Layer:
    zeros, last = (network.add_constant_layer(np.zeros(count, np.int64)) for count in (2, 1))
    return network.add_layer(DynamicUpdateSlice(), past, x, network.add_layer(Concat(0), zeros, at, last))


WRITES = (tensor_scatter, scatter_nd, scatter_elements, update_slice)


def cached(write: Write, *, state: bool = False, reads_before: bool = False, reads_past: bool = False) -> Network:
    """A network that writes `x` at `at` into a cache, and returns a sum of it and the cache unless it is a state."""
    network = Network("cache")
    x = network.add_input_layer(0, TensorInfo(UPDATE), name="x")
    at = network.add_input_layer(1, TensorInfo((1,), "int64"), name="at")
    info = TensorInfo(SHAPE)
    past = network.add_state("past", info) if state else network.add_input_layer(2, info, name="past")
    new = write(network, past, x, at)
    if state:
        network.set_state("past", new)
    else:
        network.add_output_layer(1, new, name="present")
    total = network.add_reduce_layer(new, axis=(0, 1, 2), operation=ReduceOperation.SUM)
    if reads_before:
        total = network.add_layer(Addition(), total, network.add_reduce_layer(past, axis=(0, 1, 2)))
    if reads_past:
        total = network.add_layer(Addition(), network.add_layer(Addition(), new, past), total)
    network.add_output_layer(0, total, name="y")
    return network


def steps(count: int = 5) -> list[list[Array]]:
    generator = np.random.default_rng(3)
    return [[generator.standard_normal(UPDATE, np.float32), np.int64([2 * step + 1])] for step in range(count)]


def copied(network: Network) -> list[list[Array]]:
    """Return the outputs of all steps as CpuRef computes them, with separate memory for the cache before and after."""
    past, result = np.zeros(SHAPE, np.float32), []
    with ip.load(network, ["CpuRef"]) as model:
        for inputs in steps():
            result.append(model.run([*inputs, past]))
            past = result[-1][1]
    return result


@pytest.mark.parametrize("write", WRITES)
@pytest.mark.parametrize("reads", [{}, {"reads_before": True}, {"reads_past": True}], ids=["new", "before", "both"])
@pytest.mark.parametrize("way", ["run", "bind", "deadline"])
def test_a_cache_may_be_input_and_output_at_once(write: Write, reads: dict[str, bool], way: str) -> None:
    network = cached(write, **reads)
    expected = copied(network)
    past, y = np.zeros(SHAPE, np.float32), np.empty_like(expected[0][0])
    x, at = np.zeros(UPDATE, np.float32), np.zeros(1, np.int64)
    with ip.load(network, ["CpuAcc"]) as model:
        bound = model.bind([x, at, past], [y, past]) if way == "bind" else None
        for (row, place), (total, present) in zip(steps(), expected, strict=True):
            x[...], at[...] = row, place
            if bound is not None:
                bound()
            else:
                model.run([x, at, past], [y, past], deadline=60.0 if way == "deadline" else None)
            np.testing.assert_allclose(past, present, rtol=1e-5, atol=1e-6)
            np.testing.assert_allclose(y, total, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("write", WRITES)
@pytest.mark.parametrize("way", ["run", "bind", "submit", "deadline", "with outputs"])
def test_a_state_is_updated_in_place(write: Write, way: str) -> None:
    expected = copied(cached(write))
    x, at = np.zeros(UPDATE, np.float32), np.zeros(1, np.int64)
    with ip.load(cached(write, state=True), ["CpuAcc"]) as model:
        bound = model.bind([x, at]) if way == "bind" else None
        for (row, place), (total, present) in zip(steps(), expected, strict=True):
            x[...], at[...] = row, place
            if bound is not None:
                [y] = bound()
            elif way == "submit":
                [y] = model.submit([x, at]).result()
            elif way == "with outputs":
                [y, past] = model.run([x, at], outputs=["y", "past"])
                np.testing.assert_allclose(model.state["past"], present, rtol=1e-5, atol=1e-6)
                assert not np.shares_memory(past, y)
            else:
                [y] = model.run([x, at], deadline=60.0 if way == "deadline" else None)
            np.testing.assert_allclose(model.state["past"], present, rtol=1e-5, atol=1e-6)
            np.testing.assert_allclose(y, total, rtol=1e-4, atol=1e-4)


def test_two_caches_may_change_places() -> None:
    network = Network("two")
    x = network.add_input_layer(0, TensorInfo(UPDATE), name="x")
    at = network.add_input_layer(1, TensorInfo((1,), "int64"), name="at")
    for number, name in enumerate(("a", "b")):
        past = network.add_input_layer(2 + number, TensorInfo(SHAPE), name=name)
        network.add_output_layer(number, tensor_scatter(network, past, x, at), name=f"new {name}")
    feeds = [np.ones(UPDATE, np.float32), np.int64([3])]
    a, b = np.full(SHAPE, 2, np.float32), np.full(SHAPE, 5, np.float32)
    with ip.load(network, ["CpuAcc"]) as model:
        expected = model.run([*feeds, a.copy(), b.copy()])
        model.run([*feeds, a, b], [b, a])
        np.testing.assert_array_equal(b, expected[0])
        np.testing.assert_array_equal(a, expected[1])


def test_a_cache_that_overlaps_only_in_part_is_copied() -> None:
    memory = np.zeros((2, *SHAPE[1:]), np.float32)
    past, present = memory[:1], memory.reshape(-1)[64 : 64 + 2 * 2048 * 4].reshape(SHAPE)
    past[...] = 7
    [x, at] = steps(1)[0]
    with ip.load(cached(tensor_scatter), ["CpuAcc"]) as model:
        expected = model.run([x, at, past.copy()])[1]
        model.run([x, at, past], [np.zeros(4, np.float32), present])
        np.testing.assert_array_equal(present, expected)


def test_inputs_of_other_layers_are_not_overwritten() -> None:
    with ip.load(cached(tensor_scatter, reads_past=True), ["CpuAcc"]) as model:
        loaded = model.runtime._loaded(model._loaded.latest.network_id)
        assert loaded.idle_memories[0].aliases == {}


def test_a_cache_is_reported_as_an_alias() -> None:
    with ip.load(cached(tensor_scatter), ["CpuAcc"]) as model:
        loaded = model.runtime._loaded(model._loaded.latest.network_id)
        assert loaded.idle_memories[0].aliases == {1: 2}


def test_a_large_state_is_updated_in_place_and_a_small_one_is_not() -> None:
    for shape, expected in ((SHAPE, {"past": True}), ((1, 2, 16, 4), {})):
        network = Network("state")
        x = network.add_input_layer(0, TensorInfo(UPDATE), name="x")
        past = network.add_state("past", TensorInfo(shape))
        new = network.add_layer(TensorScatter(-2), past, x)
        network.set_state("past", new)
        network.add_output_layer(0, network.add_reduce_layer(new, axis=(0, 1, 2)), name="y")
        with ip.load(network, ["CpuAcc"]) as model:
            assert model.runtime._loaded(model._loaded.latest.network_id)._in_place_by_state == expected
            assert [float(model.run([np.ones(UPDATE, np.float32)])[0].sum()) for _ in range(2)] == [8, 8]


def accumulator(*, state: bool) -> Network:
    """A network that adds `x` to a large tensor, whose softmax it returns."""
    info = TensorInfo((64, 512))
    network = Network("accumulator")
    x = network.add_input_layer(0, info, name="x")
    past = network.add_state("total", info) if state else network.add_input_layer(1, info, name="past")
    new = network.add_addition_layer(past, x, name="add")
    if state:
        network.set_state("total", new)
    else:
        network.add_output_layer(1, new, name="total")
    network.add_output_layer(0, network.add_softmax_layer(new, name="soft"), name="y")
    return network


@pytest.mark.needs_cpuref
@pytest.mark.parametrize("way", ["state", "run", "bind"])
def test_a_run_that_has_updated_a_cache_in_place_is_not_repeated(way: str) -> None:
    x, past, y = np.ones((64, 512), np.float32), np.zeros((64, 512), np.float32), np.zeros((64, 512), np.float32)
    failing = Failing(ReferenceBackend, "Failing", at=2, only=[Softmax])
    with Runtime() as runtime:
        runtime.registry.register("Failing", lambda: failing)
        options = OptimizerOptions(hints={"soft": "Failing"})
        network = accumulator(state=way == "state")
        with ip.load(network, ["CpuAcc", "Failing", "CpuRef"], options=options, runtime=runtime) as model:
            bound = model.bind([x, past], [y, past]) if way == "bind" else None
            call = bound or (lambda: model.run([x], [y]) if way == "state" else model.run([x, past], [y, past]))
            call()
            with pytest.raises(ExecutionError) as caught:
                call()
            total = model.state["total"] if way == "state" else past
            assert (total[0, 0], caught.value.overwrites, model.events) == (2, True, ())


@pytest.mark.needs_cpuref
@pytest.mark.parametrize("bad", [[5, 199], [199, 5], [-1, 0]])
def test_a_wrong_position_leaves_a_state_that_is_updated_in_place_as_it_was(bad: list[int]) -> None:
    network = Network("cache")
    new = network.add_input_layer(0, TensorInfo((2, 3, 64)), name="new")
    start = network.add_input_layer(1, TensorInfo((2,), "int64"), name="start")
    past = network.add_state("cache", TensorInfo((2, 200, 64)))
    updated = network.add_tensor_scatter_layer(past, new, start, axis=1, name="update")
    network.set_state("cache", updated)
    network.add_output_layer(0, network.add_reduce_layer(updated, axis=(1,), name="sum"), name="y")
    with ip.load(network, ["CpuAcc", "CpuRef"]) as model:
        rows = np.ones((2, 3, 64), np.float32)
        model.run([rows, np.array([0, 0])])
        before = model.state["cache"]
        with pytest.raises(InvalidValueError, match="expected 0 to 197"):
            model.run([rows, np.array(bad)])
        np.testing.assert_array_equal(model.state["cache"], before)
        assert model.run([rows, np.array([3, 3])])[0][:, 0].tolist() == [6, 6]
        assert model.events == ()
