"""Graphs inside of layers: their borders, what inference finds in them, and the way to their layers."""

from __future__ import annotations

import copy
import textwrap

import numpy as np
import pytest

from interposer import Limits, Network, TensorInfo
from interposer.core.errors import InvalidArgumentError, InvalidNetworkError, LimitExceededError, VerificationError
from interposer.core.types import DataType, Quantization
from interposer.ir.graph import Graph
from interposer.ir.inference import infer_graph, infer_layer
from interposer.ir.regions import find_layer, places
from interposer.ir.text import parse_graph, print_graph
from interposer.ir.verify import verify
from interposer.ops import Debug, Input, Output
from interposer.report.estimate import estimate

LOOP = """
    graph "net" {
      %n = Input : int64[]
      %x = Input(binding_id=1) : float32[2, 3]
      %s = Input(binding_id=2) : float32[1, 3]
      %loop:0, %loop:1 = Loop(num_carried=1, num_scan_outputs=1) %n, _, %x, %s {
        graph "body" {
          %i = Input
          %go = Input(binding_id=1)
          %v = Input(binding_id=2)
          %step = Input(binding_id=3)
          %grown = Concat(axis=0) %v, %step
          %top = Reduce(axis=(0,), keep_dims=False, operation=MAX) %grown
          Output %go as "on"
          Output(binding_id=1) %grown as "next"
          Output(binding_id=2) %top as "seen"
        }
      }
      Output %loop:0 as "last"
      Output(binding_id=1) %loop:1 as "all"
    }
    """


def parsed(text: str) -> Graph:
    return parse_graph(textwrap.dedent(text))


def inferred(text: str = LOOP) -> Graph:
    graph = parsed(text)
    infer_graph(graph)
    return graph


def problems_of(graph: Graph) -> list[str]:
    with pytest.raises(VerificationError) as caught:
        verify(graph)
    return list(caught.value.problems)


def test_a_carried_value_has_unknown_extents_where_an_iteration_changes_them():
    graph = inferred()
    body = graph.layer("loop").regions[0]
    assert str(body.layer("v").output.info) == "float32[?, 3]"
    assert str(body.layer("step").output.info) == "float32[1, 3]"
    assert [str(value.info) for value in graph.layer("loop").outputs] == ["float32[?, 3]", "float32[?, 3]"]
    assert bool(body.layer("go").output.constant)
    verify(graph)


def test_regions_are_printed_and_read_back():
    graph = inferred()
    text = print_graph(graph)
    assert print_graph(parse_graph(text)) == text
    assert parse_graph(text).layer("loop").regions[0].owner is not None


def test_what_is_known_outside_is_known_anew_in_regions():
    graph = inferred()
    graph.layer("x").output.declared = TensorInfo((7, 5))
    graph.layer("s").output.declared = TensorInfo((2, 5))
    infer_graph(graph)
    assert str(graph.layer("loop").outputs[1].info) == "float32[?, 5]"
    assert str(graph.layer("loop").regions[0].layer("step").output.info) == "float32[2, 5]"


def test_a_loop_of_a_known_count_collects_a_known_number():
    fixed = LOOP.replace("%n = Input : int64[]", "%n = Constant(value=int64[]{4})").replace(
        "%grown = Concat(axis=0) %v, %step", "%grown = Addition %v, %step"
    )
    assert [str(value.info) for value in inferred(fixed).layer("loop").outputs] == ["float32[2, 3]", "float32[4, 3]"]


PROBLEMS = {
    "%step = Input(binding_id=3)": (
        "%step = Input(binding_id=4)",
        "region 'body' has inputs with the binding ids 0, 1, 2, 4; expected 0 to 3",
    ),
    'Output(binding_id=2) %top as "seen"': (
        'Output(binding_id=1) %top as "seen"',
        "region 'body' has outputs with the binding ids 0, 1, 1; expected 0 to 2",
    ),
    "%v = Input(binding_id=2)": (
        "%v = Input(binding_id=2) : float32[2, 3]",
        "region 'body': layer 'v' (Input): it is declared as float32[2, 3], but is bound to float32[3, 3]",
    ),
    "%grown = Concat(axis=0) %v, %step": (
        "%grown = Cast(dtype=int32) %v",
        "carried value 0 is float32[2, 3] before an iteration, but int32[2, 3] after it",
    ),
    'Output %go as "on"': (
        'Output %step as "on"',
        "output 0 of region 'body', its condition, is float32[1, 3]; expected one bool",
    ),
    "%top = Reduce(axis=(0,), keep_dims=False, operation=MAX) %grown": (
        "%top = Reduce(axis=(9,), keep_dims=False, operation=MAX) %grown",
        "region 'body': layer 'top' (Reduce): ",
    ),
    "%s = Input(binding_id=2) : float32[1, 3]": (
        "%s = Input(binding_id=2) : int32[1, 3]",
        "region 'body': layer 'grown' (Concat): ",
    ),
    "%n = Input : int64[]": ("%n = Input : int64[2]", "trip_count has shape [2]; expected one element"),
}


@pytest.mark.parametrize("line", PROBLEMS, ids=range(len(PROBLEMS)))
def test_what_does_not_fit_is_told_with_its_region_and_layer(line):
    wrong, expected = PROBLEMS[line]
    with pytest.raises(InvalidNetworkError) as caught:
        inferred(LOOP.replace(line, wrong))
    assert any(error.startswith(f"layer 'loop' (Loop): {expected}") for error in caught.value.problems), (
        caught.value.problems
    )


def test_a_layer_needs_the_regions_that_its_operator_names():
    network = Network()
    condition = network.add_input_layer(0, TensorInfo((), DataType.BOOL))
    layer = network.add_if_layer(condition, regions=[Network("then")])
    assert infer_layer(layer) == ["it has 1 regions; If has 2: 'then' and 'else'"]
    with pytest.raises(InvalidArgumentError, match="a region must be a Network or a Graph, not 3"):
        network.add_if_layer(condition, regions=[3, 4])


def test_a_captured_value_keeps_its_quantization_and_is_known_inside():
    half = Quantization(0.5, 3)
    text = """
        graph {
          %c = Input : bool[]
          %x = Constant(value=int32[2]{1, 2})
          %q = Input(binding_id=1) : uint8[2] q(0.5, 3)
          %if:0, %if:1 = If(num_outputs=2) %c, %x, %q {
            graph {
              %a = Input
              %b = Input(binding_id=1)
              Output %a as "p"
              Output(binding_id=1) %b as "q"
            }
            graph {
              %a = Input
              %b = Input(binding_id=1)
              Output %a as "p"
              Output(binding_id=1) %b as "q"
            }
          }
          Output %if:0 as "y"
          Output(binding_id=1) %if:1 as "z"
        }
        """
    layer = inferred(text).layer("if")
    assert [value.known.quantization for value in layer.outputs] == [None, half]
    assert layer.regions[0].layer("a").output.constant.tolist() == [1, 2]


@pytest.mark.parametrize(("elements", "is_known"), [(1024, True), (1025, False)])
def test_only_small_constants_are_known_inside_regions(elements, is_known):
    network = Network()
    condition = network.add_input_layer(0, TensorInfo((), DataType.BOOL))
    region = Network("same")
    region.add_output_layer(0, region.add_input_layer(0, None, name="a"))
    numbers = network.add_constant_layer(np.arange(elements))
    layer = network.add_if_layer(condition, numbers, regions=[region, region])
    assert infer_layer(layer) == []
    assert (layer.regions[0].layer("a").output.constant is not None) == is_known


def test_a_network_can_be_used_as_a_region_more_than_once():
    same = Network("same")
    same.add_output_layer(0, same.add_input_layer(0, None))
    network = Network()
    condition = network.add_input_layer(0, TensorInfo((), DataType.BOOL))
    layer = network.add_if_layer(condition, condition, regions=[same, same])
    first, second = layer.regions
    assert first is not second and first is not same.graph
    assert same.graph.inputs[0].output.info is None


# --- the verifier -----------------------------------------------------------------------------------------------------


def test_the_verifier_sees_that_a_region_takes_something_else_than_it_gets():
    graph = inferred()
    graph.layer("loop").regions[0].layer("step").output.info = TensorInfo((2, 3))
    assert "layer 'loop' (Loop): region 'body' takes float32[2, 3] as 'step', but gets float32[1, 3]" in problems_of(
        graph
    )


def test_the_verifier_sees_that_results_are_not_what_regions_give():
    graph = inferred()
    graph.layer("loop").outputs[1].info = TensorInfo((4, 9))
    expected = "layer 'loop' (Loop): output 'loop:1' is float32[4, 9]; its regions give float32[?, 3]"
    assert expected in problems_of(graph)


def test_the_verifier_sees_a_region_that_belongs_to_another_layer():
    graph = inferred()
    graph.layer("loop").regions[0].owner = graph.layer("x")
    assert problems_of(graph) == ["region body of layer 'loop' (Loop): it does not know whose region it is"]


# --- the way to layers, copies, estimates -----------------------------------------------------------------------------


def test_layers_in_regions_are_named_with_what_is_around_them():
    graph = inferred()
    names = [place.name for place in places(graph)]
    assert names[:2] == ["n", "x"]
    assert "loop/body/grown" in names
    assert find_layer(graph, "loop/body/grown") is graph.layer("loop").regions[0].layer("grown")
    with pytest.raises(InvalidArgumentError) as caught:
        find_layer(graph, "loop/body/grow")
    assert str(caught.value) == "no layer is called 'loop/body/grow'; did you mean 'loop/body/grown'?"


def test_copies_of_long_and_of_nested_graphs_are_graphs_of_their_own():
    graph = inferred()
    for copied in (graph.clone(), copy.deepcopy(graph)):
        assert print_graph(copied) == print_graph(graph)
        assert copied.layer("loop").regions[0] is not graph.layer("loop").regions[0]
        assert copied.layer("loop").regions[0].owner is copied.layer("loop")
    network = Network("long")
    value = network.add_input_layer(0, TensorInfo((1,)))
    for _ in range(3000):
        value = network.add_floor_layer(value)
    network.add_output_layer(0, value)
    assert len(copy.deepcopy(network)) == 3002


def test_a_layer_with_regions_is_dead_only_where_these_leave_no_trace():
    graph = inferred()
    for layer in graph.outputs:
        graph.erase(layer)
    watched = copy.deepcopy(graph)
    body = watched.layer("loop").regions[0]
    infer_layer(body.add(Debug("grown"), [body.layer("grown").output]))
    assert watched.erase_dead() == []
    assert [layer.name for layer in graph.erase_dead()] == ["loop"]


def test_an_estimate_counts_iterations_and_the_dearer_branch():
    def network(count):
        network = Network()
        x = network.add_input_layer(0, TensorInfo((1000,)))
        body = Network("body")
        values = [body.add_input_layer(index, None) for index in range(3)]
        body.add_output_layer(0, values[1])
        body.add_output_layer(1, body.add_addition_layer(values[2], values[2]))
        trips = network.add_constant_layer(np.int64(count))
        network.add_output_layer(0, network.add_loop_layer(trips, None, x, regions=[body], num_carried=1))
        return network

    once, many = estimate(network(1).graph), estimate(network(10**9).graph)
    assert once.operations >= 1000
    assert many.operations == once.operations * 10**9
    assert many.peak_bytes == once.peak_bytes > 2 * 4000
    with pytest.raises(LimitExceededError, match="arithmetic"):
        Limits(max_operations=10**9).check(network(10**9).graph)


def test_inputs_and_outputs_are_those_of_the_region_alone():
    graph = inferred()
    body = graph.layer("loop").regions[0]
    assert [layer.op for layer in body.inputs] == [Input(index) for index in range(4)]
    assert [layer.op for layer in body.outputs] == [Output(index) for index in range(3)]
    assert len(graph.inputs) == 3
