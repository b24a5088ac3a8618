"""Specialisation: a network whose input shapes are open, made into one for given shapes."""

from __future__ import annotations

from collections.abc import Mapping

from interposer.ir.network import Network
from interposer.types import TensorInfo, TensorShape

__all__ = ["specialised"]


def specialised(network: Network, shapes: Mapping[str, TensorShape]) -> Network:
    """The network with its inputs, by name, given these shapes; itself where they have them already.

    Raises:
        InvalidNetworkError: shapes that do not fit the layers.
    """
    if all(one.output.known.shape == shapes[one.name] for one in network.graph.inputs):
        return network
    graph = network.graph.clone()
    for layer in graph.inputs:
        known = layer.output.known
        layer.output.declared = TensorInfo(shapes[layer.name], known.dtype, known.quantization)
    made = Network(graph=graph)
    made.validate()
    return made
