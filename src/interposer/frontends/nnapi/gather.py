"""NNAPI converters for gathering by computed indices."""

from __future__ import annotations

from interposer.frontends.nnapi.nnapi_converters import operator
from interposer.frontends.nnapi.node import Node
from interposer.ir.graph import Value
from interposer.ops.gather import Gather

__all__: list[str] = []


@operator("GATHER", inputs=3)
def gather(node: Node) -> list[Value]:
    """Convert GATHER along an axis."""
    return node.results(Gather(node.axis(1, node.info(0).rank)), node.value(0), node.value(2))
