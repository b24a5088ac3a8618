"""Regions: the graphs inside control flow layers, their inputs and outputs, and paths to the layers in them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

from interposer.core.errors import InvalidArgumentError, did_you_mean
from interposer.core.types import TensorInfo
from interposer.ir.graph import Graph, Layer, Value
from interposer.ops.control import Input, Output
from interposer.ops.control_flow import ControlFlow

__all__ = ["Place", "border_problems", "bound_info", "find_layer", "named_graphs", "path", "places", "region_title"]

_KNOWN_ELEMENTS: Final = 1024
"""The maximum number of elements of a captured constant that shape inference inside a region can read."""


def region_title(layer: Layer, index: int) -> str:
    """Return the name of a layer's region number `index`: the name that the operator declares, or else its number."""
    names = layer.op.region_names if isinstance(layer.op, ControlFlow) else ()
    return names[index] if index < len(names) else str(index)


class Place(NamedTuple):
    """A layer of a network or of a region inside of it, as `places` yields it: its full name, its graph and itself.

    The full name begins with the names of the layers and regions around it, as in ``loop/body/add``.
    """

    name: str
    graph: Graph
    layer: Layer


def named_graphs(graph: Graph, prefix: str | None = None) -> Iterator[tuple[str, Graph]]:
    """Yield a graph and all regions in it, each with the prefix of its layers' full names, such as ``"loop/body/"``."""
    prefix = path(graph) if prefix is None else prefix
    yield prefix, graph
    for layer in graph.layers_with_regions:
        for index, region in enumerate(layer.regions):
            yield from named_graphs(region, f"{prefix}{layer.name}/{region_title(layer, index)}/")


def places(graph: Graph) -> Iterator[Place]:
    """Yield all layers of a graph and of the regions in it, each graph in running order."""
    for prefix, nested_graph in named_graphs(graph):
        yield from (Place(f"{prefix}{layer.name}", nested_graph, layer) for layer in nested_graph.topological())


def path(graph: Graph) -> str:
    """Return the prefix of the full names of a graph's layers; empty if the graph is not a region.

    The prefix covers one level only, since a region does not know the graphs around its owner; `named_graphs` has full
    prefixes.
    """
    owner = graph.owner
    if owner is None:
        return ""
    index = next(index for index, region in enumerate(owner.regions) if region is graph)
    return f"{owner.name}/{region_title(owner, index)}/"


def find_layer(graph: Graph, name: str) -> Layer:
    """Return the layer with this full name, also in a region; raise `InvalidArgumentError` if there is none."""
    layer_of_name = {place.name: place.layer for place in places(graph)}
    if name not in layer_of_name:
        raise InvalidArgumentError(f"no layer is called {name!r}{did_you_mean(name, layer_of_name)}")
    return layer_of_name[name]


def border_problems(layer: Layer) -> Iterator[str]:
    """Yield errors in the number of a layer's regions, and of their inputs and outputs."""
    op = layer.op
    if not isinstance(op, ControlFlow):
        return
    if len(layer.regions) != len(op.region_names):
        yield f"it has {len(layer.regions)} regions; {layer.kind} has {len(op.region_names)}: {_listed(op)}"
        return
    variadic_count = max(0, len(layer.inputs) - len(op.operands) + 1)
    for index, (inputs, outputs) in enumerate(zip(op.region_inputs(variadic_count), op.region_outputs(), strict=True)):
        region, title = layer.regions[index], f"region {region_title(layer, index)!r}"
        yield from _id_problems(title, "inputs", region.inputs, inputs)
        yield from _id_problems(title, "outputs", region.outputs, outputs)


def _listed(op: ControlFlow) -> str:
    return " and ".join(map(repr, op.region_names))


def _id_problems(title: str, kind: str, layers: Iterable[Layer], count: int) -> Iterator[str]:
    ids = [layer.op.binding_id for layer in layers if isinstance(layer.op, Input | Output)]
    if ids != list(range(count)):
        ids_text = ", ".join(map(str, ids)) or "none"
        expected = f"0 to {count - 1}" if count > 1 else "only 0" if count else "none"
        yield f"{title} has {kind} with the binding ids {ids_text}; expected {expected}"


def bound_info(value: Value, info: TensorInfo) -> TensorInfo | str:
    """Return the info that a region's input `value` gets when it is bound to a tensor with `info`.

    Returns a text with the reason if the tensor does not fit what the input declares. Large constants are dropped.
    """
    declared_info, constant = value.declared, info.constant
    if constant is not None and constant.size > _KNOWN_ELEMENTS:
        info = info.with_constant(None)
    if declared_info is None:
        return info
    has_same_type = (declared_info.dtype, declared_info.quantization) == (info.dtype, info.quantization)
    if not has_same_type or not declared_info.shape.accepts(info.shape):
        return f"it is declared as {declared_info}, but is bound to {info}"
    return info.with_shape(info.shape.merged(declared_info.shape)).with_constant(info.constant)
