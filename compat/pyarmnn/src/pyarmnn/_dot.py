"""An optimized network as a graph in the language of Graphviz, with the shapes of tensors at the edges."""

from __future__ import annotations

from collections.abc import Iterator

from interposer.ir.graph import Graph, Layer, Value

__all__ = ["dot"]

_HEAD = """digraph Optimized {
    node [shape="record"];
    edge [fontsize=8 fontcolor="blue" fontname="arial-bold"];
"""


def dot(graph: Graph) -> str:
    """Return the text: a node for each layer, and an edge with the shape for each use of a tensor."""
    numbers = {layer: number for number, layer in enumerate(graph.topological())}
    nodes = [f'    {number} [label="{_node(layer)}"];\n' for layer, number in numbers.items()]
    edges = [
        f"    {numbers[value.producer]} -> {number} [label=< {_shape(value)} >];\n"
        for layer, number in numbers.items()
        for value in layer.values
    ]
    return "".join([_HEAD, *nodes, *edges, "}\n"])


def _node(layer: Layer) -> str:
    rows = (f"{_escaped(name)} : {_escaped(text)}\\l" for name, text in _rows(layer))
    return f"{{{layer.kind}|{''.join(rows)}}}"


def _rows(layer: Layer) -> Iterator[tuple[str, str]]:
    yield "LayerName", layer.name
    yield "LayerType", layer.kind
    yield "BackendID", str(layer.backend or "")


def _escaped(text: str) -> str:
    """Return a text in which no character has a meaning in the label of a record."""
    return "".join(f"\\{each}" if each in '{}|<>"\\' else each for each in text)


def _shape(value: Value) -> str:
    return f"[{','.join(map(str, value.known.shape))}]"
