"""Names of layers that rewrites merge."""

from __future__ import annotations

from interposer.core.types import DataType, TensorInfo
from interposer.ir.graph import Graph, Use, Uses
from interposer.ir.inference import infer_graph
from interposer.ir.merged_names import NO_NAMES, MergedNames
from interposer.ops import Activation, ActivationFunction, Input, Output
from interposer.optimizer.passes import DEFAULT_PASSES, run_passes


def test_merged_names_are_distinct_and_in_order_of_first_appearance():
    inner = MergedNames(["b", "a"])
    assert MergedNames(["a", inner, "c", NO_NAMES, inner]).flat() == ("a", "b", "c")


def test_merged_names_with_a_single_name_know_it():
    assert MergedNames([MergedNames(["a"]), "a", NO_NAMES]).is_only("a")
    assert not MergedNames([MergedNames(["a", "b"])]).is_only("a")
    assert not NO_NAMES


def test_names_merged_a_hundred_thousand_times_need_no_recursion():
    names = NO_NAMES
    for number in range(100_000):
        names = MergedNames([names, str(number)])
    assert names.flat() == tuple(map(str, range(100_000)))


def test_names_that_are_shared_and_merged_again_do_not_multiply():
    names = MergedNames(["a", "b"])
    for _ in range(200):
        names = MergedNames([MergedNames([names, "c"]), MergedNames([names, "d"])])
    assert names.flat() == ("a", "b", "c", "d")


def test_twenty_thousand_activations_in_a_row_become_one_that_names_them_all():
    graph = Graph()
    value = graph.add(Input(0), outputs=[TensorInfo((2,), DataType.FLOAT32)]).output
    relu = Activation(ActivationFunction.RELU)
    names = []
    for _ in range(20_000):
        layer = graph.add(relu, [value])
        names.append(layer.name)
        value = layer.output
    graph.add(Output(0), [value])
    infer_graph(graph)
    run_passes(graph, DEFAULT_PASSES)
    [left] = [layer for layer in graph if isinstance(layer.op, Activation)]
    assert left.replaced == tuple(names)


def test_one_of_many_uses_is_removed_without_looking_at_the_others():
    compared = []

    class Counting:
        def __init__(self, number):
            self.number = number

        def __hash__(self):
            return hash(self.number)

        def __eq__(self, other):
            compared.append(other)
            return self is other

    takers = [Counting(number) for number in range(1000)]
    uses = Uses(Use(taker, 0) for taker in takers)
    uses.remove(Use(takers[-1], 0))
    assert len(uses) == 999
    assert len(compared) < 10


def test_a_single_name_is_merged_names_of_itself():
    names = MergedNames.of("a")
    assert names.flat() == ("a",)
    assert names.is_only("a")
    assert MergedNames([names, "b", names]).flat() == ("a", "b")
