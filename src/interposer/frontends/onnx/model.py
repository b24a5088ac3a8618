"""`load`: from a model to a network, and the checks of the graph as a whole."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from interposer.errors import InvalidArgumentError, ParseError
from interposer.frontends.onnx.bindings import Bindings, ShapeArgument
from interposer.frontends.onnx.claims import claimed_quantizations
from interposer.frontends.onnx.external import ExternalFiles
from interposer.frontends.onnx.importer import Importer
from interposer.frontends.onnx.proto import Document, Message, Source, read_model
from interposer.ir.network import Network
from interposer.types import Quantization, TensorInfo

__all__ = ["load"]

_DEFAULT_DOMAIN: Final = "ai.onnx"


def load(source: Source, *, shapes: Mapping[str, ShapeArgument] | None = None) -> Network:
    """The network that an ONNX model describes.

    Layers are named after nodes, inputs and outputs after the model's; binding ids count these in the model's order.
    What can be computed from constants alone, such as shapes, is. Extents that the model leaves open stay open, under
    the model's names for them; one without a name is called after its input and axis, as in ``image_0``.

    Args:
        source: a path, the bytes of a file, or an `onnx.ModelProto`; binary or in protobuf's text format.
        shapes: binds open extents: by input's name a shape (None for what stays open), by extent's name a number.

    Raises:
        ParseError: the file cannot be read, is no ONNX model, or is damaged; says where.
        UnsupportedOperatorError: with all operators that are not supported, or not in the form that the model uses.
        InvalidArgumentError: `shapes` that do not fit the model.
        MissingDependencyError: the package onnx is not installed.

    >>> load(b"")
    Traceback (most recent call last):
    interposer.errors.ParseError: the file is empty
    """
    path = source if isinstance(source, str) else getattr(source, "__fspath__", lambda: None)()
    try:
        return _network(read_model(source), shapes or {})
    except ParseError as error:
        if path is None:
            raise
        raise error.at(str(path)) from error


def _network(document: Document, shapes: Mapping[str, ShapeArgument]) -> Network:
    import interposer.frontends.onnx.families  # noqa: F401, PLC0415 - the families fill the table of operators

    graph = document.model.graph
    opsets = _opsets(document.model)
    _check_names(graph)
    network = Network(graph.name or "network")
    importer = Importer(network, opsets, ExternalFiles(document.path))
    importer.define_constants(graph.initializer)
    importer.reserve({output.name for output in graph.output})
    constants = {tensor.name for tensor in graph.initializer}
    inputs = [value for value in graph.input if value.name not in constants]
    claims = claimed_quantizations(graph.node, importer.arrays)
    for number, (name, info) in enumerate(Bindings(shapes).infos(inputs)):
        quantized = _quantized(info, claims.get(name))
        importer.define(name, network.add_input_layer(number, quantized, name=name).output)
    importer.convert(_in_running_order(graph))
    for number, output in enumerate(graph.output):
        network.add_output_layer(number, importer.value(output.name), name=output.name)
    network.graph.erase_dead()
    return network


def _quantized(info: TensorInfo, claim: Quantization | None) -> TensorInfo:
    """The input's info as nodes claim it is quantized; where that cannot be, the nodes' own faults will be told."""
    try:
        return info.with_quantization(claim)
    except InvalidArgumentError:
        return info


def _opsets(model: Message) -> dict[str, int]:
    opsets: dict[str, int] = {}
    for entry in model.opset_import:
        domain = "" if entry.domain == _DEFAULT_DOMAIN else entry.domain
        if domain in opsets or entry.version < 1:
            raise ParseError(f"operator set {entry.domain or _DEFAULT_DOMAIN!r} is imported twice, or in no version")
        opsets[domain] = entry.version
    return opsets


def _check_names(graph: Message) -> None:
    """Every value is defined once and every name that is used is defined; there is something to compute."""
    for fault in _name_faults(graph):
        raise ParseError(fault)


def _name_faults(graph: Message) -> Iterator[str]:
    if graph.sparse_initializer:
        yield "sparse initializers are not supported"
    if not graph.output:
        yield "the graph has no outputs"
    inputs = [value.name for value in graph.input]
    initializers = [tensor.name for tensor in graph.initializer]
    results = [name for node in graph.node for name in node.output if name]
    yield from _twice(inputs, "input")
    yield from _twice(initializers, "initializer")
    yield from _twice([*dict.fromkeys([*inputs, *initializers]), *results], "value")
    defined = {*inputs, *initializers, *results}
    for node in graph.node:
        for name in node.input:
            if name and name not in defined:
                yield f"node {node.name or node.op_type!r} takes the value {name!r}, which is not defined"
    for output in graph.output:
        if output.name not in defined:
            yield f"the output {output.name!r} is not defined"


def _twice(names: Sequence[str], kind: str) -> Iterator[str]:
    seen: set[str] = set()
    for name in names:
        if name in seen or not name:
            yield f"the {kind} {name!r} is defined twice" if name else f"an {kind} has no name"
        seen.add(name)


def _in_running_order(graph: Message) -> list[Message]:
    """The nodes that the outputs depend on, producers first: not every file keeps to that order."""
    nodes = graph.node
    producers = {name: index for index, node in enumerate(nodes) for name in node.output if name}
    needs = [{producers[name] for name in node.input if name in producers} for node in nodes]
    sorted_already = all(need < index for index, group in enumerate(needs) for need in group)
    order = range(len(nodes)) if sorted_already else _sorted(needs, nodes)
    used = _reached([producers[output.name] for output in graph.output if output.name in producers], needs)
    return [nodes[index] for index in order if index in used]


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
    for index, group in enumerate(needs):
        for need in group:
            users.setdefault(need, []).append(index)
    waiting = [len(group) for group in needs]
    order = [index for index, count in enumerate(waiting) if not count]
    for index in order:
        for user in users.get(index, ()):
            waiting[user] -= 1
            if not waiting[user]:
                order.append(user)
    if len(order) < len(needs):
        stuck = [nodes[i].name or nodes[i].op_type for i, count in enumerate(waiting) if count]
        raise ParseError(f"nodes depend on themselves: {', '.join(map(repr, stuck[:10]))}")
    return order
