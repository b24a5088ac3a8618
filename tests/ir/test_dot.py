"""Networks in the DOT language of Graphviz."""

from __future__ import annotations

import re

import numpy as np
import pytest

import interposer as ip
from interposer import Network, TensorInfo
from interposer.errors import FileWriteError
from interposer.ir.graph import Graph
from interposer.ops import Addition, Input, PreCompiled, Splitter

TOKEN = re.compile(r"[^\\]|\\.", re.DOTALL)


def doubled() -> Network:
    network = Network("doubled")
    x = network.add_input_layer(0, TensorInfo((1, 28, 28, 1)), name="x")
    network.add_output_layer(0, network.add_softmax_layer(network.add_addition_layer(x, x, name="sum"), beta=2.0), "y")
    return network


def labels(text: str) -> list[str]:
    return re.findall(r'^ *\d+ \[label="((?:[^"\\]|\\.)*)"\];$', text, re.MULTILINE)


def test_layers_are_records_and_every_use_of_a_tensor_is_an_edge_with_its_shape():
    assert (
        doubled().to_dot()
        == r"""digraph "doubled" {
    node [shape="record"];
    edge [fontsize=8 fontcolor="blue" fontname="arial-bold"];
    0 [label="{Input|LayerName : x\lLayerType : Input\lOutput 0 : float32[1, 28, 28, 1]\l}"];
    1 [label="{Addition|LayerName : sum\lLayerType : Addition\lOutput 0 : float32[1, 28, 28, 1]\l}"];
    2 [label="{Softmax|beta : 2.0\lLayerName : softmax\lLayerType : Softmax\lOutput 0 : float32[1, 28, 28, 1]\l}"];
    3 [label="{Output|LayerName : y\lLayerType : Output\l}"];
    0 -> 1 [label=< [1,28,28,1] >];
    0 -> 1 [label=< [1,28,28,1] >];
    1 -> 2 [label=< [1,28,28,1] >];
    2 -> 3 [label=< [1,28,28,1] >];
}
"""
    )


@pytest.mark.needs_cpuref
def test_an_optimized_network_names_the_backend_of_every_layer(tmp_path):
    path = tmp_path / "net.dot"
    optimized = ip.optimize(doubled(), ["CpuRef"])
    text = optimized.to_dot(path)
    assert path.read_text() == text
    assert "{Softmax|beta : 2.0\\lLayerName : softmax\\lLayerType : Softmax\\lBackendID : CpuRef\\l" in text
    assert "label=< [1,28,28,1] >" in text


def test_a_file_that_cannot_be_written_is_named(tmp_path):
    path = tmp_path / "absent" / "net.dot"
    with pytest.raises(FileWriteError, match=re.escape(str(path))):
        doubled().to_dot(path)


@pytest.mark.parametrize("name", ['a"b', "{a|b}", "a<b>", "back\\slash", "new\nline", "&amp;", "\\", "ü", "\\l"])
def test_names_are_escaped(name):
    network = Network(name)
    network.add_output_layer(0, network.add_input_layer(0, TensorInfo((1,)), name=name))
    text = network.to_dot()
    head, *lines = text.splitlines()
    assert re.fullmatch(r'digraph "(?:[^"\\]|\\.)*" \{', head)
    assert len(lines) == 6
    [label, _] = labels(text)
    shown = [token for token in TOKEN.findall(label) if token in ("{", "}", "|", "<", ">", '"', "\\l")]
    assert shown == ["{", "|", "\\l", "\\l", "\\l", "}"]


def test_unknown_dimensions_and_infos_are_question_marks():
    network = Network()
    x = network.add_input_layer(0, TensorInfo(("batch<1>", None)), name="x")
    network.add_output_layer(0, x)
    network.add_layer(PreCompiled(object=None), x, name="opaque")
    network.connect(network.graph.layer("opaque"), network.add_output_layer(1))
    edges = re.findall(r"\[label=< (.*) >\];", network.to_dot())
    assert edges == ["[batch&lt;1&gt;,?]", "[batch&lt;1&gt;,?]", "[?]"]


def test_layers_with_several_outputs_have_an_edge_for_each_and_scalars_an_empty_shape():
    network = Network()
    x = network.add_input_layer(0, TensorInfo((4, 2)), name="x")
    halves = network.add_layer(Splitter(axis=0, sizes=(1, 3)), x, name="halves")
    for number, value in enumerate(halves.outputs):
        network.add_output_layer(number, value)
    network.add_output_layer(2, network.add_constant_layer(np.float32(1), name="one"))
    text = network.to_dot()
    assert re.findall(r"\[label=< (.*) >\];", text) == ["[4,2]", "[1,2]", "[3,2]", "[]"]
    assert "Output 0 : float32[1, 2]\\lOutput 1 : float32[3, 2]\\l" in text


def test_constants_that_no_layer_reads_are_left_out():
    network = doubled()
    network.add_constant_layer(np.zeros((2, 2), np.float32), name="weights")
    assert "weights" not in network.to_dot()


def test_regions_are_clusters():
    body = Graph("body")
    inner = body.add(Input(0), name="inner", outputs=[TensorInfo((2,))])
    body.add(Addition(), [inner.output, inner.output], name="more")
    outer = Network("outer")
    x = outer.add_input_layer(0, TensorInfo((2,)), name="x")
    x.regions = (body,)
    lines = outer.to_dot().splitlines()
    assert "    subgraph cluster_0 {" in lines
    assert '        label="x: body";' in lines
    assert '    0 -> 1 [style="dashed"];' in lines


def test_an_empty_network_is_an_empty_drawing():
    assert Network("").to_dot().splitlines()[0] == 'digraph "" {'


def test_layers_in_a_cycle_are_drawn():
    network = Network()
    first = network.add_layer(Addition(), name="first")
    network.connect(first, network.add_layer(Addition(), first, name="second"))
    network.connect(network.graph.layer("second"), first)
    assert len(labels(network.to_dot())) == 2
