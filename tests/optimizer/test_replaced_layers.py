"""Replacements of layers by new ones, some of which stand for a layer that only the replaced one reads."""

from __future__ import annotations

from interposer.core.types import TensorInfo
from interposer.ir.graph import Graph, Layer
from interposer.ir.inference import infer_layer
from interposer.ops import Activation, ActivationFunction, Addition
from interposer.ops.control import Input, Output
from interposer.rewriting.driver import replace
from interposer.rewriting.pattern import New

INFO = TensorInfo((2,))


def chain() -> tuple[Graph, Layer, Layer, Layer]:
    """Return a graph with an input, and two activations, one after the other, before its output."""
    graph = Graph("chain")
    source = graph.add(Input(0), name="x", outputs=[INFO])
    first = graph.add(Activation(), [source.output], name="first", source="net, node 1")
    last = graph.add(Activation(), [first.output], name="last", source="net, node 2")
    graph.add(Output(0), [last.output], name="y")
    for layer in graph.topological():
        infer_layer(layer)
    return graph, source, first, last


def rows(graph: Graph) -> list[tuple[str, str, list[str], tuple[str, ...]]]:
    """Return the name, the operator, the inputs and the replaced layers of each layer between input and output."""
    layers = [layer for layer in graph.topological() if not isinstance(layer.op, Input | Output)]
    return [(layer.name, layer.kind, [value.name for value in layer.values], layer.replaced) for layer in layers]


def test_a_layer_that_only_the_replaced_one_reads_becomes_the_new_one() -> None:
    graph, source, first, last = chain()
    replace(graph, last, New(Addition(), [source.output, source.output], like=first), by="sum")
    assert rows(graph) == [("first", "Addition", ["x", "x"], ("first", "last"))]
    assert first in graph
    assert graph.layer("first").source == "net, node 1"


def test_two_new_layers_may_stand_for_one() -> None:
    graph, source, first, last = chain()
    functions = ActivationFunction.ABS, ActivationFunction.TANH
    news = [New(Activation(function), [source.output], like=first) for function in functions]
    replace(graph, last, New(Addition(), news), by="two")
    *activations, total = rows(graph)
    assert [row[:3] for row in activations] == [("first", "Activation", ["x"]), ("first_1", "Activation", ["x"])]
    assert total[:3] == ("last", "Addition", ["first", "first_1"])
    assert [layer.op for layer in graph if isinstance(layer.op, Activation)] == [*map(Activation, functions)]


def test_a_layer_that_another_new_one_reads_is_not_changed() -> None:
    graph, source, first, last = chain()
    inner = New(Activation(ActivationFunction.ABS), [source.output], like=first)
    replace(graph, last, New(Addition(), [inner, first.output]), by="both")
    assert first.op == Activation()
    assert [name for _, _, inputs, _ in rows(graph)[-1:] for name in inputs] == ["first_1", "first"]


def test_a_changed_layer_with_another_name_stands_for_the_old_one() -> None:
    graph, source, first, last = chain()
    replace(graph, last, New(Activation(), [source.output], like=first, name="merged"), by="renamed")
    [(name, _, _, replaced)] = rows(graph)
    assert (name, replaced) == ("merged", ("first", "last"))


def test_a_layer_that_only_an_unused_one_reads_is_erased_with_it() -> None:
    graph, source, first, last = chain()
    [(user, _)] = last.output.uses
    graph.set_input(user, 0, source.output)
    [added] = replace(graph, last, New(Addition(), [source.output, source.output], like=first), by="sum")
    assert added in graph
    assert first not in graph
    assert last not in graph
