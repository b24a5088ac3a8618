"""The functions `load` and `template`, which convert a frozen graph or a SavedModel to a network."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Final, NamedTuple

from interposer.core.errors import InvalidArgumentError, ParseError, did_you_mean, memory_to
from interposer.core.types import MAX_RANK, UNRANKED, Array, Dim, TensorInfo, TensorShape
from interposer.frontends.resizing import LARGEST, check_shapes, resized
from interposer.frontends.sources import errors_at
from interposer.frontends.template import Shapes, Template, Values, check_names, value_of
from interposer.frontends.tensorflow.checkpoints import Variables
from interposer.frontends.tensorflow.dtypes import TYPE_NUMBERS, data_type
from interposer.frontends.tensorflow.files import Content, Source, read_content
from interposer.frontends.tensorflow.importer import Scope, Shared
from interposer.frontends.tensorflow.messages import (
    AssetFile,
    FunctionDef,
    GraphDef,
    MetaGraphDef,
    NodeDef,
    SignatureDef,
)
from interposer.frontends.tensorflow.messages import TensorShape as DeclaredShape
from interposer.frontends.tensorflow.references import Reference, control_inputs, data_inputs, in_graph, title
from interposer.frontends.tensorflow.results import Absent
from interposer.frontends.tensorflow.tensorflow_converters import find
from interposer.ir.graph import Value
from interposer.ir.network import Network

__all__ = ["load", "signatures", "template"]

_SERVE: Final = "serve"
_DEFAULT: Final = "serving_default"
_PLACEHOLDERS: Final = frozenset({"Placeholder", "PlaceholderV2"})
_NO_RESULTS: Final = frozenset(
    {
        "Assert", "Assign", "AssignAddVariableOp", "AssignSubVariableOp", "AssignVariableOp", "Const", "NoOp",
        "Placeholder", "PlaceholderV2", "PlaceholderWithDefault", "Print", "PrintV2", "RestoreV2", "SaveV2",
        "VarHandleOp", "Variable", "VariableV2", "MergeV2Checkpoints", "HashTable", "HashTableV2", "MutableHashTable",
        "MutableHashTableV2", "InitializeTable", "InitializeTableV2", "InitializeTableFromTextFile",
        "InitializeTableFromTextFileV2", "LookupTableImport", "LookupTableImportV2",
    }
)  # fmt: skip
_SUMMARIES: Final = frozenset(
    {"AudioSummary", "HistogramSummary", "ImageSummary", "MergeSummary", "ScalarSummary", "TensorSummary"}
)
"""Operators that record values during training; what they read may be an output of the model all the same."""


class _Tensor(NamedTuple):
    """An input of the model: the node that is replaced, and what the model declares of it."""

    node: str
    dtype: int
    dims: list[int | None] | None


class _Model(NamedTuple):
    """A model that was read: its graph, and what are its inputs and outputs, by name.

    `outputs` maps the names to references such as ``softmax:0``.
    """

    name: str
    graph: GraphDef
    functions: Mapping[str, FunctionDef]
    inputs: Mapping[str, _Tensor]
    outputs: Mapping[str, str]
    variable: Callable[[str], Array]
    size: int
    folder: Path | None = None
    assets: Mapping[str, str] = {}


@memory_to("read the network")
def load(
    source: Source,
    *,
    shapes: Shapes | None = None,
    values: Values | None = None,
    outputs: Sequence[str] | None = None,
    signature: str | None = None,
) -> Network:
    """Return the network in a frozen graph (binary or text) or a SavedModel of TensorFlow.

    Layers are named after nodes. The inputs of a frozen graph are its placeholders, and its outputs the nodes that no
    other node reads, unless `outputs` names others. Inputs and outputs of a SavedModel have the names of its signature.
    Only inference is supported: variables become constants. Dimensions that the model leaves open are named after input
    and axis, as in ``image_0``.

    Args:
        source: the path of a file (``.pb`` or ``.pbtxt``), the path of a SavedModel's folder, or the bytes of a frozen
            graph.
        shapes: a shape by input name, or a size by dimension name. None in a shape keeps what the model says. A node of
            a frozen graph that is no placeholder becomes an input by its shape; nodes before it are dropped.
        values: arrays by input name; these inputs become constants of the network.
        outputs: the names of the outputs: tensors of the graph, such as ``"softmax"`` or ``"split:1"``, or outputs of
            the signature.
        signature: the name of a SavedModel's signature; by default ``serving_default``, or the only one.

    Raises:
        ParseError: the file cannot be read, or is damaged; says where.
        UnsupportedOperatorError: operators are unknown, or used in an unsupported form; it lists all.
        UnboundInputError: operators need the values of inputs, or their shapes.
        InvalidArgumentError: an argument does not fit the model.
    """
    return template(source, shapes=shapes, outputs=outputs, signature=signature).network(values=values)


@memory_to("read the network")
def template(
    source: Source,
    *,
    shapes: Shapes | None = None,
    outputs: Sequence[str] | None = None,
    signature: str | None = None,
) -> Template:
    """Return a `Template`, which creates networks for shapes and values of the model's inputs.

    Args and errors are those of `load`; errors in nodes are raised when a network is created.
    """
    path = None if isinstance(source, bytes | bytearray | memoryview) else os.fspath(source)
    with errors_at(path):
        content = read_content(source)
        return _template(path, content, shapes or {}, outputs, signature)


def _template(
    path: str | bytes | None,
    content: Content,
    shapes: Shapes,
    outputs: Sequence[str] | None,
    signature: str | None,
) -> Template:
    with errors_at(path):
        name = "tensorflow" if path is None else Path(os.fsdecode(path)).stem
        model = _read(content, name, outputs, signature, shapes)
        given_shapes = dict(shapes)

        def build(shapes: Shapes, values: Values) -> Network:
            with errors_at(path):
                return _network(model, {**given_shapes, **shapes}, values)

        inputs = dict(_infos(model, given_shapes, {}))
        known_signatures = {} if content.saved_model is None else _signatures_of(_meta_graph(content))
        signatures = {name: partial(_template, path, content, {}, None, name) for name in known_signatures}
        return Template(
            model.name, inputs, dict.fromkeys(model.outputs), build, signatures=signatures,
            cuts_at_shapes=content.saved_model is None,
        )  # fmt: skip


def signatures(source: Source) -> dict[str, tuple[list[str], list[str]]]:
    """Return the signatures of a SavedModel: for each name, the names of its inputs and of its outputs.

    A frozen graph has none.

    Raises:
        ParseError: the file cannot be read, or is damaged.
    """
    with errors_at(None if isinstance(source, bytes | bytearray | memoryview) else os.fspath(source)):
        content = read_content(source)
        known_signatures = {} if content.saved_model is None else _signatures_of(_meta_graph(content))
        return {name: (list(signature.inputs), list(signature.outputs)) for name, signature in known_signatures.items()}


# --- reading ----------------------------------------------------------------------------------------------------------


def _read(content: Content, name: str, outputs: Sequence[str] | None, signature: str | None, shapes: Shapes) -> _Model:
    if content.graph is not None:
        if signature is not None:
            raise InvalidArgumentError("signature: a frozen graph has no signatures")
        return _frozen(name, content.graph, content.size, outputs, shapes)
    meta = _meta_graph(content)
    assert meta.graph_def is not None
    model = _signed(name, meta.graph_def, _signature(meta, signature), content, outputs)
    return model._replace(assets=dict(map(_asset, meta.asset_file_def)))


def _asset(asset_file: AssetFile) -> tuple[str, str]:
    """Return the name of the node that has the path of an asset, and the name of the file."""
    return in_graph(asset_file.tensor_info.name).node, asset_file.filename


def _meta_graph(content: Content) -> MetaGraphDef:
    assert content.saved_model is not None
    graphs = [meta_graph for meta_graph in content.saved_model.meta_graphs if meta_graph.graph_def is not None]
    if not graphs:
        raise ParseError("the file is truncated or damaged: it has no graph")
    return next((meta_graph for meta_graph in graphs if _SERVE in meta_graph.meta_info_def.tags), graphs[0])


def _signatures_of(meta: MetaGraphDef) -> dict[str, SignatureDef]:
    return {
        name: signature
        for name, signature in meta.signature_def.items()
        if signature.outputs and not name.startswith("__saved")
    }


def _signature(meta: MetaGraphDef, name: str | None) -> SignatureDef:
    known_signatures = _signatures_of(meta)
    chosen_name = name or (
        _DEFAULT if _DEFAULT in known_signatures or len(known_signatures) != 1 else next(iter(known_signatures))
    )
    if chosen_name in known_signatures:
        return known_signatures[chosen_name]
    names = ", ".join(known_signatures) or "none"
    if name is None:
        raise ParseError(f"the SavedModel has no signature {_DEFAULT!r}; choose one with signature= (it has: {names})")
    raise InvalidArgumentError(
        f"signature: the model has no signature {name!r}{did_you_mean(name, list(known_signatures))} (it has: {names})"
    )


def _signed(
    name: str, graph: GraphDef, signature: SignatureDef, content: Content, requested: Sequence[str] | None
) -> _Model:
    nodes = {node.name: node for node in graph.node}
    inputs = {}
    for key, tensor in sorted(signature.inputs.items()):
        name_of_node = in_graph(tensor.name).node
        shape = tensor.tensor_shape or _declared(nodes.get(name_of_node))
        inputs[key] = _Tensor(name_of_node, tensor.dtype, None if shape is None else shape.dims())
    tensor_of_output = {key: tensor.name for key, tensor in sorted(signature.outputs.items())}
    outputs = tensor_of_output if requested is None else _requested(requested, nodes, tensor_of_output)
    functions = _functions(graph)
    inputs |= _placeholders(graph, functions, outputs, {tensor.node for tensor in inputs.values()})
    variables = Variables(graph, content.folder)
    return _Model(name, graph, functions, inputs, outputs, variables, content.size, content.folder)


def _frozen(name: str, graph: GraphDef, size: int, requested: Sequence[str] | None, shapes: Shapes) -> _Model:
    nodes = {node.name: node for node in graph.node}
    if not nodes:
        raise ParseError("the file is truncated or damaged: the graph has no nodes")
    outputs = _unread(graph) if requested is None else _requested(requested, nodes, {})
    if not outputs:
        raise ParseError("the graph has no outputs; name some with outputs=")
    functions = _functions(graph)
    cuts = [name for name in map(_bare, shapes) if _is_cut(nodes.get(in_graph(name).node))]
    inputs = _placeholders(graph, functions, outputs, set(), cuts)
    return _Model(name, graph, functions, inputs, outputs, Variables(graph, None), size)


def _is_cut(node: NodeDef | None) -> bool:
    """Return True if a node for which the caller gives a shape is to become an input."""
    return node is not None and node.op not in _PLACEHOLDERS


def _functions(graph: GraphDef) -> dict[str, FunctionDef]:
    return {function.signature.name: function for function in graph.library.function}


def _requested(
    names: Sequence[str], nodes: Mapping[str, NodeDef], tensor_of_output: Mapping[str, str]
) -> dict[str, str]:
    if isinstance(names, str):
        raise InvalidArgumentError(f"outputs: {names!r} is one name; expected a list of names")
    reference_of_name = {}
    for name in names:
        if name not in tensor_of_output and in_graph(str(name)).node not in nodes:
            hint = did_you_mean(str(name), [*tensor_of_output, *nodes])
            raise InvalidArgumentError(f"outputs: the model has no output or node {name!r}{hint}")
        reference_of_name[name] = tensor_of_output.get(name, name)
    if not reference_of_name:
        raise InvalidArgumentError("outputs: the list is empty; expected at least one name")
    return reference_of_name


def _unread(graph: GraphDef) -> dict[str, str]:
    """Return the outputs of nodes that no other node reads, in the order of the graph.

    Nodes that only must run before others, such as those that mark the branch of a conditional, are left out if there
    are any others.
    """
    readers = (node for node in graph.node if node.op not in _SUMMARIES)
    nodes_read = {in_graph(text).node for node in readers for text in data_inputs(node)}
    control_nodes = {name for node in graph.node for name in control_inputs(node)}
    return _outputs_except(graph, nodes_read | control_nodes) or _outputs_except(graph, nodes_read)


def _outputs_except(graph: GraphDef, nodes_read: set[str]) -> dict[str, str]:
    names_of_outputs = {}
    for node in graph.node:
        if node.name not in nodes_read and node.op not in _NO_RESULTS | _SUMMARIES:
            for index in range(_count(node)):
                name = f"{node.name}:{index}" if index else node.name
                names_of_outputs[name] = name
    return names_of_outputs


def _count(node: NodeDef) -> int:
    """Return the number of outputs of a node that are results of a model if no other node reads them."""
    entry = find(node.op)
    if node.op.startswith("FusedBatchNorm"):
        return 1
    for name in ("num_split", "num"):
        if name in node.attr and node.op in {"Split", "SplitV", "Unpack"}:
            return max(1, min(node.attr[name].i or 1, 1 << 16))
    return max(1, len(entry.outputs)) if entry is not None else 1


def _placeholders(
    graph: GraphDef,
    functions: Mapping[str, FunctionDef],
    outputs: Mapping[str, str],
    known_names: set[str],
    cuts: Sequence[str] = (),
) -> dict[str, _Tensor]:
    """Return the placeholders on which the outputs depend, except those in `known_names`, in the order of the graph.

    The outputs of nodes in `cuts`, to which the caller gives shapes, are inputs too; what they depend on is not needed.
    """
    scope = Scope(Network(""), Shared(functions, _nothing), graph.node, function=False)
    name_of_cut = {in_graph(name): name for name in cuts}
    for reference in name_of_cut:
        scope.define(reference.node)
    order = scope.needed(outputs.values())
    needed_names = {node.name for node in order}
    texts = [*outputs.values(), *(text for node in order for text in data_inputs(node))]
    references_read = {reference for reference in map(scope.reference, texts) if reference.node not in known_names}
    placeholders = {}
    for node in graph.node:
        for reference in sorted(
            candidate
            for candidate in references_read
            if candidate.node == node.name and _is_replaced(candidate, name_of_cut)
        ):
            placeholders[name_of_cut[reference]] = _Tensor(title(reference), _type_of(node), None)
        if node.op in _PLACEHOLDERS and node.name in needed_names and node.name not in known_names:
            kind, shape = node.attr.get("dtype"), _declared(node)
            dims = None if shape is None else shape.dims()
            placeholders[node.name] = _Tensor(node.name, (kind.type if kind is not None else None) or 0, dims)
    return placeholders


def _is_replaced(reference: Reference, replaced_references: Mapping[Reference, str]) -> bool:
    """Return True if an output of a node becomes an input.

    Raises:
        InvalidArgumentError: other outputs of the node become inputs, but not this one.
    """
    if reference not in replaced_references and any(reference.node == other.node for other in replaced_references):
        raise InvalidArgumentError(
            f"shapes: node {reference.node!r} becomes an input, but its output {reference.number} is read too; "
            f"give {title(reference)!r} a shape as well"
        )
    return reference in replaced_references


def _type_of(node: NodeDef) -> int:
    """Return the number of the type of a node's result; float32 if no attribute says it."""
    for name in ("DstT", "dtype", "output_type", "T"):
        kind = node.attr.get(name)
        if kind is not None and kind.type is not None:
            return kind.type
    return TYPE_NUMBERS["DT_FLOAT"]


def _declared(node: NodeDef | None) -> DeclaredShape | None:
    """Return the shape that a placeholder declares; None if it declares none."""
    shape = None if node is None else node.attr.get("shape")
    return None if shape is None else shape.shape


def _nothing(name: str) -> Array:
    raise ParseError(f"the variable {name!r} has no value")


# --- building ---------------------------------------------------------------------------------------------------------


def _infos(model: _Model, shapes: Shapes, values: Values) -> Iterator[tuple[str, TensorInfo]]:
    """Yield the name and the info of every input, with the caller's shapes applied."""
    declared_shapes = {name: _shape(name, tensor.dims) for name, tensor in model.inputs.items()}
    settled_shapes = {name: value.shape for name, value in values.items() if hasattr(value, "shape")}
    requested_shapes = {
        _known_name(name, declared_shapes): shape for name, shape in {**shapes, **settled_shapes}.items()
    }
    for name, shape in resized(declared_shapes, requested_shapes).items():
        try:
            yield name, TensorInfo(shape, data_type(model.inputs[name].dtype))
        except ParseError as error:
            raise ParseError(error.message, where=f"input {name!r}") from error


def _known_name(name: str, inputs: Mapping[str, object]) -> str:
    """Return the name of an input; TensorFlow's name of the tensor, with ``:0`` at the end, is accepted too."""
    bare_name = _bare(name)
    return bare_name if name not in inputs and bare_name in inputs else name


def _bare(name: object) -> str:
    return str(name).removesuffix(":0")


def _shape(name: str, dims: list[int | None] | None) -> TensorShape:
    if dims is None:
        return UNRANKED
    if len(dims) > MAX_RANK:
        raise ParseError(f"it has rank {len(dims)}; ranks 0 to {MAX_RANK} are supported", where=f"input {name!r}")
    large_dims = [dim for dim in dims if dim is not None and dim > LARGEST]
    if large_dims:
        raise ParseError(f"it has the size {large_dims[0]}; at most {LARGEST} is supported", where=f"input {name!r}")
    return TensorShape(Dim(f"{name}_{axis}") if dim is None else dim for axis, dim in enumerate(dims))


def _network(model: _Model, shapes: Shapes, values: Values) -> Network:
    network = Network(model.name)
    shared_state = Shared(model.functions, model.variable, model.folder, model.assets)
    scope = Scope(network, shared_state, model.graph.node, function=False)
    scope.fold_within(model.size)
    scope.reserve(set(model.outputs))
    values = {_known_name(name, model.inputs): value for name, value in values.items()}
    _add_inputs(scope, model, shapes, values)
    results = scope.converted(list(model.outputs.values()))
    scope.refusals.check()
    for number, (name, result) in enumerate(zip(model.outputs, results, strict=True)):
        if not isinstance(result, Value):
            reason = "is in a branch that is not taken" if isinstance(result, Absent) else "is no tensor"
            raise ParseError(f"the output {name!r} {reason}")
        network.add_output_layer(number, result, name=name)
    network.graph.erase_dead()
    scope.keep_names()
    return network


def _add_inputs(scope: Scope, model: _Model, shapes: Shapes, values: Values) -> None:
    """Add an input layer for each input of the model; inputs in `values` become constants."""
    defaults = {name for name, node in _defaults(model.graph) if name in values}
    check_names({name: value for name, value in values.items() if name not in defaults}, model.inputs)
    for name in defaults:
        scope.define(name, scope.constant(_as_array(values[name], model.graph, name), name, f"input {name!r}"))
    binding_id = 0
    infos = dict(_infos(model, shapes, {key: value for key, value in values.items() if key in model.inputs}))
    check_shapes([name for name, info in infos.items() if not info.is_ranked and name not in values])
    for name, info in infos.items():
        node = model.inputs[name].node
        if name in values:
            array = value_of(name, info, values[name])
            constant = scope.constant(array, name, f"input {name!r}")
            scope.give(constant)
            scope.define_output(in_graph(node), constant)
            continue
        scope.define_input(node, scope.network.add_input_layer(binding_id, info, name=name).output)
        binding_id += 1


def _defaults(graph: GraphDef) -> Iterator[tuple[str, NodeDef]]:
    yield from ((node.name, node) for node in graph.node if node.op == "PlaceholderWithDefault")


def _as_array(value: object, graph: GraphDef, name: str) -> Array:
    node = next(node for node in graph.node if node.name == name)
    kind = node.attr.get("dtype")
    dtype = data_type((kind.type if kind is not None else None) or 1)
    return value_of(name, TensorInfo(UNRANKED, dtype), value)
