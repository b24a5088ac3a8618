"""Graphs in the DOT language of Graphviz, as Arm NN's `SerializeToDot` draws them."""

from __future__ import annotations

import html
import itertools
import os
import reprlib
from collections.abc import Iterable, Iterator, Mapping
from enum import Enum
from typing import Any, Final

import numpy as np

from interposer.core.files import write_file
from interposer.core.types import DataType, Dim, Quantization, TensorInfo
from interposer.ir.graph import Graph, Layer
from interposer.ops.control import Constant

__all__ = ["graph_dot", "save_dot"]

_HEAD: Final = (
    'node [shape="record"];',
    'edge [fontsize=8 fontcolor="blue" fontname="arial-bold"];',
)
_SPECIAL: Final = str.maketrans({letter: f"\\{letter}" for letter in '\\{}|<>"'} | {"&": "&amp;"})
_short: Final = reprlib.Repr()
_short.maxstring = _short.maxother = 80
_short.maxtuple = 12


def save_dot(graph: Graph, path: str | os.PathLike[str] | None) -> str:
    """Return `graph_dot` of the graph; with a path, also write it to this file.

    Raises:
        FileWriteError: the file cannot be written.
    """
    text = graph_dot(graph)
    if path is not None:
        write_file(path, text)
    return text


def graph_dot(graph: Graph) -> str:
    """Return the graph in the DOT language.

    A layer is a record with its operator, the attributes that differ from their defaults, its name, its backend if it
    has one, and the infos of its outputs. Every use of a tensor is an edge, labeled with the shape of the tensor, such
    as ``[label=< [1,28,28,1] >]``. A region of a control flow layer is a cluster, which a dashed edge connects to the
    layer. Constants that no layer reads are left out. All names are escaped.
    """
    drawing = _Drawing()
    return "\n".join([f"digraph {_quoted(graph.name)} {{", *_indented([*_HEAD, *drawing.graph(graph)]), "}", ""])


class _Drawing:
    def __init__(self) -> None:
        self.clusters = itertools.count()
        self.numbers: dict[Layer, int] = {}

    def graph(self, graph: Graph) -> Iterator[str]:
        layers = [layer for layer in _in_order(graph) if not _is_unused_constant(layer)]
        for layer in layers:
            yield f'{self.number(layer)} [label="{_label(layer)}"];'
            for position, region in enumerate(layer.regions):
                yield from self.region(layer, position, region)
        for value in itertools.chain.from_iterable(layer.outputs for layer in layers):
            for use in value.uses:
                yield f"{self.number(value.producer)} -> {self.number(use.layer)} [label=< {_shape(value.info)} >];"

    def region(self, owner: Layer, position: int, region: Graph) -> Iterator[str]:
        title = _quoted(f"{owner.name}: {region.name or f'region {position}'}")
        yield f"subgraph cluster_{next(self.clusters)} {{"
        yield from _indented([f"label={title};", *self.graph(region)])
        yield "}"
        for first_layer in _in_order(region)[:1]:
            yield f'{self.number(owner)} -> {self.number(first_layer)} [style="dashed"];'

    def number(self, layer: Layer) -> int:
        return self.numbers.setdefault(layer, len(self.numbers))


def _label(layer: Layer) -> str:
    fields = {name: _shown(value) for name, value in layer.op.changed_attributes().items()}
    fields |= {"LayerName": layer.name, "LayerType": layer.kind}
    fields |= {} if layer.backend is None else {"BackendID": str(layer.backend)}
    fields |= {"Replaces": ", ".join(layer.replaced)} if layer.replaced else {}
    fields |= {f"Output {value.index}": str(value.info) for value in layer.outputs if value.info is not None}
    return f"{{{_escaped(layer.kind)}|{_joined(fields)}}}"


def _joined(fields: Mapping[str, str]) -> str:
    return "".join(f"{_escaped(name)} : {_escaped(text)}\\l" for name, text in fields.items())


def _shown(value: Any) -> str:
    if isinstance(value, np.ndarray):
        return f"{DataType.of(value.dtype)}{list(value.shape)}"
    if isinstance(value, Enum):
        return value.name
    is_plain = value is None or isinstance(value, bool | int | float | str | tuple | list | Quantization)
    return _short.repr(value).strip("'") if is_plain else type(value).__name__


def _shape(info: TensorInfo | None) -> str:
    """Return a shape as the text of an HTML-like label: ``?`` is a dimension that is unknown and has no name."""
    if info is None:
        return "[?]"
    if not info.shape.is_ranked:
        return "[...]"
    sizes = ((dim.name or "?") if isinstance(dim, Dim) else str(dim) for dim in info.shape)
    return html.escape(f"[{','.join(sizes)}]")


def _is_unused_constant(layer: Layer) -> bool:
    """Return True for a constant that no layer reads, because a backend has compiled its readers."""
    return isinstance(layer.op, Constant) and not layer.output.uses


def _in_order(graph: Graph) -> list[Layer]:
    """Return the layers in topological order; layers in a cycle come last."""
    order, stuck_layers = graph.schedule()
    return [*order, *stuck_layers]


def _escaped(text: str) -> str:
    """Return a text for a record's label; characters that cannot be printed are shown as escapes such as ``\\n``."""
    printable_text = "".join(
        character if character.isprintable() else character.encode("unicode_escape").decode() for character in text
    )
    return printable_text.translate(_SPECIAL)


def _quoted(text: str) -> str:
    printable = "".join(character if character.isprintable() else " " for character in text)
    escaped_text = printable.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped_text}"'


def _indented(lines: Iterable[str]) -> Iterator[str]:
    return (f"    {line}" for line in lines)
