"""Topological order of nodes, the values that nodes take, and cuts of a graph at named values."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from interposer.core.errors import ParseError
from interposer.frontends.onnx.proto import Document, Message

__all__ = ["cut", "graphs_in", "graphs_of", "in_running_order", "names_in", "needed_nodes"]

_GRAPH: Final = 5
_GRAPHS: Final = 10


def graphs_of(node: Message) -> Iterator[Message]:
    """Yield the subgraphs among a node's attributes."""
    for attribute in node.attribute:
        yield from graphs_in(attribute)


def graphs_in(attribute: Message) -> Sequence[Message]:
    """Return the `GraphProto` messages in an attribute: one, several or none."""
    if attribute.type == _GRAPH:
        return [attribute.g]
    return attribute.graphs if attribute.type == _GRAPHS else ()


def names_in(node: Message) -> list[str]:
    """Return the names of the values that a node takes: its inputs, and the outside values that its subgraphs use."""
    names = [name for name in node.input if name]
    for attribute in node.attribute:
        if attribute.type in (_GRAPH, _GRAPHS):
            for graph in graphs_in(attribute):
                names += _outside_names(graph)
    return names


def _outside_names(graph: Message) -> Iterator[str]:
    inside_names = {value.name for value in (*graph.input, *graph.initializer)}
    inside_names.update(tensor.values.name for tensor in graph.sparse_initializer)
    inside_names.update(name for node in graph.node for name in node.output)
    yield from (name for node in graph.node for name in names_in(node) if name not in inside_names)
    yield from (value.name for value in graph.output if value.name not in inside_names)


def in_running_order(
    nodes: Sequence[Message], outputs: Sequence[str], names: Sequence[Sequence[str]] | None = None
) -> list[Message]:
    """Return the nodes that the outputs depend on, producers before consumers, as not every file orders them so.

    `names` are the names of the values that each node takes, by default those of `names_in`.

    Raises:
        ParseError: nodes that depend on themselves.
    """
    producers, needs = _dependencies(nodes, list(map(names_in, nodes)) if names is None else names)
    is_sorted = all(producer < index for index, producers_of_node in enumerate(needs) for producer in producers_of_node)
    order = range(len(nodes)) if is_sorted else _sorted(needs, nodes)
    needed_indices = _reached([producers[name] for name in outputs if name in producers], needs)
    return [nodes[index] for index in order if index in needed_indices]


def needed_nodes(nodes: Sequence[Message], outputs: Iterable[str]) -> list[Message]:
    """Return the nodes that the outputs depend on, in the order of `nodes`."""
    producers, needs = _dependencies(nodes, list(map(names_in, nodes)))
    needed_indices = _reached([producers[name] for name in outputs if name in producers], needs)
    return [node for index, node in enumerate(nodes) if index in needed_indices]


def _dependencies(nodes: Sequence[Message], names: Sequence[Sequence[str]]) -> tuple[dict[str, int], list[set[int]]]:
    """Return the position of the node that gives each value, and for each node the positions of those it depends on.

    `names` are the names of the values that each node takes.
    """
    producers = {name: index for index, node in enumerate(nodes) for name in node.output if name}
    return producers, [{producers[name] for name in node_inputs if name in producers} for node_inputs in names]


def _reached(pending_nodes: list[int], needs: Sequence[set[int]]) -> set[int]:
    reached_indices: set[int] = set()
    while pending_nodes:
        index = pending_nodes.pop()
        if index not in reached_indices:
            reached_indices.add(index)
            pending_nodes += needs[index]
    return reached_indices


def _sorted(needs: Sequence[set[int]], nodes: Sequence[Message]) -> list[int]:
    users_of_node: dict[int, list[int]] = {}
    for index, producers_of_node in enumerate(needs):
        for producer in producers_of_node:
            users_of_node.setdefault(producer, []).append(index)
    pending_counts = [len(producers_of_node) for producers_of_node in needs]
    order = [index for index, count in enumerate(pending_counts) if not count]
    for index in order:
        for user in users_of_node.get(index, ()):
            pending_counts[user] -= 1
            if not pending_counts[user]:
                order.append(user)
    if len(order) < len(needs):
        stuck_nodes = [nodes[i].name or nodes[i].op_type for i, count in enumerate(pending_counts) if count]
        raise ParseError(f"nodes depend on themselves: {', '.join(map(repr, stuck_nodes[:10]))}")
    return order


# --- cuts -------------------------------------------------------------------------------------------------------------


def cut(document: Document, inputs: Sequence[str], outputs: Sequence[str] | None) -> Document:
    """Return the model with only the nodes between the named values.

    The graph keeps its inputs, to which the values `inputs` are added that have a type in the file. `outputs` replace
    its outputs; None keeps them. Names that the graph does not have are ignored if they are in `inputs`; in `outputs`,
    they leave the outputs unchanged. The message of a caller is not changed.
    """
    if not inputs and not outputs:
        return document
    graph = document.model.graph
    computed_names = {name for node in graph.node for name in node.output if name}
    infos = {value.name: value for value in (*graph.value_info, *graph.output)}
    new_inputs = [infos[name] for name in dict.fromkeys(inputs) if name in computed_names and name in infos]
    known_names = computed_names | {value.name for value in (*graph.input, *graph.initializer)}
    new_outputs = list(outputs) if outputs is not None and outputs and known_names.issuperset(outputs) else None
    if not new_inputs and new_outputs is None:
        return document
    return document._replace(model=_shorter(document.model, new_inputs, new_outputs))


def _shorter(model: Message, new_inputs: Sequence[Message], new_outputs: Sequence[str] | None) -> Message:
    copy = type(model)()
    copy.CopyFrom(model)
    graph = copy.graph
    input_names, declared_outputs = (
        {graph_output.name for graph_output in new_inputs},
        {graph_output.name: graph_output for graph_output in model.graph.output},
    )
    for node in graph.node:  # a node that is needed for another of its results must not define the input as well
        node.output[:] = ["" if name in input_names else name for name in node.output]
    nodes = needed_nodes(graph.node, declared_outputs if new_outputs is None else new_outputs)
    del graph.node[:]
    graph.node.extend(nodes)
    graph.input.extend(new_inputs)
    if new_outputs is not None:
        del graph.output[:]
        for name in new_outputs:
            graph_output = graph.output.add()
            graph_output.CopyFrom(declared_outputs[name]) if name in declared_outputs else setattr(
                graph_output, "name", name
            )
    return copy
