"""A backend's answer to a part that it was given: what it replaces, gives back, and leaves alone."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import ClassVar

import numpy as np
import pytest

from interposer import Network, OptimizedNetwork, OptimizerOptions, Runtime, TensorInfo, optimize
from interposer.backend import (
    Backend,
    Failure,
    KernelTable,
    LayerSupport,
    OptimizationViews,
    Options,
    SubgraphView,
    Substitution,
    Support,
)
from interposer.core.errors import BackendContractError, UnsupportedLayerError
from interposer.core.types import DataType
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
    PreCompiled,
    Subtraction,
)
from tests.devices import Sums, sums

INFO = TensorInfo((3,))
X = np.float32([-1, 2, 3])


def network() -> Network:
    """first = x + w, second = first * first, third = second + first, of which w is constant."""
    created = Network("three")
    x = created.add_input_layer(0, INFO, name="x")
    w = created.add_constant_layer(np.float32([1, 1, 1]), name="w")
    first = created.add_layer(Addition(), x, w, name="first")
    second = created.add_layer(Multiplication(), first, first, name="second")
    third = created.add_layer(Addition(), second, first, name="third")
    created.add_output_layer(0, third, name="y")
    return created


@pytest.fixture
def view() -> SubgraphView:
    graph = network().graph
    return SubgraphView(graph, [graph.layer(name) for name in ("first", "second", "third")])


def test_an_answer_without_anything_leaves_all_layers_alone(view: SubgraphView) -> None:
    answer = OptimizationViews(view)
    answer.validate()
    assert answer.untouched == view.layers


def test_what_is_neither_replaced_nor_given_back_is_untouched(view: SubgraphView) -> None:
    first, second, third = (view.part([layer]) for layer in view)
    answer = OptimizationViews(
        view, substitutions=[Substitution(first, PreCompiled())], failed=[Failure(third, "too hot")]
    )
    answer.validate()
    assert answer.untouched == second.layers


def test_a_whole_view_can_be_given_back(view: SubgraphView) -> None:
    answer = OptimizationViews.all_failed(view, "no licence")
    answer.validate()
    assert answer.untouched == ()
    assert [(len(item.part), item.reason) for item in answer.failed] == [(3, "no licence")]


def test_a_compiled_layer_takes_no_constants_and_an_ordinary_one_takes_everything(view: SubgraphView) -> None:
    first = view.part(view.layers[:1])
    assert [value.name for value in Substitution(first, PreCompiled()).entering] == ["x"]
    assert [value.name for value in Substitution(first, Addition()).entering] == ["x", "w"]
    assert Substitution(first, PreCompiled(), first.constants).entering == first.constants


# --- answers run ----------------------------------------------------------------------------------------------


class Rewriting(Backend):
    """Computes what Sums does, and optimizes as the test says."""

    id: ClassVar = "Rewriting"
    kernels: ClassVar = sums

    def __init__(self, answer: Callable[[SubgraphView], OptimizationViews]) -> None:
        self.answer = answer
        self.seen: list[tuple[str, ...]] = []

    def optimize_subgraph(self, view: SubgraphView, options: Options) -> OptimizationViews:
        self.seen.append(tuple(layer.name for layer in view))
        return self.answer(view)


@pytest.fixture
def runtime() -> Iterator[Runtime]:
    with Runtime() as created:
        created.registry.register("Sums", Sums)
        yield created


def optimized(runtime: Runtime, backend: Rewriting, others: tuple[str, ...] = ()) -> OptimizedNetwork:
    runtime.registry.register("Rewriting", lambda: backend)
    options = OptimizerOptions(rewrite=False)
    return optimize(network(), ["Rewriting", *others], runtime.device_spec, options)


def run(runtime: Runtime, made: OptimizedNetwork) -> np.ndarray:
    return runtime.enqueue_workload(runtime.load_network(made), {0: X})[0]


EXPECTED = (X + 1) ** 2 + (X + 1)


def kinds(made: OptimizedNetwork) -> list[tuple[str, str, str | None]]:
    return [(layer.name, layer.kind, layer.backend) for layer in made.graph.topological() if layer.kind != "Constant"]


def test_one_layer_can_stand_for_another_with_its_inputs_the_other_way_round(runtime: Runtime) -> None:
    def swapped(view: SubgraphView) -> OptimizationViews:
        part = view.part([layer for layer in view if layer.name == "third"])
        return OptimizationViews(view, substitutions=[Substitution(part, Addition(), part.operands[::-1])])

    created = optimized(runtime, Rewriting(swapped))
    assert ("third", "Addition", "Rewriting") in kinds(created)
    assert [value.name for value in created.graph.layer("third").values] == ["first", "second"]
    np.testing.assert_array_equal(run(runtime, created), EXPECTED)


def double_of(part: SubgraphView) -> Graph:
    """Return a graph for x * x + x with its constants inside: (x + 1) * x."""
    body = Graph()
    [value] = [body.add(Input(n), outputs=[operand.known]).output for n, operand in enumerate(part.operands)]
    item = body.constant(np.float32([1, 1, 1]))
    more = body.add(Addition(), [value, item], name="more").output
    product = body.add(Multiplication(), [more, value], name="product").output
    body.add(Output(0), [product])
    return body


def test_a_part_can_be_replaced_by_a_graph(runtime: Runtime) -> None:
    def answer(view: SubgraphView) -> OptimizationViews:
        part = view.part([layer for layer in view if layer.name != "first"])
        return OptimizationViews(view, substitutions=[Substitution(part, double_of(part))])

    backend = Rewriting(answer)
    created = optimized(runtime, backend)
    assert kinds(created) == [
        ("x", "Input", "Rewriting"),
        ("first", "Addition", "Rewriting"),
        ("more", "Addition", "Rewriting"),
        ("product", "Multiplication", "Rewriting"),
        ("y", "Output", None),
    ]
    assert created.graph.layer("more").replaced == ("second", "third")
    assert backend.seen == [("first", "second", "third")]
    np.testing.assert_array_equal(run(runtime, created), EXPECTED)


def test_a_part_can_be_replaced_by_nothing_at_all(runtime: Runtime) -> None:
    """The numbers are then wrong, but this is allowed: the part's result is one of its inputs."""

    def answer(view: SubgraphView) -> OptimizationViews:
        part = view.part([layer for layer in view if layer.name == "second"])
        body = Graph()
        body.add(Output(0), [body.add(Input(0), outputs=[INFO]).output])
        return OptimizationViews(view, substitutions=[Substitution(part, body)])

    created = optimized(runtime, Rewriting(answer))
    assert [name for name, _, _ in kinds(created)] == ["x", "first", "third", "y"]
    np.testing.assert_array_equal(run(runtime, created), (X + 1) * 2)


def test_parts_that_depend_on_each_other_can_be_replaced_in_one_answer(runtime: Runtime) -> None:
    def answer(view: SubgraphView) -> OptimizationViews:
        parts = [view.part([layer]) for layer in reversed(view.layers)]
        return OptimizationViews(
            view, substitutions=[Substitution(part, part.layers[0].op, part.layers[0].values) for part in parts]
        )

    created = optimized(runtime, Rewriting(answer))
    assert [name for name, _, _ in kinds(created)] == ["x", "first", "second", "third", "y"]
    np.testing.assert_array_equal(run(runtime, created), EXPECTED)


def test_what_is_given_back_goes_to_the_next_backend_and_is_not_offered_twice(runtime: Runtime) -> None:
    def answer(view: SubgraphView) -> OptimizationViews:
        products = [view.part([layer]) for layer in view if layer.kind == "Multiplication"]
        return OptimizationViews(view, failed=[Failure(part, "the multiplier is broken") for part in products])

    backend = Rewriting(answer)
    created = optimized(runtime, backend, ("Sums",))
    assert backend.seen == [("first", "second", "third")]
    assert {placement.layer: placement.backend for placement in created.placements} == {
        "first": "Rewriting",
        "second": "Sums",
        "third": "Rewriting",
    }
    [refusal] = created.refusals
    assert (refusal.layer, refusal.reasons, refusal.stage) == ("second", ("the multiplier is broken",), "optimize")
    assert [(crossing.value, crossing.source, crossing.target, crossing.how) for crossing in created.crossings] == [
        ("first", "Rewriting", "Sums", "direct"),
        ("second", "Sums", "Rewriting", "direct"),
    ]
    np.testing.assert_array_equal(run(runtime, created), EXPECTED)


class Counting(LayerSupport):
    """Takes everything, and counts how often it is asked."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, ...]] = []

    def query(self, view: SubgraphView) -> list[Support]:
        self.asked.append(tuple(layer.name for layer in view))
        return [Support.yes()] * len(view)


class Willing(Sums):
    id: ClassVar = "Willing"

    def __init__(self) -> None:
        self.support = Counting()

    def layer_support(self, options: Options) -> LayerSupport:
        return self.support


def test_others_are_asked_once_for_all_that_a_backend_gives_back(runtime: Runtime) -> None:
    def answer(view: SubgraphView) -> OptimizationViews:
        return OptimizationViews(view, failed=[Failure(view.part([layer]), f"no {layer.name}") for layer in view])

    willing = Willing()
    runtime.registry.register("Willing", lambda: willing)
    created = optimized(runtime, Rewriting(answer), ("Willing",))
    assert willing.support.asked == [("first", "second", "third")]
    assert [refusal.reasons for refusal in created.refusals] == [("no first",), ("no second",), ("no third",)]
    np.testing.assert_array_equal(run(runtime, created), EXPECTED)


def test_an_explanation_contains_the_remarks_of_a_backend(runtime: Runtime) -> None:
    def answer(view: SubgraphView) -> OptimizationViews:
        return OptimizationViews(view, remarks=[f"it adds {len(view)} layers to its queue"])

    created = optimized(runtime, Rewriting(answer))
    assert created.explain().remarks == ("Rewriting: it adds 3 layers to its queue",)
    assert "  Rewriting: it adds 3 layers to its queue\n" in str(created.explain())
    np.testing.assert_array_equal(run(runtime, created), EXPECTED)


def test_what_nobody_takes_back_is_named_all_at_once(runtime: Runtime) -> None:
    def answer(view: SubgraphView) -> OptimizationViews:
        return OptimizationViews(view, failed=[Failure(view.part([layer]), "too hot") for layer in view])

    with pytest.raises(UnsupportedLayerError, match="^3 layers cannot be run\n"):
        optimized(runtime, Rewriting(answer))


def test_parts_that_would_depend_on_each_other_in_a_cycle_are_refused(view: SubgraphView) -> None:
    first, second, third = view.layers
    around = Substitution(view.part([first, third]), PreCompiled(num_outputs=2))
    answer = OptimizationViews(view, substitutions=[around, Substitution(view.part([second]), PreCompiled())])
    with pytest.raises(BackendContractError, match="the substituted parts would depend on each other in a cycle"):
        answer.validate()


def test_the_explanation_tells_in_which_compiled_part_a_layer_runs(runtime: Runtime) -> None:
    def answer(view: SubgraphView) -> OptimizationViews:
        return OptimizationViews(view, substitutions=[Substitution(view, PreCompiled())])

    created = optimized(runtime, Rewriting(answer))
    assert {placement.layer: placement.runs_in for placement in created.placements} == dict.fromkeys(
        ("first", "second", "third"), "PreCompiled:first"
    )
    assert created.graph.layer("PreCompiled:first").replaced == ("first", "second", "third")


def test_chains_find_what_can_be_fused() -> None:
    created = Network()
    x = created.add_input_layer(0, INFO)
    summed = created.add_layer(Addition(), x, x, name="a")
    clamped = created.add_layer(Activation(ActivationFunction.RELU), summed, name="b")
    other = created.add_layer(Subtraction(), clamped, x, name="c")
    last = created.add_layer(Addition(), clamped, other, name="d")
    created.add_output_layer(0, last)
    view = SubgraphView(created.graph, created.graph)
    assert [[layer.name for layer in run] for run in view.chains(Addition, Activation)] == [["a", "b"]]
    assert view.chains(Activation, Subtraction) == []


# --- layers that come in late -----------------------------------------------------------------------------------------

conversions = KernelTable()
conversions(ConvertFp16ToFp32, ConvertFp32ToFp16)(lambda op, x: x)
halves = KernelTable()
halves(Addition, dtypes={DataType.FLOAT16})(lambda op, a, b: a + b)


class Converting(Backend):
    id: ClassVar = "Converting"
    kernels: ClassVar = conversions


class Halves(Backend):
    """Says that it adds halves, and then gives the additions back."""

    id: ClassVar = "Halves"
    kernels: ClassVar = halves

    def optimize_subgraph(self, view: SubgraphView, options: Options) -> OptimizationViews:
        return OptimizationViews.all_failed(view, "too small")


def test_no_claim_is_made_for_backends_that_were_not_asked_about_a_late_layer(runtime: Runtime) -> None:
    created = Network()
    x = created.add_input_layer(0, TensorInfo((3,), "float16"), name="x")
    created.add_output_layer(0, created.add_layer(Addition(), x, x, name="sum"))
    for backend in (Halves, Converting):
        runtime.registry.register(backend.id, backend)
    result = optimize(created, ["Halves", "Converting", "Sums"], runtime.device_spec)
    verdicts = {
        (row.layer, verdict.backend): verdict.reasons for row, others in result.explain().rows for verdict in others
    }
    late = ("was not asked, as the layer came in while others were given back",)
    assert verdicts == {
        ("sum", "Halves"): ("too small",),
        ("sum", "Converting"): ("no kernel for Addition",),
        ("convert_fp16_to_fp32-0-sum", "Halves"): ("no kernel for ConvertFp16ToFp32",),
        ("convert_fp16_to_fp32-0-sum", "Sums"): late,
        ("convert_fp32_to_fp16-0-sum", "Halves"): ("no kernel for ConvertFp32ToFp16",),
        ("convert_fp32_to_fp16-0-sum", "Sums"): late,
    }
    half = np.float16([1, 2, 3])
    matches = runtime.enqueue_workload(runtime.load_network(result), {0: half})[0]
    np.testing.assert_array_equal(matches, half + half)
