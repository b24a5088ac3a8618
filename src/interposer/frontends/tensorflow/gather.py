"""TensorFlow converters for operators that select slices by indices."""

from __future__ import annotations

from interposer.core.errors import ParseError
from interposer.frontends.axes import checked_axis
from interposer.frontends.tensorflow.node import Node
from interposer.frontends.tensorflow.tensorflow_converters import operator
from interposer.ir.graph import Value
from interposer.ops.gather import Gather, GatherNd

__all__: list[str] = []


@operator("Gather")
def gather(node: Node) -> Value:
    """Convert Gather along the first axis."""
    return node.result(Gather(0), node.value(0), node.value(1))


@operator("GatherV2")
def gather_along(node: Node) -> Value:
    """Convert GatherV2; the axis is an operand, and batch_dims an attribute."""
    axis = checked_axis(node.integer_of(2, "axis"), node.info(0).rank)
    batch_dims = node.integer("batch_dims", 0)
    batch_dims += node.info(1).rank if batch_dims < 0 else 0
    if batch_dims < 0:
        raise ParseError(f"its batch_dims is {batch_dims - node.info(1).rank}")
    return node.result(Gather(axis, batch_dims), node.value(0), node.value(1))


@operator("GatherNd")
def gather_nd(node: Node) -> Value:
    """Convert GatherNd: the last axis of the indices has one index for each axis."""
    return node.result(GatherNd(node.integer("batch_dims", 0)), node.value(0), node.value(1))


@operator("ResourceGather")
def gather_from_variable(node: Node) -> Value:
    """Convert ResourceGather, which gathers from a variable."""
    table = node.constant(node.importer.variable(node.variable(0).name))
    return node.result(Gather(node.integer("batch_dims", 0), node.integer("batch_dims", 0)), table, node.value(1))
