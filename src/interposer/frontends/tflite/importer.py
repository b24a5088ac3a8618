"""The conversion of a checked TFLite file to a `Network`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeAlias

from interposer.core.constants import share
from interposer.core.errors import (
    InvalidArgumentError,
    ParseError,
    did_you_mean,
    expect,
    memory_to,
)
from interposer.core.types import UNRANKED, Array, Dim, Quantization, TensorInfo, TensorShape
from interposer.frontends.missing import missing_operators
from interposer.frontends.naming import keep_names
from interposer.frontends.needs import Needs, needs_of
from interposer.frontends.resizing import resized
from interposer.frontends.sources import Source, conversion_errors, read_file
from interposer.frontends.template import Template, Values, check_names, value_of
from interposer.frontends.tflite import tflite_families  # noqa: F401 - they fill the table of operators
from interposer.frontends.tflite.blockwise import block_weights
from interposer.frontends.tflite.consistency import called
from interposer.frontends.tflite.container import read_model
from interposer.frontends.tflite.contents import Model, Operator, Signature, Subgraph
from interposer.frontends.tflite.cutting import cut
from interposer.frontends.tflite.flexbuffer import FlexOptions
from interposer.frontends.tflite.metadata import metadata_of
from interposer.frontends.tflite.node import Node
from interposer.frontends.tflite.ports import input_ports, output_ports
from interposer.frontends.tflite.resources import Accesses, Bound
from interposer.frontends.tflite.stand_in import STAND_IN
from interposer.frontends.tflite.tensors import constant_array, is_complex, tensor_info
from interposer.frontends.tflite.tflite_converters import Entry, find, find_complex
from interposer.frontends.tflite.variables import Scope, Variables
from interposer.ir.graph import Graph, Layer, Value
from interposer.ir.inference import infer_layer
from interposer.ir.network import Network
from interposer.ops.control import Constant, Input, Output

__all__ = ["Importer", "load", "template"]

Shapes: TypeAlias = Mapping[str, Sequence[int | str | None] | int]

_UNDEFINED: Final = {
    "CONCAT_EMBEDDINGS": "no version of TensorFlow Lite computes it",
    "DELEGATE": "it stands for operators that a delegate replaced, which are not in the file",
    "PLACEHOLDER_FOR_GREATER_OP_CODES": "it is not an operator; the file lacks the code of the operator",
}
"""Why builtin operators are refused that have a code, but no definition."""

_MOST_OPERATORS: Final = 1 << 16
"""The limit of converted operators per import; those of a subgraph count once per call."""


@memory_to("read the network")
def load(
    source: Source,
    *,
    shapes: Shapes | None = None,
    dynamic: bool = False,
    values: Values | None = None,
    signature: str | None = None,
    stand_in: bool = False,
) -> Network:
    """Return the network in a TFLite file: its first subgraph, or the one that a signature calls.

    Inputs and outputs have the names of the file's tensors; binding ids are 0, 1 ... in the file's order. Constants
    are views of the file's bytes, which must not change while the network is in use; only weights of 2 and 4 bits, and
    quantized weights of float operators, are unpacked.

    Args:
        source: a path, or the bytes of a file.
        shapes: a shape by input name, which replaces the file's; None leaves a dimension open. Or a size by dimension
            name: dynamic dimensions of the file are named after input and axis, as in ``image_0``.
        dynamic: leave dynamic dimensions open (those that are -1 in the file's ``shape_signature``),
            instead of using the sizes of the exported model.
        values: arrays by input name; these inputs become constants of the network.
        signature: the key of a signature in the file, such as ``"serving_default"``. The network is the subgraph that
            it calls, and inputs and outputs have the names and the order of the signature.
        stand_in: use a `StandIn` layer for each custom operator that is not known. Such a network can be inspected and
            divided; only a backend that supports the layer can run it.

    Raises:
        ParseError: the file cannot be read, is damaged, or uses something that is not supported.
        UnsupportedOperatorError: operators are not known; the message lists all of them with their counts.
        UnboundInputError: an operator needs the values of inputs, or their shapes.
        InvalidArgumentError: `source` is not a path or bytes, a shape or value does not fit, or the file has no such
            signature.
    """
    result = template(source, shapes=shapes, dynamic=dynamic, signature=signature, stand_in=stand_in)
    return result.network(values=values)


@memory_to("read the network")
def template(
    source: Source,
    *,
    shapes: Shapes | None = None,
    dynamic: bool = False,
    signature: str | None = None,
    stand_in: bool = False,
    inputs: Sequence[str] = (),
    outputs: Sequence[str] | None = None,
    subgraph: int = 0,
) -> Template:
    """Return a `Template`, which creates networks for shapes and values of the file's inputs.

    The other arguments and errors are those of `load`; errors in operators are raised when a network is created.

    Args:
        inputs: names of tensors of the subgraph that are inputs too; operators before them are not read.
        outputs: names of tensors, or of outputs of the signature, that are its outputs; operators after them are not
            read.
        subgraph: the index of the subgraph to convert; 0 is the main one.
    """
    expect(signature, str | None, "the signature must be the key of one")
    path, data = read_file(source)
    model = read_model(data, path=path)
    _check_subgraph(model, subgraph, signature)
    if inputs or outputs:
        chosen = None if signature is None else _signature_of(model, signature)
        model = cut(model, subgraph if chosen is None else chosen.subgraph, inputs, outputs, chosen)

    def created(key: str | None, shapes: Shapes, dynamic: bool) -> Template:
        return _template(_Contents(path, data, model, stand_in), shapes, dynamic, key, signatures, subgraph)

    signatures = {item.key: partial(created, item.key, {}, True) for item in model.signatures}
    return created(signature, dict(shapes or {}), dynamic)


class _Contents(NamedTuple):
    """A file that was read: its path if it has one, its bytes and their content, and the argument of `load`."""

    path: str | None
    data: bytes | bytearray | memoryview
    model: Model
    stand_in: bool


def _template(
    contents: _Contents,
    shapes: Shapes,
    dynamic: bool,
    key: str | None,
    signatures: Mapping[str, Callable[[], Template]],
    number: int,
) -> Template:
    path, data, model, stand_in = contents
    file = Path(path).name if path else ""
    chosen = None if key is None else _signature_of(model, key)

    def importer(more: Shapes, values: Values) -> Importer:
        return Importer(model, file, {**shapes, **more}, dynamic, number, None, values, chosen, stand_in)

    def build(more: Shapes, values: Values) -> Network:
        with _reported_of(path):
            return importer(more, values).network()

    with _reported_of(path):
        first = importer({}, {})
        return Template(
            first.graph.name, first.inputs(), first.outputs(), build, first.usual_shapes(), signatures,
            partial(metadata_of, model, data),
        )  # fmt: skip


def _check_subgraph(model: Model, number: int, signature: str | None) -> None:
    if number and signature is not None:
        raise InvalidArgumentError(f"subgraph {number} and the signature {signature!r} are given; name one of them")
    if not 0 <= number < len(model.subgraphs):
        raise InvalidArgumentError(
            f"subgraph: the file has no subgraph {number}; it has {len(model.subgraphs)}, numbered from 0"
        )


def _signature_of(model: Model, key: str) -> Signature:
    keys = [item.key for item in model.signatures]
    if key not in keys:
        hint, names = did_you_mean(key, keys), ", ".join(keys) or "none"
        raise InvalidArgumentError(f"signature: the model has no signature {key!r}{hint} (it has: {names})")
    return model.signatures[keys.index(key)]


@contextmanager
def _reported_of(path: str | None) -> Iterator[None]:
    try:
        yield
    except ParseError as error:
        raise error.at(path) if path else error from error.__cause__


class Importer:
    """Converts one subgraph of a TFLite model to layers: the subgraph with index `number`, by default the first.

    With a `signature`, it converts the subgraph that the signature calls, whose inputs and outputs have its names. With
    `stand_in`, unknown custom operators become `StandIn` layers.
    Layers are added to `graph`, or to a new network if it is not given. A subgraph that an operator calls has an
    importer of its own.
    """

    def __init__(
        self,
        model: Model,
        file: str,
        shapes: Shapes,
        dynamic: bool,
        number: int = 0,
        graph: Graph | None = None,
        values: Values | None = None,
        signature: Signature | None = None,
        stand_in: bool = False,
    ) -> None:
        self._stand_in = stand_in
        number = number if signature is None else signature.subgraph
        self.subgraph = model.subgraphs[number]
        self._sources, self._results = input_ports(self.subgraph, signature), output_ports(self.subgraph, signature)
        self._model, self._number = model, number
        self._constants = model.constants(self.subgraph)
        self.graph = Graph(file or self.subgraph.name or "tflite") if graph is None else graph
        self._file = file
        self._shapes = shapes
        self._dynamic = dynamic or any(map(_is_open, shapes.values()))
        self._given_shapes = self._shapes_of_inputs() if shapes else {}
        self._dynamic |= bool(self._given_shapes)
        self._is_resized = any(not self._fits(name, shape) for name, shape in self._given_shapes.items())
        self._values: dict[int, Value] = {}
        self._given = values or {}
        self._inputs: set[Layer] = set()
        self._converted = [0]
        self._variables = Variables(model, self._initialized)
        self._scope = Scope(self.graph, self._variables)
        self._handles: dict[int, str] = {}

    def network(self) -> Network:
        """Convert the whole subgraph, and return the network.

        `UnsupportedOperatorError` is raised first if there are unknown operators.
        """
        self._refuse_unknown()
        self._add_inputs()
        self._convert_all()
        self._add_outputs()
        self._scope.finish(self._source("variables"))
        self._drop_unused_constants()
        if not self.graph.sinks:
            self.graph.erase_dead()
        return Network(graph=self.graph)

    def inputs(self) -> dict[str, TensorInfo]:
        """Return the infos of the inputs by name: types from the file, and shapes from the caller or the file."""
        return {name: self._input_info(index, name) for name, index in self._sources.items()}

    def outputs(self) -> dict[str, TensorInfo | None]:
        """Return the infos of the outputs by name: their types, with unknown rank, as shapes depend on the inputs."""
        infos = {name: tensor_info(self.subgraph.tensors[index], "outputs") for name, index in self._results.items()}
        return {name: TensorInfo(UNRANKED, info.dtype) for name, info in infos.items()}

    def needs(self, value: Value) -> Needs | None:
        """Return which model inputs must have known values or shapes so that a value is known during the import.

        The result is None if the value is always computed at run time.
        """
        return needs_of(value, self._inputs, lambda op: op.pure)

    @property
    def has_open_inputs(self) -> bool:
        """True if the shape of an input is not known."""
        return any(not layer.output.known.is_concrete for layer in self._inputs)

    def region(
        self, number: int, infos: Sequence[TensorInfo], where: str, bound: Bound = (), names: Sequence[str] = ()
    ) -> Graph:
        """Return subgraph `number` as a region (the graph of a control-flow layer) whose inputs have `infos`.

        `where` is the location of the operator in the file, for errors. `bound` has the variables whose handles are
        inputs of the subgraph, which the region does not have. The variables `names` become additional inputs of the
        region, which are the last of `infos`, and additional outputs.
        """
        infos, states = infos[: len(infos) - len(names)], infos[len(infos) - len(names) :]
        tensors, inner = self._inputs_of(number, infos, where, bound), self._inside(number, Graph())
        inner._scope = Scope(inner.graph, self._variables)
        inner._bind(bound)
        for binding_id, (index, info) in enumerate(zip(tensors, infos, strict=True)):
            name = inner.subgraph.tensors[index].name or f"input_{binding_id}"
            layer = inner.graph.add(Input(binding_id), name=name, source=self._source(f"subgraphs[{number}].inputs"))
            layer.output.info = info
            inner._values[index] = layer.output
        for binding_id, (name, info) in enumerate(zip(names, states, strict=True), len(tensors)):
            layer = inner.graph.add(Input(binding_id), name=name, source=self._source(f"subgraphs[{number}]"))
            layer.output.info = info
            inner._scope.values[name] = layer.output
        inner._convert_all()
        inner._add_outputs()
        for name in names:
            value = inner._scope.values[name]
            inner.graph.add(Output(len(inner.graph.outputs)), [value], name=f"{name}:next")
        inner._drop_unused_constants()
        return inner.graph

    def inlined(self, number: int, values: Sequence[Value], where: str, bound: Bound = ()) -> list[Value]:
        """Add the layers of subgraph `number` of the model to this graph, applied to `values`, and return its outputs.

        `where` is the location of the operator in the file, for errors. `bound` has the variables whose handles are
        inputs of the subgraph; `values` are the other inputs.
        """
        tensors = self._inputs_of(number, [value.known for value in values], where, bound)
        inner = self._inside(number, self.graph)
        inner._scope = self._scope
        inner._bind(bound)
        inner._values.update(zip(tensors, values, strict=True))
        inner._convert_all()
        return [inner.value(index, "outputs") for index in inner.subgraph.outputs if index not in inner._handles]

    def _bind(self, bound: Bound) -> None:
        self._handles.update({self.subgraph.inputs[position]: name for position, name in bound})

    def _initialized(self, number: int) -> Scope:
        """Convert subgraph `number`, which initializes variables, to a graph of its own; return what it writes."""
        inner = self._inside(number, Graph())
        inner._scope = Scope(inner.graph, self._variables, is_initial=True)
        inner._refuse_unknown()
        inner._convert_all()
        return inner._scope

    # --- variables ---

    def handle(self, index: int) -> str | None:
        """Return the name of the variable or table that tensor `index` is a handle of; None for another tensor."""
        return self._handles.get(index)

    def give_handle(self, index: int, name: str) -> None:
        """Let tensor `index` be a handle of a variable or table."""
        self._handles[index] = name

    def read_variable(self, name: str, where: str) -> Value:
        """Return the value that a variable has at the operator that is converted; `where` is for errors."""
        return self._scope.read(name, where)

    def write_variable(self, name: str, value: Value, where: str) -> None:
        """Set the value that a variable has after the operator that is converted; `where` is for errors."""
        self._scope.write(name, value, where)

    def write_tensor(self, index: int, value: Value, where: str) -> None:
        """Set the value of the variable that tensor `index` is; `where` is the location of the operator for errors.

        `ParseError` is raised if it is no variable. Nothing is set if the caller gives the tensor as an input.
        """
        name = self._variables.of_tensor(self._number, index)
        if name is not None:
            self._scope.write(name, value, where)
        elif index not in self.subgraph.inputs:
            raise ParseError(f"tensor {self.subgraph.tensors[index].name!r} is no variable", where=where)

    def is_variable(self, index: int) -> bool:
        """Return True if tensor `index` is a variable."""
        return self._variables.of_tensor(self._number, index) is not None

    def accesses(self, numbers: Sequence[int], bound: Bound) -> list[Accesses]:
        """Return what subgraphs do with variables, for the handles `bound` among their inputs.

        Variables that are never written are left out.
        """
        constant, result = self._variables.constant, [self._variables.accesses(number, bound) for number in numbers]
        return [
            Accesses({name: value for name, value in item.written.items() if constant(name) is None}, item.outputs)
            for item in result
        ]

    def import_table(self, name: str, keys: Value, values: Value) -> None:
        """Set the content of a hash table, unless it has been set before."""
        self._scope.tables.setdefault(name, (keys, values))

    def table(self, name: str) -> tuple[Array, Array] | None:
        """Return the keys and values of a hash table, or None if nothing initializes it."""
        return self._variables.table(name)

    def _inside(self, number: int, graph: Graph) -> Importer:
        """Return an importer for subgraph `number` of the model that adds its layers to `graph`.

        It uses the file's dynamic dimensions as open ones.
        """
        graph.name = graph.name or self._model.subgraphs[number].name
        inner = Importer(self._model, self._file, {}, True, number, graph, stand_in=self._stand_in)
        inner._converted, inner._inputs, inner._is_resized = self._converted, self._inputs, self._is_resized
        inner._variables = self._variables
        return inner

    def _inputs_of(self, number: int, infos: Sequence[TensorInfo], where: str, bound: Bound) -> Sequence[int]:
        """Return the tensor indices of the inputs of subgraph `number`, without the handles in `bound`.

        `ParseError` with the location `where` is raised if the inputs cannot have `infos`: they differ in number, type
        or quantization.
        """
        subgraph = self._model.subgraphs[number]
        handles = dict(bound)
        inputs = [index for position, index in enumerate(subgraph.inputs) if position not in handles]
        if len(inputs) != len(infos):
            raise ParseError(f"subgraph {number} has {len(inputs)} inputs; expected {len(infos)}", where=where)
        for index, info in zip(inputs, infos, strict=True):
            reported = tensor_info(subgraph.tensors[index], where)
            if (reported.dtype, reported.quantization) != (info.dtype, info.quantization):
                raise ParseError(f"subgraph {number} takes {reported}, but gets {info}", where=where)
        return inputs

    def _convert_all(self) -> None:
        self._converted[0] += 1 + len(self.subgraph.operators)
        if self._converted[0] > _MOST_OPERATORS:
            raise ParseError(f"the subgraphs make more than {_MOST_OPERATORS:,} operators, which is not supported")
        for index, operator in enumerate(self.subgraph.operators):
            entry = self._entry(operator)
            self._convert(index, operator, entry)

    def _entry(self, operator: Operator) -> Entry:
        """Return the converter of a known operator; raise `ParseError` if it does not support complex numbers."""
        entry = self._find(operator)
        assert entry is not None
        tensors = (self.subgraph.tensors[i] for i in (*operator.inputs, *operator.outputs) if i >= 0)
        if operator.is_custom or any(called(operator)) or not any(map(is_complex, tensors)):
            return entry
        complex_entry = find_complex(operator.name)
        if complex_entry is None:
            raise ParseError(f"{operator.name} of complex numbers is not supported", where=operator.where)
        return complex_entry

    def _find(self, operator: Operator) -> Entry | None:
        entry = find(operator.name, operator.is_custom)
        return STAND_IN if entry is None and operator.is_custom and self._stand_in else entry

    def _add_outputs(self) -> None:
        results = ((name, index) for name, index in self._results.items() if index not in self._handles)
        for binding_id, (name, index) in enumerate(results):
            self.graph.add(Output(binding_id), [self.value(index, "outputs")], name=name)
        tensors = self.subgraph.tensors
        keep_names(self.graph, ((tensors[i].name, value) for i, value in self._values.items() if tensors[i].name))

    def _refuse_unknown(self) -> None:
        """Raise `UnsupportedOperatorError` for unknown operators of this subgraph and of called subgraphs."""
        operators, pending, seen = list[Operator](), [self._number], set[int]()
        while pending:
            number = pending.pop()
            if number not in seen:
                seen.add(number)
                operators += self._model.subgraphs[number].operators
                pending += (
                    other for operator in self._model.subgraphs[number].operators for _, other in called(operator)
                )
        unknown = [operator for operator in operators if self._find(operator) is None]
        if unknown:
            raise missing_operators((_title(operator), _place(operator)) for operator in unknown)

    def _add_inputs(self) -> None:
        number = 0
        check_names(self._given, self._sources)
        for name, index in self._sources.items():
            info = self._input_info(index, name)
            if name in self._given:
                self._values[index] = self.constant(value_of(name, info, self._given[name]), info.quantization, name)
                continue
            layer = self.graph.add(Input(number), name=name, outputs=[info], source=self._source("inputs"))
            infer_layer(layer)
            self._inputs.add(layer)
            self._values[index] = layer.output
            number += 1

    def _input_info(self, index: int, name: str) -> TensorInfo:
        info = tensor_info(self.subgraph.tensors[index], "inputs", dynamic=self._dynamic)
        return info.with_shape(self._given_shapes.get(name) or _titled(name, info.shape))

    def _shapes_of_inputs(self) -> dict[str, TensorShape]:
        """Return the shapes of all inputs by name, with the caller's `shapes` applied.

        A dimension that is dynamic in the file stays open if the caller asks for it, or gives the input a shape;
        otherwise it has the size that the file was exported with.
        """
        signatures = {name: _titled(name, self._signature(index)) for name, index in self._sources.items()}
        usual, result = self._usual(), resized(signatures, self._shapes)
        stays_open = {name for name in result if self._dynamic or isinstance(self._shapes.get(name), Sequence)}
        return {name: shape if name in stays_open else _closed(shape, usual[name]) for name, shape in result.items()}

    def _usual(self) -> dict[str, TensorShape]:
        """Return the shapes of all inputs by name as the file was exported, without open dimensions."""
        tensors = self.subgraph.tensors
        return {name: tensor_info(tensors[index], "inputs").shape for name, index in self._sources.items()}

    def _signature(self, index: int) -> TensorShape:
        return tensor_info(self.subgraph.tensors[index], "inputs", dynamic=True).shape

    def _fits(self, name: str, shape: TensorShape) -> bool:
        """Return True if the file's ``shape_signature`` of input `name` allows a shape.

        The file's shapes of other tensors then remain valid.
        """
        return self._signature(self._sources[name]).accepts(shape)

    def usual_shapes(self) -> dict[str, TensorShape]:
        """Return the shapes that the file was exported with, for those inputs that have open dimensions."""
        usual = self._usual()
        result = {
            name: _closed(info.shape, usual[name])
            for name, info in self.inputs().items()
            if info.rank == usual[name].rank and not info.is_concrete
        }
        return {name: shape for name, shape in result.items() if shape.is_concrete}

    def _convert(self, index: int, operator: Operator, entry: Entry) -> None:
        where = f"operators[{index}] {operator.name}"
        where = f"subgraphs[{self._number}].{where}" if self._number else where
        with conversion_errors(where):
            options = _options(operator, entry)
            node = Node(self, operator, options, f"{operator.name}:{self._number}:{index}", where, self._source(where))
            created = entry.convert(node)
        values = [created] if isinstance(created, Value) else created
        outputs = [index for index in operator.outputs if index not in self._handles]
        if len(values) != len(outputs):
            raise ParseError(f"it has {len(outputs)} outputs; expected {len(values)}", where=where)
        self._values.update((index, value) for index, value in zip(outputs, values, strict=True) if value is not None)

    def _source(self, place: str) -> str:
        """Return the file and `place` (a location in the file), as messages about a layer show it."""
        return f"{self._file}, {place}" if self._file else place

    def value(self, index: int, where: str) -> Value:
        """Return the network value of the tensor with this index; a constant becomes a layer when it is first used.

        A variable has the value that the operators before have written. `ParseError` with the location `where` is
        raised for the handle of a resource.
        """
        result = self._values.get(index)
        if result is not None:
            return result
        tensor, variable = self.subgraph.tensors[index], self._variables.of_tensor(self._number, index)
        if variable is not None:
            return self._scope.read(variable, where, tensor_info(tensor, where))
        if index not in self._constants:
            kind = "the handle of a resource, whose use here" if index in self._handles else "not computed, which"
            raise ParseError(f"tensor {tensor.name!r} is {kind} is not supported", where=where)
        self._values[index] = self._constant_value(index, where)
        return self._values[index]

    def _constant_value(self, index: int, where: str) -> Value:
        """Return a constant of the file; weights with a scale for every block are dequantized by a layer."""
        tensor = self.subgraph.tensors[index]
        array, name = constant_array(self._constants[index], tensor, where), tensor.name or f"constant_{index}"
        blocks = tensor.quantization.blocks if tensor.quantization else None
        if blocks is None:
            return self.constant(array, tensor_info(tensor, where).quantization, name)
        weights = block_weights(tensor, blocks, lambda number: self._array(number, where), where)
        operands = (array, weights.scales, weights.zero_points)
        values = [self.constant(operand, None, name) for operand in operands if operand is not None]
        layer = self.graph.add(weights.op, values, name=f"{name}:dequantized", source=self._source(where))
        for error in infer_layer(layer):
            raise ParseError(error, where=where)
        return layer.output

    def _array(self, index: int, where: str) -> Array | None:
        """Return the array of the tensor with this index, or None if the file has no values for it."""
        values = self._constants.get(index)
        return None if values is None else constant_array(values, self.subgraph.tensors[index], where)

    def called_subgraph(self, number: int, where: str) -> Subgraph:
        """Return subgraph `number` of the model, which an operator at location `where` runs."""
        if not 0 <= number < len(self._model.subgraphs):
            raise ParseError(f"subgraph {number} does not exist; there are {len(self._model.subgraphs)}", where=where)
        return self._model.subgraphs[number]

    def stored_type(self, index: int) -> str:
        """Return the name that the file has for the type of the tensor with this index, such as ``int4``."""
        return self.subgraph.tensors[index].dtype

    def is_complex(self, index: int) -> bool:
        """Return True if the tensor with this index is of complex numbers in the file."""
        return is_complex(self.subgraph.tensors[index])

    def constant(self, array: Array, quantization: Quantization | None, name: str) -> Value:
        """Add a constant layer with this array, quantization and name to the graph, and return its output."""
        layer = self.graph.add(Constant(share(array), quantization), name=name)
        infer_layer(layer)
        return layer.output

    def output_info(self, operator: Operator, number: int, where: str) -> TensorInfo:
        """Return the info that the file declares for output `number` of an operator.

        All dimensions are open if the caller's shapes contradict the file. `where` is the location for errors.
        """
        info = tensor_info(self.subgraph.tensors[operator.outputs[number]], where, dynamic=self._dynamic)
        return info.with_shape([None] * info.rank) if self._is_resized else info

    def intermediate_infos(self, operator: Operator, where: str) -> list[TensorInfo | None]:
        """Return the infos of an operator's intermediate tensors, None for absent ones; `where` is for errors."""
        tensors = self.subgraph.tensors
        return [None if index < 0 else tensor_info(tensors[index], where) for index in operator.intermediates]

    def _drop_unused_constants(self) -> None:
        for layer in self.graph:
            if isinstance(layer.op, Constant) and not layer.output.uses:
                self.graph.erase(layer)


def _is_open(shape: Sequence[int | str | None] | int) -> bool:
    """Return True if a caller's shape has an open dimension; the file's shapes of other tensors may then not hold."""
    return isinstance(shape, Sequence) and any(dim is None or isinstance(dim, str | Dim) for dim in shape)


def _titled(name: str, shape: TensorShape) -> TensorShape:
    """Return the shape of input `name` with its open dimensions named after it, as in ``image_0`` for axis 0."""
    return TensorShape(Dim(f"{name}_{axis}") if isinstance(size, Dim) else size for axis, size in enumerate(shape))


def _closed(shape: TensorShape, usual: TensorShape) -> TensorShape:
    """Return the shape with each open dimension replaced by the size that `usual` has along the same axis."""
    return TensorShape(there if isinstance(size, Dim) else size for size, there in zip(shape, usual, strict=True))


def _options(operator: Operator, entry: Entry) -> Mapping[str, Any]:
    if operator.is_custom:
        return FlexOptions(bytes(operator.custom_options or b""))
    return operator.attributes_as(entry.options) if entry.options else operator.attributes


def _place(operator: Operator) -> str:
    """Return the location of an operator that is not supported, and the reason if it has no definition."""
    where, reason = operator.where.removeprefix("subgraphs[0]."), _UNDEFINED.get(operator.name)
    return where if operator.is_custom or reason is None else f"{where}: {reason}"


def _title(operator: Operator) -> str:
    if operator.name == "STABLEHLO_CUSTOM_CALL":
        return f"{operator.name} {operator.attributes.get('call_target_name') or ''}".rstrip()
    return f"CUSTOM {operator.name}" if operator.is_custom else operator.name
