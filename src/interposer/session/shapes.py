"""Networks whose input shapes are open, and what they become where shapes are given."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeAlias

from interposer.core.types import TensorShape
from interposer.frontends.resizing import Resizes, resized
from interposer.frontends.template import Template, Values
from interposer.ir.graph import Layer
from interposer.ir.network import Network
from interposer.ops.control import Input
from interposer.session.values import with_values

__all__ = ["Shapes", "as_template", "bound", "specialised"]

Shapes: TypeAlias = Resizes


def bound(network: Network, shapes: Shapes) -> Network:
    """Return the network with shapes for inputs by name, and numbers for named dimensions.

    A known dimension may get another size where the layers allow that. The shapes that layers were declared with are
    then left to inference.

    Raises:
        InvalidArgumentError: an input or a dimension that the network does not have, or a shape of another rank.
        InvalidNetworkError: the network has errors, or does not fit the shapes; names the layers.
    """
    network.validate()
    inputs = {item.name: item.output.known.shape for item in network.graph.inputs}
    return specialised(network, resized(inputs, shapes))


def specialised(network: Network, shapes: Mapping[str, TensorShape]) -> Network:
    """Return the network with its inputs, by name, given these shapes; itself where they have them already.

    Raises:
        InvalidNetworkError: shapes that do not fit the layers.
    """
    if all(item.output.known.shape == shapes[item.name] for item in network.graph.inputs):
        return network
    graph = network.graph.clone()
    fits = all(item.output.known.shape.accepts(shapes[item.name]) for item in graph.inputs)
    for layer in graph:
        if isinstance(layer.op, Input):
            layer.output.declared = layer.output.known.with_shape(shapes[layer.name])
        elif not fits:
            _open(layer)
    created = Network(graph=graph)
    created.validate()
    return created


def as_template(network: Network, usual: Mapping[str, TensorShape]) -> Template:
    """Return a template that gives this network; `usual` are the shapes that a model is prepared for before a call."""

    def build(shapes: Shapes, values: Values) -> Network:
        return with_values(bound(network, shapes) if shapes else network, values)

    inputs = {item.name: item.output.known for item in network.graph.inputs}
    outputs = {output.name: output.values[0].known for output in network.graph.outputs}
    return Template(network.name, inputs, outputs, build, usual)


def _open(layer: Layer) -> None:
    """Leave the sizes of what the layer was declared to give to inference, as they were those for other inputs."""
    for value in layer.outputs:
        if value.declared is not None and value.declared.is_tensor and value.declared.is_ranked:
            value.declared = value.declared.with_shape([None] * value.declared.rank)
