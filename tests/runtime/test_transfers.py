"""How tensors cross between backends: who copies, how much, and what lies where."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import Any, ClassVar

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from interposer import Network, OptimizerOptions, Runtime, TensorInfo, optimize
from interposer.backend import (
    DEFAULT_FACTORY,
    ArenaMemoryManager,
    ArrayHandle,
    ArrayHandleFactory,
    Backend,
    Capabilities,
    KernelWorkloadFactory,
    MemoryManager,
    MemorySource,
    Options,
    TensorHandle,
    TensorHandleFactory,
    TensorHandleFactoryRegistry,
    Workload,
    WorkloadFactory,
)
from interposer.core.errors import BackendContractError, IncompatibleMemoryError
from interposer.core.types import Array
from interposer.ir.graph import Layer
from interposer.ops import Activation, ActivationFunction, Addition, Concat, Multiplication, Splitter
from interposer.runtime.loaded import LoadedNetwork
from interposer.testing.device import DiscreteBackend
from tests.devices import Device, Sums, relu_table, single, sums

INFO = TensorInfo((2, 3, 5))
SIZE = 120
X = np.linspace(-3, 4, 30, dtype=np.float32).reshape(2, 3, 5)
RELU = Activation(ActivationFunction.RELU)


class Relus(Backend):
    """ReLU in ordinary memory, by a factory of its own that makes no handles."""

    id: ClassVar = "Relus"

    def layer_support(self, options: Options) -> Any:
        from interposer.backend import KernelSupport

        return KernelSupport(relu_table)

    def create_workload_factory(self, memory_manager: MemoryManager | None, options: Options) -> WorkloadFactory:
        return KernelWorkloadFactory(relu_table, memory_manager)


@pytest.fixture
def runtime() -> Iterator[Runtime]:
    with Runtime() as new_runtime:
        new_runtime.registry.register("Sums", Sums)
        new_runtime.registry.register("Relus", Relus)
        new_runtime.registry.register("Device", Device)
        yield new_runtime


def chain(*ops: Any) -> Network:
    """Return a network of layers one after the other; those with two operands read the previous value twice."""
    network = Network()
    value = network.add_input_layer(0, INFO)
    for number, op in enumerate(ops):
        operands = [value] * len(op.operands)
        value = network.add_layer(op, *operands, name=f"layer {number}")
    network.add_output_layer(0, value)
    return network


def loaded(runtime: Runtime, network: Network, *backends: str, **options: Any) -> LoadedNetwork:
    return LoadedNetwork(optimize(network, backends, runtime.device_spec, OptimizerOptions(rewrite=False, **options)))


def run(network: LoadedNetwork, *arrays: Array) -> list[Array]:
    outputs = network.bindings.new_outputs()
    network.run(dict(enumerate(arrays)), outputs)
    return [outputs[key] for key in sorted(outputs)]


def crossings(network: LoadedNetwork) -> list[tuple[str, str, str, str]]:
    return [
        (crossing.value, crossing.source, crossing.target, crossing.how) for crossing in network.optimized.crossings
    ]


def test_backends_in_ordinary_memory_pass_tensors_on_without_a_copy(runtime: Runtime) -> None:
    network = loaded(runtime, chain(RELU, Addition(), RELU, Multiplication()), "Sums", "Relus")
    expected = np.maximum(X, 0) * 2
    np.testing.assert_array_equal(run(network, X)[0], expected * expected)
    assert crossings(network) == [
        ("layer 0", "Relus", "Sums", "direct"),
        ("layer 1", "Sums", "Relus", "direct"),
        ("layer 2", "Relus", "Sums", "direct"),
    ]
    assert (network.transfers.copies, network.transfers.copied_bytes) == (0, 0)
    [(name, size)] = network.memory().arenas.items()
    assert (name, size) == ("Relus+Sums", 256), "both compute in one arena"


def test_a_backend_that_makes_handles_of_its_own_and_knows_no_factories_runs_as_before(runtime: Runtime) -> None:
    network = loaded(runtime, chain(Addition(), RELU, Addition()), "Sums", "Device")
    np.testing.assert_array_equal(run(network, X)[0], np.maximum(2 * X, 0) * 2)
    assert crossings(network) == [("layer 0", "Sums", "Device", "copy"), ("layer 1", "Device", "Sums", "copy")]
    assert (network.transfers.copies, network.transfers.copied_bytes) == (2, 2 * SIZE)


def test_a_device_copies_in_and_out_by_itself_and_once_for_all_its_layers(runtime: Runtime) -> None:
    device = DiscreteBackend(relu_table)
    runtime.registry.register("Discrete", single(device))
    network = Network()
    x = network.add_input_layer(0, INFO, name="x")
    total = network.add_layer(Addition(), x, x, name="total")
    parts = [network.add_layer(RELU, total, name=f"relu {i}") for i in range(3)]
    first = network.add_layer(Multiplication(), parts[0], parts[1], name="product")
    network.add_output_layer(0, network.add_layer(Addition(), first, parts[2], name="sum"))
    loaded_network = loaded(runtime, network, "Sums", "Discrete")
    relu = np.maximum(2 * X, 0)
    np.testing.assert_array_equal(run(loaded_network, X)[0], relu * relu + relu)
    assert crossings(loaded_network) == [
        ("total", "Sums", "Discrete", "device copy"),
        *((f"relu {i}", "Discrete", "Sums", "device copy") for i in range(3)),
    ]
    assert (device.bus.uploads, device.bus.uploaded_bytes) == (1, SIZE)
    assert (device.bus.downloads, device.bus.downloaded_bytes) == (3, 3 * SIZE)
    assert (loaded_network.transfers.device_copies, loaded_network.transfers.copied_bytes) == (4, 4 * SIZE)
    assert device.bus.seconds > 4 * device.bus.latency


def test_tensors_stay_on_a_device_and_are_converted_only_at_the_border(runtime: Runtime) -> None:
    device = DiscreteBackend()
    runtime.registry.register("Discrete", single(device))
    loaded_network = loaded(runtime, chain(RELU, Addition(), Multiplication(), RELU), "Discrete")
    twice = 2 * np.maximum(X, 0)
    np.testing.assert_array_equal(run(loaded_network, X)[0], twice * twice)
    assert crossings(loaded_network) == [
        ("input_0", "", "Discrete", "device copy"),
        ("layer 3", "Discrete", "", "device copy"),
    ]
    assert (device.bus.uploads, device.bus.downloads) == (1, 1)
    assert str(loaded_network.optimized.explain()).splitlines()[2:4] == [
        "  copied by the device from the caller to Discrete (120 bytes): input_0",
        "  copied by the device from Discrete to the caller (120 bytes): layer 3",
    ]


def test_constants_go_to_the_device_once(runtime: Runtime) -> None:
    device = DiscreteBackend()
    runtime.registry.register("Discrete", single(device))
    network = Network()
    x = network.add_input_layer(0, INFO)
    network.add_output_layer(0, network.add_layer(Addition(), x, network.add_constant_layer(X)))
    loaded_network = loaded(runtime, network, "Discrete")
    for _ in range(3):
        np.testing.assert_array_equal(run(loaded_network, X)[0], 2 * X)
    assert device.bus.uploads == 1 + 3


@pytest.mark.parametrize("sub_tensors", [True, False])
def test_joining_and_cutting_cost_nothing_where_the_device_has_sub_tensors(runtime: Runtime, sub_tensors: bool) -> None:
    runtime.registry.register("Discrete", single(DiscreteBackend(sub_tensors=sub_tensors)))
    network = Network()
    x = network.add_input_layer(0, INFO)
    parts = [network.add_layer(RELU, x), network.add_layer(Addition(), x, x)]
    whole = network.add_layer(RELU, network.add_layer(Concat(1), *parts))
    cut = network.add_layer(Splitter(1, (2, 4)), whole)
    for key, part in enumerate(cut.outputs):
        network.add_output_layer(key, network.add_layer(RELU, part))
    loaded_network = loaded(runtime, network, "Discrete")
    expected = np.maximum(np.concatenate([np.maximum(X, 0), 2 * X], 1), 0)
    for result, piece in zip(run(loaded_network, X), np.split(expected, [2], 1), strict=True):
        np.testing.assert_array_equal(result, piece)
    kinds = [loaded_network.optimized.graph.layer(name).kind for name, _ in loaded_network.steps]
    assert ("Concat" in kinds, "Splitter" in kinds) == (not sub_tensors, not sub_tensors)


def test_two_devices_meet_in_the_memory_of_the_host(runtime: Runtime) -> None:
    item, other = DiscreteBackend(relu_table), DiscreteBackend(sums, id="Second")
    runtime.registry.register("Discrete", single(item))
    runtime.registry.register("Second", single(other))
    loaded_network = loaded(runtime, chain(RELU, Addition()), "Discrete", "Second")
    np.testing.assert_array_equal(run(loaded_network, X)[0], 2 * np.maximum(X, 0))
    assert (item.bus.downloads, other.bus.uploads) == (1, 1)
    assert loaded_network.transfers.copied_bytes == 4 * SIZE


def test_a_memory_manager_that_is_given_to_a_single_backend_object_is_used(runtime: Runtime) -> None:
    class Alone(Relus):
        id: ClassVar = "Alone"

    backend, managers = Alone(), list[ArenaMemoryManager]()

    def create() -> MemoryManager:
        managers.append(ArenaMemoryManager())
        return managers[-1]

    backend.create_memory_manager = create  # type: ignore[method-assign]
    runtime.registry.register("Alone", single(backend))
    loaded_network = loaded(runtime, chain(RELU, RELU, RELU), "Alone")
    np.testing.assert_array_equal(run(loaded_network, X)[0], np.maximum(X, 0))
    assert [manager.planned_bytes > 0 for manager in managers] == [True]


# --- the least that can be copied -------------------------------------------------------------------------------------

KINDS = {"Sums": {DEFAULT_FACTORY}, "Relus": {DEFAULT_FACTORY}, "Device": {"own"}, "Discrete": {"rows"}}


def least_copies(network: LoadedNetwork) -> int:
    """By trying all sets of kinds of memory for every tensor; what the caller gives and gets costs nothing extra."""
    total = 0
    for layer in network.optimized.graph:
        if layer.kind in ("MemCopy", "MemImport", "Output"):
            continue
        for value in layer.outputs:
            readers = readers_of(value)
            needed = [KINDS[backend] for backend in readers - {"the caller"}] + [{DEFAULT_FACTORY, "own"}] * (
                "the caller" in readers
            )
            homes = {DEFAULT_FACTORY, "own"} if layer.kind == "Input" else KINDS[str(layer.backend)]
            total += min(cheapest(home, needed) for home in homes)
    return total


def readers_of(value: Any) -> set[str]:
    """The backends that read a tensor, wherever it was copied on the way."""
    result = set()
    for layer in value.consumers:
        if layer.kind in ("MemCopy", "MemImport"):
            result |= readers_of(layer.output)
        else:
            result.add("the caller" if layer.kind == "Output" else str(layer.backend))
    return result


def cheapest(home: str, needed: Sequence[set[str]]) -> int:
    kinds = [DEFAULT_FACTORY, "own", "rows"]
    costs = []
    for choice in itertools.product([False, True], repeat=3):
        reached = {kind for kind, chosen in zip(kinds, choice, strict=True) if chosen} | {home}
        if all(reached & item for item in needed):
            costs.append(len(reached) - 1)  # every further kind costs one copy, as all can reach each other
    return min(costs)


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_never_more_is_copied_than_the_least_of_all_ways(data: st.DataObject) -> None:
    with Runtime() as runtime:
        for name, backend in (("Sums", Sums), ("Relus", Relus), ("Device", Device)):
            runtime.registry.register(name, backend)
        runtime.registry.register("Discrete", single(DiscreteBackend()))
        network, values = Network(), []
        values.append(network.add_input_layer(0, INFO))
        for number in range(data.draw(st.integers(1, 6))):
            op = data.draw(st.sampled_from([RELU, Addition(), Multiplication()]))
            operands = [data.draw(st.sampled_from(values)) for _ in op.operands]
            values.append(network.add_layer(op, *operands, name=f"layer {number}"))
        network.add_output_layer(0, values[-1])
        hints = {
            f"layer {number}": data.draw(st.sampled_from(["Sums", "Relus", "Device", "Discrete"]))
            for number in range(len(values) - 1)
        }
        options = OptimizerOptions(rewrite=False, hints=hints)
        order = ["Sums", "Relus", "Device", "Discrete"]
        loaded_network = LoadedNetwork(optimize(network, order, runtime.device_spec, options))
        run(loaded_network, X)
        transfers = loaded_network.transfers
        assert transfers.copies + transfers.device_copies == least_copies(loaded_network)
        assert transfers.copied_bytes == SIZE * (transfers.copies + transfers.device_copies)
        loaded_network.release()


class Unified(DiscreteBackend):
    """A device that the host can look into, and that copies by itself as well; it runs sums only."""

    def register_tensor_handle_factories(self, registry: TensorHandleFactoryRegistry, options: Options) -> None:
        registry.register_factory(UnifiedFactory())

    def create_workload_factory(self, memory_manager: MemoryManager | None, options: Options) -> WorkloadFactory:
        return KernelWorkloadFactory(self.kernels, memory_manager)


class UnifiedFactory(ArrayHandleFactory):
    id = "Interposer/Unified/Rows"
    supports_device_copy = True

    def create_device_copy(self) -> Workload:
        return ToUnified()


class ToUnified(Workload):
    def execute(self, inputs: Sequence[TensorHandle | None], outputs: Sequence[TensorHandle]) -> None:
        [source], [target] = inputs, outputs
        assert source is not None
        with source.mapped() as array:
            target.copy_in(array)


def test_the_device_whose_other_side_can_be_mapped_copies(runtime: Runtime) -> None:
    device = DiscreteBackend(relu_table)
    runtime.registry.register("Discrete", lambda: device)
    runtime.registry.register("Unified", lambda: Unified(sums, id="Unified"))
    loaded_network = loaded(runtime, chain(RELU, Addition(), RELU), "Discrete", "Unified")
    np.testing.assert_array_equal(run(loaded_network, X)[0], 2 * np.maximum(X, 0))
    assert (device.bus.uploads, device.bus.downloads) == (2, 2)


# --- factories that import and export ---------------------------------------------------------------------------------


class SharedHandle(ArrayHandle):
    """An array that can lie where another one does."""

    imports = True


class Shared(TensorHandleFactory):
    """Arrays in memory that others may use."""

    id = "Test/Shared/Array"
    supports_map = True
    import_sources = export_sources = MemorySource.MALLOC
    padding = False

    def capabilities(self, layer: Layer, connected: Layer) -> Capabilities:
        return Capabilities(PaddingRequired=self.padding)

    def create(self, info: TensorInfo) -> TensorHandle:
        return SharedHandle(info)


class Sharing(Relus):
    """Computes on its own kind of handle, which can import."""

    id: ClassVar = "Sharing"
    padding = False

    @property
    def handle_factory_preferences(self) -> Sequence[str]:
        return (Shared.id,)

    def register_tensor_handle_factories(self, registry: TensorHandleFactoryRegistry, options: Options) -> None:
        factory = Shared()
        factory.padding = self.padding
        registry.register_factory(factory)


def test_memory_is_imported_in_place_and_lives_as_long_as_it_is_read(runtime: Runtime) -> None:
    runtime.registry.register("Sharing", Sharing)
    loaded_network = loaded(
        runtime, chain(Addition(), RELU, Addition(), Multiplication(), Addition()), "Sums", "Sharing"
    )
    for array in (X, -X):
        twice = 2 * np.maximum(2 * array, 0)
        np.testing.assert_array_equal(run(loaded_network, array)[0], 2 * twice * twice)
    assert [how for *_, how in crossings(loaded_network)] == ["import", "import"]
    assert (loaded_network.transfers.imports, loaded_network.transfers.copies) == (4, 0)


def test_what_needs_padding_is_copied(runtime: Runtime) -> None:
    class Padding(Sharing):
        id: ClassVar = "Padding"
        padding = True

    runtime.registry.register("Padding", Padding)
    loaded_network = loaded(runtime, chain(Addition(), RELU, Addition()), "Sums", "Padding")
    np.testing.assert_array_equal(run(loaded_network, X)[0], 2 * np.maximum(2 * X, 0))
    assert [how for *_, how in crossings(loaded_network)] == ["copy", "copy"]


def test_an_import_that_is_refused_becomes_a_copy(runtime: Runtime) -> None:
    class Picky(SharedHandle):
        imports = True

        def import_memory(self, array: Array) -> bool:
            return False

    class PickyFactory(Shared):
        id = "Test/Picky/Array"
        export_sources = MemorySource.UNDEFINED

        def create(self, info: TensorInfo) -> TensorHandle:
            return Picky(info)

    class PickyBackend(Relus):
        id: ClassVar = "Picky"
        handle_factory_preferences = (PickyFactory.id,)  # type: ignore[assignment]

        def register_tensor_handle_factories(self, registry: TensorHandleFactoryRegistry, options: Options) -> None:
            registry.register_factory(PickyFactory())

    runtime.registry.register("Picky", PickyBackend)
    loaded_network = loaded(runtime, chain(Addition(), RELU, Addition()), "Sums", "Picky")
    np.testing.assert_array_equal(run(loaded_network, X)[0], 2 * np.maximum(2 * X, 0))
    assert loaded_network.transfers.refused_imports == 1


@pytest.mark.parametrize("option", ["import_enabled", "export_enabled"])
def test_memory_is_copied_if_imports_or_exports_are_forbidden(runtime: Runtime, option: str) -> None:
    runtime.registry.register("Sharing", Sharing)
    loaded_network = loaded(runtime, chain(Addition(), RELU, Addition()), "Sums", "Sharing", **{option: False})
    for array in (X, -X):
        np.testing.assert_array_equal(run(loaded_network, array)[0], 2 * np.maximum(2 * array, 0))
    assert [how for *_, how in crossings(loaded_network)] == ["copy", "copy"]


@pytest.mark.parametrize("name", ["PaddingRequired", "FallbackImportDisabled"])
def test_capabilities_of_a_tensor_can_rule_out_imports(runtime: Runtime, name: str) -> None:
    class Choosy(Shared):
        id = "Test/Choosy/Array"

        def capabilities(self, layer: Layer, connected: Layer) -> Capabilities:
            return Capabilities(**{name: True})

    class ChoosyBackend(Relus):
        id: ClassVar = "Choosy"
        handle_factory_preferences = (Choosy.id,)  # type: ignore[assignment]

        def register_tensor_handle_factories(self, registry: TensorHandleFactoryRegistry, options: Options) -> None:
            registry.register_factory(Choosy())

    runtime.registry.register("Choosy", ChoosyBackend)
    loaded_network = loaded(runtime, chain(Addition(), RELU, Addition()), "Sums", "Choosy")
    assert [how for *_, how in crossings(loaded_network)] == ["copy", "copy"]


def test_a_backend_writes_into_the_memory_of_another_one_where_it_takes_that(runtime: Runtime) -> None:
    class Writer(Sums):
        id: ClassVar = "Writer"
        handle_factory_preferences = (DEFAULT_FACTORY, Shared.id)  # type: ignore[assignment]

    runtime.registry.register("Writer", Writer)
    runtime.registry.register("Sharing", Sharing)
    loaded_network = loaded(runtime, chain(Addition(), RELU, Addition()), "Writer", "Sharing")
    np.testing.assert_array_equal(run(loaded_network, X)[0], 2 * np.maximum(2 * X, 0))
    assert {how for *_, how in crossings(loaded_network)} <= {"direct", "import"}
    assert loaded_network.transfers.copies == 0


def test_the_import_factory_of_a_pair_stands_in_at_the_border(runtime: Runtime) -> None:
    class Copying(Shared):
        id = "Test/Copying/Array"
        import_sources = export_sources = MemorySource.UNDEFINED

        def create(self, info: TensorInfo) -> TensorHandle:
            return _NeverBorrowing(info)

    class _NeverBorrowing(ArrayHandle):
        imports = False

    class Paired(Relus):
        id: ClassVar = "Paired"
        handle_factory_preferences = (Copying.id,)  # type: ignore[assignment]

        def register_tensor_handle_factories(self, registry: TensorHandleFactoryRegistry, options: Options) -> None:
            registry.register_factory(Copying())
            registry.register_factory(Shared())
            registry.register_copy_and_import_pair(Copying.id, Shared.id)

    runtime.registry.register("Paired", Paired)
    loaded_network = loaded(runtime, chain(RELU, RELU, RELU), "Paired")
    np.testing.assert_array_equal(run(loaded_network, X)[0], np.maximum(X, 0))
    factories = [loaded_network.optimized.graph.layer(f"layer {i}").output.factory for i in range(3)]
    assert factories == [Copying.id, Copying.id, Shared.id]
    assert loaded_network.optimized.graph.inputs[0].output.factory == Shared.id


# --- what cannot be ---------------------------------------------------------------------------------------------------


class Sealed(Relus):
    """A device whose memory nobody else can reach."""

    id: ClassVar = "Sealed"
    handle_factory_preferences = ("Test/Sealed/Heap",)  # type: ignore[assignment]

    def register_tensor_handle_factories(self, registry: TensorHandleFactoryRegistry, options: Options) -> None:
        class Heap(Shared):
            id = "Test/Sealed/Heap"
            supports_map = False
            import_sources = export_sources = MemorySource.UNDEFINED

        registry.register_factory(Heap())


def test_an_impossible_way_names_what_both_sides_offer(runtime: Runtime) -> None:
    runtime.registry.register("Sealed", Sealed)
    with pytest.raises(IncompatibleMemoryError) as caught:
        loaded(runtime, chain(Addition(), RELU), "Sums", "Sealed")
    assert str(caught.value) == (
        "the tensor 'layer 0' cannot get to all who read it:\n"
        "  - 'layer 0' (Addition) on Sums (gives it) works on Interposer/Cpu/Array (can be mapped, imports MALLOC, "
        "exports MALLOC)\n"
        "  - 'layer 1' (Activation) on Sealed (takes it) works on Test/Sealed/Heap (cannot be mapped)"
    )


def test_preferences_of_which_none_is_there_are_refused(runtime: Runtime) -> None:
    class Lost(Relus):
        id: ClassVar = "Lost"
        handle_factory_preferences = ("Acme/Npu/Local",)  # type: ignore[assignment]

    runtime.registry.register("Lost", Lost)
    with pytest.raises(BackendContractError) as caught:
        loaded(runtime, chain(RELU), "Lost")
    assert str(caught.value) == (
        "backend Lost takes only tensors of the handle factories Acme/Npu/Local, and none of them is registered "
        "(registered: Interposer/Cpu/Array)"
    )


def test_a_factory_that_cannot_be_registered_is_told_with_its_backend(runtime: Runtime) -> None:
    class Wrong(Relus):
        id: ClassVar = "Wrong"

        def register_tensor_handle_factories(self, registry: TensorHandleFactoryRegistry, options: Options) -> None:
            class Nameless(Shared):
                id = "Nameless"

            registry.register_factory(Nameless())

    runtime.registry.register("Wrong", Wrong)
    with pytest.raises(BackendContractError) as caught:
        loaded(runtime, chain(RELU), "Wrong")
    assert str(caught.value) == (
        "backend Wrong could not register its tensor handle factories: a tensor handle factory has the id 'Nameless'; "
        "expected 'Vendor/Backend/Name'"
    )
