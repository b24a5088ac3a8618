"""Equality of graphs."""

import numpy as np
import pytest
from hypothesis import given, settings

from interposer.ir.equality import differences, same_graph
from interposer.ir.graph import Graph
from interposer.ir.text import parse_graph
from interposer.ops import PreCompiled
from tests.graphs import annotated

TEXT = """
graph "net" {
  %x = Input : float32[2]
  %y = StandIn %x, _ @CpuRef hint CpuAcc : int64[2] = {1, 2} declared int64[2] from "a" replacing "b" {
    graph {
      %c = Constant(value=int8[1]{1}) : int8[1]
    }
  }
}"""


@given(annotated())
@settings(max_examples=30)
def test_a_graph_is_the_same_as_its_copy(graph):
    assert list(differences(graph, graph.clone())) == []


@pytest.mark.parametrize(("old", "new", "difference"), [
    ('"net"', '"ten"', "the graphs are called 'net' and 'ten'"),
    ("%x, _ @", "@", "layer 'y' (StandIn): it takes (%x:0), and ()"),
    ("%x, _ @", "_, %x @", "layer 'y' (StandIn): it takes (%x:0), and (_, %x:0)"),
    ("= StandIn", '= StandIn(description="a")',
     "layer 'y' (StandIn): its operator is StandIn(), and StandIn(description='a')"),
    ("@CpuRef", "", "layer 'y' (StandIn): backend is 'CpuRef', and None"),
    ("hint CpuAcc", "", "layer 'y' (StandIn): hint is 'CpuAcc', and None"),
    ('from "a"', "", "layer 'y' (StandIn): source is 'a', and ''"),
    ('replacing "b"', "", "layer 'y' (StandIn): replaced is ('b',), and ()"),
    ("declared int64[2]", "declared int64[?]",
     "layer 'y' (StandIn): the declared info of output 0 is int64[2], and int64[?]"),
    ("{1, 2}", "{1, 3}", "layer 'y' (StandIn): the constant in the info of output 0 is another"),
    ("= {1, 2}", "", "layer 'y' (StandIn): the constant in the info of output 0 is another"),
    ("{1})", "{2})", "layer 'y' (StandIn): region 0: layer 'c' (Constant): its operator is "
     "Constant(value=array([1], dtype=int8)), and Constant(value=array([2], dtype=int8))"),
])  # fmt: skip
def test_whatever_sets_two_graphs_apart_is_named(old, new, difference):
    assert TEXT.count(old) == 1
    assert next(differences(parse_graph(TEXT), parse_graph(TEXT.replace(old, new)))) == difference


def test_layers_that_only_one_graph_has_are_named():
    other = TEXT.replace("%x = Input", "%z = Input").replace("%x, _", "_")
    assert [text for text in differences(parse_graph(TEXT), parse_graph(other)) if "only" in text] == [
        "only the first graph has layer 'x' (Input)",
        "only the second graph has layer 'z' (Input)",
    ]


def test_absent_inputs_at_the_end_and_the_order_of_layers_do_not_matter():
    lines = ["%x = Input : float32[2]", "%z = Input(binding_id=1) : float32[2]", "%y = StandIn %x, _"]
    item, other = ("\n".join(["graph {", *some, "}"]) for some in (lines, [lines[1], lines[0], "%y = StandIn %x"]))
    assert same_graph(parse_graph(item), parse_graph(other))


def test_compiled_objects_are_left_out_on_request():
    graph, other = Graph(), Graph()
    graph.add(PreCompiled(object=np.zeros(2)), name="part")
    other.add(PreCompiled(object=np.zeros(2)), name="part")
    assert not same_graph(graph, other)
    assert list(differences(graph, other)) != []
    assert same_graph(graph, other, opaque=False)
    other.layer("part").op = PreCompiled(num_outputs=0)
    assert not same_graph(graph, other, opaque=False)
