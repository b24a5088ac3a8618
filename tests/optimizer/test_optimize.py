"""Assignment, substitution and re-assignment: who gets what, what is said, and that nothing is computed differently."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
import pytest

from interposer import Network, OptimizerOptions, Runtime, TensorInfo, optimize
from interposer.backend import (
    Backend,
    Capabilities,
    Failure,
    KernelTable,
    OptimizationViews,
    Options,
    SubgraphView,
    Substitution,
)
from interposer.core.errors import (
    BackendUnavailableError,
    InvalidArgumentError,
    InvalidNetworkError,
    UnknownBackendError,
    UnsupportedLayerError,
)
from interposer.core.types import Array, DataType
from interposer.ir.graph import Graph
from interposer.ops import (
    Activation,
    ActivationFunction,
    Addition,
    ConvertFp16ToFp32,
    ConvertFp32ToFp16,
    Input,
    Multiplication,
    Output,
)
from interposer.report.optimized import OptimizedNetwork
from tests.devices import Device, Sums

INFO = TensorInfo((2, 3))
X = np.float32([[-1, 2, -3], [4, -5, 6]])
conversions = KernelTable()


@conversions(ConvertFp16ToFp32, ConvertFp32ToFp16)
def convert(op: object, x: Array) -> Array:
    return x


class Converter(Backend):
    """Converts between float16 and float32, and does nothing else."""

    id: ClassVar = "Converter"
    kernels: ClassVar = conversions


class Picky(Sums):
    """Takes every sum and product, and gives back the layers that the test names when it gets the part."""

    id: ClassVar = "Picky"
    gives_back: ClassVar[frozenset[str]] = frozenset()

    def optimize_subgraph(self, view: SubgraphView, options: Options) -> OptimizationViews:
        unwanted = [layer for layer in view if layer.name in self.gives_back]
        failed = [Failure(view.part([layer]), "it does not fit into the scratchpad") for layer in unwanted]
        return OptimizationViews(view, failed=failed)


class Doubler(Sums):
    """Replaces every Addition of a value to itself by a graph that multiplies it by a constant 2."""

    id: ClassVar = "Doubler"

    def optimize_subgraph(self, view: SubgraphView, options: Options) -> OptimizationViews:
        doubled = [layer for layer in view if isinstance(layer.op, Addition) and len(set(layer.values)) == 1]
        result = [Substitution(view.part([layer]), twice(layer.output.known)) for layer in doubled]
        return OptimizationViews(view, substitutions=result)


def twice(info: TensorInfo) -> Graph:
    graph = Graph("twice")
    x = graph.add(Input(0), outputs=[info]).output
    x.info = info
    product = graph.add(Multiplication(), [x, graph.constant(np.float32(2))], name="product")
    graph.add(Output(0), [product.output])
    return graph


def chain(dtype: DataType = DataType.FLOAT32) -> Network:
    """x + x, times x, plus x."""
    network = Network("chain")
    x = network.add_input_layer(0, TensorInfo((2, 3), dtype), name="x")
    first = network.add_addition_layer(x, x, name="first")
    second = network.add_multiplication_layer(first, x, name="second")
    third = network.add_addition_layer(second, x, name="third")
    network.add_output_layer(0, third, name="y")
    return network


def runtime_with(*backends: type[Backend]) -> Runtime:
    runtime = Runtime()
    for backend in backends:
        runtime.registry.register(backend.id, backend)
    return runtime


def placed(optimized: OptimizedNetwork) -> dict[str, str]:
    return {placement.layer: placement.backend for placement in optimized.placements}


def result_of(runtime: Runtime, optimized: OptimizedNetwork, x: Array = X) -> Array:
    return runtime.enqueue_workload(runtime.load_network(optimized), {0: x})[0]


def test_every_layer_goes_to_the_first_backend_that_takes_it() -> None:
    runtime = runtime_with(Sums, Device)
    optimized = optimize(chain(), ["Device", "Sums"], runtime.device_spec)
    assert placed(optimized) == {"first": "Sums", "second": "Sums", "third": "Sums"}
    assert [str(refusal) for refusal in optimized.refusals][:1] == [
        "Device refuses 'first' (Addition): no kernel for Addition"
    ]
    assert "WARNING: Device refuses layer 'first' (Addition), float32 to float32: no kernel for Addition" in [
        str(message) for message in optimized.messages
    ]


def test_a_layer_that_nobody_takes_is_named_with_its_tensors_and_all_that_was_said() -> None:
    runtime = runtime_with(Sums, Device)
    network = Network("odd")
    x = network.add_input_layer(0, INFO, name="x")
    odd = network.add_layer(Activation(ActivationFunction.TANH), x, name="odd", source="node 'Tanh_3'")
    network.add_output_layer(0, odd)
    with pytest.raises(UnsupportedLayerError) as caught:
        optimize(network, ["Sums", "Device"], runtime.device_spec)
    assert str(caught.value) == (
        "no backend in ['Sums', 'Device'] can run layer 'odd' (Activation)\n"
        "  input: float32[2, 3]\n"
        "  Sums says: no kernel for Activation\n"
        "  Device says: TANH is not RELU\n"
        "  imported from node 'Tanh_3'"
    )
    assert [(refusal.layer, refusal.backend) for refusal in caught.value.refusals] == [
        ("odd", "Sums"),
        ("odd", "Device"),
    ]


def test_all_layers_that_nobody_takes_are_named_at_once() -> None:
    runtime = runtime_with(Device)
    with pytest.raises(UnsupportedLayerError) as caught:
        optimize(chain(), ["Device"], runtime.device_spec)
    lines = str(caught.value).splitlines()
    assert lines[0] == "3 layers cannot be run"
    assert sum(line.startswith("no backend in ['Device'] can run layer") for line in lines) == 3


def test_of_many_layers_that_nobody_takes_different_ones_are_described_and_the_others_counted() -> None:
    network = Network("many")
    value = network.add_input_layer(0, INFO, name="x")
    for number in range(20):
        value = network.add_addition_layer(value, value, name=f"sum{number}")
    value = network.add_softmax_layer(value, name="soft")
    network.add_output_layer(0, value)
    runtime = runtime_with(Device)
    with pytest.raises(UnsupportedLayerError) as caught:
        optimize(network, ["Device"], runtime.device_spec)
    lines = str(caught.value).splitlines()
    described = [line.split()[-2].strip("'") for line in lines if "can run layer" in line]
    assert (lines[0], described) == ("21 layers cannot be run", [*(f"sum{number}" for number in range(7)), "soft"])
    assert lines[-1] == "no backend in ['Device'] can run 13 other layers either: Addition (13)"
    assert len(caught.value.refusals) == 21


def test_a_hint_goes_before_the_order_of_preference() -> None:
    runtime = runtime_with(Sums, Picky)
    options = OptimizerOptions(hints={"second": "Picky"})
    optimized = optimize(chain(), ["Sums", "Picky"], runtime.device_spec, options)
    assert placed(optimized) == {"first": "Sums", "second": "Picky", "third": "Sums"}
    np.testing.assert_array_equal(result_of(runtime, optimized), (X + X) * X + X)


def test_a_type_can_be_kept_from_a_backend_also_where_a_hint_asks_for_it() -> None:
    runtime = runtime_with(Sums, Picky)
    options = OptimizerOptions(hints={"third": "Sums"}, exclude={"Addition": ["Sums"]})
    optimized = optimize(chain(), ["Sums", "Picky"], runtime.device_spec, options)
    assert placed(optimized) == {"first": "Picky", "second": "Sums", "third": "Picky"}
    rows = {row["layer"]: row["others"] for row in optimized.explain().to_dict()["layers"]}
    assert rows["first"] == {"Sums": ["the options keep layers of this type from it"]}


def test_types_can_only_be_kept_from_backends_that_are_known() -> None:
    with pytest.raises(UnknownBackendError, match="unknown backend 'Sumz'; did you mean 'Sums'"):
        optimize(chain(), ["Sums"], runtime_with(Sums).device_spec, OptimizerOptions(exclude={"Pad": ["Sumz"]}))


def test_a_hint_for_a_backend_that_is_not_in_use_is_refused() -> None:
    runtime = runtime_with(Sums)
    with pytest.raises(InvalidArgumentError) as caught:
        optimize(chain(), ["Sums"], runtime.device_spec, OptimizerOptions(hints={"second": "Sumz"}))
    assert str(caught.value) == (
        "the hint for layer 'second' names backend 'Sumz', which is not among those in use (Sums); did you mean 'Sums'?"
    )


@pytest.mark.parametrize(("arguments", "message"), [
    (("net.onnx",), "optimize takes a Network, not 'net.onnx'"),
    ((chain(), None, Runtime()), "the device spec must be a DeviceSpec, such as runtime.device_spec, not Runtime"),
    ((chain(), None, None, {"debug": True}), "the options must be OptimizerOptions(...), not {'debug': True}"),
    ((chain(), 5), "backends are named by their ids, such as 'CpuRef', not by 5"),
    ((chain(), [["CpuRef"]]), "backends are named by their ids, such as 'CpuRef', not by ['CpuRef']"),
])  # fmt: skip
def test_arguments_of_the_wrong_kind_are_refused(arguments: tuple[Any, ...], message: str) -> None:
    with pytest.raises(InvalidArgumentError) as caught:
        optimize(*arguments)
    assert str(caught.value) == message


@pytest.mark.parametrize(("options", "message"), [
    ({"hints": ["second"]}, "hints must be a mapping from layer's name to backend's id, not ['second']"),
    ({"model_options": 5}, "model_options must be a mapping from backend's id to its options, not 5"),
    ({"model_options": {"Sums": "fast"}}, "the model options of backend 'Sums' must be a mapping, not 'fast'"),
    ({"exclude": ["Pad"]}, "exclude must be a mapping from a layer's type to ids of backends, not ['Pad']"),
    ({"exclude": {"Pad": 5}}, "exclude['Pad']: backends are named by their ids, such as 'CpuRef', not by 5"),
    ({"exclude": {"Paad": []}}, "exclude names 'Paad', which is no type of layers; did you mean 'Pad'?"),
])  # fmt: skip
def test_options_of_the_wrong_kind_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidArgumentError) as caught:
        OptimizerOptions(**options)
    assert str(caught.value) == message


def test_what_a_backend_gives_back_goes_to_the_next_one_and_is_explained(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Picky, "gives_back", frozenset({"second"}))
    runtime = runtime_with(Sums, Picky)
    optimized = optimize(chain(), ["Picky", "Sums"], runtime.device_spec)
    assert placed(optimized) == {"first": "Picky", "second": "Sums", "third": "Picky"}
    [refusal] = optimized.refusals
    assert (refusal.stage, refusal.reasons) == ("optimize", ("it does not fit into the scratchpad",))
    np.testing.assert_array_equal(result_of(runtime, optimized), (X + X) * X + X)
    rows = {row["layer"]: row["others"] for row in optimized.explain().to_dict()["layers"]}
    assert rows["second"] == {"Picky": ["it does not fit into the scratchpad"]}
    assert rows["first"] == {"Sums": ["could, ranked lower"]}


def test_what_a_backend_gives_back_is_offered_to_one_that_comes_before_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Picky, "gives_back", frozenset({"first"}))
    runtime = runtime_with(Doubler, Picky)
    options = OptimizerOptions(hints={"first": "Picky"})
    optimized = optimize(chain(), ["Doubler", "Picky"], runtime.device_spec, options)
    assert optimized.graph.layer("product").replaced == ("first",)
    np.testing.assert_array_equal(result_of(runtime, optimized), (X + X) * X + X)


def test_what_nobody_else_takes_is_an_error_that_says_who_gave_it_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Picky, "gives_back", frozenset({"second"}))
    runtime = runtime_with(Device, Picky)
    with pytest.raises(UnsupportedLayerError, match="Picky says: it does not fit into the scratchpad"):
        optimize(chain(), ["Picky", "Device"], runtime.device_spec)


def test_a_part_is_replaced_by_a_graph_of_layers() -> None:
    runtime = runtime_with(Doubler)
    optimized = optimize(chain(), ["Doubler"], runtime.device_spec)
    kinds = [layer.kind for layer in optimized.graph.topological() if layer.op.executable]
    assert kinds == ["Multiplication", "Multiplication", "Addition"]
    assert optimized.graph.layer("product").replaced == ("first",)
    np.testing.assert_array_equal(result_of(runtime, optimized), (X + X) * X + X)


def test_a_layer_whose_half_type_a_backend_lacks_runs_there_in_float32() -> None:
    runtime = runtime_with(Sums, Converter)
    optimized = optimize(chain(DataType.FLOAT16), ["Sums", "Converter"], runtime.device_spec)
    assert {placed(optimized)[name] for name in ("first", "second", "third")} == {"Sums"}
    assert any("runs in float32 on Sums" in str(message) for message in optimized.messages)
    result = result_of(runtime, optimized, X.astype(np.float16))
    assert result.dtype == np.float16
    np.testing.assert_array_equal(result, ((X + X) * X + X).astype(np.float16))


@pytest.mark.needs_cpuref
def test_a_network_is_computed_in_float16_where_that_is_asked_for() -> None:
    runtime = runtime_with()
    options = OptimizerOptions(reduce_fp32_to_fp16=True)
    optimized = optimize(chain(), ["CpuRef"], runtime.device_spec, options)
    types = {str(layer.output.known.dtype) for layer in optimized.graph if isinstance(layer.op, Addition)}
    assert types == {"float16"}
    result = result_of(runtime, optimized)
    assert result.dtype == np.float32
    np.testing.assert_allclose(result, (X + X) * X + X, rtol=2**-9)


def test_both_reductions_at_once_are_refused() -> None:
    with pytest.raises(InvalidArgumentError, match="exclude each other"):
        OptimizerOptions(reduce_fp32_to_fp16=True, reduce_fp32_to_bf16=True)


@pytest.mark.needs_cpuref
def test_a_network_with_faults_is_refused_with_all_of_them() -> None:
    network = Network("faulty")
    x = network.add_input_layer(0, INFO)
    network.add_layer(Addition(), x, name="half")
    network.add_layer(Addition(), x, network.add_constant_layer(np.float32([1, 2])), name="odd")
    with pytest.raises(InvalidNetworkError) as caught:
        optimize(network, ["CpuRef"])
    assert len(caught.value.problems) == 3
    assert caught.value.problems[0] == "layer 'half' (Addition): b is not connected"
    assert caught.value.problems[2] == "it has no output layer"


@pytest.mark.needs_cpuref
def test_the_network_itself_is_not_changed() -> None:
    network = chain()
    before = str(network)
    optimize(network, ["CpuRef"])
    assert str(network) == before


def test_no_backends_and_only_absent_ones_are_refused() -> None:
    with pytest.raises(InvalidArgumentError, match="no backends were given"):
        optimize(chain(), [])
    runtime = Runtime()
    runtime.registry.register("Sums", Sums)

    class Away(Sums):
        id: ClassVar = "Away"

        @classmethod
        def unavailable(cls) -> str | None:
            return "the driver is not installed"

    runtime.registry.register("Away", Away)
    with pytest.raises(BackendUnavailableError, match="Away: the driver is not installed"):
        optimize(chain(), ["Away"], runtime.device_spec)
    optimized = optimize(chain(), ["Away", "Sums"], runtime.device_spec)
    assert [(item.id, item.reason) for item in optimized.absent] == [("Away", "the driver is not installed")]
    assert optimized.preferences == ("Sums",)


def test_model_options_reach_the_backend_they_are_for(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Options] = []
    monkeypatch.setattr(
        Picky, "optimize_subgraph", lambda self, view, options: seen.append(options) or OptimizationViews(view)
    )
    runtime = runtime_with(Picky)
    options = OptimizerOptions(model_options={"Picky": {"FastMathEnabled": True}})
    optimize(chain(), ["Picky"], runtime.device_spec, options)
    assert seen == [{"FastMathEnabled": True}]


class Whole(Sums):
    """Adds and multiplies, but only whole networks."""

    id: ClassVar = "Whole"
    capabilities: ClassVar = Capabilities(AllOrNothing=True)


def whole(network: Network, *backends: str, **options: Any) -> OptimizedNetwork:
    with Runtime() as runtime:
        for backend in (Whole, Sums, Device):
            runtime.registry.register(backend.id, backend)
        return optimize(network, backends, runtime.device_spec, OptimizerOptions(rewrite=False, **options))


def sums_network(*functions: ActivationFunction) -> Network:
    network = Network()
    x = network.add_input_layer(0, INFO)
    value = network.add_multiplication_layer(network.add_addition_layer(x, x, name="sum"), x, name="product")
    for function in functions:
        value = network.add_activation_layer(value, function=function, name="last")
    network.add_output_layer(0, value)
    return network


def test_a_backend_that_takes_all_or_nothing_gets_a_whole_network() -> None:
    optimized = whole(sums_network(), "Whole", "Sums")
    assert [placement.backend for placement in optimized.placements] == ["Whole", "Whole"]


def test_a_backend_that_takes_all_or_nothing_gets_no_layer_if_it_refuses_one() -> None:
    optimized = whole(sums_network(ActivationFunction.RELU), "Whole", "Sums", "Device")
    assert [placement.backend for placement in optimized.placements] == ["Sums", "Sums", "Device"]
    reason = "it runs a network only as a whole (AllOrNothing), and it refuses layer 'last' (Activation)"
    refusals = {item.layer: item.reasons for item in optimized.refusals if item.backend == "Whole"}
    assert refusals == {"sum": (reason,), "product": (reason,), "last": ("no kernel for Activation",)}


def test_a_backend_that_takes_all_or_nothing_gets_no_layers_beside_another() -> None:
    with pytest.raises(UnsupportedLayerError) as error:
        whole(sums_network(), "Sums", "Whole", exclude={"Multiplication": ["Sums"]})
    reason = "it runs a network only as a whole (AllOrNothing), and other backends run layers of it"
    assert f"Whole says: {reason}" in str(error.value)


def test_a_backend_that_takes_all_or_nothing_keeps_no_layer_if_it_gives_back_one(monkeypatch) -> None:
    def giving_back(self, view, options):
        return OptimizationViews(view, failed=[Failure(view.part(view.layers[:1]), "it does not compile")])

    monkeypatch.setattr(Whole, "optimize_subgraph", giving_back)
    optimized = whole(sums_network(), "Whole", "Sums")
    assert [placement.backend for placement in optimized.placements] == ["Sums", "Sums"]
    reason = "it runs a network only as a whole (AllOrNothing), and it gave back layer 'sum' (Addition)"
    refusals = {item.layer: item.reasons for item in optimized.refusals if item.backend == "Whole"}
    assert refusals == {"sum": ("it does not compile",), "product": (reason,)}


def test_a_hint_for_some_layers_does_not_keep_a_network_from_a_backend_that_takes_all_or_nothing() -> None:
    optimized = whole(sums_network(), "Whole", "Sums", hints={"sum": "Whole"})
    assert [placement.backend for placement in optimized.placements] == ["Whole", "Whole"]
    optimized = whole(sums_network(), "Sums", "Whole", hints={"sum": "Whole", "product": "Whole"})
    assert [placement.backend for placement in optimized.placements] == ["Whole", "Whole"]
