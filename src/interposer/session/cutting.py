"""Networks that begin at other values than their inputs, as model converters cut them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from interposer.core.errors import BindingError
from interposer.ir.graph import Graph, Layer, Value
from interposer.ir.network import Network
from interposer.ir.states import states_of
from interposer.ops.control import Constant, Input
from interposer.session.requested import value_named

__all__ = ["with_inputs"]


def with_inputs(network: Network, names: Sequence[str]) -> Network:
    """Return the network with the named values as its inputs, in this order, without the layers before them.

    Names are those that `with_outputs` takes. Inputs of the network may be among them. All of them become inputs, even
    if the outputs do not need them. The new inputs have the types, shapes and quantizations of the values. States that
    the outputs no longer need are dropped.

    Raises:
        BindingError: the network has no such value, or the value is constant, a state or named twice; or an output
            needs an input that is not among the names.
    """
    network.validate()
    graph = network.graph.clone()
    values = [value_named(graph, name, "inputs") for name in names]
    _check(values, names)
    layers = [_input_for(graph, value) for value in values]
    _drop_unneeded(graph)
    _check_needed(graph, layers)
    _free(graph, {name: layer for layer, name in zip(layers, names, strict=True)})
    for number, (layer, name) in enumerate(zip(layers, names, strict=True)):
        graph.rename(layer, name)
        layer.op = Input(number)
    return Network(graph=graph)


def _free(graph: Graph, inputs: Mapping[str, Layer]) -> None:
    """Rename all layers that have the name of an input but are not this input, such as an output that is an input."""
    for layer in list(graph):
        if inputs.get(layer.name, layer) is not layer:
            graph.rename(layer, f"{layer.name}/{layer.kind.lower()}")


def _check(values: Sequence[Value], names: Sequence[str]) -> None:
    for index, (name, value) in enumerate(zip(names, values, strict=True)):
        if value in values[:index]:
            raise BindingError(f"inputs: {names[values.index(value)]!r} and {name!r} are one value; name it once")
        if isinstance(value.producer.op, Constant):
            raise BindingError(f"inputs: {name!r} is a constant of the network, and cannot be an input")
        if isinstance(value.producer.op, Input) and value.producer.op.state:
            raise BindingError(f"inputs: {name!r} is a state of the network, and cannot be an input")


def _input_for(graph: Graph, value: Value) -> Layer:
    """Return the Input layer that a value comes from, or a new one that replaces the value for all its consumers."""
    if isinstance(value.producer.op, Input):
        return value.producer
    layer = graph.add(Input(len(graph.inputs)), name=value.name, outputs=[value.known.with_constant(None)])
    layer.output.info = value.known.with_constant(None)
    layer.output.aliases = value.aliases
    graph.replace_uses(value, layer.output)
    return layer


def _drop_unneeded(graph: Graph) -> None:
    """Remove all layers and states on which no output depends; inputs of the caller stay."""
    target_of_source = {state.source: state.target for state in states_of(graph) if state.target is not None}
    needed_layers: set[Layer] = set()
    pending_layers = graph.outputs
    while pending_layers:
        layer = pending_layers.pop()
        if layer not in needed_layers:
            needed_layers.add(layer)
            pending_layers += [value.producer for value in layer.values]
            pending_layers += [target_of_source[layer]] if layer in target_of_source else []
    for layer in reversed(graph.topological()):
        if layer not in needed_layers and not (isinstance(layer.op, Input) and not layer.op.state):
            graph.erase(layer)


def _check_needed(graph: Graph, layers: Sequence[Layer]) -> None:
    """Remove the inputs that are not in `layers`; raise `BindingError` if an output depends on one of them."""
    for layer in [input_layer for input_layer in graph.inputs if input_layer not in layers]:
        users = layer.output.consumers
        if users:
            raise BindingError(
                f"inputs: the outputs also need the input {layer.name!r}, which layer {users[0]} takes; name it too, "
                "or a value after it"
            )
        graph.erase(layer)
