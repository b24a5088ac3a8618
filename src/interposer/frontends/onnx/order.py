"""Topological order of nodes, and the values that nodes take."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from interposer.core.errors import ParseError
from interposer.frontends.onnx.proto import Message

__all__ = ["graphs_in", "graphs_of", "in_running_order", "names_in", "needed_nodes"]

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
        for graph in graphs_in(attribute):
            names += _outside_names(graph)
    return names


def _outside_names(graph: Message) -> Iterator[str]:
    inside = {value.name for value in (*graph.input, *graph.initializer)}
    inside.update(tensor.values.name for tensor in graph.sparse_initializer)
    inside.update(name for node in graph.node for name in node.output)
    yield from (name for node in graph.node for name in names_in(node) if name not in inside)
    yield from (value.name for value in graph.output if value.name not in inside)


def in_running_order(nodes: Sequence[Message], outputs: Sequence[str]) -> list[Message]:
    """Return the nodes that the outputs depend on, producers before consumers, as not every file orders them so.

    Raises:
        ParseError: nodes that depend on themselves.
    """
    producers, needs = _dependencies(nodes)
    is_sorted = all(producer < index for index, producers_of_node in enumerate(needs) for producer in producers_of_node)
    order = range(len(nodes)) if is_sorted else _sorted(needs, nodes)
    needed = _reached([producers[name] for name in outputs if name in producers], needs)
    return [nodes[index] for index in order if index in needed]


def needed_nodes(nodes: Sequence[Message], outputs: Iterable[str]) -> list[Message]:
    """Return the nodes that the outputs depend on, in the order of `nodes`."""
    producers, needs = _dependencies(nodes)
    needed = _reached([producers[name] for name in outputs if name in producers], needs)
    return [node for index, node in enumerate(nodes) if index in needed]


def _dependencies(nodes: Sequence[Message]) -> tuple[dict[str, int], list[set[int]]]:
    """Return the position of the node that gives each value, and for each node the positions of those it depends on."""
    producers = {name: index for index, node in enumerate(nodes) for name in node.output if name}
    return producers, [{producers[name] for name in names_in(node) if name in producers} for node in nodes]


def _reached(pending: list[int], needs: Sequence[set[int]]) -> set[int]:
    reached: set[int] = set()
    while pending:
        index = pending.pop()
        if index not in reached:
            reached.add(index)
            pending += needs[index]
    return reached


def _sorted(needs: Sequence[set[int]], nodes: Sequence[Message]) -> list[int]:
    users: dict[int, list[int]] = {}
    for index, producers_of_node in enumerate(needs):
        for producer in producers_of_node:
            users.setdefault(producer, []).append(index)
    pending_counts = [len(producers_of_node) for producers_of_node in needs]
    order = [index for index, count in enumerate(pending_counts) if not count]
    for index in order:
        for user in users.get(index, ()):
            pending_counts[user] -= 1
            if not pending_counts[user]:
                order.append(user)
    if len(order) < len(needs):
        stuck = [nodes[i].name or nodes[i].op_type for i, count in enumerate(pending_counts) if count]
        raise ParseError(f"nodes depend on themselves: {', '.join(map(repr, stuck[:10]))}")
    return order
