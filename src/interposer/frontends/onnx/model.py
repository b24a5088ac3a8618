"""The functions `load` and `template`, which convert a model to a network, and checks of the whole graph."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from typing import NamedTuple

import numpy as np

from interposer.core.errors import InvalidArgumentError, ParseError, memory_to
from interposer.core.families import import_families
from interposer.core.types import QUANTIZABLE, Array, Quantization, TensorInfo
from interposer.frontends.onnx.bindings import Bindings, declared_info, declared_shapes
from interposer.frontends.onnx.claims import annotated_quantizations, claimed_quantizations
from interposer.frontends.onnx.custom import overrides
from interposer.frontends.onnx.external import ExternalFiles
from interposer.frontends.onnx.functions import Functions, opsets_of
from interposer.frontends.onnx.importer import GraphImporter
from interposer.frontends.onnx.onnx_converters import Converter
from interposer.frontends.onnx.order import cut, in_running_order, names_in
from interposer.frontends.onnx.proto import Document, Message, Source, onnx_package, read_model
from interposer.frontends.onnx.tensors import array_of, dense_array_of
from interposer.frontends.resizing import check_shapes
from interposer.frontends.sources import errors_at
from interposer.frontends.template import Shapes, Template, Values, check_names, value_of
from interposer.ir.network import Network

__all__ = ["load", "template"]


@memory_to("read the network")
def load(
    source: Source,
    *,
    shapes: Shapes | None = None,
    values: Values | None = None,
    operators: Mapping[str, Converter] | None = None,
) -> Network:
    """Return the network that an ONNX model describes.

    Layers are named after nodes, inputs and outputs after the model's; binding ids count these in the model's order.
    What can be computed from constants alone, such as shapes, is. Dimensions that the model leaves open stay open under
    the model's names for them; one without a name is called after its input and axis, as in ``image_0``.

    Args:
        source: a path, the bytes of a file, or an `onnx.ModelProto`; binary or in protobuf's text format.
        shapes: by input's name a shape, by dimension's name a number. None in a shape keeps what the model says. A
            dimension that the model fixes may get another size where the nodes allow that.
        values: arrays by input name. These inputs become constants of the network. A value also overrides the default
            (the initializer) that the model has for an input.
        operators: functions for operators by their names ("Relu", "com.example.Swish"). They take precedence over
            all others; use the decorator `operator` to register one for all loads.

    Raises:
        ParseError: the file cannot be read, is no ONNX model, or is damaged; says where.
        UnsupportedOperatorError: operators are unknown, or used in an unsupported form; it lists all.
        UnboundInputError: operators need the values of inputs (Reshape its shape, TopK its k), or their shapes.
        InvalidArgumentError: `shapes` or `values` do not fit the model.
        MissingDependencyError: the package onnx is not installed.

    >>> load(b"")
    Traceback (most recent call last):
    interposer.errors.ParseError: the file is empty
    """
    return template(source, shapes=shapes, operators=operators).network(values=values)


@memory_to("read the network")
def template(
    source: Source,
    *,
    shapes: Shapes | None = None,
    operators: Mapping[str, Converter] | None = None,
    inputs: Sequence[str] = (),
    outputs: Sequence[str] | None = None,
) -> Template:
    """Return a `Template`, which creates networks for shapes and values of the model's inputs.

    The other arguments and errors are those of `load`; errors in nodes are raised when a network is created. The file's
    content must not be changed afterwards.

    Args:
        inputs: names of values that are inputs too, if the file has their types; nodes before them are not read.
        outputs: names of values that are the outputs, if the graph has them; nodes after them are not read.
    """
    own_operators = overrides(operators)
    path = source if isinstance(source, str) else getattr(source, "__fspath__", lambda: None)()
    with errors_at(path):
        document = cut(read_model(source), inputs, outputs)
        graph = document.model.graph
        names = [names_in(node) for node in graph.node]
        _check_names(graph, names)
        model = _read(document, names)
        given_shapes = dict(shapes or {})

        def build(shapes: Shapes, values: Values) -> Network:
            with errors_at(path):
                return _network(model, {**given_shapes, **shapes}, values, own_operators)

        infos = dict(_infos(model, given_shapes, {}))
        results = {output.name: _without_sizes(declared_info(output), given_shapes) for output in graph.output}
        return Template(_name(graph), infos, results, build, has_states=False)


def _without_sizes(info: TensorInfo | None, shapes: Shapes) -> TensorInfo | None:
    """Return the declared info of an output with all dimensions open if the caller passes `shapes`, else unchanged.

    The sizes that the model declares may not hold for the caller's shapes.
    """
    if info is None or not shapes or not info.is_tensor or not info.is_ranked:
        return info
    return info.with_shape([None] * info.rank)


def _name(graph: Message) -> str:
    """Return the graph's name, or "network" if it has none; a name that is no valid text (bytes) is decoded."""
    name = graph.name
    return (name.decode("utf-8", "replace") if isinstance(name, bytes) else str(name)) or "network"


class _Read(NamedTuple):
    """A model that was read: its `ModelProto`, its initializers as arrays by name, and its external data files.

    `names` has, for each node, the names of the values that it takes.
    """

    message: Message
    constants: Mapping[str, Array]
    files: ExternalFiles
    names: Sequence[Sequence[str]]

    def arrays(self, values: Values) -> dict[str, Array]:
        """Return the initializers by name, except those of inputs that get a value from the caller."""
        return {name: array for name, array in self.constants.items() if name not in values}


def _read(document: Document, names: Sequence[Sequence[str]]) -> _Read:
    files = ExternalFiles(document.path)
    constants: dict[str, Array] = {}
    for position, tensor in enumerate(document.model.graph.initializer):
        try:
            constants[tensor.name] = array_of(tensor, files, document.apart.get(position))
        except ParseError as error:
            raise ParseError(error.message, where=f"initializer {tensor.name!r}") from error
    for tensor in document.model.graph.sparse_initializer:
        try:
            constants[tensor.values.name] = dense_array_of(tensor, files)
        except ParseError as error:
            raise ParseError(error.message, where=f"sparse initializer {tensor.values.name!r}") from error
    return _Read(document.model, constants, files, names)


def _inputs(graph: Message, values: Values) -> list[Message]:
    """Return the graph inputs that have no default (an initializer), or for which `values` has a value."""
    defaults = {*_initializers(graph)} - values.keys()
    return [value for value in graph.input if value.name not in defaults]


def _network(model: _Read, shapes: Shapes, values: Values, operators: Mapping[str, Converter]) -> Network:
    import_families(__package__)
    graph = model.message.graph
    network = Network(_name(graph))
    opsets, functions = opsets_of(model.message.opset_import), Functions(model.message)
    _check_opset(opsets.get("", 0))
    importer = GraphImporter(network, opsets, model.files, functions, operators)
    importer.define_constants(model.arrays(values))
    importer.annotate(annotated_quantizations(graph, importer.arrays))
    importer.reserve({output.name for output in graph.output})
    importer.declared = declared_shapes([*graph.input, *graph.output])
    _add_inputs(importer, model, shapes, values)
    importer.convert(in_running_order(graph.node, [output.name for output in graph.output], model.names))
    for number, output in enumerate(graph.output):
        network.add_output_layer(number, importer.annotated(output.name), name=output.name)
    network.graph.erase_dead()
    importer.keep_names()
    return network


def _check_opset(version: int) -> None:
    """Raise `ParseError` if the opset is newer than those that the installed package onnx knows."""
    newest_version = onnx_package().defs.onnx_opset_version()
    if version > newest_version:
        raise ParseError(
            f"it imports opset {version}; the package onnx that is installed knows opsets up to {newest_version}"
        )


def _infos(model: _Read, shapes: Shapes, values: Values) -> Iterator[tuple[str, TensorInfo]]:
    """Yield the name and the info of every input, including inputs that `values` makes constants.

    An input gets the quantization of an annotation, or the one that all nodes that use it imply.
    """
    graph, arrays = model.message.graph, model.arrays(values)
    settled_shapes = {name: value.shape for name, value in values.items() if isinstance(value, np.ndarray)}
    infos = dict(Bindings(shapes, settled_shapes).infos(_inputs(graph, values)))
    claims: dict[str, Quantization] = {}
    integers = [name for name, info in infos.items() if info.dtype in QUANTIZABLE]
    if integers:
        claims = claimed_quantizations(graph.node, arrays, integers) | annotated_quantizations(graph, arrays)
    for name, info in infos.items():
        yield name, _quantized(info, claims.get(name))


def _add_inputs(importer: GraphImporter, model: _Read, shapes: Shapes, values: Values) -> None:
    """Add an input layer for each input of the model to the importer's network, and define its name.

    An input in `values` becomes a constant instead. `shapes` are the caller's.
    """
    check_names(values, [value.name for value in model.message.graph.input])
    binding_id = 0
    infos = dict(_infos(model, shapes, values))
    check_shapes([name for name, info in infos.items() if info.is_tensor and not info.is_ranked and name not in values])
    for name, info in infos.items():
        if name in values:
            array = value_of(name, info, values[name])
            constant = importer.constant(array, name, f"input {name!r}", info.quantization)
            importer.give(constant)
            importer.define(name, constant)
            continue
        importer.define_input(name, importer.network.add_input_layer(binding_id, info, name=name).output)
        binding_id += 1


def _quantized(info: TensorInfo, claim: Quantization | None) -> TensorInfo:
    """Return the input's info with the quantization `claim`, which nodes imply, or unchanged if that is invalid.

    The conversion of the nodes then reports the error.
    """
    try:
        return info.with_quantization(claim)
    except InvalidArgumentError:
        return info


def _check_names(graph: Message, names: Sequence[Sequence[str]]) -> None:
    """Raise `ParseError` unless every value is defined once, every used name is defined, and there are outputs."""
    for error in _name_problems(graph, names):
        raise ParseError(error)


def _initializers(graph: Message) -> list[str]:
    """Return the names of the initializers of a graph, dense and sparse ones."""
    return [
        *[tensor.name for tensor in graph.initializer],
        *[tensor.values.name for tensor in graph.sparse_initializer],
    ]


def _name_problems(graph: Message, names: Sequence[Sequence[str]]) -> Iterator[str]:
    if not graph.output:
        yield "the graph has no outputs"
    inputs = [value.name for value in graph.input]
    initializers = _initializers(graph)
    results = [name for node in graph.node for name in node.output if name]
    yield from _twice(inputs, "input")
    yield from _twice(initializers, "initializer")
    yield from _twice([*dict.fromkeys([*inputs, *initializers]), *results], "value")
    defined_names = {*inputs, *initializers, *results}
    if not defined_names.issuperset(chain.from_iterable(names)):
        for node, node_inputs in zip(graph.node, names, strict=True):
            for name in node_inputs:
                if name not in defined_names:
                    yield f"node {node.name or node.op_type!r} takes the value {name!r}, which is not defined"
    for output in graph.output:
        if output.name not in defined_names:
            yield f"the output {output.name!r} is not defined"


def _twice(names: Sequence[str], kind: str) -> Iterator[str]:
    seen_names: set[str] = set()
    for name in names:
        if name in seen_names or not name:
            yield f"the {kind} {name!r} is defined twice" if name else f"an {kind} has no name"
        seen_names.add(name)
