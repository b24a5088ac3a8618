"""Random graphs for property tests: those that the conformance kit draws, and odder ones.

`graphs()` draws valid graphs that the reference kernels can run; `annotated()` draws the same with backends, hints,
origins, odd names and regions, as text and verifier meet them.
"""

from collections.abc import Callable
from typing import Any

from hypothesis import strategies as st

from interposer.ir.graph import Graph, Layer
from interposer.ops import Input
from interposer.testing.networks import networks

__all__ = ["annotated", "graphs"]

Draw = Callable[[st.SearchStrategy[Any]], Any]


def graphs(max_layers: int = 8) -> st.SearchStrategy[Graph]:
    """Valid graphs, with all infos inferred; what no layer takes is an output."""
    return networks(max_layers).map(lambda network: network.graph)


NAMES = st.text(min_size=1, max_size=6) | st.sampled_from(["a/b.c-d", "x:0", "_", "inf", 'say "hi"', "%x"])
BACKENDS = st.none() | st.sampled_from(["CpuRef", "CpuAcc", "Vendor Backend"])


@st.composite
def annotated(draw: Draw, depth: int = 1) -> Graph:
    """Valid graphs in which layers have backends, hints, origins, odd names and regions."""
    graph = draw(graphs(max_layers=4))
    for layer in graph:
        if draw(st.booleans()):
            _annotate(draw, graph, layer)
    if depth and draw(st.booleans()):
        draw(st.sampled_from(list(graph))).regions = tuple(draw(st.lists(annotated(depth - 1), max_size=2)))
    return graph


def _annotate(draw: Draw, graph: Graph, layer: Layer) -> None:
    graph.rename(layer, draw(NAMES))
    layer.backend, layer.hint = draw(BACKENDS), draw(BACKENDS)
    layer.source = draw(st.text(max_size=6))
    layer.replaced = tuple(draw(st.lists(NAMES, max_size=2)))
    if not isinstance(layer.op, Input):
        for value in layer.outputs:
            value.declared = draw(st.sampled_from([value.declared, value.known]))
