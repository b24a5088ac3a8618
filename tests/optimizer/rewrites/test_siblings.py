"""Equal layers on equal inputs."""

import numpy as np

from interposer.core.types import Quantization, TensorInfo
from interposer.ir.network import Network
from interposer.ir.text import print_graph
from interposer.ops import Addition, Debug, Reshape, Splitter
from interposer.optimizer.passes import SquashEqualLayers, run_passes
from tests.optimizer.rewriting import assert_same_results, graph_of, lines


def squashed(text: str) -> str:
    graph = graph_of(text)
    before = graph.clone()
    run_passes(graph, [SquashEqualLayers()])
    assert_same_results(before, graph)
    return lines(graph)


def test_equal_siblings_and_what_follows_them_alike_become_one():
    result = squashed(
        """
        graph {
          %x = Input : float32[2, 3]
          %a = Transpose(permutation=(1, 0)) %x
          %b = Transpose(permutation=(1, 0)) %x
          %c = Reshape(target_shape=(6,)) %a
          %d = Reshape(target_shape=(6,)) %b
          %e = Reshape(target_shape=(6, 1)) %b
          Output %c as "y"
          Output(binding_id=1) %d as "z"
          Output(binding_id=2) %e as "w"
        }
        """
    )
    assert result.splitlines() == [
        '%a = Transpose(permutation=(1, 0)) %x replacing "a", "b"',
        '%c = Reshape(target_shape=(6,)) %a replacing "c", "d"',
        "%e = Reshape(target_shape=(6, 1)) %a",
        'Output %c as "y"',
        'Output(binding_id=1) %c as "z"',
        'Output(binding_id=2) %e as "w"',
    ]


def test_operands_of_commutative_operators_may_be_swapped():
    result = squashed(
        """
        graph {
          %x = Input : float32[3]
          %y = Input(binding_id=1) : float32[3]
          %a = Addition %x, %y
          %b = Addition %y, %x
          %c = Subtraction %x, %y
          %d = Subtraction %y, %x
          Output %a as "z"
          Output(binding_id=1) %b as "w"
          Output(binding_id=2) %c as "v"
          Output(binding_id=3) %d as "u"
        }
        """
    )
    assert result.splitlines() == [
        '%a = Addition %x, %y replacing "a", "b"',
        "%c = Subtraction %x, %y",
        "%d = Subtraction %y, %x",
        'Output %a as "z"',
        'Output(binding_id=1) %a as "w"',
        'Output(binding_id=2) %c as "v"',
        'Output(binding_id=3) %d as "u"',
    ]


def test_equal_constants_are_stored_once_unless_they_mean_something_else():
    network = Network()
    ones = [network.add_constant_layer(np.ones(3, np.float32), name=f"ones{i}") for i in range(3)]
    zeros = network.add_constant_layer(np.zeros(3, np.float32), name="zeros")
    minus = network.add_constant_layer(-np.zeros(3, np.float32), name="minus")
    codes = [
        network.add_constant_layer(np.ones(3, np.uint8), Quantization(scale), name=f"q{scale}") for scale in (1, 1, 2)
    ]
    for number, layer in enumerate((*ones, zeros, minus, *codes)):
        network.add_output_layer(number, layer)
    run_passes(network.graph, [SquashEqualLayers()])
    assert [layer.values[0].name for layer in network.graph.outputs] == [
        "ones0", "ones0", "ones0", "zeros", "minus", "q1", "q1", "q2",
    ]  # fmt: skip


def test_layers_with_several_outputs_are_squashed_output_by_output():
    network = Network()
    x = network.add_input_layer(0, TensorInfo((4,)))
    first, second = (network.add_layer(Splitter(0, (1, 3)), x, name=name) for name in ("first", "second"))
    network.add_output_layer(0, second.outputs[1])
    network.add_output_layer(1, first.outputs[0])
    run_passes(network.graph, [SquashEqualLayers()])
    assert [layer.values[0] for layer in network.graph.outputs] == [first.outputs[1], first.outputs[0]]


def test_layers_that_leave_traces_or_differ_in_hint_or_quantization_stay():
    network = Network()
    info = TensorInfo((4,), "uint8", Quantization(0.5))
    x = network.add_input_layer(0, info)
    watched = [network.add_layer(Debug("x"), x) for _ in range(2)]
    reshaped = [network.add_layer(Reshape((2, 2)), x) for _ in range(2)]
    reshaped[1].hint = "CpuRef"
    sums = [
        network.add_layer(Addition(), x, x, outputs=info.with_quantization(Quantization(scale))) for scale in (1, 2)
    ]
    for number, layer in enumerate((*watched, *reshaped, *sums)):
        network.add_output_layer(number, layer)
    before = print_graph(network.graph)
    [record] = run_passes(network.graph, [SquashEqualLayers()])
    assert not record.changed
    assert print_graph(network.graph) == before
