"""Custom allocators: memory of the user's own for the tensors of a backend."""

from __future__ import annotations

import gc
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest

import interposer as ip
from interposer import CreationOptions, Network, Runtime, TensorInfo
from interposer.backend import Capabilities, CustomAllocator, MemorySource
from interposer.core.errors import (
    BackendError,
    BackendUnavailableError,
    ExecutionError,
    InvalidArgumentError,
    UnknownBackendError,
)
from interposer.core.types import Array
from interposer.ops import Transpose
from interposer.plugins.registry import process_registry
from tests.devices import Sums

pytestmark = pytest.mark.needs_cpuref
X = np.arange(12, dtype=np.float32).reshape(3, 4)


class Counting(CustomAllocator):
    """Ordinary memory, with a list of what is out."""

    def __init__(self, spoil: Any = None) -> None:
        self.out: list[Array] = []
        self.spoil = spoil

    def allocate(self, size: int, alignment: int) -> Array:
        raw = np.empty(size + alignment, np.uint8)
        start = -raw.ctypes.data % alignment
        self.out.append(raw[start : start + size])
        return self.out[-1] if self.spoil is None else self.spoil(self.out[-1])

    def free(self, memory: Array) -> None:
        self.out = [item for item in self.out if item is not memory]


class Protected(Counting):
    memory_source: ClassVar = MemorySource.DMA_BUF_PROTECTED


def turned() -> Network:
    """Three layers that cannot work in place, so that there are tensors between them."""
    network = Network()
    value = network.add_input_layer(0, TensorInfo((3, 4)))
    for _ in range(3):
        value = network.add_layer(Transpose((1, 0)), value)
    network.add_output_layer(0, value)
    return network


def run(runtime: Runtime) -> Array:
    optimized = ip.optimize(turned(), ["CpuRef"], runtime.device_spec, ip.OptimizerOptions(rewrite=False))
    network_id = runtime.load_network(optimized)
    return runtime.enqueue_workload(network_id, {0: X})[0]


def test_all_memory_between_layers_comes_from_the_allocator_and_goes_back() -> None:
    allocator = Counting()
    with Runtime(CreationOptions(custom_allocators={"CpuRef": allocator})) as runtime:
        np.testing.assert_array_equal(run(runtime), X.T)
        assert [item.nbytes for item in allocator.out] == [128]
    assert allocator.out == []


@pytest.mark.parametrize(
    ("spoil", "fault"),
    [
        (lambda memory: memory[:-1], "gave uint8[127]; expected an array of 128 times uint8"),
        (lambda memory: memory.tobytes(), "gave bytes; expected an array of 128 times uint8"),
        (lambda memory: np.concatenate([memory, memory])[1:129], "expected contiguous memory that can be written to"),
    ],
)
def test_memory_that_is_not_what_was_asked_for_is_refused(spoil: Any, fault: str) -> None:
    with Runtime(CreationOptions(custom_allocators={"CpuRef": Counting(spoil)})) as runtime:
        with pytest.raises(ExecutionError, match="backend CpuRef got no memory: the custom allocator") as caught:
            run(runtime)
        assert fault in str(caught.value)


def test_memory_that_is_refused_goes_back_to_the_allocator() -> None:
    freed: list[Array] = []

    class Short(Counting):
        def free(self, memory: Array) -> None:
            freed.append(memory)

    with (
        Runtime(CreationOptions(custom_allocators={"CpuRef": Short(lambda memory: memory[:-1])})) as runtime,
        pytest.raises(ExecutionError, match="expected an array of 128 times uint8"),
    ):
        run(runtime)
    assert [item.shape for item in freed] == [(127,)]


def test_an_allocator_that_fails_ends_the_run() -> None:
    def broken(memory: Array) -> Array:
        raise MemoryError("all is given out")

    reported = "got no memory: MemoryError: all is given out"
    with (
        Runtime(CreationOptions(custom_allocators={"CpuRef": Counting(broken)})) as runtime,
        pytest.raises(ExecutionError, match=reported),
    ):
        run(runtime)


def test_an_allocator_for_an_unknown_backend_is_refused() -> None:
    with pytest.raises(UnknownBackendError, match="'CpuRf'.*did you mean 'CpuRef'"):
        Runtime(CreationOptions(custom_allocators={"CpuRf": Counting()}))


def test_what_is_no_allocator_is_refused() -> None:
    with pytest.raises(InvalidArgumentError, match="the custom allocator of backend 'CpuRef' must be a CustomAlloc"):
        CreationOptions(custom_allocators={"CpuRef": malloc})  # type: ignore[dict-item]


def malloc(size: int) -> bytes:
    return bytes(size)


def refusal(**options: Any) -> str:
    with pytest.raises(BackendError) as caught:
        Runtime(CreationOptions(**options))
    return str(caught.value)


def test_protected_memory_needs_a_backend_that_can_use_it() -> None:
    assert refusal(custom_allocators={"CpuRef": Protected()}) == (
        "backend CpuRef does not use the custom allocator Protected: it gives protected memory, and the backend has "
        "not the capability ProtectedContentAllocation"
    )


class Vault(Sums):
    """Says that its tensors can lie in protected memory."""

    id: ClassVar = "Vault"
    capabilities: ClassVar = Capabilities(ProtectedContentAllocation=True)

    def use_custom_memory_allocator(self, allocator: CustomAllocator) -> str | None:
        return None


@pytest.fixture
def _vault() -> Any:
    process_registry().register("Vault", Vault)
    yield
    process_registry().deregister("Vault")


@pytest.mark.usefixtures("_vault")
def test_a_protected_runtime_has_only_backends_with_an_allocator_of_protected_memory() -> None:
    assert refusal(custom_allocators={"Vault": Counting()}, protected_mode=True) == (
        "backend Vault does not use the custom allocator Counting: the runtime is protected, and it gives MALLOC, not "
        "DMA_BUF_PROTECTED"
    )
    assert "the runtime is protected, and the backend has not the capability" in refusal(
        custom_allocators={"CpuRef": Counting()}, protected_mode=True
    )
    with Runtime(CreationOptions(custom_allocators={"Vault": Protected()}, protected_mode=True)) as runtime:
        assert runtime.registry.available() == ("Vault",)
        with pytest.raises(BackendUnavailableError, match="the runtime is protected, and there is no custom allocator"):
            runtime.registry.get("CpuRef")


@pytest.mark.usefixtures("_vault")
def test_a_backend_refuses_with_a_reason() -> None:
    class Proud(Vault):
        id: ClassVar = "Proud"

        def use_custom_memory_allocator(self, allocator: CustomAllocator) -> str | None:
            return "its memory is soldered in"

    process_registry().register("Proud", Proud)
    try:
        assert refusal(custom_allocators={"Proud": Counting()}) == (
            "backend Proud does not use the custom allocator Counting: its memory is soldered in"
        )
    finally:
        process_registry().deregister("Proud")


# --- a backend that compiles ------------------------------------------------------------------------------------------


def dense(units: int = 300) -> Network:
    """Two layers with weights that are large enough to be packed, and tensors between them."""
    network, random = Network("dense"), np.random.default_rng(0)
    value = network.add_input_layer(0, TensorInfo((40, units)), name="x")
    for _ in range(2):
        weights = network.add_constant_layer(random.normal(size=(units, units)).astype(np.float32) / units)
        value = network.add_softmax_layer(network.add_fully_connected_layer(value, weights))
    network.add_output_layer(0, value, name="y")
    return network


WEIGHT_BYTES = 2 * 300 * 300 * 4
ROWS = np.linspace(-1, 1, 40 * 300, dtype=np.float32).reshape(40, 300)


def allocating(allocator: CustomAllocator) -> Runtime:
    return Runtime(CreationOptions(custom_allocators={"CpuAcc": allocator}))


@pytest.mark.usefixtures("cpuacc")
def test_weights_and_workspaces_of_cpuacc_come_from_the_allocator_and_go_back() -> None:
    expected = ip.load(dense(), ["CpuAcc"]).run([ROWS])[0]
    for _ in ("compiled", "restored from the cache"):
        allocator = Counting()
        with allocating(allocator) as runtime:
            model = ip.load(dense(), ["CpuAcc"], runtime=runtime)
            weights = sum(memory.nbytes for memory in allocator.out)
            assert weights >= WEIGHT_BYTES
            np.testing.assert_array_equal(model.run([ROWS])[0], expected)
            workspace = sum(memory.nbytes for memory in allocator.out) - weights
            assert workspace >= 2 * ROWS.nbytes  # the tensors between the layers
            assert weights + workspace >= model.memory().parts["CpuAcc"] - 100_000  # the rest are tables
            model.close()
        del model
        gc.collect()
        assert allocator.out == []


@pytest.mark.usefixtures("cpuacc")
def test_a_saved_network_is_restored_to_the_allocator(tmp_path: Path) -> None:
    with ip.load(dense(), ["CpuAcc"]) as model:
        model.save(tmp_path / "dense.ipnet")
        expected = model.run([ROWS])[0]
    allocator = Counting()
    with allocating(allocator) as runtime, ip.load(tmp_path / "dense.ipnet", runtime=runtime) as model:
        np.testing.assert_array_equal(model.run([ROWS])[0], expected)
        assert sum(memory.nbytes for memory in allocator.out) >= WEIGHT_BYTES + 2 * ROWS.nbytes


@pytest.mark.usefixtures("cpuacc")
def test_the_allocator_of_one_runtime_is_not_that_of_another() -> None:
    first, second = Counting(), Counting()
    with allocating(first) as one, allocating(second) as two, Runtime() as without:
        models = [ip.load(dense(), ["CpuAcc"], runtime=runtime) for runtime in (one, without, two)]
        results = [model.run([ROWS])[0] for model in models]
        sizes = [sum(memory.nbytes for memory in allocator.out) for allocator in (first, second)]
        assert sizes[0] == sizes[1] >= WEIGHT_BYTES
        models.pop(0).close()
        gc.collect()
        assert sum(memory.nbytes for memory in second.out) == sizes[1]
        for model in models:
            np.testing.assert_array_equal(model.run([ROWS])[0], results[0])


@pytest.mark.usefixtures("cpuacc")
def test_each_concurrent_run_has_a_workspace_of_the_allocator() -> None:
    allocator = Counting()
    with allocating(allocator) as runtime, ip.load(dense(), ["CpuAcc"], runtime=runtime) as model:
        expected = model.run([ROWS])[0]
        with ThreadPoolExecutor(4) as pool:
            for result in pool.map(lambda _: model.run([ROWS])[0], range(40)):
                np.testing.assert_array_equal(result, expected)


@pytest.mark.usefixtures("cpuacc")
def test_what_an_allocator_gave_wrong_for_a_workspace_is_an_error_of_the_run() -> None:
    class Short(Counting):
        armed = False

        def allocate(self, size: int, alignment: int) -> Array:
            memory = super().allocate(size, alignment)
            return memory[:-1] if self.armed else memory

    allocator = Short()
    with allocating(allocator) as runtime:
        optimized = ip.optimize(dense(), ["CpuAcc"], runtime.device_spec)
        network = runtime.load_network(optimized)
        allocator.armed = True
        with pytest.raises(ExecutionError, match="the custom allocator of backend CpuAcc gave uint8"):
            runtime.enqueue_workload(network, {0: ROWS})
        allocator.armed = False
        assert runtime.enqueue_workload(network, {0: ROWS})[0].shape == (40, 300)


@pytest.mark.usefixtures("cpuacc")
def test_cpuacc_refuses_strategies_because_it_plans_its_memory_itself() -> None:
    assert refusal(memory_strategies={"CpuAcc": "Constant"}) == (
        "backend CpuAcc does not use the memory strategy 'Constant': it plans the memory of the layers that it "
        "compiles itself, and does not declare SingleAxisPacking"
    )
