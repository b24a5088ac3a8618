"""The input of all writers: the layers of a network, a graph or a part of a graph, with named inputs and outputs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from interposer.core.errors import InvalidNetworkError, UnwritableError, expect
from interposer.ir.graph import Graph, Layer, Value
from interposer.ir.inference import infer_graph
from interposer.ir.network import Network
from interposer.ir.states import State, states_of
from interposer.ir.subgraph import SubgraphView
from interposer.writers.rounding import with_plain_rounding

__all__ = ["Border", "border_of"]


class Border(NamedTuple):
    """What a file is written from: layers in topological order, and named inputs and outputs.

    An input is a value that the layers use and none of them computes. `name` is that of the graph, and `states` are its
    states, whose Input and Output layers are among the layers.
    """

    name: str
    layers: Sequence[Layer]
    inputs: Sequence[tuple[str, Value]]
    outputs: Sequence[tuple[str, Value]]
    states: Sequence[State] = ()

    def refuse_states(self, format: str) -> None:
        """Raise `UnwritableError` if there are states, which files of this format do not have."""
        if self.states:
            reason = f"files of {format} have no states; make them inputs and outputs of the network"
            raise UnwritableError(format, {state.name: ("Input", reason) for state in self.states}, self.name)


def border_of(network: Network | Graph | SubgraphView) -> Border:
    """Return what to write for a network, a graph, or a part of a graph: layers, and named inputs and outputs.

    A network is validated first. In a network or graph, the rounding of activations (DynamicFakeQuantization), for
    which formats have no operator, is replaced by layers of arithmetic.

    Raises:
        InvalidNetworkError: the network or graph has errors or no output.
    """
    if isinstance(network, SubgraphView):
        return _border_of_view(network)
    expect(network, Network | Graph, "a Network, a Graph or a SubgraphView can be written")
    if isinstance(network, Network):
        network.validate()
        graph = network.graph
    else:
        graph = network
        infer_graph(graph)
    graph = with_plain_rounding(graph)
    if not graph.outputs:
        raise InvalidNetworkError(["it has no output layer"], graph.name)
    inputs = [(layer.name, layer.output) for layer in graph.inputs]
    outputs = [(layer.name, layer.values[0]) for layer in graph.outputs]
    return Border(graph.name, graph.topological(), inputs, outputs, states_of(graph))


def _border_of_view(view: SubgraphView) -> Border:
    unknown = [value.name for value in (*view.operands, *view.outputs) if value.info is None]
    if unknown:
        raise InvalidNetworkError([f"the tensor {name} has no known info" for name in unknown], view.graph.name)
    constants = [value.producer for value in view.constants]
    outputs = list(view.outputs) or [value for layer in view for value in layer.outputs if not value.uses]
    return Border(
        view.graph.name,
        [*constants, *view.layers],
        [(value.name, value) for value in view.inputs],
        [(value.name, value) for value in outputs],
    )
