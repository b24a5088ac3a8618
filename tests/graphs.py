"""Random graphs for property tests.

`graphs()` draws valid graphs of small known shapes that the reference kernels can run: several inputs and outputs,
layers with optional or with any number of operands and with several outputs, constants and quantized tensors.
`annotated()` draws the same with backends, hints, origins, odd names and regions, as text and verifier meet them.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
from hypothesis import strategies as st

from interposer.ir.graph import Graph, Layer, Value
from interposer.ir.network import Network
from interposer.ops import (
    Activation,
    ActivationFunction,
    Addition,
    Concat,
    Dequantize,
    FullyConnected,
    Input,
    Multiplication,
    Quantize,
    Reshape,
    Softmax,
    Splitter,
    Transpose,
)
from interposer.types import DataType, Quantization, TensorInfo

__all__ = ["annotated", "feeds", "graphs"]

Draw = Callable[[st.SearchStrategy[Any]], Any]
SHAPES = st.lists(st.integers(1, 4), min_size=1, max_size=3).map(tuple)
QUANTIZATIONS = st.builds(Quantization, st.sampled_from([0.1, 0.5, 1.0]), st.integers(-3, 3))
FUNCTIONS = [ActivationFunction.RELU, ActivationFunction.SIGMOID, ActivationFunction.BOUNDED_RELU]


@st.composite
def graphs(draw: Draw, max_layers: int = 8) -> Graph:
    """Valid graphs, with all infos inferred; what no layer takes is an output."""
    network = Network(draw(st.sampled_from(["", "net"])))
    values = [_add_input(draw, network, index).output for index in range(draw(st.integers(1, 3)))]
    for _ in range(draw(st.integers(1, max_layers))):
        grow = draw(st.sampled_from(GROWERS))
        values += grow(draw, network, draw(st.sampled_from(values)), values).outputs
    for index, value in enumerate([value for value in values if not value.uses]):
        network.add_output_layer(index, value)
    network.validate()
    return network.graph


def _add_input(draw: Draw, network: Network, index: int) -> Layer:
    quantization = draw(st.none() | QUANTIZATIONS)
    info = TensorInfo(draw(SHAPES), DataType.INT8 if quantization else DataType.FLOAT32, quantization)
    return network.add_input_layer(index, info)


def _reshaped(draw: Draw, network: Network, value: Value, _: list[Value]) -> Layer:
    shape = draw(st.sampled_from([(-1,), (1, -1), tuple(value.known.shape)]))
    return network.add_layer(Reshape(shape), value)


def _transposed(draw: Draw, network: Network, value: Value, _: list[Value]) -> Layer:
    return network.add_layer(Transpose(draw(st.permutations(range(value.known.rank)))), value)


def _split(draw: Draw, network: Network, value: Value, _: list[Value]) -> Layer:
    axis = draw(st.integers(0, value.known.rank - 1))
    first = draw(st.integers(1, value.known.shape[axis]))
    rest = value.known.shape[axis] - first
    return network.add_layer(Splitter(axis, (first, rest) if rest else (first,)), value)


def _joined(draw: Draw, network: Network, value: Value, values: list[Value]) -> Layer:
    alike = [other for other in values if other.known == value.known]
    chosen = draw(st.lists(st.sampled_from(alike), min_size=1, max_size=3))
    axis = draw(st.integers(0, value.known.rank - 1))
    return network.add_layer(Concat(axis), *chosen, outputs=_declared(Concat(axis), [one.known for one in chosen]))


def _declared(op: Concat, infos: list[TensorInfo]) -> TensorInfo:
    [inferred] = op.infer_infos(*infos)
    return inferred.with_quantization(infos[0].quantization)


def _activated(draw: Draw, network: Network, value: Value, _: list[Value]) -> Layer:
    value = _real(network, value)
    op = draw(st.sampled_from([*(Activation(function, 6.0) for function in FUNCTIONS), Softmax()]))
    return network.add_layer(op, value)


def _combined(draw: Draw, network: Network, value: Value, values: list[Value]) -> Layer:
    value = _real(network, value)
    partners = [other for other in values if other.known == value.known]
    if draw(st.booleans()) or not partners:
        return network.add_layer(Multiplication(), value, _constant(draw, network, value.known.shape[-1:]))
    return network.add_layer(Addition(), value, draw(st.sampled_from(partners)))


def _connected(draw: Draw, network: Network, value: Value, _: list[Value]) -> Layer:
    value = network.add_layer(Reshape((1, -1)), _real(network, value)).output
    units = draw(st.integers(1, 3))
    bias = _constant(draw, network, (units,)) if draw(st.booleans()) else None
    return network.add_layer(FullyConnected(), value, _constant(draw, network, (value.known.shape[-1], units)), bias)


def _quantized(draw: Draw, network: Network, value: Value, _: list[Value]) -> Layer:
    value = _real(network, value)
    info = TensorInfo(value.known.shape, DataType.INT8, draw(QUANTIZATIONS))
    return network.add_layer(Quantize(DataType.INT8), value, outputs=info)


def _real(network: Network, value: Value) -> Value:
    return network.add_layer(Dequantize(), value).output if value.known.is_quantized else value


def _constant(draw: Draw, network: Network, shape: tuple[int, ...]) -> Value:
    count = int(np.prod(shape))
    numbers = draw(st.lists(st.integers(-8, 8), min_size=count, max_size=count))
    return network.add_constant_layer(np.array(numbers, np.float32).reshape(shape) / 4).output


GROWERS = [_reshaped, _transposed, _split, _joined, _activated, _combined, _connected, _quantized]


def feeds(graph: Graph, seed: int = 0) -> dict[int, np.ndarray[Any, Any]]:
    """Random data for every input, by binding id."""
    random = np.random.default_rng(seed)
    infos = {layer.op.binding_id: layer.output.known for layer in graph.inputs}
    return {
        binding: random.integers(-8, 8, tuple(info.shape)).astype(info.dtype.numpy) for binding, info in infos.items()
    }


NAMES = st.text(min_size=1, max_size=6) | st.sampled_from(["a/b.c-d", "x:0", "_", "inf", 'say "hi"', "%x"])
BACKENDS = st.none() | st.sampled_from(["CpuRef", "CpuAcc", "Vendor Backend"])


@st.composite
def annotated(draw: Draw, depth: int = 1) -> Graph:
    """Valid graphs in which layers have backends, hints, origins, odd names and regions."""
    graph = draw(graphs(max_layers=4))
    for layer in graph:
        if draw(st.booleans()):
            _annotate(draw, graph, layer)
    if depth and draw(st.booleans()):
        draw(st.sampled_from(list(graph))).regions = tuple(draw(st.lists(annotated(depth - 1), max_size=2)))
    return graph


def _annotate(draw: Draw, graph: Graph, layer: Layer) -> None:
    graph.rename(layer, draw(NAMES))
    layer.backend, layer.hint = draw(BACKENDS), draw(BACKENDS)
    layer.source = draw(st.text(max_size=6))
    layer.replaced = tuple(draw(st.lists(NAMES, max_size=2)))
    if not isinstance(layer.op, Input):
        for value in layer.outputs:
            value.declared = draw(st.sampled_from([value.declared, value.known]))
