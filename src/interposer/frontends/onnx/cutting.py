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
    computed = {name for node in graph.node for name in node.output if name}
    infos = {value.name: value for value in (*graph.value_info, *graph.output)}
    new_inputs = [infos[name] for name in dict.fromkeys(inputs) if name in computed and name in infos]
    known = computed | {value.name for value in (*graph.input, *graph.initializer)}
    new_outputs = list(outputs) if outputs is not None and outputs and known.issuperset(outputs) else None
    if not new_inputs and new_outputs is None:
        return document
    return document._replace(model=_shorter(document.model, new_inputs, new_outputs))


def _shorter(model: Message, new_inputs: Sequence[Message], new_outputs: Sequence[str] | None) -> Message:
    copy = type(model)()
    copy.CopyFrom(model)
    graph = copy.graph
    input_names, declared_outputs = (
        {new_output.name for new_output in new_inputs},
        {new_output.name: new_output for new_output in model.graph.output},
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
            new_output = graph.output.add()
            new_output.CopyFrom(declared_outputs[name]) if name in declared_outputs else setattr(
                new_output, "name", name
            )
    return copy
