"""Tensors whose shapes depend on data: found while running, for kernels, backends, and callers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import ClassVar

import numpy as np
import pytest

from interposer import Network, OptimizerOptions, Quantization, Runtime, TensorInfo, load, optimize
from interposer.backend import (
    ArrayHandle,
    Backend,
    Capabilities,
    KernelTable,
    OptimizationViews,
    Options,
    SubgraphView,
    Substitution,
    TensorHandle,
    Workload,
    WorkloadFactory,
    WorkloadInfo,
)
from interposer.core.errors import (
    BackendContractError,
    BindingError,
    ExecutionError,
    InvalidArgumentError,
    InvalidValueError,
    UnsupportedLayerError,
)
from interposer.core.types import UNKNOWN, Array, DataType
from interposer.ir.graph import Layer, Value
from interposer.ir.inference import shaped_by_data
from interposer.kernels import KernelInfo, evaluate
from interposer.ops import Activation, ActivationFunction, Fill, PreCompiled
from tests.devices import Device, Sums, single

DIMS = TensorInfo((2,), DataType.INT32)
RELU = Activation(ActivationFunction.RELU)

pytestmark = pytest.mark.needs_cpuref


@pytest.fixture
def runtime() -> Iterator[Runtime]:
    with Runtime() as new_runtime:
        new_runtime.registry.register("Device", single(Device()))
        new_runtime.registry.register("Sums", Sums)
        yield new_runtime


def filled(value: float = -3.0) -> tuple[Network, Value]:
    """A tensor of the shape that the input says."""
    network = Network("filled")
    dims = network.add_input_layer(0, DIMS, name="dims")
    return network, network.add_fill_layer(dims, value=value, name="fill").output


def open_chain() -> Network:
    """relu(fill) + [1, 2, 3], beside the shape of it, and 2 * x by itself."""
    network, fill = filled()
    relu = network.add_layer(RELU, fill, name="relu")
    added = network.add_constant_layer(np.float32([1, 2, 3]), name="c")
    network.add_output_layer(0, network.add_addition_layer(relu, added, name="sum"), name="y")
    network.add_output_layer(1, network.add_shape_layer(relu, name="shape"), name="shape_of_y")
    x = network.add_input_layer(1, TensorInfo((2, 2)), name="x")
    network.add_output_layer(2, network.add_addition_layer(x, x, name="twice"), name="twice_x")
    return network


X = np.float32([[1, 2], [3, 4]])


def dims(*extents: int) -> np.ndarray:
    return np.array(extents, np.int32)


def loaded(runtime: Runtime, network: Network, backends: Sequence[str] = ("CpuRef",), **options: object) -> int:
    chosen = OptimizerOptions(**options)  # type: ignore[arg-type]
    return runtime.load_network(optimize(network, backends, runtime.device_spec, chosen))


def test_every_run_finds_its_own_shapes(runtime: Runtime) -> None:
    network_id = loaded(runtime, open_chain())
    for rows in (2, 5, 0, 2):
        result = runtime.enqueue_workload(network_id, {0: dims(rows, 3), 1: X})
        np.testing.assert_array_equal(result[0], np.tile(np.float32([1, 2, 3]), (rows, 1)))
        np.testing.assert_array_equal(result[1], [rows, 3])
        np.testing.assert_array_equal(result[2], X + X)


def test_a_model_gives_arrays_of_the_shapes_that_were_found() -> None:
    network, fill = filled(7)
    network.add_output_layer(0, fill)
    with load(network, backends=["CpuRef"]) as model:
        assert model.outputs["output_0"].shape == (UNKNOWN, UNKNOWN)
        assert model(dims(1, 4)).tolist() == [[7, 7, 7, 7]]
        assert model(dims(2, 1)).tolist() == [[7], [7]]


def test_only_what_follows_from_data_is_late() -> None:
    graph = open_chain().graph
    assert sorted(value.name for value in shaped_by_data(graph)) == ["fill", "relu", "sum"]


def test_an_open_input_is_not_late() -> None:
    network = Network()
    x = network.add_input_layer(0, TensorInfo((None, 3)))
    network.add_output_layer(0, network.add_layer(RELU, x))
    assert shaped_by_data(network.graph) == set()


def test_an_output_may_be_given_an_array_that_fits(runtime: Runtime) -> None:
    network_id, outputs = loaded(runtime, open_chain()), {2: np.zeros((2, 2), np.float32), 1: dims(0, 0)}
    value = outputs | {0: np.zeros((4, 3), np.float32)}
    result = runtime.enqueue_workload(network_id, {0: dims(4, 3), 1: X}, value)
    assert result[0] is value[0]
    assert value[0].sum() == 24
    assert runtime.enqueue_workload(network_id, {0: dims(1, 3), 1: X}, outputs)[0].tolist() == [[1, 2, 3]]


def test_an_output_array_that_turns_out_not_to_fit_is_named(runtime: Runtime) -> None:
    network_id = loaded(runtime, open_chain())
    value = {0: np.zeros((4, 3), np.float32), 1: dims(0, 0), 2: X.copy()}
    with pytest.raises(BindingError) as caught:
        runtime.enqueue_workload(network_id, {0: dims(5, 3), 1: X}, value)
    text = "output 0 (y) turned out to have shape [5, 3], but the array for it [4, 3]; give none"
    assert str(caught.value) == text
    with pytest.raises(BindingError, match=r"output 0 \(y\) has shape \[3\]; expected \[\?, 3\]"):
        runtime.enqueue_workload(network_id, {0: dims(5, 3), 1: X}, value | {0: np.zeros(3, np.float32)})


def test_shapes_that_turn_out_not_to_fit_a_layer_are_an_error_of_that_run(runtime: Runtime) -> None:
    network_id = loaded(runtime, open_chain())
    with pytest.raises(ExecutionError) as caught:
        runtime.enqueue_workload(network_id, {0: dims(2, 4), 1: X})
    assert caught.value.layer == "sum"
    assert "[2, 4]" in str(caught.value)
    assert "[3]" in str(caught.value)
    assert runtime.enqueue_workload(network_id, {0: dims(2, 3), 1: X})[0].shape == (2, 3)


def test_debug_layers_show_late_tensors(runtime: Runtime) -> None:
    network_id = loaded(runtime, open_chain(), debug=True)
    shapes: dict[str, tuple[int, ...]] = {}
    runtime.register_debug_callback(network_id, lambda name, slot, array: shapes.update({name: array.shape}))
    runtime.enqueue_workload(network_id, {0: dims(2, 3), 1: X})
    assert (shapes["fill"], shapes["sum"], shapes["twice"]) == ((2, 3), (2, 3), (2, 2))


def test_a_shape_that_is_computed_shapes_another_tensor(runtime: Runtime) -> None:
    network, fill = filled(1)
    network.add_output_layer(0, network.add_fill_layer(network.add_shape_layer(fill), value=5))
    assert runtime.enqueue_workload(loaded(runtime, network), {0: dims(1, 2)})[0].tolist() == [[5, 5]]


def test_quantization_that_was_declared_holds_for_late_tensors(runtime: Runtime) -> None:
    network = Network()
    x = network.add_input_layer(0, DIMS)
    q = Quantization(0.5, 10)
    info = TensorInfo((None, None), DataType.UINT8, q)
    fill = network.add_layer(Fill(2.0, DataType.UINT8), x, outputs=info)
    network.add_output_layer(0, network.add_layer(RELU, fill, outputs=info))
    assert runtime.enqueue_workload(loaded(runtime, network), {0: dims(1, 2)})[0].tolist() == [[14, 14]]


def test_a_backend_without_the_capability_is_not_offered_late_layers(runtime: Runtime) -> None:
    optimized = optimize(open_chain(), ["Sums", "Device", "CpuRef"], runtime.device_spec)
    placed = {placement.layer: placement.backend for placement in optimized.placements}
    assert placed == {"fill": "CpuRef", "relu": "CpuRef", "sum": "CpuRef", "shape": "CpuRef", "twice": "Sums"}
    said = {(refusal.layer, refusal.backend): refusal.reasons for refusal in optimized.refusals}
    text = "the shape of {}, depends on data, and it lacks the capability DynamicShapes"
    assert said["sum", "Sums"] == (text.format("'relu', [?, ?]"),)
    assert said["relu", "Device"] == (text.format("'fill', [?, ?]"),)
    with pytest.raises(UnsupportedLayerError, match="Sums says: the shape of 'relu'"):
        optimize(open_chain(), ["Sums"], runtime.device_spec)


# --- kernels ----------------------------------------------------------------------------------------------------------


def test_a_kernel_that_returns_its_results_finds_their_shape() -> None:
    [result] = evaluate(Fill(2.0), [dims(1, 3)], [DIMS], [TensorInfo((None, None))])
    assert result.tolist() == [[2, 2, 2]]
    assert result.flags.writeable


def test_nothing_is_filled_whose_extent_turns_out_negative() -> None:
    with pytest.raises(InvalidValueError, match=r"^dims has -1 at \[0\]; expected 0 or more$"):
        evaluate(Fill(), [dims(-1, 2)], [DIMS], [TensorInfo((None, None))])


def test_a_kernel_that_fills_arrays_takes_no_results_of_unknown_shape() -> None:
    table = KernelTable()

    @table(Fill)
    def fill(op: Fill, dims: Array, *, out: Array) -> None:
        out[...] = op.value

    info = KernelInfo.of(Fill(), [DIMS], [TensorInfo((None, None))])
    assert table.reasons(Fill(), info) == ["the shape of output depends on data; fills only arrays of known shape"]


def test_a_kernel_that_gives_another_shape_than_is_known_is_named() -> None:
    with pytest.raises(InvalidArgumentError) as caught:
        evaluate(Fill(), [dims(1, 3)], [DIMS], [TensorInfo((2, None))])
    assert str(caught.value) == "the kernel gave shape (1, 3), but [2, ?] was expected"


# --- handles and workloads of backends --------------------------------------------------------------------------------


def test_a_handle_takes_a_shape_once_and_only_one_that_fits() -> None:
    handle = ArrayHandle(TensorInfo((None, 3), constant=None))
    with pytest.raises(BackendContractError) as caught:
        handle.resize((2, 4))
    assert str(caught.value) == "the handle of float32[?, 3] cannot be resized to [2, 4]"
    handle.resize((2, 3))
    assert handle.info == TensorInfo((2, 3))
    assert handle.map().shape == (2, 3)
    with pytest.raises(BackendContractError, match="cannot be resized to"):
        handle.resize((2, 3))


class CompiledFill(Workload):
    """Makes a tensor of the shape that its input says; or forgets to say which."""

    def __init__(self, forgetful: bool) -> None:
        self.forgetful = forgetful

    def execute(self, inputs: Sequence[TensorHandle | None], outputs: Sequence[TensorHandle]) -> None:
        [source], [target] = inputs, outputs
        assert source is not None
        if not self.forgetful:
            with source.mapped() as sizes:
                target.resize(sizes.tolist())
            with target.mapped() as array:
                array[...] = 9


class CompilerFactory(WorkloadFactory):
    def __init__(self, forgetful: bool) -> None:
        super().__init__()
        self.forgetful = forgetful

    def create_workload(self, layer: Layer, info: WorkloadInfo) -> Workload:
        return CompiledFill(self.forgetful)


fills = KernelTable()


@fills(Fill)
def never_called(op: Fill, dims: Array) -> Array:
    raise AssertionError


class Compiler(Backend):
    """Compiles every Fill; the shape is found by what it compiled."""

    id: ClassVar = "Compiler"
    kernels: ClassVar = fills
    capabilities: ClassVar = Capabilities(DynamicShapes=True)

    def __init__(self, forgetful: bool = False) -> None:
        self.forgetful = forgetful

    def optimize_subgraph(self, view: SubgraphView, options: Options) -> OptimizationViews:
        parts = tuple(Substitution(view.part([layer]), PreCompiled()) for layer in view)
        return OptimizationViews(view, substitutions=parts)

    def create_workload_factory(self, memory_manager: object, options: Options) -> WorkloadFactory:
        return CompilerFactory(self.forgetful)


def test_a_compiled_part_asks_for_the_memory_of_its_results(runtime: Runtime) -> None:
    runtime.registry.register("Compiler", Compiler)
    network_id = loaded(runtime, open_chain(), ["Compiler", "CpuRef"])
    result = runtime.enqueue_workload(network_id, {0: dims(1, 3), 1: X})
    assert result[0].tolist() == [[10, 11, 12]]


def test_a_workload_that_does_not_say_the_shape_is_named(runtime: Runtime) -> None:
    runtime.registry.register("Compiler", lambda: Compiler(forgetful=True))
    network_id = loaded(runtime, open_chain(), ["Compiler", "CpuRef"])
    with pytest.raises(ExecutionError) as caught:
        runtime.enqueue_workload(network_id, {0: dims(1, 3), 1: X})
    assert str(caught.value) == (
        "layer 'PreCompiled:fill' (PreCompiled) failed on backend Compiler: "
        "the workload left the shape of 'PreCompiled:fill', float32[?, ?], unknown"
    )
