"""Networks with constant values for some of their inputs."""

from __future__ import annotations

from interposer.frontends.template import Values, check_names, value_of
from interposer.ir.network import Network

__all__ = ["with_values"]


def with_values(network: Network, values: Values) -> Network:
    """Return the network with constants in place of these inputs; return `network` itself if `values` is empty.

    Raises:
        InvalidArgumentError: the network has no such input, or the input cannot have the value.
        InvalidNetworkError: the network has errors, or does not fit the values.
    """
    if not values:
        return network
    network.validate()
    graph = network.graph.clone()
    inputs = {layer.name: layer for layer in graph.inputs}
    check_names(values, inputs)
    for name, value in values.items():
        old_input = inputs[name]
        array = value_of(name, old_input.output.known, value)
        constant = graph.constant(array, like=old_input.output.known)
        constant.aliases = (*old_input.output.aliases, *(() if name in old_input.output.aliases else (name,)))
        graph.replace_uses(old_input.output, constant)
        graph.erase(old_input)
    bound = Network(graph=graph)
    bound.validate()
    return bound
