"""A model whose graph begins and ends at other values, so that nodes outside need no support."""

from __future__ import annotations

from collections.abc import Sequence

from interposer.frontends.onnx.order import needed_nodes
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
    for node in graph.node:  # a node that is needed for another of its results must not define the input as well
        node.output[:] = ["" if name in starts else name for name in node.output]
    nodes = needed_nodes(graph.node, declared if ends is None else ends)
    del graph.node[:]
    graph.node.extend(nodes)
    graph.input.extend(added)
    if ends is not None:
        del graph.output[:]
        for name in ends:
            value = graph.output.add()
            value.CopyFrom(declared[name]) if name in declared else setattr(value, "name", name)
    return copy
