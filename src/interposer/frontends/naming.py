"""Recording which value of a network each named tensor of the model file has become."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from interposer.ir.graph import Graph, Value

__all__ = ["keep_names"]

RETAINED_ELEMENTS: Final = 4096
"""The largest size of a folded tensor that remains accessible by its name when no layer uses it."""


def keep_names(graph: Graph, named: Iterable[tuple[str, Value]]) -> None:
    """Record on the values of a graph the names of the file's tensors that they represent.

    A value that is no longer in the graph, because all its consumers were constant-folded, is added to
    `Graph.folded` if it is a small constant. Values of other graphs are ignored.
    """
    folded = dict(graph.folded)
    for name, value in named:
        if value.producer in graph:
            value.aliases = tuple(dict.fromkeys([*value.aliases, name]))
        elif value.constant is not None and value.constant.size <= RETAINED_ELEMENTS:
            folded[name] = value.known
    graph.folded = folded
