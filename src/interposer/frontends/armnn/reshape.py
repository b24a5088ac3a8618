"""Converters of layers about shapes."""

from __future__ import annotations

import numpy as np

from interposer.frontends.armnn.armnn_converters import layer
from interposer.frontends.armnn.node import Node
from interposer.ir.graph import Value
from interposer.ops.reshape import Fill, Rank, Reshape, Shape

__all__: list[str] = []


@layer("Reshape")
def reshape(node: Node) -> list[Value]:
    """Convert Reshape."""
    return node.results(Reshape(node.integers("targetShape")), node.value(0))


@layer("Rank")
def rank(node: Node) -> list[Value]:
    """Convert Rank."""
    return node.results(Rank(), node.value(0))


@layer("Shape")
def shape(node: Node) -> list[Value]:
    """Convert Shape."""
    return node.results(Shape(node.infos[0].dtype), node.tensor(0))


@layer("Fill")
def fill(node: Node) -> list[Value]:
    """Convert Fill; the shape of the result is that of the output slot, and its input only has its rank."""
    dims, info = node.tensor(0), node.infos[0]
    if dims.constant is None and info.is_concrete:
        if dims.known.shape.is_concrete and tuple(dims.known.shape) != (info.rank,):
            node.fail(f"its input has the shape {dims.known.shape}, but its result {info.rank} dimensions")
        dims = node.constant(np.array(info.shape, np.int32))
    return node.results(Fill(float(node.descriptor["value"]), info.dtype), dims)
