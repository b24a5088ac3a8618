"""Networks with other outputs than declared: any input, constant or inner value can be requested by name."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from interposer.core.errors import BindingError, did_you_mean
from interposer.core.types import TensorInfo
from interposer.ir.graph import Graph, Layer, Value
from interposer.ir.network import Network
from interposer.ir.regions import region_title
from interposer.ops.control import Input, Output

__all__ = ["ending_at", "known_values", "requested_names", "value_named", "with_outputs"]


def requested_names(outputs: Any) -> tuple[str, ...] | None:
    """Return the names in the argument `outputs` of a run, or None if it has arrays to write to.

    `outputs` may be a name or a list of names.

    Raises:
        BindingError: names and arrays are mixed, or a name is given twice.
    """
    if isinstance(outputs, str):
        return (str(outputs),)
    if not isinstance(outputs, list | tuple) or not any(isinstance(output, str) for output in outputs):
        return None
    array = next((output for output in outputs if not isinstance(output, str)), None)
    if array is not None:
        raise BindingError(
            f"outputs are names of values or arrays to write to, not both: {type(array).__name__} stands among names"
        )
    duplicate_name = next((name for name in outputs if outputs.count(name) > 1), None)
    if duplicate_name is not None:
        raise BindingError(f"outputs: {duplicate_name!r} is named twice; name each value once")
    return tuple(map(str, outputs))


def known_values(network: Network) -> dict[str, TensorInfo]:
    """Return the infos of all values of a network that a run can return, under the names by which they are requested.

    They are in execution order with the outputs last. A value has its name in the model file, or the layer's name if
    there is no file or the file has no such tensor.
    """
    graph = network.graph
    infos = {name: info for name, info in graph.folded.items()}
    for layer in graph.topological():
        for value in layer.outputs:
            infos |= dict.fromkeys(value.aliases or (value.name,), value.known)
    return infos | {layer.name: layer.values[0].known for layer in graph.outputs}


def with_outputs(network: Network, names: Sequence[str]) -> Network:
    """Return the network with the named values as its outputs, in this order, without layers that they do not need.

    A name is that of an output, of a tensor in the model file, of a layer with one result, or ``layer:1`` for a layer
    with several. If several values fit a name, the first kind in this list is used.

    Raises:
        BindingError: the network has no such value, or the value is inside a region.
    """
    graph = network.graph.clone()
    values = [value_named(graph, name, "outputs") for name in names]
    for layer in graph.outputs:
        graph.erase(layer)
    for number, (name, value) in enumerate(zip(names, values, strict=True)):
        graph.add(Output(number), [value], name=name)
    graph.erase_dead()
    return Network(graph=graph)


def ending_at(network: Network, names: Sequence[str]) -> Network:
    """Return the network that `with_outputs` returns, with exactly these names of its outputs.

    A layer inside that has the name of an output gets ``/layer`` appended to its own. An input of the network keeps its
    name.
    """
    renamed_network = with_outputs(network, names)
    graph = renamed_network.graph
    for name, output in zip(names, graph.outputs, strict=True):
        if output.name == name or isinstance(graph.layer(name).op, Input):
            continue
        graph.rename(graph.layer(name), f"{name}/layer")
        graph.rename(output, name)
    return renamed_network


def value_named(graph: Graph, name: str, argument: str) -> Value:
    """Return the value of a graph that has this name, as `with_outputs` says.

    `BindingError`, which names the `argument` that has the name, is raised if the graph has no such value.
    """
    for layer in graph.outputs:
        if layer.name == name:
            return layer.values[0]
    value = _by_alias(graph, name) or _by_layer(graph, name)
    if value is not None:
        return value
    if name in graph.folded:
        info = graph.folded[name]
        assert info.constant is not None
        return graph.constant(info.constant, like=info, name=name)
    raise BindingError(f"{argument}: {_unknown(graph, name)}")


def _by_alias(graph: Graph, name: str) -> Value | None:
    return next((value for value in _values(graph) if name in value.aliases), None)


def _by_layer(graph: Graph, name: str) -> Value | None:
    """Return the value that the name of its layer denotes: ``layer`` if it has one result, else ``layer:0`` and so on.

    None if there is no such layer.
    """
    return next((value for value in _values(graph) if name in _layer_names(value)), None)


def _layer_names(value: Value) -> tuple[str, ...]:
    numbered_name = f"{value.producer.name}:{value.index}"
    return (value.name,) if value.name == numbered_name else (value.name, numbered_name)


def _values(graph: Graph) -> Iterator[Value]:
    return (value for layer in graph for value in layer.outputs)


def _unknown(graph: Graph, name: str) -> str:
    """Return the error message for a requested name that no available value of the graph has, with similar names."""
    ambiguous_layer = next((layer for layer in graph if layer.name == name and len(layer.outputs) > 1), None)
    if ambiguous_layer is not None:
        names = ", ".join(repr(value.name) for value in ambiguous_layer.outputs)
        return f"layer {name!r} has {len(ambiguous_layer.outputs)} results; name one of them: {names}"
    region_name = next((title for title, inner in _regions(graph) if _names_value(inner, name)), None)
    if region_name is not None:
        return (
            f"the value {name!r} is inside the region {region_name}, where it may exist many times or not at all "
            "in a run; only values outside of regions can be asked for"
        )
    hint = did_you_mean(name, _all_names(graph))
    return f"the model has no value {name!r}{hint}{'' if hint else '; Model.values lists all of them'}"


def _names_value(graph: Graph, name: str) -> bool:
    return any(name in (layer.name, *_names_of(layer)) for layer in graph)


def _names_of(layer: Layer) -> Iterator[str]:
    for value in layer.outputs:
        yield from (*value.aliases, *_layer_names(value))


def _all_names(graph: Graph) -> Iterable[str]:
    value_names = (name for layer in graph for name in _names_of(layer))
    return [*(layer.name for layer in graph.outputs), *graph.folded, *value_names]


def _regions(graph: Graph) -> Iterator[tuple[str, Graph]]:
    for layer in graph:
        for index, region in enumerate(layer.regions):
            yield f"{region_title(layer, index)!r} of layer {layer}", region
            yield from _regions(region)
