"""Random graphs for property tests: those of the conformance kit, and odder ones.

`random_networks()` draws networks with the arrays to run them on, and `graphs()` their graphs; `annotated()` draws
graphs with backends, hints, origins, odd names and regions, as text and verifier meet them.
"""

from collections.abc import Callable, Collection
from typing import Any

from hypothesis import strategies as st

from interposer.core.schema import Op
from interposer.ir.graph import Graph, Layer
from interposer.ops import Input
from interposer.testing.random_networks import KINDS, RandomNetwork, random_network

__all__ = ["annotated", "graphs", "random_networks"]

Draw = Callable[[st.SearchStrategy[Any]], Any]


def random_networks(max_layers: int = 8, favoured: Collection[type[Op]] = ()) -> st.SearchStrategy[RandomNetwork]:
    """Return a strategy for networks of the kit's generator, with up to so many layers."""

    def drawn(seed: int, number: int, kind: str, layers: int) -> RandomNetwork:
        return random_network(seed, number, kind=kind, favoured=favoured, max_layers=layers)

    return st.builds(drawn, st.integers(0, 99), st.integers(0, 999), st.sampled_from(KINDS), st.integers(1, max_layers))


def graphs(max_layers: int = 8) -> st.SearchStrategy[Graph]:
    """Valid graphs, with all infos inferred, that the reference kernels can run."""
    return random_networks(max_layers).map(lambda item: item.network.graph)


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
