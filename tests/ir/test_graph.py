"""Graphs: layers, values, uses, names, order and copies."""

import gc
import weakref

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from interposer.core.errors import InvalidArgumentError, VerificationError
from interposer.core.types import Quantization, TensorInfo
from interposer.ir.equality import differences
from interposer.ir.graph import Graph, Use
from interposer.ir.verify import verify
from interposer.ops import Activation, Addition, Concat, Debug, Input, Output, Splitter, StandIn
from tests.graphs import annotated, graphs

INFO = TensorInfo((2,))


def refused(call, *args, **kwargs):
    with pytest.raises(InvalidArgumentError) as caught:
        call(*args, **kwargs)
    return str(caught.value)


def chain(*ops):
    """A graph of an input and of layers that take one value each; returns it with the layers."""
    graph = Graph()
    layers = [graph.add(Input(), name="x", outputs=[INFO])]
    for op in ops:
        layers.append(graph.add(op, [layers[-1].output]))
    return graph, layers


# --- layers and values ------------------------------------------------------------------------------------------------


def test_a_value_knows_its_producer_and_its_uses():
    graph, [x, relu] = chain(Activation())
    added = graph.add(Addition(), [x.output, relu.output])
    assert x.output.producer is x
    assert x.output.uses == [Use(relu, 0), Use(added, 0)]
    assert x.output.consumers == [relu, added]
    assert added.inputs == (x.output, relu.output)


def test_a_value_is_named_after_its_layer_with_a_number_where_there_are_several():
    graph, [x] = chain()
    parts = graph.add(Splitter(0, (1, 1)), [x.output], name="parts")
    assert x.output.name == "x"
    assert [value.name for value in parts.outputs] == ["parts:0", "parts:1"]


def test_the_only_output_is_asked_for_where_there_is_one():
    graph, [x] = chain()
    parts = graph.add(Splitter(0, (1, 1)), [x.output], name="parts")
    assert refused(lambda: parts.output) == "layer 'parts' (Splitter) has 2 outputs; name one"


def test_infos_that_are_asked_for_must_be_known():
    graph, [x, relu] = chain(Activation())
    assert relu.input_infos == (None,)
    with pytest.raises(VerificationError) as caught:
        _ = x.output_infos
    assert caught.value.problems == ("the tensor x has no known info",)


def test_an_input_is_found_by_its_operands_name():
    graph, [x] = chain()
    added = graph.add(Addition(), [x.output])
    assert added.operand("a") is x.output
    assert added.operand("b") is None
    assert refused(added.operand, "c") == "Addition has no operand 'c'; it has a, b"


def test_a_constant_value_carries_its_array_and_takes_the_scales_of_another():
    graph = Graph()
    like = TensorInfo((1,), "int8", Quantization(0.5))
    value = graph.constant(np.array([1, 2], "int8"), like=like, name="c")
    assert value.is_constant
    assert value.constant.tolist() == [1, 2]
    assert value.info == TensorInfo((2,), "int8", Quantization(0.5))


def test_a_layer_in_place_of_a_value_is_told_what_to_give():
    graph = Graph()
    layer = graph.add(Activation(), name="a")
    assert refused(graph.add, Activation(), [layer]).endswith("; give one of its outputs, such as layer.output")


@pytest.mark.parametrize(("arguments", "message"), [
    ((Activation(), [1]), "an input must be a Value or None, not 1"),
    ((Activation(), [None, None]), "Activation takes at most 1 inputs, but 2 were given"),
    ((Activation(), [], None, [INFO, INFO]), "Activation has 1 outputs, but 2 infos were given for them"),
    ((Activation(), [], None, [(2,)]), "an output is declared with a TensorInfo or None, not (2,)"),
    ((Activation(), [], 7), "a layer's name must be a text, not 7"),
])  # fmt: skip
def test_a_layer_that_cannot_be_added_is_refused_and_leaves_no_trace(arguments, message):
    op, inputs, *rest = arguments
    graph = Graph()
    assert refused(graph.add, op, inputs, **dict(zip(("name", "outputs"), rest, strict=False))) == message
    assert len(graph) == 0
    verify(graph)


def test_what_belongs_to_another_network_is_refused():
    graph, [x, relu] = chain(Activation())
    other = Graph()
    assert refused(other.add, Activation(), [x.output]) == "the value 'x' belongs to another network"
    for call in (lambda: other.set_input(relu, 0, None), lambda: other.erase(relu), lambda: other.rename(relu, "a")):
        assert refused(call) == "layer 'activation' (Activation) belongs to another network"
    assert refused(graph.erase, "relu") == "layer relu belongs to another network"


# --- names ------------------------------------------------------------------------------------------------------------


def test_a_name_that_is_taken_gets_a_number():
    graph = Graph()
    assert [graph.add(Input()).name for _ in range(3)] == ["input", "input_1", "input_2"]
    assert graph.add(Input(), name="input_3").name == "input_3"
    assert graph.add(Input()).name == "input_4"


def test_a_name_is_free_again_when_its_layer_is_gone_or_renamed():
    graph, [x, relu] = chain(Activation())
    graph.rename(x, "activation")
    assert x.name == "activation_1"
    graph.erase(relu)
    graph.rename(x, "activation")
    assert x.name == "activation"
    assert graph.layer("activation") is x
    assert refused(graph.layer, "x") == "no layer is called 'x'"


# --- changes ----------------------------------------------------------------------------------------------------------


def test_setting_an_input_takes_the_use_from_the_old_value():
    graph, [x, relu] = chain(Activation())
    y = graph.add(Input(), name="y")
    graph.set_input(relu, 0, y.output)
    assert x.output.uses == []
    assert y.output.uses == [Use(relu, 0)]
    assert refused(graph.set_input, relu, -1, None) == "an operand's number must not be negative, but -1 was given"


def test_an_input_far_behind_leaves_absent_ones_before_it():
    graph, [x] = chain()
    merged = graph.add(Concat(0))
    graph.set_input(merged, 2, x.output)
    assert merged.inputs == (None, None, x.output)
    assert merged.values == (x.output,)


def test_a_layer_is_changed_in_its_place_and_forgets_what_was_known_of_its_output():
    graph, (x, first, second, last) = chain(Debug(), Debug(), Debug())
    second.output.info, second.output.aliases = INFO, ("y",)
    graph.change(second, Addition(), [x.output, x.output], INFO)
    assert (second.op, second.inputs) == (Addition(), (x.output, x.output))
    assert (second.output.info, second.output.declared, second.output.aliases) == (None, INFO, ())
    assert [use.layer for use in x.output.uses] == [first, second, second]
    assert (list(first.output.uses), last.inputs) == ([], (second.output,))
    assert graph.topological() == [x, first, second, last]


def test_a_layer_is_not_changed_to_one_that_cannot_be():
    graph, (x, first, _) = chain(Debug(), Debug())
    other, (y,) = chain()
    assert refused(graph.change, first, Addition(), [x.output, y.output], INFO) == (
        f"the value {y.output.name!r} belongs to another network"
    )
    assert refused(graph.change, first, Debug(), [x.output, x.output], INFO) == (
        "Debug takes at most 1 inputs, but 2 were given"
    )
    assert refused(other.change, first, Debug(), [y.output], INFO) == f"layer {first} belongs to another network"
    pieces = graph.add(Splitter(0, (1, 1)), [x.output], name="pieces")
    assert refused(graph.change, pieces, Debug(), [x.output], INFO) == (
        "layer 'pieces' (Splitter) has 2 outputs; name one"
    )
    assert pieces in x.output.consumers
    assert (first.op, first.inputs) == (Debug(), (x.output,))


def test_uses_are_replaced_where_a_condition_holds():
    graph, [x, relu] = chain(Activation())
    added = graph.add(Addition(), [x.output, x.output])
    graph.replace_uses(x.output, relu.output, lambda use: use.layer is added)
    assert added.inputs == (relu.output, relu.output)
    assert relu.inputs == (x.output,)


def test_the_value_of_an_erased_constant_has_its_name_in_messages():
    graph = Graph()
    value = graph.constant(np.zeros(2, np.float32), name="zeros")
    graph.erase(value.producer)
    assert refused(graph.add, Activation(), [value]) == "the value 'zeros' belongs to another network"


def test_a_layer_that_is_used_cannot_be_erased():
    graph, [x, relu, out] = chain(Activation(), Output())
    assert refused(graph.erase, relu) == (
        "layer 'activation' (Activation) cannot be removed; it is used by 'output' (Output)"
    )
    graph.erase(out)
    graph.erase(relu)
    assert x.output.uses == []
    assert list(graph) == [x]


def test_dead_layers_go_with_all_that_only_they_used():
    graph, [x, used, out] = chain(Activation(), Output())
    dead = graph.add(Addition(), [used.output, graph.constant(np.ones(2, np.float32))], name="dead")
    graph.add(Activation(), [dead.output], name="last")
    graph.add(Debug(), [x.output], name="seen")
    gone = graph.erase_dead()
    assert [layer.name for layer in gone] == ["last", "dead", "constant"]
    assert [layer.name for layer in graph] == ["x", "activation", "output", "seen"]


@given(graphs(), st.data())
@settings(max_examples=30)
def test_a_graph_stays_sound_whatever_its_own_methods_do(graph, data):
    values = [value for layer in graph for value in layer.outputs]
    old = data.draw(st.sampled_from(values))
    alike = [value for value in values if value.known == old.known]
    new = data.draw(st.sampled_from(alike))
    graph.replace_uses(old, new, lambda use: graph.topological().index(new.producer) < _position(graph, use.layer))
    graph.erase_dead()
    verify(graph)


def _position(graph, layer):
    return graph.topological().index(layer)


# --- order and copies -------------------------------------------------------------------------------------------------


def test_layers_run_after_their_producers_and_otherwise_as_they_were_added():
    graph = Graph()
    late = graph.add(Addition(), name="late")
    a, b = graph.add(Input(), name="a"), graph.add(Input(1), name="b")
    graph.set_input(late, 0, b.output)
    graph.set_input(late, 1, a.output)
    assert graph.topological() == [a, b, late]
    assert list(graph) == [late, a, b]


def test_layers_that_depend_on_themselves_have_no_order():
    graph, [x, first, second] = chain(Activation(), Activation())
    graph.set_input(first, 0, second.output)
    with pytest.raises(VerificationError) as caught:
        graph.topological()
    assert caught.value.problems == (
        "these layers depend on themselves: 'activation' (Activation), 'activation_1' (Activation)",
    )


def test_inputs_and_outputs_come_in_the_order_of_their_numbers():
    graph = Graph()
    b, a = graph.add(Input(1)), graph.add(Input(0))
    second, first = graph.add(Output(5), [a.output]), graph.add(Output(3), [b.output])
    assert graph.inputs == [a, b]
    assert graph.outputs == [first, second]


@given(annotated())
@settings(max_examples=30)
def test_a_copy_is_the_same_and_shares_no_layer(graph):
    copy = graph.clone()
    assert list(differences(graph, copy)) == []
    assert not any(layer in graph for layer in copy)
    copy.add(Input(99), name="new")
    assert "new" not in [layer.name for layer in graph]


@pytest.mark.parametrize("restored", [False, True])
def test_a_graph_that_is_freed_after_its_last_use_may_be_changed_until_then(restored):
    graph = Graph()
    graph.constant(np.zeros(2, np.float32), name="erased")
    for _ in range(2):
        graph.free_after_last_use()
    if restored:
        graph.restore(graph.clone())
    added = weakref.ref(graph.constant(np.ones(2, np.float32), name="added").constant)
    erased = weakref.ref(graph.layer("erased").op.value)
    graph.erase(graph.layer("erased"))
    gc.collect()
    assert erased() is None
    gc.disable()
    try:
        del graph
        assert added() is None
    finally:
        gc.enable()


def test_a_graph_is_restored_from_a_copy_that_was_made_before_a_change():
    graph, [x, relu] = chain(Activation())
    text, copy = str(graph), graph.clone()
    graph.erase(relu)
    graph.rename(x, "other")
    graph.restore(copy)
    assert str(graph) == text
    assert graph.free_name("other") == "other"


def test_layers_are_absorbed_with_stand_ins_for_what_is_outside():
    graph, [x, relu] = chain(Activation())
    other = Graph()
    y = other.add(Input(), name="y")
    known = other.absorb([relu], {x.output: y.output})
    assert known[relu.output].producer.inputs == (y.output,)
    assert refused(other.absorb, [relu], {}) == (
        "layer 'activation' (Activation) takes 'x', for which nothing stands in"
    )


def test_a_copied_layer_has_copies_of_its_regions():
    graph, region = Graph(), Graph("then")
    graph.add(StandIn(0), name="if").regions = (region,)
    copied = graph.clone().layer("if").regions[0]
    assert copied is not region
    assert copied.name == "then"
