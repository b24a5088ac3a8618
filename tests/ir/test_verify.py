"""The invariants of graphs, each broken once."""

import numpy as np
import pytest
from hypothesis import given, settings

from interposer.core.errors import VerificationError
from interposer.core.types import TensorInfo
from interposer.ir.graph import Graph, Use, Value
from interposer.ir.text import parse_graph
from interposer.ir.verify import verify
from interposer.ops import Activation, Addition, Concat, StandIn
from tests.graphs import annotated

SOUND = """
graph "net" {
  %x = Input : float32[2, 4]
  %parts:0, %parts:1 = Splitter(axis=1, sizes=(1, 3)) %x : float32[2, 1], float32[2, 3]
  %relu = Activation %parts:1 : float32[2, 3]
  %twice = Addition %relu, %relu : float32[2, 3]
  Output %twice as "out"
}"""


def sound():
    return parse_graph(SOUND)


def problems_of(graph, **options):
    with pytest.raises(VerificationError) as caught:
        verify(graph, **options)
    return list(caught.value.problems)


def broken(old, new):
    assert old in SOUND
    return problems_of(parse_graph(SOUND.replace(old, new)))


def test_a_sound_graph_passes():
    verify(sound())
    verify(Graph())


@given(annotated())
@settings(max_examples=30)
def test_every_graph_that_was_built_rightly_passes(graph):
    verify(graph)
    verify(graph.clone())


def test_the_error_says_after_what_and_lists_everything():
    with pytest.raises(VerificationError) as caught:
        verify(parse_graph("graph {\n%x = Input\n%y = Addition %x\n}"), after="fold_constants")
    assert caught.value.after == "fold_constants"
    assert str(caught.value) == (
        "the graph is not valid after fold_constants:\n"
        "  - layer 'x' (Input): output 'x' has no info\n"
        "  - layer 'y' (Addition): b is not connected"
    )


# --- infos ------------------------------------------------------------------------------------------------------------


def test_an_info_must_be_known():
    assert broken("Activation %parts:1 : float32[2, 3]", "Activation %parts:1") == [
        "layer 'relu' (Activation): output 'relu' has no info"
    ]


@pytest.mark.parametrize(("old", "new", "given_info"), [
    ("%relu, %relu : float32[2, 3]", "%relu, %relu : float32[2, 4]", "float32[2, 4]"),
    ("%relu, %relu : float32[2, 3]", "%relu, %relu : float16[2, 3]", "float16[2, 3]"),
    ("%relu, %relu : float32[2, 3]", "%relu, %relu : float32[6]", "float32[6]"),
])  # fmt: skip
def test_an_info_must_be_one_that_the_operator_infers(old, new, given_info):
    [error] = broken(old, new)
    assert error == f"layer 'twice' (Addition): output 'twice' is {given_info}; Addition gives float32[2, 3]"


def test_an_info_may_know_more_or_less_than_the_operator_infers():
    verify(parse_graph(SOUND.replace("%relu, %relu : float32[2, 3]", "%relu, %relu : float32[?, 3]")))


def test_an_operator_must_accept_its_inputs():
    [error] = broken("Addition %relu, %relu : float32[2, 3]", "Concat(axis=5) %relu : float32[2, 3]")
    assert error.startswith("layer 'twice' (Concat): axis is 5")


# --- connections ------------------------------------------------------------------------------------------------------


def test_required_operands_must_be_connected():
    assert broken("Addition %relu, %relu", "Addition %relu") == ["layer 'twice' (Addition): b is not connected"]
    assert broken("Addition %relu, %relu", "Concat(axis=0)") == ["layer 'twice' (Concat): inputs is not connected"]


def test_there_may_be_no_more_inputs_than_operands():
    graph = sound()
    relu, twice = graph.layer("relu"), graph.layer("twice")
    graph.set_input(relu, 1, twice.output)
    assert problems_of(graph)[0] == "layer 'relu' (Activation): Activation takes at most 1 inputs, but 2 were given"


def test_an_input_must_be_given_by_a_layer_of_the_graph():
    graph = sound()
    relu = graph.layer("relu")
    graph._layers.pop(relu.guid)
    graph._names.discard("relu")
    assert problems_of(graph) == [
        "tensor 'parts:1' notes once that layer 'relu' (Activation) takes it as input 0; expected 0 times",
        "tensor 'relu' does not note that layer 'twice' (Addition) takes it as input 0",
        "tensor 'relu' does not note that layer 'twice' (Addition) takes it as input 1",
        "layer 'twice' (Addition): input 0, 'relu', comes from layer 'relu' (Activation), which is not in the graph",
        "layer 'twice' (Addition): input 1, 'relu', comes from layer 'relu' (Activation), which is not in the graph",
    ]


def test_an_input_must_still_be_an_output_of_its_layer():
    graph = sound()
    relu = graph.layer("relu")
    old = relu.output
    relu.outputs = (Value(relu, 0),)
    relu.output.info = old.info
    assert "layer 'twice' (Addition): input 0, 'relu', is no longer an output of layer 'relu' (Activation)" in (
        problems_of(graph)
    )


def test_uses_and_inputs_must_agree():
    graph = sound()
    relu, twice = graph.layer("relu"), graph.layer("twice")
    relu.output.uses.add(Use(twice, 2))
    assert problems_of(graph) == [
        "tensor 'relu' notes once that layer 'twice' (Addition) takes it as input 2; expected 0 times"
    ]
    relu.output.uses.clear()
    assert problems_of(graph) == [
        "tensor 'relu' does not note that layer 'twice' (Addition) takes it as input 0",
        "tensor 'relu' does not note that layer 'twice' (Addition) takes it as input 1",
    ]


def test_outputs_must_know_their_layer_and_their_number():
    graph = sound()
    parts, relu = graph.layer("parts"), graph.layer("relu")
    parts.outputs[0].index = 1
    relu.output.producer = parts
    assert [error for error in problems_of(graph) if "says that" in error] == [
        "layer 'parts' (Splitter): output 0 says that it is output 1",
        "layer 'relu' (Activation): output 0 says that layer 'parts' (Splitter) gives it",
    ]


def test_a_layer_must_have_the_outputs_that_its_operator_gives():
    graph = sound()
    graph.layer("parts").outputs += (Value(graph.layer("parts"), 2),)
    assert problems_of(graph) == ["layer 'parts' (Splitter): it has 3 outputs; Splitter gives 2"]


def test_nothing_may_depend_on_itself():
    graph = sound()
    relu, twice = graph.layer("relu"), graph.layer("twice")
    graph.set_input(relu, 0, twice.output)
    [error] = problems_of(graph)
    assert error == "these layers depend on themselves: 'relu' (Activation), 'twice' (Addition)"


# --- names and numbers ------------------------------------------------------------------------------------------------


def test_names_must_be_unique_and_known_to_the_graph():
    graph = sound()
    graph.layer("relu").name = "x"
    assert problems_of(graph) == ["2 layers are called 'x'", "the name 'relu' is taken, but no layer has it"]
    graph.layer("twice").name = "new"
    assert "the name 'new' is not among the graph's names" in problems_of(graph)


def test_binding_ids_must_be_unique_among_inputs_and_among_outputs():
    text = SOUND.replace("}", '  Output %x as "again"\n  %z = Input : float32[1]\n}')
    assert problems_of(parse_graph(text)) == [
        "input binding id 0 is used by layers 'x' and 'z'",
        "output binding id 0 is used by layers 'out' and 'again'",
    ]


# --- regions and placement --------------------------------------------------------------------------------------------


def test_regions_are_verified_too():
    graph = Graph()
    region = Graph()
    region.add(Activation(), name="a").output.info = TensorInfo((2,))
    layer = graph.add(StandIn(0), name="if")
    layer.regions = (Graph(), region)
    assert problems_of(graph) == ["region 1 of layer 'if' (StandIn): layer 'a' (Activation): input is not connected"]


def placed(**backends):
    graph = sound()
    for layer in graph:
        layer.backend = backends.get(layer.name, None if layer.name == "out" else "CpuRef")
        for value in layer.outputs:
            value.factory = "Interposer/Cpu/Array"
    return graph


def test_every_executable_layer_must_have_a_backend_where_that_is_asked():
    graph = placed(relu=None)
    verify(graph)
    assert "layer 'relu' (Activation): it has no backend" in problems_of(graph, placed=True)
    verify(placed(), placed=True)


def test_memory_must_be_chosen_for_what_is_computed():
    graph = placed()
    graph.layer("relu").output.factory = None
    error = "layer 'twice' (Addition): it runs on CpuRef and takes 'relu', for which no memory was chosen"
    assert problems_of(graph, placed=True) == [error, error]


def test_a_constant_needs_no_memory_of_a_backend():
    graph = placed()
    graph.set_input(graph.layer("twice"), 1, graph.constant(np.ones(3, np.float32)))
    verify(graph, placed=True)


def test_an_operator_that_infers_the_wrong_number_of_infos_is_found():
    class Odd(Addition):
        def infer(self, a, b):
            return (a, b)

    graph = Graph()
    x = graph.add(StandIn(1), name="x").output
    x.info = TensorInfo((2,))
    graph.add(Odd(), [x, x], name="odd").output.info = TensorInfo((2,))
    assert problems_of(graph) == ["layer 'odd' (Odd): Odd infers 2 infos for 1 results"]


def test_an_absent_value_among_many_is_a_fault():
    graph = sound()
    merged = graph.add(Concat(axis=0), [None, graph.layer("relu").output], name="merged")
    merged.output.info = TensorInfo((2, 3))
    assert problems_of(graph) == ["layer 'merged' (Concat): inputs[0] is not connected"]
