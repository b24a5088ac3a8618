"""Memory strategies of a runtime: which backends take them, and networks that run with them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import numpy as np
import pytest

from interposer import CreationOptions, Network, Runtime, TensorInfo, optimize
from interposer.backend import (
    MEMORY_STRATEGIES,
    Capabilities,
    MemoryBin,
    MemoryBlock,
    MemoryOptimizerStrategy,
    MultiAxisStrategy,
    Packing,
)
from interposer.core.errors import BackendError, InvalidArgumentError, LoadError, UnknownBackendError
from tests.devices import Device, Sums

X = np.linspace(-2, 2, 64, dtype=np.float32).reshape(8, 8)


class Backwards(MemoryOptimizerStrategy):
    """One bin, in which no two blocks share memory, the last block first."""

    packing = Packing.MULTI_AXIS

    def __init__(self) -> None:
        self.calls = 0

    def optimize(self, blocks: Sequence[MemoryBlock]) -> Sequence[MemoryBin]:
        self.calls += 1
        placed, offset = [], 0
        for block in reversed(blocks):
            placed.append(block.at(offset))
            offset += block.size
        return [MemoryBin(tuple(placed), offset)]


class Broken(Backwards):
    def optimize(self, blocks: Sequence[MemoryBlock]) -> Sequence[MemoryBin]:
        return [MemoryBin(tuple(blocks), max(block.size for block in blocks))]


class Failing(Backwards):
    def optimize(self, blocks: Sequence[MemoryBlock]) -> Sequence[MemoryBin]:
        raise KeyError("no idea")


def doublings(count: int = 6) -> Network:
    network = Network("doublings")
    value = network.add_input_layer(0, TensorInfo((8, 8)))
    for _ in range(count):
        value = network.add_addition_layer(value, value)
        value = network.add_multiplication_layer(value, value)
    network.add_output_layer(0, value)
    return network


def expected(count: int = 6) -> np.ndarray:
    result = X / 8
    for _ in range(count):
        result = (2 * result) ** 2
    return result


def run(runtime: Runtime) -> tuple[np.ndarray, int]:
    if "Sums" not in runtime.registry:
        runtime.registry.register("Sums", Sums)
    number = runtime.load_network(optimize(doublings(), ["Sums"], runtime.device_spec))
    result = runtime.enqueue_workload(number, {0: X / 8})[0]
    return result, runtime.memory(number).arenas["Sums"]


@pytest.mark.parametrize("strategy", [*MEMORY_STRATEGIES.values(), Backwards()], ids=lambda item: item.name)
def test_networks_run_with_every_strategy(strategy):
    with Runtime() as runtime:
        runtime.registry.register("Sums", Sums)
        runtime.registry.register_memory_strategy("Sums", strategy)
        result, _ = run(runtime)
    np.testing.assert_array_equal(result, expected())


def test_the_strategy_decides_how_much_memory_is_used():
    sizes = {}
    for name in ("Constant", "SingleAxis", "MultiAxis", None):
        with Runtime() as runtime:
            runtime.registry.register("Sums", Sums)
            if name is not None:
                runtime.registry.register_memory_strategy("Sums", name)
            sizes[name] = run(runtime)[1]
    assert sizes["MultiAxis"] == sizes[None] <= sizes["SingleAxis"] < sizes["Constant"]


def test_a_later_strategy_replaces_an_earlier_one():
    strategy = Backwards()
    with Runtime() as runtime:
        runtime.registry.register("Sums", Sums)
        runtime.registry.register_memory_strategy("Sums", "Constant")
        runtime.registry.register_memory_strategy("Sums", strategy)
        assert runtime.registry.memory_strategies == {"Sums": strategy}
        run(runtime)
    assert strategy.calls == 1


@pytest.mark.needs_cpuref
def test_creation_options_choose_strategies_by_name_or_object():
    with Runtime(CreationOptions(memory_strategies={"CpuRef": "SingleAxis"})) as runtime:
        assert {key: item.name for key, item in runtime.registry.memory_strategies.items()} == {"CpuRef": "SingleAxis"}
        number = runtime.load_network(optimize(doublings(), ["CpuRef"], runtime.device_spec))
        np.testing.assert_array_equal(runtime.enqueue_workload(number, {0: X / 8})[0], expected())
        assert runtime.memory(number).arenas.keys() == {"CpuRef"}


def test_strategies_for_unknown_backends_and_wrong_options_are_refused():
    with pytest.raises(UnknownBackendError, match="^unknown backend 'Nobody'"):
        Runtime(CreationOptions(memory_strategies={"Nobody": "Constant"}))
    with pytest.raises(InvalidArgumentError, match="^unknown memory strategy 'Best'"):
        CreationOptions(memory_strategies={"CpuRef": "Best"})
    with pytest.raises(InvalidArgumentError, match="^memory_strategies must be a mapping"):
        CreationOptions(memory_strategies=["Constant"])


def test_a_backend_with_memory_of_its_own_refuses_strategies():
    with Runtime() as runtime:
        runtime.registry.register("Device", Device)
        with pytest.raises(BackendError) as error:
            runtime.registry.register_memory_strategy("Device", "Constant")
    text = "backend Device does not use the memory strategy 'Constant': the backend manages its own memory"
    assert str(error.value) == text


def test_a_backend_may_declare_that_it_lacks_a_packing():
    class Pools(Sums):
        id: ClassVar = "Pools"
        capabilities: ClassVar = Capabilities(MultiAxisPacking=False, SingleAxisPacking=True)

    with Runtime() as runtime:
        runtime.registry.register("Pools", Pools)
        runtime.registry.register_memory_strategy("Pools", "SingleAxis")
        with pytest.raises(BackendError) as error:
            runtime.registry.register_memory_strategy("Pools", MultiAxisStrategy())
    text = "backend Pools does not use the memory strategy 'MultiAxis': the backend does not support MultiAxisPacking"
    assert str(error.value) == text


@pytest.mark.parametrize(
    ("strategy", "why"),
    [
        (Broken(), "the memory strategy 'Broken' gave an invalid result: blocks 0 and 1 of bin 0 are alive at the same "
                   "time and overlap"),
        (Failing(), "KeyError: 'no idea'"),
    ],
)  # fmt: skip
def test_a_strategy_that_fails_prevents_loading(strategy, why):
    with Runtime() as runtime:
        runtime.registry.register("Sums", Sums)
        runtime.registry.register_memory_strategy("Sums", strategy)
        with pytest.raises(LoadError) as error:
            run(runtime)
        assert str(error.value) == f"the memory of backend Sums could not be planned: {why}"
        assert runtime.loaded_networks == ()
        runtime.registry.register_memory_strategy("Sums", "Constant")
        np.testing.assert_array_equal(run(runtime)[0], expected())
