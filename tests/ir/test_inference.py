"""Shape inference over layers and graphs."""

import numpy as np
import pytest

from interposer.core.errors import InvalidNetworkError
from interposer.core.types import DataType, Quantization, TensorInfo
from interposer.ir.graph import Graph
from interposer.ir.inference import declare_quantization, infer_graph, infer_layer, inferences_remembered
from interposer.ir.text import parse_graph, print_graph
from interposer.ops import Activation, Addition, DynamicReshape, Input, Quantize, Reshape, Splitter, StandIn, Transpose


def add(graph, op, *inputs, info=None, outputs=()):
    layer = graph.add(op, [layer.output for layer in inputs], outputs=outputs)
    for value in layer.outputs if info else ():
        value.info = info
    return layer


def test_infos_flow_through_a_graph():
    graph = parse_graph("""
graph {
  %x = Input : _ declared float32[?, 4]
  %t = Transpose(permutation=(1, 0)) %x
  %s:0, %s:1 = Splitter(axis=0, sizes=(1, 3)) %t
  Output %s:1 as "out"
}""")
    infer_graph(graph)
    assert (
        print_graph(graph)
        == """\
graph {
  %x = Input : float32[?, 4]
  %t = Transpose(permutation=(1, 0)) %x : float32[4, ?]
  %s:0, %s:1 = Splitter(axis=0, sizes=(1, 3)) %t : float32[1, ?], float32[3, ?]
  Output %s:1 as "out"
}"""
    )


def test_a_declaration_adds_what_cannot_be_inferred():
    graph = Graph()
    x = add(graph, Input(), info=TensorInfo((None, 4), "int8"))
    declared = TensorInfo((2, None), "int8", Quantization(0.5))
    y = add(graph, Transpose((0, 1)), x, outputs=[declared])
    assert infer_layer(y) == []
    assert y.output.info == TensorInfo((2, 4), "int8", Quantization(0.5))


@pytest.mark.parametrize(("declared", "fault"), [
    (TensorInfo((2, 4), "float16"), "its output is declared as float16, but it gives float32"),
    (TensorInfo((2, 5)), "its output is declared with shape [2, 5], but it gives [?, 4]"),
    (TensorInfo((8,)), "its output is declared with shape [8], but it gives [?, 4]"),
])  # fmt: skip
def test_a_declaration_that_does_not_fit_is_a_fault(declared, fault):
    graph = Graph()
    x = add(graph, Input(), info=TensorInfo((None, 4)))
    y = add(graph, Activation(), x, outputs=[declared])
    assert infer_layer(y) == [fault]
    assert y.output.info is None


def test_declared_scales_that_do_not_fit_the_inferred_shape_are_a_fault():
    graph = Graph()
    x = add(graph, Input(), info=TensorInfo((3, 4), "int8"))
    declared = TensorInfo((None, None), "int8", Quantization([1.0, 2.0], axis=0))
    y = add(graph, Transpose((0, 1)), x, outputs=[declared])
    assert infer_layer(y) == ["its output cannot be as it is declared: 2 scales along axis 0 of shape [3, 4]"]


def test_the_output_that_does_not_fit_is_numbered_where_there_are_several():
    graph = Graph()
    x = add(graph, Input(), info=TensorInfo((4,)))
    y = add(graph, Splitter(0, (1, 3)), x, outputs=[None, TensorInfo((2,))])
    assert infer_layer(y) == ["its output 1 is declared with shape [2], but it gives [3]"]
    assert [value.info for value in y.outputs] == [TensorInfo((1,)), None]


def test_a_result_that_cannot_be_inferred_must_be_declared():
    graph = Graph()
    y = add(graph, StandIn(2), outputs=[TensorInfo((2,))])
    assert infer_layer(y) == [
        "its output 1 has no tensor info and none can be inferred; declare it with outputs=[TensorInfo(...)]"
    ]
    assert y.outputs[0].info == TensorInfo((2,))


def test_what_only_follows_from_an_unknown_input_is_no_fault():
    graph = Graph()
    x = add(graph, Input())
    y = add(graph, Addition(), x)
    assert infer_layer(y) == ["b is not connected"]
    graph.set_input(y, 1, x.output)
    assert infer_layer(y) == []
    assert y.output.info is None


def test_what_inference_itself_refuses_is_a_fault_of_the_layer():
    class Shrink(Activation):
        def infer(self, input):
            return input.with_shape([input.shape[0] - 5])

    graph = Graph()
    x = add(graph, Input(), info=TensorInfo((2,)))
    y = add(graph, Shrink(), x)
    assert infer_layer(y) == ["a dimension must not be negative, but -3 was given; None means unknown"]


def test_a_constant_with_scales_that_do_not_fit_is_a_fault():
    graph = parse_graph("graph {\n%c = Constant(value=int8[3]{1, 2, 3}, quantization=q([1.0, 2.0], [0, 0], axis=0))\n}")
    assert infer_layer(graph.layer("c")) == ["2 scales along axis 0 of shape [3]"]


def test_known_values_are_seen_by_inference():
    graph = Graph()
    value = graph.constant(np.array([1, 2], "int64"))
    assert value.known.constant.tolist() == [1, 2]


def test_all_faults_of_a_graph_are_raised_together():
    graph = Graph("net")
    x = add(graph, Input(), outputs=[TensorInfo((2, 3))])
    add(graph, Reshape((5,)), x)
    add(graph, Addition(), x)
    with pytest.raises(InvalidNetworkError) as caught:
        infer_graph(graph)
    assert len(caught.value.problems) == 2
    assert str(caught.value).startswith("network 'net' has 2 errors:\n  - layer 'reshape' (Reshape): ")
    assert caught.value.problems[1] == "layer 'addition' (Addition): b is not connected"


def test_constants_of_the_same_type_and_shape_are_not_confused_while_inferences_are_remembered():
    graph = Graph()
    x = graph.constant(np.zeros((2, 3), "float32")).producer
    with inferences_remembered():
        for dims in ([3, 2], [6, 1], [3, 2]):
            layer = add(graph, DynamicReshape(), x, graph.constant(np.array(dims)).producer)
            assert infer_layer(layer) == []
            assert layer.output.known == TensorInfo(dims)


def test_a_declared_quantization_is_that_of_later_inferences():
    graph = Graph()
    x = add(graph, Input(), info=TensorInfo((2, 3)))
    layer = add(graph, Quantize(DataType.INT8), x)
    infer_layer(layer)
    declare_quantization(layer.output, Quantization(0.5, 1))
    assert infer_layer(layer) == []
    assert layer.output.known == TensorInfo((2, 3), "int8", Quantization(0.5, 1))
