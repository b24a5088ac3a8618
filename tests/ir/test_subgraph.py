"""Views of parts, and the three promises of the division of a graph into parts."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from interposer.core.errors import InvalidArgumentError
from interposer.core.types import TensorInfo
from interposer.ir.graph import Graph, Layer
from interposer.ir.network import Network
from interposer.ir.subgraph import SubgraphView, quotient_is_acyclic, select
from interposer.ops import Activation, Addition, Concat

INFO = TensorInfo((2,))


def chain_of(count: int) -> Network:
    network = Network("chain")
    value = network.add_input_layer(0, INFO)
    for index in range(count):
        value = network.add_layer(Activation(), value, name=f"a{index}")
    network.add_output_layer(0, value)
    return network


@st.composite
def placed_graphs(draw: st.DrawFn) -> Graph:
    """A random graph whose layers are given to one of three backends, or to none."""
    network = Network("random")
    values = [network.add_input_layer(0, INFO)]
    for index in range(draw(st.integers(1, 14))):
        sources = draw(st.lists(st.sampled_from(values), min_size=1, max_size=3))
        layer = network.add_layer(Concat(axis=0), *sources, name=f"n{index}")
        layer.backend = draw(st.sampled_from(["A", "A", "B", "C", None]))
        values.append(layer)
    network.add_output_layer(0, values[-1])
    return network.graph


def parts_of(graph: Graph) -> list[SubgraphView]:
    return select(graph, lambda layer: layer.backend)


def edges_between(first: SubgraphView, second: SubgraphView) -> bool:
    return any(value.producer in first for layer in second for value in layer.values)


def is_connected(part: SubgraphView) -> bool:
    reached, pending = {part.layers[0]}, [part.layers[0]]
    while pending:
        layer = pending.pop()
        near = [v.producer for v in layer.values] + [use.layer for v in layer.outputs for use in v.uses]
        fresh = {neighbor for neighbor in near if neighbor in part} - reached
        reached |= fresh
        pending += fresh
    return len(reached) == len(part)


def could_be_merged(graph: Graph, parts: list[SubgraphView]) -> Iterator[tuple[SubgraphView, SubgraphView]]:
    """Yield the pairs of adjacent parts of one backend that could be merged without a cycle."""
    for first, second in itertools.permutations(parts, 2):
        same = first.layers[0].backend == second.layers[0].backend
        if same and edges_between(first, second):
            others = [part for part in parts if part is not first and part is not second]
            if quotient_is_acyclic(graph, [*others, [*first, *second]]):
                yield first, second


@given(placed_graphs())
@settings(max_examples=200, deadline=None)
def test_parts_are_connected_disjoint_as_large_as_possible_and_without_a_cycle(graph: Graph) -> None:
    """One test of all four, as drawing a graph takes ten times as long as checking its parts."""
    parts = parts_of(graph)
    inside = [layer for part in parts for layer in part]
    assert sorted(layer.name for layer in inside) == sorted(layer.name for layer in graph if layer.backend)
    assert all(len({layer.backend for layer in part}) == 1 for part in parts)
    assert all(is_connected(part) for part in parts)
    assert quotient_is_acyclic(graph, parts)
    assert [*could_be_merged(graph, parts)] == []


def test_a_chain_on_one_backend_is_one_part() -> None:
    graph = chain_of(5).graph
    [part] = select(graph, lambda layer: "A" if isinstance(layer.op, Activation) else None)
    assert [layer.name for layer in part] == ["a0", "a1", "a2", "a3", "a4"]


def test_a_graph_whose_layers_are_all_of_one_kind_is_one_part() -> None:
    graph = chain_of(2).graph
    [part] = select(graph, lambda layer: "A")
    assert list(part) == graph.topological()


def test_a_branch_that_leaves_and_comes_back_keeps_its_two_ends_apart() -> None:
    network = Network("diamond")
    x = network.add_input_layer(0, INFO)
    top = network.add_layer(Activation(), x, name="top")
    foreign = network.add_layer(Activation(), top, name="foreign")
    bottom = network.add_layer(Addition(), top, foreign, name="bottom")
    network.add_output_layer(0, bottom)
    kinds = {"top": "A", "foreign": "B", "bottom": "A"}
    parts = select(network.graph, lambda layer: kinds.get(layer.name))
    assert [[layer.name for layer in part] for part in parts] == [["top"], ["foreign"], ["bottom"]]


def test_a_long_graph_is_divided_quickly_enough_to_be_divided_at_all() -> None:
    graph = chain_of(2000).graph
    parts = select(graph, lambda layer: "AB"[int(layer.name[1:]) % 2] if layer.name.startswith("a") else None)
    assert len(parts) == 2000


def test_a_view_tells_inputs_constants_and_outputs_apart() -> None:
    network = Network("view")
    x = network.add_input_layer(0, INFO, name="x")
    w = network.add_constant_layer(np.float32([1, 2]), name="w")
    total = network.add_layer(Addition(), w, x, name="total")
    activation = network.add_layer(Activation(), total, name="after")
    network.add_output_layer(0, activation)
    view = SubgraphView(network.graph, [activation, total, w])
    assert [layer.name for layer in view] == ["total", "after"]
    assert [value.name for value in view.operands] == ["w", "x"]
    assert [value.name for value in view.inputs] == ["x"]
    assert [value.name for value in view.constants] == ["w"]
    assert [value.name for value in view.outputs] == ["after"]


def test_chains_are_found_where_each_layer_is_the_only_user_of_the_one_before() -> None:
    network = Network("chains")
    x = network.add_input_layer(0, INFO)
    first = network.add_layer(Addition(), x, x, name="first")
    network.add_layer(Activation(), first, name="first_act")
    shared = network.add_layer(Addition(), x, x, name="shared")
    network.add_output_layer(0, network.add_layer(Activation(), shared, name="shared_act"))
    network.add_output_layer(1, shared)
    view = SubgraphView(network.graph, network.graph)
    assert [[layer.name for layer in run] for run in view.chains(Addition, Activation)] == [["first", "first_act"]]


def test_a_part_that_a_path_leaves_and_reenters_is_not_convex() -> None:
    graph = chain_of(3).graph
    by_name: dict[str, Layer] = {layer.name: layer for layer in graph}
    assert not SubgraphView(graph, [by_name["a0"], by_name["a2"]]).is_convex()
    assert SubgraphView(graph, [by_name["a0"], by_name["a1"]]).is_convex()


def test_a_layer_in_two_parts_is_named() -> None:
    graph = chain_of(1).graph
    with pytest.raises(InvalidArgumentError, match=r"layer 'a0' \(Activation\) is in two parts"):
        quotient_is_acyclic(graph, [[graph.layer("a0")], [graph.layer("a0")]])
