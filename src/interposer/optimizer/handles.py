"""Borders between backends: where data crosses, a layer of the runtime copies it."""

from __future__ import annotations

from collections.abc import Iterable

from interposer.ir.graph import Graph, Layer, Value
from interposer.ir.regions import named_graphs
from interposer.ir.report import Copy
from interposer.ops.control import Constant, Input, MemCopy, Output
from interposer.ops.control_flow import ControlFlow

__all__ = ["insert_copies"]


def insert_copies(graph: Graph, default: str) -> list[Copy]:
    """Put a MemCopy between a value and its consumers on every other backend, one for each such backend.

    An Input gets the backend of its first consumer (`default` where it has none), so that the caller's data goes
    straight to where it is needed, and so does a layer with control flow, whose results lie there; it takes its
    operands from wherever they are. Other layers of the runtime get the backend that they take data from. Regions are
    treated in the same way.
    """
    return [copy for prefix, each in named_graphs(graph) for copy in _insert_copies(each, default, prefix)]


def _insert_copies(graph: Graph, default: str, prefix: str) -> list[Copy]:
    for layer in graph.topological():
        if layer.backend is None and not isinstance(layer.op, Constant | Output):
            layer.backend = _backend_of(layer, default)
    values = [value for layer in graph.topological() for value in layer.outputs if not value.is_constant]
    return [copy for value in values for copy in _copies_of(graph, value, prefix)]


def _backend_of(layer: Layer, default: str) -> str:
    forward = isinstance(layer.op, Input | ControlFlow)
    consumers = (use.layer for value in layer.outputs for use in value.uses)
    near: Iterable[Layer] = consumers if forward else [layer.values[0].producer]
    return next((one.backend for one in near if one.backend is not None), default)


def _copies_of(graph: Graph, value: Value, prefix: str) -> list[Copy]:
    here = value.producer.backend
    elsewhere: dict[str, list[Layer]] = {}
    for layer in value.consumers:
        if layer.backend not in (None, here) and not isinstance(layer.op, ControlFlow):
            elsewhere.setdefault(str(layer.backend), []).append(layer)
    return [_copy(graph, value, backend, consumers, prefix) for backend, consumers in elsewhere.items()]


def _copy(graph: Graph, value: Value, target: str, consumers: list[Layer], prefix: str) -> Copy:
    name = f"[ {value.producer.name} ({value.index}) -> {consumers[0].name} ]"
    layer = graph.add(MemCopy(), [value], name=name, outputs=[value.known])
    layer.output.info = value.known.with_constant(None)
    layer.backend = target
    graph.replace_uses(value, layer.output, lambda use: use.layer in consumers)
    return Copy(f"{prefix}{layer.name}", f"{prefix}{value.name}", str(value.producer.backend), target, value.known)
