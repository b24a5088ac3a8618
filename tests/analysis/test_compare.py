"""Comparing two backends: the very layer that is wrong is named, and what is only wrong when it is fused."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest

import interposer as ip
from interposer import Network, Runtime, TensorInfo
from interposer.analysis.compare import compare
from interposer.analysis.divergence import Divergence, Tolerance
from interposer.backend import (
    Backend,
    KernelTable,
    KernelWorkloadFactory,
    MemoryManager,
    OptimizationViews,
    Options,
    SubgraphView,
    Substitution,
    TensorHandle,
    Workload,
    WorkloadFactory,
    WorkloadInfo,
)
from interposer.core.errors import InterposerError, InvalidArgumentError, UnknownBackendError
from interposer.core.types import Array, DataType, Quantization
from interposer.ir.graph import Layer
from interposer.ops import Activation, ActivationFunction, Addition, Multiplication, PreCompiled, Reshape
from interposer.ops.control import StandIn
from tests.testing.wrong import Right, WrongSums

MODELS = Path(__file__).parents[3] / "shared" / "models"
needs_models = pytest.mark.skipif(not MODELS.is_dir(), reason=f"no real models in {MODELS.parent.name}/{MODELS.name}")
pytestmark = pytest.mark.needs_cpuref
INFO = TensorInfo((3, 4))
SUM, PRODUCT, RELU = Addition(), Multiplication(), Activation(ActivationFunction.RELU)


def chain(*ops: Any, info: TensorInfo = INFO) -> Network:
    """Layers one after the other, named by their places; each of two operands gets the input as well."""
    network = Network("chain")
    x = value = network.add_input_layer(0, info, name="x")
    for number, op in enumerate(ops):
        values = (value, x) if isinstance(op, Addition | Multiplication) else (value,)
        value = network.add_layer(op, *values, name=f"{number} {type(op).__name__}")
    network.add_output_layer(0, value, name="y")
    return network


def kernels(**wrong: Callable[[Array], None]) -> KernelTable:
    """Sums and products; what is given under their names spoils their results."""
    table = KernelTable()

    @table(Addition)
    def add(op: Addition, a: Array, b: Array, *, out: Array) -> None:
        np.add(a, b, out=out)
        wrong.get("add", len)(out)

    @table(Multiplication)
    def multiply(op: Multiplication, a: Array, b: Array, *, out: Array) -> None:
        np.multiply(a, b, out=out)
        wrong.get("multiply", len)(out)

    return table


def stretched(out: Array) -> None:
    out *= 1.01


def a_little(out: Array) -> None:
    out *= 1.00009


class WrongProducts(Backend):
    """Products are one in a hundred too large."""

    id: ClassVar = "WrongProducts"
    kernels: ClassVar = kernels(multiply=stretched)


class Stands(Backend):
    """Doubles in stand-ins."""

    id: ClassVar[str] = "Stands"
    kernels: ClassVar[KernelTable] = kernels()


@Stands.kernels(StandIn)
def double(op: StandIn, inputs: Sequence[Array], *, out: Array) -> None:
    np.add(inputs[0], inputs[0], out=out)


@Stands.kernels(Activation)
def rectify(op: Activation, x: Array, *, out: Array) -> None:
    np.maximum(x, 0, out=out)


class Drifting(Backend):
    """Sums and products are off by a little less than what is allowed."""

    id: ClassVar = "Drifting"
    kernels: ClassVar = kernels(add=a_little, multiply=a_little)


class _Part:
    """A run of sums and products that was compiled; wrong where a product follows two sums."""

    def __init__(self, view: SubgraphView) -> None:
        numbers = {value: number for number, value in enumerate((*view.inputs, *(item.output for item in view)))}
        self.steps = [(layer.kind, [numbers[value] for value in layer.values]) for layer in view]
        self.outputs = [numbers[value] for value in view.outputs]
        kinds = [layer.kind for layer in view]
        self.wrong = any(kinds[at : at + 3] == ["Addition", "Addition", "Multiplication"] for at in range(len(kinds)))


class _Whole(Workload):
    def __init__(self, part: _Part) -> None:
        self.part = part

    def execute(self, inputs: Sequence[TensorHandle | None], outputs: Sequence[TensorHandle]) -> None:
        known = [item.map() for item in inputs if item is not None]
        for kind, (a, b) in self.part.steps:
            known.append(known[a] + known[b] if kind == "Addition" else known[a] * known[b])
        for number, handle in zip(self.part.outputs, outputs, strict=True):
            handle.map()[...] = known[number] * np.float32(1.5 if self.part.wrong else 1)


class _Factory(KernelWorkloadFactory):
    def create_workload(self, layer: Layer, info: WorkloadInfo) -> Workload:
        assert isinstance(layer.op, PreCompiled)
        return _Whole(layer.op.object)


class Fuses(Backend):
    """Takes whole parts, and computes a product after two sums wrongly."""

    id: ClassVar = "Fuses"
    kernels: ClassVar = kernels()

    def optimize_subgraph(self, view: SubgraphView, options: Options) -> OptimizationViews:
        whole = PreCompiled(object=_Part(view), num_outputs=len(view.outputs))
        return OptimizationViews(view, substitutions=[Substitution(view, whole)])

    def create_workload_factory(self, memory_manager: MemoryManager | None, options: Options) -> WorkloadFactory:
        return _Factory(self.kernels, memory_manager)


@pytest.fixture
def runtime() -> Iterator[Runtime]:
    with Runtime() as runtime:
        for kind in (Right, WrongSums, WrongProducts, Drifting, Fuses):
            runtime.registry.register(kind.id, kind)
        yield runtime


# --- what is found ----------------------------------------------------------------------------------------------------


def test_backends_that_give_the_same_agree(runtime: Runtime) -> None:
    comparison = compare(chain(SUM, PRODUCT, SUM), ["CpuRef", "Right"], runtime=runtime)
    assert comparison.agrees
    assert (comparison.first, comparison.largest, comparison.culprit, comparison.cut) == (None, None, None, None)
    assert [str(layer.local) for layer in comparison.layers] == ["equal"] * 3
    assert str(comparison.outputs["y"]) == "equal"


def test_the_very_layer_that_is_wrong_is_named(runtime: Runtime) -> None:
    comparison = compare(chain(SUM, SUM, PRODUCT, SUM, SUM), ["CpuRef", "WrongProducts"], runtime=runtime)
    assert comparison.culprit is not None
    assert (comparison.culprit.kind, comparison.culprit.layers) == ("layer", ("2 Multiplication",))
    assert comparison.first is comparison.largest is comparison.layers[2]
    assert comparison.layers[2].local is not None
    assert comparison.layers[2].local.relative == pytest.approx(0.01, rel=1e-3)
    assert [layer.local.differs for layer in comparison.layers if layer.local] == [False, False, True, False, False]
    assert [layer.accumulated.differs for layer in comparison.layers if layer.accumulated] == [
        False,
        False,
        True,
        True,
        True,
    ]


def test_the_first_wrong_layer_and_the_worst_may_be_two(runtime: Runtime) -> None:
    network = chain(SUM, PRODUCT, PRODUCT)
    comparison = compare(network, ["CpuRef", "WrongSums"], runtime=runtime)
    assert comparison.culprit is not None
    assert comparison.culprit.layers == ("0 Addition",)


def test_what_is_only_wrong_when_it_is_fused_is_told_with_the_layers(runtime: Runtime) -> None:
    network = chain(PRODUCT, SUM, PRODUCT, SUM, SUM, PRODUCT, SUM, PRODUCT)
    comparison = compare(network, ["CpuRef", "Fuses"], runtime=runtime)
    assert not any(layer.local.differs for layer in comparison.layers if layer.local)
    assert comparison.culprit is not None
    assert (comparison.culprit.kind, comparison.culprit.backend) == ("fusion", "Fuses")
    assert comparison.culprit.layers == ("3 Addition", "4 Addition", "5 Multiplication")
    assert str(comparison.culprit).startswith(
        "3 layers from '3 Addition' to '5 Multiplication', right one by one, when Fuses compiles them together: "
    )


def test_the_backend_that_is_believed_may_be_the_one_that_is_wrong(runtime: Runtime) -> None:
    comparison = compare(chain(SUM, SUM, PRODUCT), ["Fuses", "CpuRef"], runtime=runtime)
    assert comparison.culprit is not None
    assert (comparison.culprit.kind, comparison.culprit.backend) == ("fusion", "Fuses")


def test_differences_within_the_tolerance_of_each_layer_may_add_up(runtime: Runtime) -> None:
    comparison = compare(chain(*[PRODUCT] * 6), ["CpuRef", "Drifting"], runtime=runtime)
    assert comparison.agrees  # six layers may be off by six tolerances
    assert comparison.largest is not None
    tight = compare(chain(*[PRODUCT] * 6), ["CpuRef", "Drifting"], runtime=runtime, tolerance=Tolerance(8e-5))
    assert tight.culprit is not None
    assert tight.culprit.kind == "layer"


def test_layers_that_one_refuses_are_taken_from_the_reference_and_told(runtime: Runtime) -> None:
    comparison = compare(chain(SUM, RELU, PRODUCT), ["CpuRef", "Right"], runtime=runtime)
    assert comparison.agrees
    assert comparison.layers[1].local is None
    assert dict(comparison.layers[1].refused) == {"Right": "no kernel for Activation"}
    believed = compare(chain(SUM, RELU, PRODUCT), ["Right", "WrongProducts"], runtime=runtime)
    assert dict(believed.layers[1].refused) == {name: "no kernel for Activation" for name in ("Right", "WrongProducts")}
    assert believed.culprit is not None
    assert believed.culprit.layers == ("2 Multiplication",)


def with_stand_in(*ops: Any) -> Network:
    """Return a chain of layers after a stand-in, which only the backend `Stands` runs."""
    network = Network("chain")
    value = network.add_input_layer(0, INFO, name="x")
    for number, op in enumerate([StandIn(1, "special"), *ops]):
        value = network.add_layer(op, value, name=f"{number} {type(op).__name__}", outputs=[INFO]).output
    network.add_output_layer(0, value, name="y")
    return network


def test_a_layer_that_only_one_backend_runs_is_taken_from_it(runtime: Runtime) -> None:
    runtime.registry.register("Stands", Stands)
    for backends in (["CpuRef", "Stands"], ["Stands", "CpuRef"]):
        comparison = compare(with_stand_in(RELU), backends, runtime=runtime)
        stand_in, relu = comparison.layers
        assert (stand_in.taken_from, stand_in.refused) == ("Stands", {"CpuRef": "no kernel for StandIn"})
        assert (relu.taken_from, relu.refused) == ("", {})
        assert comparison.agrees
        assert not comparison.outputs["y"].differs


def test_a_network_that_only_one_backend_runs_cannot_be_compared(runtime: Runtime) -> None:
    runtime.registry.register("Stands", Stands)
    with pytest.raises(InterposerError) as caught:
        compare(with_stand_in(), ["CpuRef", "Stands"], runtime=runtime)
    assert str(caught.value) == (
        "no layer runs on both CpuRef and Stands:\n"
        "  - '0 StandIn' (StandIn): CpuRef says: no kernel for StandIn\n"
        "nothing can be compared; if a layer stands for a whole network, give the model from which it was made instead"
    )


def test_the_part_that_is_wrong_is_wrong_again(runtime: Runtime) -> None:
    network = chain(PRODUCT, SUM, PRODUCT, SUM, SUM, PRODUCT, SUM)
    comparison = compare(network, ["CpuRef", "Fuses"], runtime=runtime)
    assert comparison.cut is not None
    assert len(comparison.cut.network) == len(comparison.cut.inputs) + 3 + 1
    again = compare(comparison.cut.network, ["CpuRef", "Fuses"], comparison.cut.inputs, runtime=runtime)
    assert again.culprit is not None
    assert again.culprit.kind == "fusion"


def test_inputs_may_be_given_or_drawn(runtime: Runtime) -> None:
    zeros = compare(chain(PRODUCT), ["CpuRef", "WrongProducts"], {"x": np.zeros((3, 4))}, runtime=runtime)
    assert zeros.agrees
    item, other = (compare(chain(PRODUCT), ["CpuRef", "WrongProducts"], runtime=runtime, seed=seed) for seed in (1, 2))
    assert item.outputs != other.outputs


def test_networks_without_layers_agree(runtime: Runtime) -> None:
    comparison = compare(chain(), ["CpuRef", "WrongProducts"], runtime=runtime)
    assert (comparison.agrees, comparison.layers, dict(comparison.outputs)) == (True, (), {})


def test_inputs_have_whatever_names(runtime: Runtime) -> None:
    network = Network("names")
    a, b, c = (network.add_input_layer(k, TensorInfo((2,)), name=name) for k, name in enumerate(["x", "x again", "y"]))
    network.add_output_layer(0, network.add_addition_layer(network.add_addition_layer(a, b), c), name="output")
    assert compare(network, ["CpuRef", "WrongProducts"], runtime=runtime).agrees


def test_control_flow_is_run_as_one_layer(runtime: Runtime) -> None:
    body = Network("body")
    number, going, value, step = (body.add_input_layer(k, None, name=name) for k, name in enumerate("ngvs"))
    below = body.add_constant_layer(np.array(True), name="true")
    grown = body.add_multiplication_layer(value, step, name="grown")
    for k, arguments in enumerate((below, grown)):
        body.add_output_layer(k, arguments)
    network = Network("loop")
    count = network.add_input_layer(0, TensorInfo((), "int64"), name="count")
    start, step = (network.add_input_layer(k, TensorInfo(()), name=name) for k, name in ((1, "start"), (2, "step")))
    loop = network.add_loop_layer(count, None, start, step, regions=[body], num_carried=1, num_scan_outputs=0, name="l")
    network.add_output_layer(0, loop.outputs[0], name="y")
    feeds = {"count": np.int64(3), "start": np.float32(2), "step": np.float32(2)}
    assert compare(network, ["CpuRef", "Right"], feeds, runtime=runtime).agrees
    comparison = compare(network, ["CpuRef", "WrongProducts"], feeds, runtime=runtime)
    assert comparison.first is not None
    assert comparison.first.name == "l"


def test_it_is_told_as_plain_data(runtime: Runtime) -> None:
    comparison = compare(chain(SUM, PRODUCT), ["CpuRef", "WrongProducts"], runtime=runtime).to_dict()
    assert (comparison["agrees"], comparison["first"], comparison["largest"]) == (
        False,
        "1 Multiplication",
        "1 Multiplication",
    )
    assert comparison["culprit"]["layers"] == ("1 Multiplication",)
    assert [item["name"] for item in comparison["layers"]] == ["0 Addition", "1 Multiplication"]


def test_every_layer_has_its_range_and_the_signal_to_noise_ratio_of_the_accumulated_result(runtime: Runtime) -> None:
    comparison = compare(chain(SUM, PRODUCT, SUM), ["CpuRef", "WrongProducts"], runtime=runtime)
    first, second, third = comparison.layers
    assert first.snr == math.inf
    assert first.low is not None
    assert first.high is not None
    assert first.low < first.high
    assert second.snr == pytest.approx(40, abs=0.1)  # the products are wrong by a hundredth
    assert third.snr is not None
    assert 30 < third.snr < 60
    assert [item["snr"] for item in comparison.to_dict()["layers"]] == [None, second.snr, third.snr]


def test_ranges_and_ratios_of_quantized_tensors_are_those_of_their_float_values(runtime: Runtime) -> None:
    info = TensorInfo((1, 4), DataType.INT8, Quantization(0.5, 10))
    network = Network("quantized")
    x = network.add_input_layer(0, info, name="x")
    network.add_output_layer(0, network.add_layer(Reshape((4, 1)), x, name="moved"), name="y")
    feeds = {"x": np.array([[10, 12, 8, 30]], np.int8)}
    [layer] = compare(network, ["CpuRef", "Right"], feeds, runtime=runtime).layers
    assert (layer.low, layer.high, layer.snr) == (-1.0, 10.0, math.inf)


def test_integers_have_no_range_and_no_ratio(runtime: Runtime) -> None:
    network = Network("integers")
    x = network.add_input_layer(0, TensorInfo((4,), DataType.INT32), name="x")
    network.add_output_layer(0, network.add_layer(Reshape((2, 2)), x, name="moved"), name="y")
    [layer] = compare(network, ["CpuRef", "Right"], runtime=runtime).layers
    assert (layer.low, layer.high, layer.snr) == (None, None, None)


@pytest.mark.parametrize("backends", [["CpuRef"], ["CpuRef", "CpuRef"], []])
def test_it_takes_two_backends(backends: list[str]) -> None:
    with pytest.raises(InvalidArgumentError, match="compare takes two different backends"):
        compare(chain(SUM), backends)


def test_backends_that_nobody_knows_are_told() -> None:
    with pytest.raises(UnknownBackendError, match="unknown backend 'CpuReg'; did you mean 'CpuRef'"):
        compare(chain(SUM), ["CpuRef", "CpuReg"])


# --- real networks ----------------------------------------------------------------------------------------------------


@needs_models
@pytest.mark.parametrize("name", ["ad01_int8", "kws_ref_model", "ad01_fp32", "vww_96_int8"])
def test_real_networks_agree_on_cpuacc(name: str, cpuacc: None) -> None:
    pytest.importorskip("flatbuffers", reason="the package flatbuffers is not installed")
    comparison = compare(ip.session.read_network(MODELS / f"{name}.tflite"), ["CpuRef", "CpuAcc"])
    assert comparison.agrees, comparison.culprit
    assert not any(layer.refused for layer in comparison.layers)


# --- divergences ------------------------------------------------------------------------------------------------------


def between(found: Any, wanted: Any, dtype: str = "float32") -> Divergence:
    info = TensorInfo(np.shape(wanted), dtype)
    numpy = info.dtype.numpy
    return Divergence.between(np.asarray(found, numpy), np.asarray(wanted, numpy), info)


def test_differences_of_floats_are_told_in_three_ways() -> None:
    result = between([1.0, np.nextafter(np.float32(-2), np.float32(-3))], [1.0, -2.0])
    assert (result.steps, result.count, result.size) == (1, 1, 2)
    assert str(result) == "2.38e-07 (1.2e-07 of the largest, 1 ulp), 1 of 2 elements"
    assert between([-0.0], [0.0]).differs is False
    assert between([-1e-45], [1e-45]).steps == 2
    assert between([1.0078125], [1.0], "bfloat16").steps == 1


def test_differences_of_integers_are_told_in_steps() -> None:
    assert str(between([1, 5, 3], [1, 2, 3], "int8")) == "3 steps, 1 of 3 elements"
    assert not Tolerance().exceeded(between([3], [2], "uint8"))
    assert Tolerance().exceeded(between([3], [2], "int64"))
    assert Tolerance().exceeded(between([2**53 + 1], [2**53], "int64"))


@pytest.mark.parametrize(("found", "wanted"), [(np.nan, 1.0), (1.0, np.inf), (-np.inf, np.inf)])
def test_what_is_not_finite_on_one_side_is_a_fault(found: float, wanted: float) -> None:
    item = between([2.0, found], [2.0, wanted])
    assert item.fault == f"{found} instead of {wanted} at [1]"
    assert Tolerance(1e9).exceeded(item)
    assert not between([found], [found]).differs


def test_tolerances_that_cannot_be_meant_are_refused() -> None:
    with pytest.raises(InvalidArgumentError, match="the tolerance relative must be 0 or more, not -1"):
        Tolerance(-1)
