"""Explanations of models: parts, what crosses, and times that are measured or estimated and say which."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings

import interposer as ip
from interposer import Network, OptimizerOptions, Runtime, TensorInfo
from interposer.core.errors import InvalidArgumentError
from interposer.core.types import DataType
from interposer.ops import ActivationFunction
from interposer.report.explanation import Explanation, Times
from interposer.report.facts import Facts, LayerFacts, Tensor
from interposer.report.times import Clock, Group, Time
from interposer.session.placement import Plan
from tests.devices import Device, Sums
from tests.graphs import random_networks
from tests.optimizer.test_division import moody

pytestmark = pytest.mark.needs_cpuref

INFO = TensorInfo((1, 16))


@pytest.fixture
def runtime() -> Iterator[Runtime]:
    with Runtime() as runtime:
        runtime.registry.register("Device", Device)
        runtime.registry.register("Sums", Sums)
        yield runtime


def mixed() -> Network:
    """sum (Sums), relu (Device), tanh (CpuRef), product (Sums)."""
    network = Network("mixed")
    x = network.add_input_layer(0, INFO, name="x")
    total = network.add_addition_layer(x, network.add_constant_layer(np.ones((1, 16), np.float32)), name="sum")
    relu = network.add_activation_layer(total, function=ActivationFunction.RELU, name="relu")
    tanh = network.add_activation_layer(relu, function=ActivationFunction.TANH, name="tanh")
    network.add_output_layer(0, network.add_multiplication_layer(tanh, total, name="product"), name="y")
    return network


def loaded(runtime: Runtime, network: Network | None = None, **how: object) -> ip.Model:
    return ip.load(network or mixed(), backends=["Device", "Sums", "CpuRef"], runtime=runtime, **how)


def by_name(explanation: Explanation) -> dict[str, dict]:
    return {item["layer"]: item for item in explanation.to_dict()["layers"]}


def test_a_part_is_told_with_its_layers_and_what_crosses_its_border(runtime):
    explanation = loaded(runtime).explain().to_dict()
    assert [(item["part"], item["backend"], item["layers"]) for item in explanation["parts"]] == [
        (1, "Sums", ["sum"]), (2, "Device", ["relu"]), (3, "CpuRef", ["tanh"]), (4, "Sums", ["product"]),
    ]  # fmt: skip
    borders = [
        [[(explanation["crossings"][item]["value"], explanation["crossings"][item]["how"]) for item in part[way]]
         for way in ("incoming", "outgoing")] for part in explanation["parts"]
    ]  # fmt: skip
    into, out, on = [("sum", "copy")], [("relu", "copy")], [("tanh", "direct")]
    assert borders == [[[], into], [into, out], [out, on], [on, []]]
    assert [item["bytes"] for item in explanation["crossings"]] == [64, 64, 64]


def test_a_layer_is_told_with_its_tensors_attributes_and_how_they_came(runtime):
    reported = by_name(loaded(runtime).explain())
    assert reported["tanh"]["attributes"] == {"function": "TANH", "a": "1.0", "b": "1.0"}
    assert reported["tanh"]["others"] == {"Device": ["TANH is not RELU"], "Sums": ["no kernel for Activation"]}
    a, b = reported["sum"]["inputs"]
    assert (a["role"], a["layer"], a["crossing"], a["shape"]) == ("a", "x", None, "[1, 16]")
    assert (b["role"], b["layer"], b["type"], b["value"]) == ("b", "", "float32", "")  # too large to be shown
    assert [item["crossing"] is None for item in reported["product"]["inputs"]] == [
        False,
        True,
    ]  # from tanh, and from sum
    assert reported["sum"]["bytes"] == 3 * 64


def test_quantization_and_small_constants_are_told(runtime):
    network = Network("quantized")
    x = network.add_input_layer(0, TensorInfo((2,), DataType.UINT8, ip.Quantization(0.5, 7)), name="x")
    real = network.add_dequantize_layer(x, name="real")
    shifted = network.add_addition_layer(real, network.add_constant_layer(np.float32([1, 2])), name="shifted")
    network.add_output_layer(0, shifted)
    reported = by_name(ip.load(network, backends=["CpuRef"]).explain())
    assert reported["real"]["inputs"][0]["quantization"] == "scale 0.5, zero point 7"
    assert reported["shifted"]["inputs"][1]["value"] == "[1., 2.]"


def test_without_measuring_only_shares_of_the_work_are_told(runtime):
    explanation = loaded(runtime).explain().to_dict()
    assert explanation["times"] == {
        "whole_ms": None, "source": "", "runs": 0, "estimated_by": "bytes read and written, 8 operations as one",
        "candidates_ms": {},
    }  # fmt: skip
    assert {(item["time"]["ms"], item["time"]["how"]) for item in explanation["layers"]} == {(None, "estimated")}
    assert np.isclose(sum(item["time"]["share"] for item in explanation["layers"]), 1)
    assert np.isclose(sum(item["time"]["share"] for item in explanation["parts"]), 1)


def test_what_is_measured_says_so_copies_too(runtime):
    explanation = loaded(runtime).explain(measure=True, budget_seconds=0.01).to_dict()
    assert explanation["times"]["source"] == "measured"
    assert explanation["times"]["runs"] >= 5
    assert explanation["times"]["whole_ms"] > 0
    assert {item["time"]["how"] for item in (*explanation["layers"], *explanation["parts"])} == {"measured"}
    assert all(item["time"]["ms"] > 0 for item in explanation["layers"])
    assert [item["ms"] is not None for item in explanation["crossings"]] == [
        True,
        True,
        False,
    ]  # nothing is done for the last
    json.loads(json.dumps(explanation, allow_nan=False))


def test_the_time_of_a_part_is_that_of_all_that_runs_in_its_place(runtime):
    names = ["one", "two", "three"]
    runtime.registry.register("Whole", moody("Whole", names, ["compile"]))
    network = Network("compiled")
    values = [network.add_input_layer(0, INFO, name="x")]
    for name in names:
        values.append(network.add_addition_layer(values[-1], values[-1], name=name))
    network.add_output_layer(0, values[-1])
    optimized = ip.load(network, backends=["Whole"], runtime=runtime).optimized
    units = [layer.name for layer in optimized.graph if layer.kind == "PreCompiled"]
    explanation = optimized.explain(Times(9.0, dict(zip(units, (1.0, 2.0, 3.0), strict=True)), "measured", 1)).to_dict()
    assert [item["time"] for item in explanation["layers"]][1] == {"ms": 2.0, "share": 2 / 6, "how": "measured"}
    assert explanation["parts"][0]["runs_as"] == units
    assert explanation["parts"][0]["time"]["ms"] == 6.0


def test_layers_that_run_in_one_share_its_time_by_their_work(runtime):
    class Fuses(moody("Fuses", ["one", "two"], [])):
        def pieces(self, view):
            return [(view, "compile")]

    Fuses.id = "Fuses"
    runtime.registry.register("Fuses", Fuses)
    network = Network("fused")
    x = network.add_input_layer(0, INFO, name="x")
    item = network.add_addition_layer(x, x, name="one")
    network.add_output_layer(0, network.add_multiplication_layer(item, x, name="two"))
    model = ip.load(network, backends=["Fuses"], runtime=runtime)
    explanation = model.explain(measure=True, budget_seconds=0.01).to_dict()
    [part] = explanation["parts"]
    assert part["runs_as"] == ["PreCompiled:one"]
    assert part["time"]["how"] == "measured"
    times = [element["time"] for element in explanation["layers"]]
    assert [time["how"] for time in times] == ["estimated", "estimated"]
    assert np.isclose(sum(time["ms"] for time in times), part["time"]["ms"])
    assert times[1]["ms"] > times[0]["ms"]  # it reads two tensors


def test_what_a_plan_measured_of_the_whole_is_divided_by_work(runtime):
    plan = Plan("mixed", ("Sums", "CpuRef"), {}, measured={"Sums": 8.0, "mix": 4.0}, chosen="mix")
    explanation = ip.load(mixed(), runtime=runtime, plan=plan).explain()
    assert "  measured for the plan: mix 4 ms, Sums 8 ms\n" in str(explanation)
    facts = explanation.to_dict()
    assert (facts["times"]["whole_ms"], facts["times"]["source"]) == (4.0, "plan 'mix'")
    assert facts["times"]["candidates_ms"] == {"Sums": 8.0, "mix": 4.0}
    assert np.isclose(sum(item["time"]["ms"] for item in facts["layers"]), 4.0)
    assert {item["time"]["how"] for item in facts["layers"]} == {"estimated"}


def test_branches_are_told_and_one_that_is_not_taken_takes_nothing(runtime):
    def region(title: str, function: ActivationFunction) -> Network:
        inner = Network(title)
        x = inner.add_input_layer(0, None, name="in")
        inner.add_output_layer(0, inner.add_activation_layer(x, function=function, name=f"in {title}"))
        return inner

    network = Network("choice")
    condition = network.add_input_layer(0, TensorInfo((), DataType.BOOL), name="c")
    x = network.add_input_layer(1, INFO, name="x")
    regions = region("then", ActivationFunction.TANH), region("else", ActivationFunction.ABS)
    network.add_output_layer(0, network.add_if_layer(condition, x, regions=regions, name="if"), name="y")
    inputs = {"c": False, "x": np.ones((1, 16), np.float32)}
    model = ip.load(network, backends=["CpuRef"], runtime=runtime)
    explanation = model.explain(measure=True, inputs=inputs, budget_seconds=0.01).to_dict()
    [hosted] = explanation["run by the runtime"]
    layers = {item["layer"]: item for item in explanation["layers"]}
    assert layers["if/then/in then"]["time"] == {"ms": 0.0, "share": 0.0, "how": "measured"}
    assert 0 < layers["if/else/in else"]["time"]["ms"] <= hosted["ms"]
    assert layers["if/else/in else"]["inputs"][0]["layer"] == "if"
    assert explanation["outputs"][0]["layer"] == "if"


def test_the_text_has_a_row_for_every_part(runtime):
    model = loaded(runtime)
    guessed = [line.split() for line in str(model.explain()).splitlines()]
    assert ["part", "backend", "layers", "work", "comes", "in", "goes", "out"] in guessed
    assert ["2", "Device", "relu", "~20%", "64", "bytes", "copied", "64", "bytes", "copied"] in guessed
    measured = str(model.explain(measure=True, budget_seconds=0.01))
    assert "part  backend  layers   time" in measured
    assert "one run takes " in measured


def test_measuring_follows_the_shapes_of_given_inputs(runtime):
    network = Network("open")
    x = network.add_input_layer(0, TensorInfo(("n", 16)), name="x")
    network.add_output_layer(0, network.add_addition_layer(x, x, name="sum"))
    model = ip.load(network, backends=["CpuRef"], runtime=runtime)
    with pytest.raises(InvalidArgumentError, match="are not known yet"):
        model.explain(measure=True)
    inputs = [np.ones((3, 16), np.float32)]
    explanation = model.explain(measure=True, inputs=inputs, budget_seconds=0.01).to_dict()
    assert explanation["inputs"][0]["shape"] == "[3, 16]"


@pytest.mark.parametrize("seconds", [0, -1.0, float("nan"), float("inf")])
def test_measuring_needs_time(runtime, seconds):
    with pytest.raises(InvalidArgumentError, match="budget_seconds must be more than 0, and finite, not "):
        loaded(runtime).explain(measure=True, budget_seconds=seconds)


@settings(max_examples=25, deadline=None)
@given(random_networks())
def test_whatever_the_network_every_layer_has_its_part_its_share_and_known_tensors(drawn):
    network = drawn.network
    with Runtime() as runtime:
        runtime.registry.register("Sums", Sums)
        explanation = ip.load(network, backends=["Sums", "CpuRef"], runtime=runtime).explain()
    facts = explanation.to_dict()
    names = [item["layer"] for item in facts["layers"]]
    assert sorted(name for part in facts["parts"] for name in part["layers"]) == sorted(names)
    assert not names or np.isclose(sum(item["time"]["share"] for item in facts["layers"]), 1)
    known = {*names, "", *(item["layer"] for item in facts["inputs"])}
    taken = [*facts["outputs"], *(tensor for item in facts["layers"] for tensor in item["inputs"])]
    assert {tensor["layer"] for tensor in taken} <= known
    crossed = {number for part in facts["parts"] for way in ("incoming", "outgoing") for number in part[way]}
    assert crossed <= set(range(len(facts["crossings"])))
    assert json.loads(explanation.to_json()) == facts


def test_debug_layers_are_looked_through(runtime):
    explanation = loaded(runtime, options=OptimizerOptions(debug=True)).explain().to_dict()
    assert [item["layers"] for item in explanation["parts"]] == [["sum"], ["relu"], ["tanh"], ["product"]]
    assert [item["inputs"][0]["layer"] for item in explanation["layers"]] == ["x", "sum", "relu", "tanh"]
    into = [explanation["crossings"][item["inputs"][0]["crossing"]]["value"] for item in explanation["layers"]]
    assert into == [f"DebugLayerAfter{name}" for name in ("x", "sum", "relu", "tanh")]


def test_layers_of_conversion_have_their_part_too(runtime):
    options = OptimizerOptions(reduce_fp32_to_fp16=True)
    explanation = loaded(runtime, options=options).explain().to_dict()
    assert {"sum", "relu", "tanh", "product"} <= {item["layer"] for item in explanation["layers"]}
    known = {item["layer"] for item in explanation["layers"]} | {"x", ""}
    assert {tensor["layer"] for item in explanation["layers"] for tensor in item["inputs"]} <= known
    assert all(item["part"] is not None for item in explanation["layers"])


# --- times of layers inside of units ----------------------------------------------------------------------------------


def dense() -> Network:
    network = Network("dense")
    x = network.add_input_layer(0, TensorInfo((8, 16)), name="x")
    weights = network.add_constant_layer(np.full((16, 16), 0.01, np.float32))
    y = network.add_batch_mat_mul_layer(x, weights, name="product")
    y = network.add_activation_layer(y, function=ActivationFunction.RELU, name="positive")
    network.add_output_layer(0, network.add_softmax_layer(y, name="share"), name="y")
    return network


@pytest.mark.parametrize("backend", ["CpuAcc", "OnnxRuntime", "OpenVino", "Torch"])
def test_layers_that_a_backend_measures_inside_of_a_unit_have_measured_times(
    backend: str, request: pytest.FixtureRequest
) -> None:
    if backend == "CpuAcc":
        request.getfixturevalue("cpuacc")
    if ip.default_runtime().registry.reason_absent(backend) is not None:
        pytest.skip(f"needs {backend}")
    explanation = ip.load(dense(), [backend]).explain(measure=True, budget_seconds=0.01).to_dict()
    times = {layer["layer"]: layer["time"] for layer in explanation["layers"]}
    assert times["share"]["how"] == "measured"
    assert all(time["ms"] > 0 for time in times.values())
    for name, time in times.items():
        assert (time["how"] == "measured") == ("group" not in time)
        assert name in time.get("group", {"layers": [name]})["layers"]
    [part] = explanation["parts"]
    assert part["time"]["how"] == "measured"
    assert sum(time["ms"] for time in times.values()) <= 1.5 * part["time"]["ms"]


def test_a_layer_without_a_step_shares_only_the_steps_of_no_layer() -> None:
    tensors = {"attributes": {}, "inputs": (), "outputs": (), "operations": 0, "bytes": 8}
    layers = {name: LayerFacts(name, "Addition", **tensors) for name in "abc"}
    facts = Facts(layers=layers, units=dict.fromkeys("abc", ("unit",)))
    clock = Clock(facts, Times(10.0, {"unit": 9.0}, "measured", 1, layers={"a": 5.0}, others={"unit": 3.0}))
    assert [(clock.layer(name).ms, clock.layer(name).measured) for name in "abc"] == [
        (5.0, True), (1.5, False), (1.5, False),
    ]  # fmt: skip
    assert clock.layer("b").group == Group(("b", "c"), 3.0)
    none = Clock(facts, Times(10.0, {"unit": 9.0}, "measured", 1))
    assert [none.layer(name).ms for name in "abc"] == [3.0, 3.0, 3.0]


def chain_facts(*layers: tuple[str, bool, tuple[str, ...]]) -> Facts:
    """Return the facts of one unit: names of layers in order, whether they are pointwise, and their producers."""
    described = {}
    for name, pointwise, producers in layers:
        inputs = tuple(Tensor("x", before, "", "", 4, layer=before) for before in producers)
        described[name] = LayerFacts(name, "Any", {}, inputs, (), 0, 8, pointwise)
    return Facts(layers=described, units=dict.fromkeys(described, ("unit",)))


def groups_of(facts: Facts, measured: dict[str, float]) -> dict[str, tuple[str, ...]]:
    clock = Clock(facts, Times(10.0, {"unit": 9.0}, "measured", 1, layers=measured))
    times = {name: clock.layer(name) for name in facts.layers}
    return {name: time.group.layers if time.group else (name,) for name, time in times.items()}


def test_beside_steps_of_no_layer_a_step_still_has_the_layers_that_are_fused_into_it() -> None:
    facts = chain_facts(
        ("product", False, ()), ("bias", True, ("product",)), ("split", False, ("bias",)), ("swap", False, ("split",)),
        ("score", False, ("swap",)), ("scale", True, ("score",)), ("mask", True, ("scale",)),
        ("conv", False, ("mask",)), ("clamp", True, ("conv",)), ("read", False, ("conv",)),
    )  # fmt: skip
    measured = {"bias": 5.0, "mask": 2.0, "conv": 1.0}
    clock = Clock(facts, Times(10.0, {"unit": 9.0}, "measured", 1, layers=measured, others={"unit": 0.6}))
    assert {name: clock.layer(name).group for name in facts.layers} == {
        **dict.fromkeys(("product", "bias"), Group(("product", "bias"), 5.0)),
        **dict.fromkeys(("score", "scale", "mask"), Group(("score", "scale", "mask"), 2.0)),
        **dict.fromkeys(("conv", "clamp"), Group(("conv", "clamp"), 1.0)),
        **dict.fromkeys(("split", "swap", "read"), Group(("split", "swap", "read"), 0.6)),
    }


def test_a_layer_whose_results_are_also_read_outside_of_its_unit_is_not_fused_into_a_later_step() -> None:
    facts = chain_facts(("product", False, ()), ("bias", True, ("product",)), ("copy", False, ("product",)))
    inside = {"product": ("unit",), "bias": ("unit",), "copy": ("other",)}
    times = Times(10.0, {"unit": 9.0, "other": 1.0}, "measured", 1, layers={"bias": 5.0}, others={"unit": 3.0})
    clock = Clock(replace(facts, units=inside), times)
    assert [clock.layer(name).ms for name in facts.layers] == [3.0, 5.0, 1.0]
    is_output = replace(facts, units=inside, outputs=(Tensor("y", "y", "", "", 4, layer="bias"),))
    assert is_output.readers == {"product": ["bias", "copy"], "bias": [""], "copy": []}


def test_an_activation_is_measured_with_the_layer_before_it() -> None:
    facts = chain_facts(("conv", False, ()), ("relu", True, ("conv",)), ("pool", False, ("relu",)))
    clock = Clock(facts, Times(10.0, {"unit": 9.0}, "measured", 1, layers={"conv": 6.0, "pool": 2.0}))
    group = Group(("conv", "relu"), 6.0)
    assert [clock.layer(name) for name in ("conv", "relu", "pool")] == [
        Time(3.0, 3 / 9, False, group), Time(3.0, 3 / 9, False, group), Time(2.0, 2 / 9, True),
    ]  # fmt: skip
    assert clock.layer("relu").to_dict()["group"] == {"layers": ["conv", "relu"], "count": 2, "ms": 6.0}
    assert str(group) == "conv + relu: 6 ms"
    assert str(Group(("a", "b", "c", "d"), 0.5)) == "a .. d (4): 0.5 ms"
    many = Group(tuple(map(str, range(1000))), 1.0).to_dict()
    assert (many["layers"], many["count"]) == (list(map(str, range(16))), 1000)


def test_the_first_layers_of_a_block_are_measured_with_the_layer_that_the_step_is_named_after() -> None:
    facts = chain_facts(
        ("stem", False, ()), ("expand", False, ("stem",)), ("clamp", True, ("expand",)),
        ("depthwise", False, ("clamp",)), ("project", False, ("depthwise",)), ("sum", True, ("project", "stem")),
    )  # fmt: skip
    block = ("expand", "clamp", "depthwise", "project", "sum")
    assert groups_of(facts, {"stem": 1.0, "project": 5.0}) == {"stem": ("stem",), **dict.fromkeys(block, block)}


def test_a_sum_is_measured_with_the_later_one_of_its_producers() -> None:
    facts = chain_facts(("a", False, ()), ("b", False, ("a",)), ("sum", True, ("a", "b")))
    assert groups_of(facts, {"a": 1.0, "b": 5.0})["sum"] == ("b", "sum")


def test_a_layer_that_nothing_follows_is_measured_with_the_layers_before_it() -> None:
    facts = chain_facts(("a", False, ()), ("flatten", False, ("a",)), ("apart", False, ()))
    assert groups_of(facts, {"a": 1.0}) == dict.fromkeys(("a", "flatten", "apart"), ("a", "flatten", "apart"))


@pytest.mark.usefixtures("cpuacc")
def test_no_layer_of_a_fused_step_takes_no_time() -> None:
    digits = Path(__file__).parents[2] / "examples" / "digits" / "digits.onnx"
    explanation = ip.load(digits, ["CpuAcc"]).explain(measure=True, budget_seconds=0.01)
    layers = {layer["layer"]: layer["time"] for layer in explanation.to_dict()["layers"]}
    assert layers["relu1"]["group"]["layers"] == ["conv1", "relu1"]
    assert layers["conv1"]["group"] == layers["relu1"]["group"]
    assert layers["pool"]["how"] == "measured"
    assert all(time["ms"] > 0 for time in layers.values())
    assert "~0 " not in str(explanation)
    assert "conv1 + relu1: " in str(explanation)
