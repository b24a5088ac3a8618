"""Sequences and optionals of which it is known what they hold."""

import numpy as np
import pytest

import interposer as ip
from interposer.core.types import TensorInfo
from interposer.ir.network import Network
from interposer.optimizer.passes import DEFAULT_PASSES, TAKE_APART, run_passes
from interposer.optimizer.rewrites.containers import CONTAINERS
from tests.optimizer.rewriting import assert_becomes, assert_stays, graph_of, lines


def test_what_is_read_from_known_tensors_is_read_from_these():
    graph = graph_of(
        """
        graph {
          %a = Input : float32[2, 3]
          %b = Input(binding_id=1) : float32[1, 3]
          %zero = Constant(value=int64[]{0})
          %empty = SequenceEmpty()
          %one = SequenceInsert %empty, %a
          %two = SequenceInsert %one, %b, %zero
          %three = SequenceInsert %two, %b
          %erased = SequenceErase %three, %zero
          %at = SequenceAt %erased, %zero
          %joined = ConcatFromSequence(axis=0) %erased
          %sum = ElementwiseBinary(operation=ADD) %at, %at
          Output %sum as "y"
          Output(binding_id=1) %joined as "z"
        }
        """
    )
    original = graph.clone()
    run_passes(graph, [TAKE_APART])
    assert lines(graph).splitlines() == [
        "%sum = ElementwiseBinary %a, %a",
        'Output %sum as "y"',
        "%joined = Concat(axis=0) %a, %b",
        'Output(binding_id=1) %joined as "z"',
    ]
    assert str(graph.layer("joined").output.known) == "float32[3, 3]"
    feeds = [np.ones((2, 3), np.float32), np.zeros((1, 3), np.float32)]
    as_it_is = ip.OptimizerOptions(rewrite=False)
    models = [ip.load(Network(graph=item), ["CpuRef"], options=as_it_is) for item in (graph, original)]
    result, expected = (model.run(feeds) for model in models)
    assert [item.tolist() for item in result] == [item.tolist() for item in expected]


def test_the_element_of_an_optional_is_what_was_put_in():
    assert_becomes(
        """
        graph {
          %x = Input : float32[2]
          %o = OptionalConstruct %x
          %g = OptionalGetElement %o
          %r = Activation(function=RELU) %g
          Output %r as "y"
        }
        """,
        """
        %r = Activation(function=RELU) %x
        Output %r as "y"
        """,
        *CONTAINERS,
    )


@pytest.mark.parametrize(
    "reading", ["SequenceAt %s, %far", "SequenceAt %s, %p", "SequenceErase %only", "SequenceAt %in, %p"]
)
def test_what_is_not_known_is_left_alone(reading):
    assert_stays(
        f"""
        graph {{
          %x = Input : float32[2]
          %p = Input(binding_id=1) : int64[]
          %in = Input(binding_id=2) : sequence[2] of float32[2]
          %far = Constant(value=int64[]{{7}})
          %s = SequenceConstruct %x, %x
          %only = SequenceConstruct %x
          %read = {reading}
          Output %read as "y"
          Output(binding_id=1) %only as "z"
          Output(binding_id=2) %s as "u"
          Output(binding_id=3) %far as "v"
        }}
        """,
        *CONTAINERS,
    )


def test_more_is_known_behind_a_tensor_than_behind_an_element():
    network = Network("test")
    x = network.add_input_layer(0, TensorInfo((2, 3)), name="x")
    y = network.add_input_layer(1, TensorInfo((4,)), name="y")
    sequence = network.add_sequence_construct_layer(x, y)
    at = network.add_sequence_at_layer(sequence, network.add_constant_layer(np.int64(0)))
    network.add_output_layer(0, network.add_addition_layer(at, at, name="sum"), name="z")
    assert str(network.graph.layer("sum").output.known) == "float32[...]"
    run_passes(network.graph, DEFAULT_PASSES)
    assert str(network.graph.layer("sum").output.known) == "float32[2, 3]"
    assert "Sequence" not in lines(network.graph)


def test_a_loop_that_collects_in_a_sequence_becomes_one_layer():
    body = Network("body")
    _, going, held, row = (body.add_input_layer(number, None, name=name) for number, name in enumerate("ncsx"))
    body.add_output_layer(0, going)
    body.add_output_layer(1, body.add_sequence_insert_layer(held, row))
    network = Network("test")
    x = network.add_input_layer(0, TensorInfo((1, 2)), name="x")
    count = network.add_constant_layer(np.int64(3))
    loop = network.add_loop_layer(count, None, network.add_sequence_empty_layer(), x, regions=[body], num_carried=1)
    merged = network.add_concat_from_sequence_layer(loop.outputs[0], axis=0, name="joined")
    network.add_output_layer(0, merged, name="y")
    model = ip.load(network, backends=["CpuRef"])
    assert model(np.float32([[1, 2]])).tolist() == [[1, 2]] * 3
    assert [layer.kind for layer in model.optimized.graph if layer.op.executable] == ["Concat"]
