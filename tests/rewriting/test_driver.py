"""The driver of rewrites: the journal of what they did."""

import interposer as ip
from interposer.core.traits import Trait
from interposer.ir.graph import Layer
from interposer.ops import Activation, ActivationFunction, Constant, Reshape, Transpose
from interposer.rewriting.driver import Journal, Rules, apply_rewrites
from interposer.rewriting.pattern import New, Replacement, rewrite

RELU = Activation(ActivationFunction.RELU)


@rewrite(Transpose)
def clamp_instead(op: Transpose, layer: Layer) -> Replacement:
    """Replace a Transpose of a square by a ReLU, which only shows that it was applied."""
    return New(RELU, layer.inputs)


@rewrite(having=Trait.MOVES)
def never(op: Transpose, layer: Layer) -> Replacement:
    """Match no layer."""
    return None


def square():
    network = ip.Network("square")
    x = network.add_input_layer(0, ip.TensorInfo((2, 2)), name="x")
    y = network.add_transpose_layer(x, permutation=(1, 0), name="turned")
    network.add_output_layer(0, network.add_reshape_layer(y, target_shape=(4,), name="flat"), name="y")
    network.validate()
    return network.graph


def test_a_journal_has_the_graph_before_the_first_rewrite_and_the_layers_that_were_made():
    graph, journal = square(), Journal()
    before = str(graph)
    assert apply_rewrites(graph, [clamp_instead], journal).counts == {"clamp_instead": 1}
    assert [layer.op for layer in journal.made] == [RELU]
    assert str(journal.before) == before != str(graph)
    graph.restore(journal.before)
    assert str(graph) == before


def test_a_graph_in_which_no_rewrite_matches_is_not_copied():
    journal = Journal()
    assert not apply_rewrites(square(), [never], journal).counts
    assert journal.before is None
    assert not journal.made


def test_operators_are_asked_for_their_traits_only_if_these_depend_on_attributes():
    rules = Rules([never])
    assert rules[Transpose] == rules[Reshape] == ((never, False),)
    assert rules[Activation] == ((never, True),)
    assert rules[Constant] == ()
