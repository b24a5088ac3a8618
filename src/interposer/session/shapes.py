"""Networks with open input shapes, and their specialisation for given shapes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeAlias

from interposer.core.types import TensorShape
from interposer.frontends.resizing import Resizes, resized
from interposer.frontends.template import Template, Values
from interposer.ir.graph import Layer
from interposer.ir.inference import failing_branches_emptied
from interposer.ir.network import Network
from interposer.ops.control import Input
from interposer.session.values import with_values

__all__ = ["Shapes", "as_template", "bound", "specialised"]

Shapes: TypeAlias = Resizes


def bound(network: Network, shapes: Shapes) -> Network:
    """Return the network with the given shapes of inputs by name, or sizes of named dimensions.

    A known dimension may get another size if the layers allow that. The declared shapes of layers are then inferred
    again.

    Raises:
        InvalidArgumentError: the network has no such input or dimension, or a shape has another rank.
        InvalidNetworkError: the network has errors, or does not fit the shapes; the message names the layers.
    """
    network.validate()
    inputs = {layer.name: layer.output.known.shape for layer in network.graph.inputs}
    return specialised(network, resized(inputs, shapes))


def specialised(network: Network, shapes: Mapping[str, TensorShape]) -> Network:
    """Return the network with these shapes of its inputs, by name; return `network` itself if it has them already.

    A branch of an If that these shapes do not fit becomes one that fails when it is taken, if the other branch fits.

    Raises:
        InvalidNetworkError: the shapes do not fit the layers.
    """
    if all(input_layer.output.known.shape == shapes[input_layer.name] for input_layer in network.graph.inputs):
        return network
    graph = network.graph.clone()
    fits = all(input_layer.output.known.shape.accepts(shapes[input_layer.name]) for input_layer in graph.inputs)
    for layer in graph:
        if isinstance(layer.op, Input) and layer.op.state:
            continue
        if isinstance(layer.op, Input):
            layer.output.declared = layer.output.known.with_shape(shapes[layer.name])
        elif not fits:
            _open(layer)
    new_network = Network(graph=graph)
    with failing_branches_emptied():
        new_network.validate()
    return new_network


def as_template(network: Network, usual_shapes: Mapping[str, TensorShape]) -> Template:
    """Return a template that builds this network for given input shapes.

    `usual_shapes` has the shapes, by input, that a model is prepared for before its first call.
    """

    def build(shapes: Shapes, values: Values) -> Network:
        return with_values(bound(network, shapes) if shapes else network, values)

    inputs = {layer.name: layer.output.known for layer in network.graph.inputs}
    outputs = {output.name: output.values[0].known for output in network.graph.outputs}
    return Template(network.name, inputs, outputs, build, usual_shapes)


def _open(layer: Layer) -> None:
    """Make the declared dimensions of a layer's outputs unknown, because they hold for other input shapes.

    Inference then computes them again.
    """
    for value in layer.outputs:
        if value.declared is not None and value.declared.is_tensor and value.declared.is_ranked:
            value.declared = value.declared.with_shape([None] * value.declared.rank)
