"""Converters of layers that read or write elements by their indices."""

from __future__ import annotations

from interposer.formats.armnn.schema import SCATTER_FUNCTIONS
from interposer.frontends.armnn.armnn_converters import layer
from interposer.frontends.armnn.node import Node
from interposer.ir.graph import Value
from interposer.ops.gather import Gather, GatherNd
from interposer.ops.scatter import ScatterFunction, ScatterNd

__all__: list[str] = []


@layer("Gather")
def gather(node: Node) -> list[Value]:
    """Convert Gather."""
    return node.results(Gather(node.descriptor["axis"]), node.tensor(0), node.value(1))


@layer("GatherNd")
def gather_nd(node: Node) -> list[Value]:
    """Convert GatherNd."""
    return node.results(GatherNd(), node.tensor(0), node.tensor(1))


@layer("ScatterNd")
def scatter_nd(node: Node) -> list[Value]:
    """Convert ScatterNd; without an input tensor, the first input is the shape of the result."""
    fields = node.descriptor
    if fields["m_AxisEnabled"]:
        node.fail(f"it scatters along axis {fields['m_Axis']}, which is not supported")
    op = ScatterNd(node.member("m_Function", SCATTER_FUNCTIONS, ScatterFunction), fields["m_InputEnabled"])
    return node.results(op, node.tensor(0), node.tensor(1), node.tensor(2))
