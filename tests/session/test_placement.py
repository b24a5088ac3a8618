"""Placement by measurement: what is measured, what is chosen, and what is cached."""

from __future__ import annotations

import itertools
import json
import logging
import threading
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, ClassVar

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import interposer as ip
from interposer import Network, OptimizerOptions, Quantization, Runtime, TensorInfo
from interposer.backend import (
    Backend,
    BackendId,
    Capabilities,
    KernelTable,
    LayerSupport,
    MemoryManager,
    OptimizationViews,
    Options,
    SubgraphView,
    Substitution,
    Support,
    TensorHandle,
    Workload,
    WorkloadFactory,
    WorkloadInfo,
)
from interposer.core.errors import ExecutionError, InvalidArgumentError, LimitExceededError, OptionError
from interposer.core.types import Array
from interposer.ir.graph import Layer
from interposer.ops import (
    Activation,
    ActivationFunction,
    Addition,
    Multiplication,
    PreCompiled,
    Quantize,
    RoundingMethod,
)
from interposer.session.placement import Plan, Search, place
from interposer.session.placement.cuts import blocks_of, part_network
from interposer.session.placement.loaded import Loaded
from interposer.session.placement.measured import _Placer
from interposer.session.placement.origin import made_with
from interposer.session.placement.search import best_plans

RELU = Activation(ActivationFunction.RELU)
INFO = TensorInfo((4, 8))
X = np.linspace(-1, 1, 32, dtype=np.float32).reshape(4, 8)


class Clock:
    """Stands for the module `time` where placements are measured: kernels say how long they took, whatever that was."""

    now = 0.0

    def monotonic(self) -> float:
        Clock.now += 5e-4
        return Clock.now

    perf_counter = monotonic

    def sleep(self, seconds: float) -> None:
        Clock.now += seconds


def slowed(adds: float, multiplies: float) -> KernelTable:
    """Kernels that take so many seconds of the clock."""
    table = KernelTable()

    @table(Addition)
    def add(op: Addition, a: Array, b: Array, *, out: Array) -> None:
        Clock.now += 1e-3 + adds
        np.add(a, b, out=out)

    @table(Multiplication)
    def multiply(op: Multiplication, a: Array, b: Array, *, out: Array) -> None:
        Clock.now += 1e-3 + multiplies
        np.multiply(a, b, out=out)

    return table


class Adds(Backend):
    """Quick at adding."""

    id: ClassVar = "Adds"
    kernels: ClassVar = slowed(0.0, 0.01)


class Multiplies(Backend):
    """Quick at multiplying."""

    id: ClassVar = "Multiplies"
    kernels: ClassVar = slowed(0.01, 0.0)


class OnlyMultiplies(Backend):
    """Takes no additions."""

    id: ClassVar = "OnlyMultiplies"
    kernels: ClassVar = KernelTable()


@OnlyMultiplies.kernels(Multiplication)
def multiply(op: Multiplication, a: Array, b: Array, *, out: Array) -> None:
    np.multiply(a, b, out=out)


class Raises(Backend):
    """Takes additions and multiplications, and fails."""

    id: ClassVar = "Raises"
    kernels: ClassVar = KernelTable()


@Raises.kernels(Addition)
@Raises.kernels(Multiplication)
def fail(op: Addition | Multiplication, a: Array, b: Array, *, out: Array) -> None:
    raise RuntimeError("it is broken")


class Slow(Backend):
    """Slow at both."""

    id: ClassVar = "Slow"
    kernels: ClassVar = slowed(1.0, 1.0)


class Holding(Backend):
    """Takes whole networks as parts, which compute nothing for some seconds, and says how many bytes these hold."""

    def __init__(self, name: str, held: int | None, seconds: float = 1e-3) -> None:
        self.id = BackendId(name)  # type: ignore[misc]
        self.held, self.seconds = held, seconds

    @property
    def identity(self) -> str:
        return f"build of {self.id}"

    def layer_support(self, options: Options) -> LayerSupport:
        return TakesAll()

    def optimize_subgraph(self, view: SubgraphView, options: Options) -> OptimizationViews:
        whole = PreCompiled(object=(self.held, self.seconds), num_outputs=len(view.outputs))
        return OptimizationViews(view, substitutions=[Substitution(view, whole)])

    def create_workload_factory(self, memory_manager: MemoryManager | None, options: Options) -> WorkloadFactory:
        return HoldingFactory(memory_manager)


class TakesAll(LayerSupport):
    def query(self, view: SubgraphView) -> list[Support]:
        return [Support.yes() for _ in view]


class HoldingFactory(WorkloadFactory):
    def create_workload(self, layer: Layer, info: WorkloadInfo) -> Workload:
        assert isinstance(layer.op, PreCompiled)
        return HoldingWorkload(*layer.op.object)


class HoldingWorkload(Workload):
    def __init__(self, held: int | None, seconds: float) -> None:
        self.held, self.seconds = held, seconds

    @property
    def memory(self) -> int | None:
        return self.held

    def execute(self, inputs: Sequence[TensorHandle | None], outputs: Sequence[TensorHandle]) -> None:
        Clock.now += self.seconds


@pytest.fixture
def clock(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Lets placements be measured by `Clock`, and cached in a folder of the test."""
    monkeypatch.setenv("INTERPOSER_CACHE_DIR", str(tmp_path / "cache"))
    for module in ("placement.measured", "placement.loaded", "timing"):
        monkeypatch.setattr(f"interposer.session.{module}.time", Clock())


@pytest.fixture
def runtime(clock: None) -> Iterator[Runtime]:
    with Runtime() as runtime:
        runtime.registry.register("Adds", Adds)
        runtime.registry.register("Multiplies", Multiplies)
        yield runtime


def sums_and_products() -> Network:
    network = Network("mixed")
    value = network.add_input_layer(0, INFO, name="x")
    for number, op in enumerate([Addition(), Addition(), Multiplication(), Multiplication()]):
        value = network.add_layer(op, value, value, name=f"layer {number}")
    network.add_output_layer(0, value, name="y")
    return network


BACKENDS = ("Adds", "Multiplies")
REQUESTED = np.square(np.square(4 * X))
QUICK = Search(budget_seconds=20)
GENEROUS = Search(budget_seconds=300)
"""For what is done only where time is left, also on a machine that is busy."""


def test_each_part_goes_where_it_is_fastest(runtime: Runtime) -> None:
    plan = place(sums_and_products(), runtime, BACKENDS, OptimizerOptions(rewrite=False), QUICK)
    assert plan.chosen.startswith("mix")
    assert dict(plan.layers) == {
        "layer 0": "Adds", "layer 1": "Adds", "layer 2": "Multiplies", "layer 3": "Multiplies",
    }  # fmt: skip
    assert plan.measured[plan.chosen] < min(plan.measured["Adds"], plan.measured["Multiplies"])


def test_the_parts_of_the_chosen_plan_are_measured_in_it(runtime: Runtime) -> None:
    options = OptimizerOptions(rewrite=False)
    plan = place(sums_and_products(), runtime, BACKENDS, options, GENEROUS)
    model = ip.load(sums_and_products(), plan=plan, options=options, runtime=runtime)
    explanation = model.explain().to_dict()
    assert {placement.runs_in for placement in model.optimized.placements} <= plan.units.keys()
    assert [part["time"]["how"] for part in explanation["parts"]] == ["measured", "measured"]
    other = replace(plan, units={"another layer": 1.0})
    explanation = ip.load(sums_and_products(), plan=other, options=options, runtime=runtime).explain().to_dict()
    assert [part["time"]["how"] for part in explanation["parts"]] == ["estimated", "estimated"]


@pytest.mark.usefixtures("cpuacc")
def test_the_only_part_of_a_plan_takes_the_time_of_the_whole(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("INTERPOSER_CACHE_DIR", str(tmp_path / "cache"))
    with Runtime() as runtime:
        plan = place(sums_and_products(), runtime, ["CpuAcc"], search=QUICK)
    assert list(plan.units.values()) == [plan.measured["CpuAcc"]]


def test_parts_that_cannot_be_timed_are_no_fault_of_the_plan(runtime: Runtime, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*given: object) -> None:
        raise ExecutionError("just now not", backend="Adds")

    monkeypatch.setattr("interposer.session.stopwatch.measured_times", fail)
    plan = place(sums_and_products(), runtime, BACKENDS, OptimizerOptions(rewrite=False), GENEROUS)
    assert (dict(plan.units), dict(plan.failed)) == ({}, {})


def test_a_plan_is_found_again_and_not_measured_twice(runtime: Runtime, monkeypatch: pytest.MonkeyPatch) -> None:
    first = place(sums_and_products(), runtime, BACKENDS, search=QUICK)
    monkeypatch.setattr("interposer.session.placement.measured._Placer.plan", None)
    assert place(sums_and_products(), runtime, BACKENDS, search=QUICK) == first


def test_another_network_or_other_backends_are_measured_anew(runtime: Runtime, tmp_path: Any) -> None:
    place(sums_and_products(), runtime, BACKENDS, search=QUICK)
    place(sums_and_products(), runtime, ["Adds"], search=QUICK)
    other = sums_and_products()
    other.add_output_layer(1, other.graph.layer("layer 0"))
    place(other, runtime, BACKENDS, search=QUICK)
    assert len(list((tmp_path / "cache").glob("plan-*.json"))) == 3


def test_other_options_of_backends_are_measured_anew(clock: None, tmp_path: Any) -> None:
    for threads in (1, 2, 2):
        with Runtime(ip.CreationOptions(backend_options={"Adds": {"threads": threads}})) as runtime:
            runtime.registry.register("Adds", Adds)
            place(sums_and_products(), runtime, ["Adds", "CpuRef"], search=QUICK)
    assert len(list((tmp_path / "cache").glob("plan-*.json"))) == 2


def test_a_damaged_plan_in_the_cache_is_made_again(runtime: Runtime, tmp_path: Any) -> None:
    place(sums_and_products(), runtime, ["Adds"], search=QUICK)
    [cached] = (tmp_path / "cache").glob("plan-*.json")
    cached.write_text("{", encoding="utf-8")
    assert place(sums_and_products(), runtime, ["Adds"], search=QUICK).chosen == "Adds"


def test_layers_that_are_pinned_stay_where_they_are(runtime: Runtime) -> None:
    options = OptimizerOptions(rewrite=False, hints={"layer 0": "Multiplies"})
    plan = place(sums_and_products(), runtime, BACKENDS, options, QUICK)
    assert plan.layers["layer 0"] == "Multiplies"


def test_a_type_can_be_kept_from_a_backend(runtime: Runtime) -> None:
    options = OptimizerOptions(rewrite=False, exclude={"Addition": ["Adds"]})
    plan = place(sums_and_products(), runtime, BACKENDS, options, QUICK)
    model = ip.load(sums_and_products(), plan=plan, options=OptimizerOptions(rewrite=False), runtime=runtime)
    placed = {placement.layer: placement.backend for placement in model.optimized.placements}
    assert (placed["layer 0"], placed["layer 1"]) == ("Multiplies", "Multiplies")
    assert Plan.from_json(plan.to_json()) == plan


def test_a_type_never_goes_to_a_backend_that_is_kept_from_it_though_others_refuse_it(runtime: Runtime) -> None:
    runtime.registry.register("OnlyMultiplies", OnlyMultiplies)
    options = OptimizerOptions(rewrite=False, exclude={"Addition": ["Adds"]})
    plan = place(sums_and_products(), runtime, ["OnlyMultiplies", *BACKENDS], options, QUICK)
    for other in ("OnlyMultiplies", *BACKENDS):
        order = (other, *(backend for backend in plan.backends if backend != other))
        model = ip.load(sums_and_products(), plan=replace(plan, backends=order, layers={}), runtime=runtime)
        placed = {
            placement.layer: placement.backend
            for placement in model.optimized.placements
            if placement.kind == "Addition"
        }
        assert set(placed.values()) == {"Multiplies"}


def test_plans_may_keep_types_from_backends_that_nobody_knows_here(runtime: Runtime) -> None:
    plan = Plan("mixed", BACKENDS, {}, exclude={"Addition": ["Npu"]})
    assert ip.load(sums_and_products(), plan=plan, runtime=runtime).optimized.placements


def test_plans_beyond_a_limit_are_left_out(runtime: Runtime) -> None:
    with pytest.raises(LimitExceededError) as caught:
        place(sums_and_products(), runtime, BACKENDS, search=Search(budget_seconds=20, most_seconds=1e-9))
    reported = str(caught.value)
    assert reported.startswith("no plan for 'mixed' is within most_seconds=1e-09: the least that was found is 0.0")
    assert reported.endswith("; raise the limit, or give other backends")
    with pytest.raises(LimitExceededError) as caught:
        place(sums_and_products(), runtime, ["Adds"], search=Search(budget_seconds=20, most_bytes=1))
    assert str(caught.value) == (
        "no plan for 'mixed' is within most_bytes=1: the least that was found is 256 bytes (Adds); "
        "raise the limit, or give other backends"
    )


def test_memory_that_compiled_parts_hold_counts(runtime: Runtime) -> None:
    runtime.registry.register("Reporting", lambda: Holding("Reporting", 1000))
    runtime.registry.register("Silent", lambda: Holding("Silent", None))
    with ip.load(sums_and_products(), ["Reporting"], runtime=runtime) as model:
        report = model.memory()
        assert (dict(report.parts), report.unknown) == ({"Reporting": 1000}, ())
        assert report.peak == sum(report.arenas.values()) + 1000
    with ip.load(sums_and_products(), ["Silent"], runtime=runtime) as model:
        assert model.memory().unknown == ("Silent",)
    plan = place(sums_and_products(), runtime, ["Reporting", "Adds"], search=Search(20, most_bytes=900))
    assert plan.chosen == "Adds"
    plan = place(sums_and_products(), runtime, ["Reporting", "Silent", "Adds"], search=Search(20, "memory"))
    assert plan.chosen == "Adds"
    with pytest.raises(LimitExceededError, match=r"1,\d+ bytes \(Reporting\); the memory of parts on Silent is not"):
        place(sums_and_products(), runtime, ["Reporting", "Silent"], search=Search(20, most_bytes=900))
    with pytest.raises(InvalidArgumentError, match="can be chosen by memory; the memory of parts on Silent is not"):
        place(sums_and_products(), runtime, ["Silent"], search=Search(20, "memory"))


class Records(Holding):
    """Records the kinds of layers of each part that it compiles; with `floats`, it supports no quantized products."""

    def __init__(self, name: str, *, floats: bool = False, seconds: float = 1e-3) -> None:
        super().__init__(name, 0, seconds)
        self.floats, self.compiled = floats, list[list[str]]()

    def layer_support(self, options: Options) -> LayerSupport:
        return TakesFloats() if self.floats else TakesAll()

    def optimize_subgraph(self, view: SubgraphView, options: Options) -> OptimizationViews:
        self.compiled.append([layer.kind for layer in view])
        return super().optimize_subgraph(view, options)


class TakesFloats(LayerSupport):
    def query(self, view: SubgraphView) -> list[Support]:
        return [Support.no("quantized") if self._is_integer(layer) else Support.yes() for layer in view]

    def _is_integer(self, layer: Layer) -> bool:
        return isinstance(layer.op, Multiplication) and layer.output.known.is_quantized


def quantized_product(products: int = 1) -> Network:
    """Return a network that multiplies dequantized values, and quantizes the product, so many times in a row."""
    network, dtype = Network("quantized"), ip.DataType.INT8
    info = TensorInfo((4, 8), dtype, Quantization(0.1, 0))
    a, b = (network.add_dequantize_layer(network.add_input_layer(number, info)) for number in range(2))
    product = network.add_multiplication_layer(a, b)
    quantize = Quantize(dtype, RoundingMethod.HALF_TO_EVEN)
    value = network.add_layer(quantize, product, outputs=[info])
    for _ in range(products - 1):
        a = network.add_dequantize_layer(value)
        value = network.add_layer(quantize, network.add_multiplication_layer(a, a), outputs=[info])
    network.add_output_layer(0, value)
    return network


def test_the_network_is_simplified_for_each_backend_by_itself(runtime: Runtime) -> None:
    backends = [Records("Integers"), Records("Floats", floats=True)]
    for backend in backends:
        runtime.registry.register(str(backend.id), lambda backend=backend: backend)
    place(quantized_product(), runtime, ["Integers", "Floats"], search=QUICK)
    alone = {str(backend.id): max(backend.compiled, key=len) for backend in backends}
    assert alone == {
        "Integers": ["Multiplication"],
        "Floats": ["Dequantize", "Dequantize", "Multiplication", "Quantize"],
    }


def test_parts_are_those_of_the_graph_that_the_fastest_backend_runs_alone(runtime: Runtime) -> None:
    backends = [Records("Floats", floats=True, seconds=2e-3), Records("Integers")]
    for backend in backends:
        runtime.registry.register(str(backend.id), lambda backend=backend: backend)
    plan = place(quantized_product(2), runtime, ["Floats", "Integers"], search=QUICK)
    assert plan.chosen == "Integers"
    assert sorted(set(map(tuple, backends[1].compiled))) == [("Multiplication",), ("Multiplication", "Multiplication")]


def test_few_plans_of_a_large_network_are_loaded_at_once(runtime: Runtime, monkeypatch: pytest.MonkeyPatch) -> None:
    loaded, most = set[object](), 0
    load, close = Loaded.__init__, Loaded.close

    def counted(self: Loaded, *arguments: Any) -> None:
        nonlocal most
        load(self, *arguments)
        loaded.add(self)
        most = max(most, len(loaded))

    def uncounted(self: Loaded) -> None:
        loaded.discard(self)
        close(self)

    monkeypatch.setattr(Loaded, "__init__", counted)
    monkeypatch.setattr(Loaded, "close", uncounted)
    monkeypatch.setattr("interposer.session.placement.measured._LARGE", -1)
    plan = place(sums_and_products(), runtime, BACKENDS, OptimizerOptions(rewrite=False), GENEROUS)
    assert (most, len(loaded)) == (2, 0)
    assert plan.chosen.startswith("mix")


def test_nothing_is_begun_when_the_time_is_over(runtime: Runtime) -> None:
    plan = place(sums_and_products(), runtime, BACKENDS, search=Search(budget_seconds=0.02))
    assert (plan.chosen, list(plan.measured)) == ("Adds", ["Adds"])


def test_what_was_not_timed_is_in_the_plan_and_in_the_log(runtime: Runtime, caplog: pytest.LogCaptureFixture) -> None:
    search = Search(budget_seconds=0.02)
    with caplog.at_level(logging.INFO, "interposer.session"):
        plan = place(sums_and_products(), runtime, BACKENDS, OptimizerOptions(rewrite=False), search)
    reasons = {"Multiplies": "the budget of 0.02 s was spent", "mixes": plan.unmeasured["mixes"]}
    assert plan.unmeasured == reasons
    assert plan.notes() == (
        "Multiplies was not timed: the budget of 0.02 s was spent",
        f"no mix of backends was timed: {reasons['mixes']}",
    )
    assert reasons["mixes"].endswith("parts were not timed, as the budget of 0.02 s is too short")
    warnings = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
    assert warnings == ["the plan for 'mixed' was chosen without measuring Multiplies: the budget of 0.02 s was spent"]
    assert Plan.from_json(plan.to_json()) == plan


def test_an_explanation_says_what_the_search_did_not_time(runtime: Runtime) -> None:
    options = OptimizerOptions(placement="measured", budget_seconds=0.02, rewrite=False)
    model = ip.load(sums_and_products(), backends=BACKENDS, options=options, runtime=runtime)
    for explanation in (model.explain(), model.explain(measure=True, budget_seconds=0.01)):
        assert "  Multiplies was not timed: the budget of 0.02 s was spent" in list(explanation.summary())
        times = explanation.to_dict()["times"]
        assert times["not_measured"]["Multiplies"] == "the budget of 0.02 s was spent"
        assert list(times["candidates_ms"]) == ["Adds"]


def test_default_backends_are_timed_first_and_cpuref_last(runtime: Runtime, monkeypatch: pytest.MonkeyPatch) -> None:
    class Engine(Adds):
        id: ClassVar = "AnEngine"
        capabilities: ClassVar = Capabilities(OnlyByName=True)

    tried: list[str] = []
    load = _Placer._tried

    def noting(self: _Placer, plan: Plan, patience: float) -> Loaded:
        tried.append(plan.backends[0])
        return load(self, plan, patience)

    monkeypatch.setattr(_Placer, "_tried", noting)
    with Runtime() as other:
        for kind in (Engine, Adds, Multiplies):
            other.registry.register(str(kind.id), kind)
        place(sums_and_products(), other, None, OptimizerOptions(rewrite=False), QUICK)
        names = [name for name in tried if name in ("AnEngine", *BACKENDS, "CpuRef")]
    assert names[:4] in ([*BACKENDS, "AnEngine", "CpuRef"], ["Multiplies", "Adds", "AnEngine", "CpuRef"])
    tried.clear()
    place(sums_and_products(), runtime, ["Multiplies", "CpuRef", "Adds"], OptimizerOptions(rewrite=False), QUICK)
    assert tried[:3] == ["Multiplies", "Adds", "CpuRef"]


def test_a_backend_that_refuses_or_fails_is_listed_with_the_reason(runtime: Runtime) -> None:
    runtime.registry.register("OnlyMultiplies", OnlyMultiplies)
    runtime.registry.register("Raises", Raises)
    plan = place(sums_and_products(), runtime, ["Raises", "Adds"], OptimizerOptions(rewrite=False), QUICK)
    assert plan.chosen == "Adds"
    assert "it is broken" in plan.unmeasured["Raises"]
    assert "it is broken" in plan.failed["Raises"]
    with pytest.raises(ip.errors.UnsupportedLayerError):
        place(sums_and_products(), runtime, ["OnlyMultiplies"], OptimizerOptions(rewrite=False), QUICK)


def test_a_backend_that_hangs_is_given_up_at_the_limit(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("INTERPOSER_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setattr("interposer.session.placement.measured._PATIENCE", 0.1)
    released = threading.Event()
    table = KernelTable()

    @table(Addition)
    @table(Multiplication)
    def hang(op: Addition | Multiplication, a: Array, b: Array, *, out: Array) -> None:
        released.wait(60)

    class Hangs(Backend):
        id: ClassVar = "Hangs"
        kernels: ClassVar = table

    with Runtime() as runtime:
        runtime.registry.register("Hangs", Hangs)
        runtime.registry.register("Adds", Adds)
        plan = place(sums_and_products(), runtime, ["Hangs", "Adds"], search=Search(budget_seconds=0.2))
        released.set()
    assert plan.chosen == "Adds"
    assert plan.unmeasured["Hangs"] == "its first run took more than 0.2 s"


def test_no_parts_are_timed_if_no_other_backend_is_near(runtime: Runtime, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_Placer, "_part_seconds", None)
    runtime.registry.register("Slow", Slow)
    plan = place(sums_and_products(), runtime, ["Slow", "Adds"], OptimizerOptions(rewrite=False), QUICK)
    assert plan.notes() == (
        "no mix of backends was timed: when they were first timed, every other backend took more than 5 times "
        "as long as Adds",
    )


def test_longer_parts_are_not_timed_if_no_mix_can_win(runtime: Runtime, monkeypatch: pytest.MonkeyPatch) -> None:
    sizes: list[int] = []
    time_part = _Placer._part_seconds

    def noting(self: _Placer, backend: str, layers: Sequence[Layer]) -> float | None:
        sizes.append(len(layers))
        return time_part(self, backend, layers)

    monkeypatch.setattr(_Placer, "_part_seconds", noting)
    runtime.registry.register("Whole", lambda: Holding("Whole", 0, 6e-3))
    plan = place(sums_and_products(), runtime, ["Whole", "Adds"], OptimizerOptions(rewrite=False), QUICK)
    assert plan.chosen == "Whole"
    assert set(sizes) == {1, 4}
    [note] = plan.notes()
    assert note.endswith("parts, none takes 2% less than the best backend alone")


def test_a_plan_says_that_no_mix_was_better(runtime: Runtime) -> None:
    measured = {"Adds": 1.0, "Multiplies": 2.0, "mix 1": 1.5}
    plan = Plan("mixed", BACKENDS, {}, measured=measured, chosen="Adds")
    assert plan.notes() == ("no mix of backends was better than Adds alone",)
    assert replace(plan, chosen="mix 1").notes() == ()
    assert Plan("mixed", BACKENDS, {}).notes() == ()


def test_a_backend_that_is_far_behind_is_not_tried_on_parts(runtime: Runtime, monkeypatch: pytest.MonkeyPatch) -> None:
    tried: list[str] = []
    monkeypatch.setattr(_Placer, "_part_seconds", lambda self, backend, layers: tried.append(backend))
    runtime.registry.register("Slow", Slow)
    plan = place(sums_and_products(), runtime, ["Slow", *BACKENDS], OptimizerOptions(rewrite=False), QUICK)
    assert set(tried) == set(BACKENDS)
    assert plan.measured["Slow"] > 5 * plan.measured["Adds"]


def test_throughput_is_told_as_the_time_of_one_run(runtime: Runtime, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("interposer.session.placement.measured.thread_budget", lambda value: 4)
    monkeypatch.setattr(Loaded, "run_together", lambda self: [self.run() for _ in range(4)])
    plan = place(sums_and_products(), runtime, ["Adds"], search=Search(20, "throughput"))
    alone = place(sums_and_products(), runtime, ["Adds"], search=QUICK)
    assert plan.measured["Adds"] == pytest.approx(alone.measured["Adds"], rel=0.05)


@pytest.mark.parametrize("objective", ["throughput", "memory"])
def test_there_are_other_objectives(runtime: Runtime, objective: str) -> None:
    plan = place(sums_and_products(), runtime, BACKENDS, search=Search(budget_seconds=20, objective=objective))
    assert plan.chosen in plan.measured


def test_searches_that_cannot_be_meant_are_refused() -> None:
    with pytest.raises(InvalidArgumentError, match="one of latency, throughput, memory, not 'speed'"):
        Search(objective="speed")
    with pytest.raises(InvalidArgumentError, match="budget_seconds must be more than 0"):
        Search(budget_seconds=0)
    with pytest.raises(InvalidArgumentError, match="expected 1 block or more and 0 mixes or more, not 0, 3"):
        Search(blocks=0)
    for wrong in ("x", True, -1, float("nan")):
        with pytest.raises(InvalidArgumentError, match="budget_seconds must be more than 0, and finite, not"):
            Search(budget_seconds=wrong)  # type: ignore[arg-type]
        with pytest.raises(InvalidArgumentError, match="budget_seconds must be more than 0, and finite, not"):
            OptimizerOptions(budget_seconds=wrong)  # type: ignore[arg-type]
    with pytest.raises(InvalidArgumentError, match="most_bytes must be a whole number, not 'a'"):
        Search(most_bytes="a")  # type: ignore[arg-type]
    with pytest.raises(InvalidArgumentError, match="most_bytes must be 1 or more, not 0"):
        Search(most_bytes=0)
    with pytest.raises(InvalidArgumentError, match="a placement is of a Network, not 'x'"):
        place("x", Runtime())  # type: ignore[arg-type]
    with pytest.raises(InvalidArgumentError, match="the placement is 'order' or 'measured', not 'best'"):
        OptimizerOptions(placement="best")


# --- models -----------------------------------------------------------------------------------------------------------


def test_a_model_is_placed_by_measuring(runtime: Runtime) -> None:
    options = OptimizerOptions(placement="measured", budget_seconds=20, rewrite=False)
    model = ip.load(sums_and_products(), backends=BACKENDS, options=options, runtime=runtime)
    np.testing.assert_array_equal(model(X), REQUESTED)
    assert model.plan is not None
    assert model.explain().counts() == {"Adds": 2, "Multiplies": 2}


def test_auto_takes_all_backends_that_are_there(runtime: Runtime) -> None:
    options = OptimizerOptions(budget_seconds=20)
    model = ip.load(sums_and_products(), backends="auto", options=options, runtime=runtime)
    np.testing.assert_array_equal(model(X), REQUESTED)
    assert model.plan is not None
    assert set(BACKENDS) <= set(model.plan.backends)


def test_an_option_that_a_backend_does_not_have_is_refused_before_anything_is_chosen(runtime: Runtime) -> None:
    options = OptimizerOptions(model_options={"CpuRef": {"Threads": 1}})
    with pytest.raises(OptionError, match="backend CpuRef has no option 'Threads'"):
        ip.load(sums_and_products(), backends="auto", options=options, runtime=runtime)


def test_a_plan_is_saved_edited_and_replayed(runtime: Runtime, tmp_path: Any) -> None:
    plan = place(sums_and_products(), runtime, BACKENDS, OptimizerOptions(rewrite=False), QUICK)
    plan.save(tmp_path / "plan.json")
    assert Plan.load(tmp_path / "plan.json") == plan
    reported = json.loads((tmp_path / "plan.json").read_text(encoding="utf-8"))
    reported["layers"] = {"layer 0": "Multiplies", "layer [12]": "Adds", "type:Multiplication": "Multiplies"}
    (tmp_path / "plan.json").write_text(json.dumps(reported), encoding="utf-8")
    options = OptimizerOptions(rewrite=False)
    model = ip.load(sums_and_products(), plan=Plan.load(tmp_path / "plan.json"), options=options, runtime=runtime)
    placed = {placement.layer: placement.backend for placement in model.optimized.placements}
    assert placed == {"layer 0": "Multiplies", "layer 1": "Adds", "layer 2": "Adds", "layer 3": "Multiplies"}


def test_what_is_different_from_where_a_plan_was_made_is_told(
    runtime: Runtime, caplog: pytest.LogCaptureFixture
) -> None:
    plan = Plan("mixed", ("Npu", "Adds"), {"gone": "Npu"}, made_with={"threads": 1000})
    with caplog.at_level(logging.WARNING, "interposer.session"):
        ip.load(sums_and_products(), plan=plan, runtime=runtime)
    reported = [record.getMessage() for record in caplog.records]
    assert "the plan for 'mixed': backend Npu is not available here" in reported
    assert "the plan for 'mixed': 1 layers of the plan are not in this network, such as 'gone'" in reported
    assert any("and was 1000 where the plan was made" in item for item in reported)


def test_patterns_and_types_of_a_plan_that_fit_nothing_are_told() -> None:
    plan = Plan(
        "mixed", ("Adds",), {"conv*": "Adds", "type:Softmax": "Adds", "layer [01]": "Adds", "type:Addition": "Adds"}
    )
    created = ip.optimizer.simplified(sums_and_products(), ["CpuRef"], options=OptimizerOptions(rewrite=False))
    assert list(plan.differences(created.graph, {}, ("Adds",))) == [
        "'conv*' of the plan fits no layer of this network",
        "'type:Softmax' of the plan fits no layer of this network",
    ]


def test_what_has_changed_is_told_one_by_one_and_in_order() -> None:
    before = {"machine": "a", "threads": 1, "builds": {"CpuAcc": "old"}, "interposer": "1"}
    now = {"machine": "b", "threads": 2, "builds": {"CpuAcc": "new"}, "interposer": "1"}
    assert list(Plan("x", ("Adds",), {}, made_with=before).differences(ip.Network().graph, now, ("Adds",))) == [
        "machine is b here, and was a where the plan was made",
        "threads is 2 here, and was 1 where the plan was made",
        "builds of CpuAcc is new here, and was old where the plan was made",
    ]


def test_a_plan_says_on_which_processor_and_with_which_builds_it_was_made(runtime: Runtime) -> None:
    runtime.registry.register("Built", lambda: Holding("Built", 1))
    reported = made_with(runtime, ["Built", "Adds", "Npu"])
    assert len(reported["machine"].split()) > 1
    assert reported["builds"] == {"Built": "build of Built"}


def test_the_name_of_a_layer_is_for_that_layer_though_it_reads_like_a_pattern() -> None:
    network = Network()
    value = network.add_input_layer(0, INFO)
    for name in ("a[0]", "a0", "a*", "ab"):
        value = network.add_layer(RELU, value, name=name)
    network.add_output_layer(0, value)
    plan = Plan("", ("A",), {"a*": "A", "a[0]": "B", "a?": "C", "type:Activation": "D"})
    assert plan.hints(network.graph) == {"a[0]": "B", "a0": "C", "a*": "A", "ab": "C"}


def test_a_layer_may_go_to_a_backend_that_the_plan_names_nowhere_else(runtime: Runtime) -> None:
    plan = Plan("mixed", ("Adds",), {"layer 3": "Multiplies"})
    model = ip.load(sums_and_products(), plan=plan, options=OptimizerOptions(rewrite=False), runtime=runtime)
    assert model.explain().counts() == {"Adds": 3, "Multiplies": 1}


def test_a_plan_and_backends_beside_it_are_refused(runtime: Runtime) -> None:
    with pytest.raises(InvalidArgumentError, match=r"a plan has its own backends \(Adds, Multiplies\): give either"):
        ip.load(sums_and_products(), ["CpuRef"], plan=Plan("mixed", BACKENDS, {}), runtime=runtime)


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("{", "is no JSON"),
        ("[]", 'it has no member "plan" with the value 1'),
        ('{"plan": true, "backends": ["A"], "layers": {}}', 'it has no member "plan" with the value 1'),
        ('{"plan": 1, "backends": [], "layers": {}}', '"backends" must be a list of ids'),
        ('{"plan": 1, "backends": ["A"], "layers": {"a": 1}}', '"layers" must map names to ids'),
        ('{"plan": 1, "backends": ["A"], "layers": {}, "exclude": {"Pad": "A"}}', '"exclude" must map types of layers'),
        ('{"plan": 1, "backends": ["A"], "layers": {}, "milliseconds": 3}', '"milliseconds" must map names to numbers'),
        ('{"plan": 1, "backends": ["A"], "layers": {}, "milliseconds": {"A": NaN}}', '"milliseconds" must map names'),
        ('{"plan": 1, "backends": ["A"], "layers": {}, "made with": 3}', '"made with" must be an object'),
        ('{"plan": 1, "backends": ["A"], "layers": {}, "cost": 3}', '"cost" must have the numbers milliseconds, bound'),
        ('{"plan": 1, "backends": ["A"], "layers": {}, "cost": {"milliseconds": 1}}', '"cost" must have the numbers'),
    ],
)
def test_files_that_are_no_plans_are_refused(text: str, fault: str, tmp_path: Any) -> None:
    (tmp_path / "plan.json").write_text(text, encoding="utf-8")
    with pytest.raises(InvalidArgumentError) as caught:
        Plan.load(tmp_path / "plan.json")
    assert fault in str(caught.value)


def test_plans_of_numbers_that_are_too_large_and_of_lists_that_are_too_deep_are_refused() -> None:
    with pytest.raises(InvalidArgumentError, match='"milliseconds" must map names to numbers'):
        Plan.from_json(f'{{"plan": 1, "backends": ["A"], "layers": {{}}, "milliseconds": {{"A": 1{"0" * 400}}}}}')
    with pytest.raises(InvalidArgumentError, match="the plan is no JSON: "):
        Plan.from_json("[" * 100_000)


def test_a_plan_that_is_not_there_is_told(tmp_path: Any) -> None:
    with pytest.raises(InvalidArgumentError, match="cannot be read"):
        Plan.load(tmp_path / "plan.json")


# --- the parts of it --------------------------------------------------------------------------------------------------


def test_blocks_are_cut_where_one_tensor_crosses() -> None:
    network = Network()
    x = network.add_input_layer(0, INFO)
    first = network.add_layer(RELU, x, name="a")
    left, right = network.add_layer(RELU, first, name="b"), network.add_layer(RELU, first, name="c")
    both = network.add_layer(Addition(), left, right, name="d")
    network.add_output_layer(0, network.add_layer(RELU, both, name="e"))
    created = ip.optimizer.simplified(network, ["CpuRef"], options=OptimizerOptions(rewrite=False))
    blocks = blocks_of(created.graph, 8)
    assert [[layer.name for layer in block.layers] for block in blocks] == [["a"], ["b", "c", "d"], ["e"]]
    assert [block.leaving for block in blocks[:2]] == [128, 128]
    assert [len(block.layers) for block in blocks_of(created.graph, 2)] == [4, 1]
    part = part_network(created.graph, blocks[1].layers, "part")
    assert (len(part.inputs), len(part.outputs)) == (1, 1)


costs = st.floats(0.1, 10).map(lambda item: round(item, 2))


@settings(max_examples=100, deadline=None)
@given(st.data())
def test_no_plan_is_cheaper_than_the_first(data: st.DataObject) -> None:
    count, backends = data.draw(st.integers(1, 4)), ["A", "B", "C"][: data.draw(st.integers(1, 3))]
    spans = [(i, j) for i in range(count) for j in range(i + 1, count + 1)]
    parts = {(i, j, b): data.draw(costs) for i, j in spans for b in backends if j - i == 1 or data.draw(st.booleans())}
    price = data.draw(costs)
    result = best_plans(count, parts, lambda place, a, b: price if a != b else 0.0, 3)
    least = min(cost(way, parts, price) for way in all_ways(count, backends))
    assert result[0].seconds == pytest.approx(least)
    assert [item.seconds for item in result] == sorted(item.seconds for item in result)
    assert len({item.backends() for item in result}) == len(result)


def all_ways(count: int, backends: list[str]) -> Iterator[list[tuple[int, int, str]]]:
    for cuts in itertools.product([False, True], repeat=count - 1):
        places = [0, *(place + 1 for place, cut in enumerate(cuts) if cut), count]
        for chosen in itertools.product(backends, repeat=len(places) - 1):
            yield list(zip(places, places[1:], chosen, strict=False))


def cost(way: list[tuple[int, int, str]], parts: dict[tuple[int, int, str], float], price: float) -> float:
    borders = sum(price for item, other in itertools.pairwise(way) if item[2] != other[2])
    return sum(parts.get(part, float("inf")) for part in way) + borders
