"""Custom allocators: memory of the user's own for the tensors of a backend."""

from __future__ import annotations

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
