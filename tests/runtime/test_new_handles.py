"""What factories learn about the tensors for which they create handles, and the order of transfers of outputs."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
import pytest

from interposer import Network, OptimizerOptions, Runtime, TensorInfo, optimize
from interposer.backend import (
    ArrayHandle,
    Backend,
    KernelTable,
    KernelWorkloadFactory,
    MemoryManager,
    MemorySource,
    Options,
    TensorHandle,
    TensorHandleFactory,
    TensorHandleFactoryRegistry,
    WorkloadFactory,
)
from interposer.core.errors import ExecutionError
from interposer.core.types import Array, DataLayout
from interposer.ops import Activation, Addition, Resize
from tests.devices import single

kernels = KernelTable()
X = np.linspace(-1, 1, 8, dtype=np.float32).reshape(1, 2, 2, 2)


@kernels(Addition)
def add(op: Addition, a: Array, b: Array) -> Array:
    return a + b


@kernels(Resize)
def resize(op: Resize, x: Array) -> Array:
    return x


@kernels(Activation)
def nothing(op: Activation, x: Array) -> Array:
    return x


class Importing(ArrayHandle):
    imports = True


class Noting(TensorHandleFactory):
    """Notes what it learns about each tensor."""

    id = "Tests/Noting/Array"
    import_sources = export_sources = MemorySource.MALLOC

    def __init__(self, log: list[tuple[Any, ...]]) -> None:
        self.log = log

    def create(self, info: TensorInfo) -> TensorHandle:
        raise AssertionError("new_handle is called instead")

    def new_handle(self, info: TensorInfo, layout: DataLayout | None, managed: bool) -> TensorHandle:
        self.log.append((int(info.num_elements), layout, managed))
        return Importing(info)


class NotingBackend(Backend):
    id: ClassVar = "Noting"
    kernels: ClassVar = kernels
    handle_factory_preferences = (Noting.id,)  # type: ignore[assignment]

    def __init__(self) -> None:
        self.log: list[tuple[Any, ...]] = []

    def register_tensor_handle_factories(self, registry: TensorHandleFactoryRegistry, options: Options) -> None:
        registry.register_factory(Noting(self.log))


class OwnFactory(KernelWorkloadFactory):
    log: ClassVar[list[tuple[Any, ...]]] = []

    def new_handle(self, info: TensorInfo, layout: DataLayout | None, managed: bool) -> TensorHandle:
        self.log.append((int(info.num_elements), layout, managed))
        return ArrayHandle(info)


class OwnBackend(Backend):
    id: ClassVar = "Own"
    kernels: ClassVar = kernels

    def create_workload_factory(self, memory_manager: MemoryManager | None, options: Options) -> WorkloadFactory:
        return OwnFactory(self.kernels, memory_manager)


def network() -> Network:
    new_network = Network()
    x = new_network.add_input_layer(0, TensorInfo((1, 2, 2, 2)))
    layout = DataLayout.NHWC
    value = new_network.add_resize_layer(x, target_width=2, target_height=2, data_layout=layout, name="resize")
    total = new_network.add_addition_layer(value, value, name="total")
    new_network.add_output_layer(0, new_network.add_addition_layer(total, value, name="last"))
    return new_network


def run(backend: Backend, **options: Any) -> Array:
    with Runtime() as runtime:
        runtime.registry.register(backend.id, single(backend))
        optimized = optimize(network(), [backend.id], runtime.device_spec, OptimizerOptions(rewrite=False, **options))
        return runtime.enqueue_workload(runtime.load_network(optimized), {0: X})[0]


def test_factories_are_told_the_layout_and_whether_a_tensor_is_managed() -> None:
    backend = NotingBackend()
    np.testing.assert_array_equal(run(backend), 3 * X)
    nhwc = DataLayout.NHWC
    assert backend.log == [(8, nhwc, False), (8, nhwc, True), (8, None, True), (8, None, False)]


def test_all_tensors_are_managed_if_the_caller_s_memory_is_not_used() -> None:
    backend = NotingBackend()
    np.testing.assert_array_equal(run(backend, import_enabled=False, export_enabled=False), 3 * X)
    assert [managed for _, _, managed in backend.log] == [True] * 4


def test_workload_factories_are_told_the_same() -> None:
    OwnFactory.log.clear()
    np.testing.assert_array_equal(run(OwnBackend()), 3 * X)
    nhwc = DataLayout.NHWC
    assert OwnFactory.log == [(8, nhwc, False), (8, nhwc, True), (8, None, True), (8, None, False)]
    assert not OwnFactory(kernels).makes_arrays


class Transferring(ArrayHandle):
    """An output that cannot be in the caller's memory, and that notes its transfers."""

    log: ClassVar[list[str]] = []
    broken: ClassVar[bool] = False

    def begin_map(self) -> None:
        self.log.append("begin")
        if self.broken:
            raise OSError("the bus is down")

    def copy_out(self, array: Array) -> None:
        self.log.append("copy")
        super().copy_out(array)


class TransferringFactory(KernelWorkloadFactory):
    def create_tensor_handle(self, info: TensorInfo) -> TensorHandle:
        return Transferring(info)


class TransferringBackend(OwnBackend):
    id: ClassVar = "Transferring"

    def create_workload_factory(self, memory_manager: MemoryManager | None, options: Options) -> WorkloadFactory:
        return TransferringFactory(self.kernels, memory_manager)


def test_transfers_of_all_outputs_begin_before_the_first_is_waited_for() -> None:
    Transferring.log.clear()
    new_network = Network()
    x = new_network.add_input_layer(0, TensorInfo((2,)))
    for number in range(3):
        new_network.add_output_layer(number, new_network.add_addition_layer(x, x, name=f"sum {number}"))
    with Runtime() as runtime:
        runtime.registry.register("Transferring", TransferringBackend)
        options = OptimizerOptions(rewrite=False)
        loaded = runtime.load_network(optimize(new_network, ["Transferring"], runtime.device_spec, options))
        result = runtime.enqueue_workload(loaded, {0: np.float32([1, 2])})
    assert [array.tolist() for array in result.values()] == [[2, 4]] * 3
    assert Transferring.log == ["begin"] * 3 + ["copy"] * 3


def test_a_transfer_that_fails_is_an_error_of_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Transferring, "broken", True)
    with pytest.raises(ExecutionError, match="could not begin to give its data.*OSError: the bus is down"):
        run(TransferringBackend())
