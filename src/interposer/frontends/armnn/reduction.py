"""Converters of reductions."""

from __future__ import annotations

from interposer.formats.armnn.schema import REDUCTIONS
from interposer.frontends.armnn.armnn_converters import layer
from interposer.frontends.armnn.node import Node
from interposer.ir.graph import Value
from interposer.ops.reduction import ArgMinMax, ArgMinMaxFunction, Mean, Reduce, ReduceOperation

__all__: list[str] = []


@layer("Mean")
def mean(node: Node) -> list[Value]:
    """Convert Mean; without axes, all elements are averaged."""
    return node.results(Mean(node.integers("axis"), node.descriptor["keepDims"]), node.tensor(0))


@layer("Reduce")
def reduce(node: Node) -> list[Value]:
    """Convert Reduce; without axes, all elements are reduced."""
    operation = node.member("reduceOperation", REDUCTIONS, ReduceOperation)
    return node.results(Reduce(node.integers("axis"), node.descriptor["keepDims"], operation), node.tensor(0))


@layer("ArgMinMax")
def arg_min_max(node: Node) -> list[Value]:
    """Convert ArgMinMax; the type of the result is that of the output slot."""
    function = node.member("argMinMaxFunction", ("MIN", "MAX"), ArgMinMaxFunction)
    op = ArgMinMax(function=function, axis=node.descriptor["axis"], dtype=node.infos[0].dtype)
    return node.results(op, node.tensor(0))
