"""A model whose graph begins and ends at other values, so that nodes outside need no support."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from interposer.frontends.onnx.order import names_in
from interposer.frontends.onnx.proto import Document, Message

__all__ = ["cut"]


def cut(document: Document, inputs: Sequence[str], outputs: Sequence[str] | None) -> Document:
    """Return the model with only the nodes between the named values.

    The graph keeps its inputs, to which the values `inputs` are added that have a type in the file. `outputs` replace
    its outputs; None keeps them. Names that the graph does not have are ignored if they are in `inputs`; in `outputs`,
    they leave the outputs unchanged. The message of a caller is not changed.
    """
    graph = document.model.graph
    results = {name for node in graph.node for name in node.output if name}
    infos = {value.name: value for value in (*graph.value_info, *graph.output)}
    added = [infos[name] for name in dict.fromkeys(inputs) if name in results and name in infos]
    known = results | {value.name for value in (*graph.input, *graph.initializer)}
    ends = list(outputs) if outputs is not None and outputs and known.issuperset(outputs) else None
    if not added and ends is None:
        return document
    return document._replace(model=_shorter(document.model, added, ends))


def _shorter(model: Message, added: Sequence[Message], ends: Sequence[str] | None) -> Message:
    copy = type(model)()
    copy.CopyFrom(model)
    graph = copy.graph
    starts, declared = {value.name for value in added}, {value.name: value for value in model.graph.output}
    needed_nodes = _needed(model.graph.node, starts, declared if ends is None else ends)
    del graph.node[:]
    graph.node.extend(needed_nodes)
    graph.input.extend(added)
    for node in graph.node:  # a node that is needed for another of its results must not define the input as well
        node.output[:] = ["" if name in starts else name for name in node.output]
    if ends is not None:
        del graph.output[:]
        for name in ends:
            value = graph.output.add()
            value.CopyFrom(declared[name]) if name in declared else setattr(value, "name", name)
    return copy


def _needed(nodes: Sequence[Message], starts: set[str], ends: Iterable[str]) -> list[Message]:
    """Return the nodes on which the values `ends` depend, given the values `starts`, in the order of the file."""
    producers = {name: index for index, node in enumerate(nodes) for name in node.output if name}
    needed: set[int] = set()
    pending = [name for name in ends if name not in starts]
    while pending:
        index = producers.get(pending.pop())
        if index is not None and index not in needed:
            needed.add(index)
            pending += [name for name in names_in(nodes[index]) if name not in starts]
    return [node for index, node in enumerate(nodes) if index in needed]
