"""Borders between backends: where data crosses, a layer of the runtime copies it."""

from __future__ import annotations

from collections.abc import Iterable

from interposer.ir.graph import Graph, Layer, Value
from interposer.ir.report import Copy
from interposer.ops.control import Constant, Input, MemCopy, Output

__all__ = ["insert_copies"]


def insert_copies(graph: Graph, default: str) -> list[Copy]:
    """Put a MemCopy between a value and its consumers on every other backend, one for each such backend.

    An Input gets the backend of its first consumer (`default` where it has none), so that the caller's data goes
    straight to where it is needed; layers of the runtime get the backend that they take data from.
    """
    for layer in graph.topological():
        if layer.backend is None and not isinstance(layer.op, Constant | Output):
            layer.backend = _backend_of(layer, default)
    values = [value for layer in graph.topological() for value in layer.outputs if not value.is_constant]
    return [copy for value in values for copy in _copies_of(graph, value)]


def _backend_of(layer: Layer, default: str) -> str:
    near: Iterable[Layer] = layer.output.consumers if isinstance(layer.op, Input) else [layer.values[0].producer]
    return next((one.backend for one in near if one.backend is not None), default)


def _copies_of(graph: Graph, value: Value) -> list[Copy]:
    here = value.producer.backend
    elsewhere: dict[str, list[Layer]] = {}
    for layer in value.consumers:
        if layer.backend is not None and layer.backend != here:
            elsewhere.setdefault(layer.backend, []).append(layer)
    return [_copy(graph, value, backend, consumers) for backend, consumers in elsewhere.items()]


def _copy(graph: Graph, value: Value, target: str, consumers: list[Layer]) -> Copy:
    name = f"[ {value.producer.name} ({value.index}) -> {consumers[0].name} ]"
    layer = graph.add(MemCopy(), [value], name=name, outputs=[value.known])
    layer.output.info = value.known.with_constant(None)
    layer.backend = target
    graph.replace_uses(value, layer.output, lambda use: use.layer in consumers)
    return Copy(layer.name, value.name, str(value.producer.backend), target, value.known)
