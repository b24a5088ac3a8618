"""The input of all writers: the layers of a network, a graph or a part of a graph, with named inputs and outputs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from interposer.core.errors import InvalidNetworkError, UnwritableError, expect
from interposer.ir.graph import Graph, Layer, Value
from interposer.ir.inference import infer_graph
from interposer.ir.merged_names import NO_NAMES
from interposer.ir.network import Network
from interposer.ir.regions import named_graphs
from interposer.ir.states import State, states_of
from interposer.ir.subgraph import SubgraphView
from interposer.ops import Input, Output
from interposer.rewriting.driver import apply_rewrites
from interposer.writers.legalization import Legalization, origin
from interposer.writers.rounding import expand_rounding

__all__ = ["Border", "border_of", "border_of_layer"]


class Border(NamedTuple):
    """What a file is written from: layers in topological order, and named inputs and outputs.

    An input is a value that the layers use and none of them computes. `name` is that of the graph, and `states` are its
    states, whose Input and Output layers are among the layers. `kinds` are the operators of the network's layers by
    name.
    """

    name: str
    layers: Sequence[Layer]
    inputs: Sequence[tuple[str, Value]]
    outputs: Sequence[tuple[str, Value]]
    states: Sequence[State] = ()
    kinds: Mapping[str, str] = {}

    def refused(self, layer: Layer, reason: str) -> tuple[str, tuple[str, str]]:
        """Return an entry for `UnwritableError`: the name and operator of a layer of the network, and the reason.

        It is the layer of the network that `layer`, one of the layers to write, stands for.
        """
        name = origin(layer)
        return name, (self.kinds.get(name, layer.kind), reason)

    def refuse_states(self, format: str) -> None:
        """Raise `UnwritableError` if there are states, which files of this format do not have."""
        if self.states:
            reason = f"files of {format} have no states; make them inputs and outputs of the network"
            raise UnwritableError(format, {state.name: ("Input", reason) for state in self.states}, self.name)


def border_of(network: Network | Graph | SubgraphView, legalize: Callable[[Graph], Graph]) -> Border:
    """Return what to write for a network, a graph, or a part of a graph: layers, and named inputs and outputs.

    The layers are those of a copy, which `legalize` rewrites for the format. A network is validated first. In a network
    or graph, the rounding of activations (DynamicFakeQuantization), for which formats have no operator, is replaced by
    layers of arithmetic.

    Raises:
        InvalidNetworkError: the network or graph has errors or no output.
    """
    if isinstance(network, SubgraphView):
        return _border_of_view(network, legalize)
    expect(network, Network | Graph, "a Network, a Graph or a SubgraphView can be written")
    if isinstance(network, Network):
        network.validate()
        graph = network.graph.clone()
    else:
        infer_graph(network)
        graph = network.clone()
    if not graph.outputs:
        raise InvalidNetworkError(["it has no output layer"], graph.name)
    kinds = _forget_replaced(graph)
    apply_rewrites(graph, (expand_rounding,))
    graph = legalize(graph)
    inputs = [(layer.name, layer.output) for layer in graph.inputs]
    outputs = [(layer.name, layer.values[0]) for layer in graph.outputs]
    return Border(graph.name, graph.topological(), inputs, outputs, states_of(graph), kinds)


def _forget_replaced(graph: Graph) -> dict[str, str]:
    """Let each layer of a graph, and of the regions in it, stand for itself only, so that `origin` can trace it.

    Returns the operators of the graph's layers by name.
    """
    for _, inner in named_graphs(graph):
        for layer in inner:
            layer.merged = NO_NAMES
    return {layer.name: layer.kind for layer in graph}


def border_of_layer(layer: Layer, legalize: Legalization) -> Border:
    """Return what to write for a single layer of a graph; the infos of all its inputs and outputs must be known.

    Only a layer that `legalize` changes is copied.
    """
    constants = [value for value in dict.fromkeys(layer.values) if value.is_constant]
    inputs = [value for value in dict.fromkeys(layer.values) if not value.is_constant]
    outputs = [value for value in layer.outputs if value.uses] or layer.outputs
    if legalize.changes(layer):
        change = legalize if layer.regions else legalize.without_moving
        return _border_of_part("", [layer], constants, inputs, outputs, change)
    layers = [*(value.producer for value in constants), layer]
    return Border("", layers, [(value.name, value) for value in inputs], [(value.name, value) for value in outputs])


def _border_of_view(view: SubgraphView, legalize: Callable[[Graph], Graph]) -> Border:
    unknown_names = [value.name for value in (*view.operands, *view.outputs) if value.info is None]
    if unknown_names:
        raise InvalidNetworkError([f"the tensor {name} has no known info" for name in unknown_names], view.graph.name)
    outputs = list(view.outputs) or [value for layer in view for value in layer.outputs if not value.uses]
    return _border_of_part(view.graph.name, view.layers, view.constants, view.inputs, outputs, legalize)


def _border_of_part(
    name: str,
    layers: Sequence[Layer],
    constants: Sequence[Value],
    inputs: Sequence[Value],
    outputs: Sequence[Value],
    legalize: Callable[[Graph], Graph],
) -> Border:
    """Return what to write for layers of a graph that read `constants` and `inputs`; `outputs` are written as such."""
    graph, copies = Graph(name), dict[Value, Value]()
    for number, value in enumerate(inputs):
        info = value.known.with_constant(None)
        copies[value] = graph.add(Input(number), outputs=[info], name=value.name).output
        copies[value].info = info
    copies = graph.absorb([*(value.producer for value in constants), *layers], copies)
    for number, value in enumerate(outputs):
        graph.add(Output(number), [copies[value]], name=value.name)
    kinds = _forget_replaced(graph)
    graph = legalize(graph)
    return Border(
        name,
        graph.topological(),
        [(value.name, layer.output) for value, layer in zip(inputs, graph.inputs, strict=True)],
        [(value.name, layer.values[0]) for value, layer in zip(outputs, graph.outputs, strict=True)],
        kinds=kinds,
    )
