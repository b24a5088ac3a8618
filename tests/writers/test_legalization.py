"""Legalized graphs are valid: what the rewrites of layouts declare is what shape inference gives."""

from __future__ import annotations

import numpy as np
import pytest

from interposer import Network
from interposer.core.errors import UnwritableError
from interposer.core.schema import registered_ops
from interposer.core.types import DataLayout, Quantization, TensorInfo
from interposer.frontends.elementwise import ABS, NEG
from interposer.ir.inference import infer_layer
from interposer.ir.regions import named_graphs
from interposer.ops import Convolution2d, Dequantize, ElementwiseUnary
from interposer.rewriting.pattern import New, rewrite
from interposer.testing import samples_of
from interposer.testing.random_networks import random_network
from interposer.writers.legalization import Legalization
from interposer.writers.onnx.legal import legalize as for_onnx
from interposer.writers.tflite.legal import legalize as for_tflite
from tests.optimizer.rewriting import assert_same_results, graph_of

FEW = 4
NETWORKS = 40
each_format = pytest.mark.parametrize("legalize", [for_onnx, for_tflite], ids=["onnx", "tflite"])


def errors_of(graph):
    """Infer every layer of a graph again and return the errors."""
    layers = [layer for _, inner in named_graphs(graph) for layer in inner.topological()]
    for layer in layers:
        layer.inferred = None
    return [f"{layer}: {error}" for layer in layers if not layer.regions for error in infer_layer(layer)]


@each_format
def test_the_legalized_samples_of_every_operator_are_valid(legalize):
    samples = [samples_of(op) for op in registered_ops().values() if op.executable]
    graphs = [sample.network()[0].graph for some in samples for sample in some[:: max(1, len(some) // FEW)]]
    assert [error for graph in graphs for error in errors_of(legalize(graph.clone()))] == []


@each_format
def test_legalized_random_networks_are_valid(legalize):
    graphs = [random_network(21, number).network.graph for number in range(NETWORKS)]
    assert [error for graph in graphs for error in errors_of(legalize(graph.clone()))] == []


@each_format
def test_a_transpose_that_changes_the_quantization_is_not_skipped(legalize):
    graph = graph_of("""
    graph "g" {
      %x = Input : int8[1, 4, 4, 2] q(0.5, 0)
      %a = Transpose(permutation=(0, 3, 1, 2)) %x : int8[1, 2, 4, 4] q(0.25, 0)
      %p = Pooling2d(data_layout=NCHW, pool_height=2, pool_width=2) %a
      %t = Transpose(permutation=(0, 2, 3, 1)) %p
      Output %t as "out"
    }
    """)
    assert_same_results(graph, legalize(graph.clone()))


@each_format
def test_layers_keep_their_names_when_their_layout_changes(legalize):
    graph = graph_of("""
    graph "g" {
      %x = Input : float32[1, 4, 4, 2]
      %a = SpaceToDepth(block_size=2) %x
      %b = Activation(function=RELU) %a
      %t = Transpose(permutation=(0, 3, 1, 2)) %b
      %c = SpaceToDepth(block_size=2, data_layout=NCHW) %t
      Output %c as "out"
    }
    """)
    legalized = legalize(graph.clone())
    assert {"a", "b", "c"} <= {layer.name for layer in legalized}
    assert_same_results(graph, legalized)


def test_dequantized_constants_before_several_convolutions_are_written():
    network = Network("two convolutions")
    weights = np.zeros((1, 1, 1, 2), np.int8)
    for number, (channels, kernel) in enumerate([(2, weights), (1, weights.transpose(3, 0, 1, 2))]):
        x = network.add_input_layer(number, TensorInfo((1, 1, 1, channels)), name=f"x{number}")
        integers = network.add_constant_layer(kernel, quantization=Quantization(1.0), name=f"w{number}")
        kernels = network.add_layer(Dequantize(), integers, name=f"dequantized{number}")
        y = network.add_layer(Convolution2d(data_layout=DataLayout.NHWC), x, kernels, name=f"y{number}")
        network.add_output_layer(number, y)
    graph = for_onnx(network.graph.clone())
    assert errors_of(graph) == []
    layouts = [layer.op.data_layout for layer in graph if isinstance(layer.op, Convolution2d)]
    assert layouts == [DataLayout.NCHW, DataLayout.NCHW]
    assert_same_results(network.graph, graph)


def test_rewrites_that_undo_each_other_are_an_error():
    @rewrite(ElementwiseUnary)
    def replaced_by_the_other(op, layer):
        return New(NEG if op == ABS else ABS, layer.inputs)

    network = Network("endless")
    x = network.add_input_layer(0, TensorInfo((3,)), name="x")
    network.add_output_layer(0, network.add_layer(ABS, x, name="y"))
    with pytest.raises(UnwritableError, match="which make it expressible, do not end"):
        Legalization([replaced_by_the_other])(network.graph.clone())
