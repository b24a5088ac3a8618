"""Variables of a TFLite file: variable tensors, resource variables and hash tables.

A variable becomes a state of the network. While a graph is converted, a `Scope` has the value of each variable at the
operator that is converted: operators that write a variable replace it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from typing import Final

import numpy as np

from interposer.core.errors import InvalidArgumentError, ParseError
from interposer.core.records import dataclass
from interposer.core.types import Array, DataType, TensorInfo
from interposer.frontends.tflite.consistency import called
from interposer.frontends.tflite.contents import Model, Operator, Subgraph, Tensor
from interposer.frontends.tflite.resources import Accesses, Bound, handle_name, handles_in
from interposer.frontends.tflite.tensors import tensor_info
from interposer.ir.graph import Graph, Value, binding_id
from interposer.ir.inference import infer_layer
from interposer.ir.states import free_binding_id, initial_value
from interposer.kernels import evaluate
from interposer.ops.control import Constant, Input, Output

__all__ = ["Scope", "Variables"]

_INITIALIZATION: Final = "init_subgraph_index"
"""The option of CALL_ONCE with the index of the subgraph that initializes variables and tables."""


class Variables:
    """The variables of a model: their names, infos and initial values, and the content of hash tables.

    A variable tensor has the name of the tensor, with a number appended if another variable has it. A resource variable
    has the ``shared_name`` of its handle. `initialize` converts a subgraph for CALL_ONCE and returns what it assigns;
    it is called when an initial value is first needed.
    """

    def __init__(self, model: Model, initialize: Callable[[int], Scope]) -> None:
        self._model, self._initialize = model, initialize
        self._accesses: dict[tuple[int, Bound], Accesses] = {}
        self._declared: dict[str, tuple[Tensor, str]] = {}
        self._tensors = self._names_of_tensors()
        self._initial_arrays: dict[str, Array] | None = None
        self._tables: dict[str, tuple[Array, Array]] = {}
        codes = {operator.name for subgraph in model.subgraphs for operator in subgraph.operators}
        self._has_any = bool(self._tensors or codes & {"VAR_HANDLE", "HASHTABLE"})
        roots = dict.fromkeys([0, *(signature.subgraph for signature in model.signatures)])
        accesses = [self.accesses(number).written for number in roots]
        self._written_names = {name for written in accesses for name, is_written in written.items() if is_written}

    def _names_of_tensors(self) -> dict[tuple[int, int], str]:
        operators = [operator for subgraph in self._model.subgraphs for operator in subgraph.operators]
        used_names = {handle_name(operator) for operator in operators if operator.name == "VAR_HANDLE"}
        names: dict[tuple[int, int], str] = {}
        for number, subgraph in enumerate(self._model.subgraphs):
            for index, tensor in enumerate(subgraph.tensors):
                if tensor.is_variable and index not in subgraph.inputs:
                    requested_name = name = tensor.name or f"variable_{number}_{index}"
                    while name in used_names:
                        name = f"{requested_name}_{len(used_names)}"
                    used_names.add(name)
                    names[number, index] = name
        return names

    def of_tensor(self, number: int, index: int) -> str | None:
        """Return the name of the variable that tensor `index` of subgraph `number` is; None for another tensor."""
        return self._tensors.get((number, index))

    def accesses(self, number: int, bound: Bound = ()) -> Accesses:
        """Return what subgraph `number` and the subgraphs that it calls do with variables.

        `bound` has the names of the variables whose handles are inputs of the subgraph, by the number of the input.
        """
        if not self._has_any:
            return Accesses({}, ())
        key = number, bound
        if key not in self._accesses:
            try:
                self._accesses[key] = self._scanned(number, dict(bound))
            except RecursionError as error:
                raise ParseError("its subgraphs call each other too deeply", where=f"subgraphs[{number}]") from error
        return self._accesses[key]

    def _scanned(self, subgraph_number: int, bound: Mapping[int, str]) -> Accesses:
        subgraph = self._model.subgraphs[subgraph_number]
        handles = {index: bound[position] for position, index in enumerate(subgraph.inputs) if position in bound}
        is_written_by_name: dict[str, bool] = {}
        for operator in subgraph.operators:
            for index in operator.inputs:
                name = self.of_tensor(subgraph_number, index)
                if name is not None:
                    is_written_by_name[name] = True
                    self._declared.setdefault(name, (subgraph.tensors[index], operator.where))
            self._scan(operator, subgraph, handles, is_written_by_name)
        for index in subgraph.outputs:
            name = self.of_tensor(subgraph_number, index)
            if name is not None:
                is_written_by_name.setdefault(name, False)
        outputs = ((position, handles[index]) for position, index in enumerate(subgraph.outputs) if index in handles)
        return Accesses(is_written_by_name, tuple(outputs))

    def _scan(self, operator: Operator, subgraph: Subgraph, handles: dict[int, str], written: dict[str, bool]) -> None:
        """Add what an operator does to `handles`, the names by tensor index, and to `written`; see `Accesses`."""
        if operator.name in ("VAR_HANDLE", "HASHTABLE") and operator.outputs:
            handles[operator.outputs[0]] = handle_name(operator)
        elif operator.name in ("READ_VARIABLE", "ASSIGN_VARIABLE") and handles.keys() & set(operator.inputs[:1]):
            name, is_write = handles[operator.inputs[0]], operator.name == "ASSIGN_VARIABLE"
            tensor = (operator.inputs[1:] if is_write else operator.outputs)[:1]
            if tensor and tensor[0] >= 0 and (is_write or name not in self._declared):
                self._declared[name] = subgraph.tensors[tensor[0]], operator.where
            written[name] = written.get(name, False) or is_write
        for option, number in called(operator) if operator.name != "CALL_ONCE" else ():
            inner_accesses = self.accesses(number, handles_in(operator, handles))
            for name, is_written in inner_accesses.written.items():
                written[name] = written.get(name, False) or is_written
            if option != "cond_subgraph_index":
                passed_outputs = dict(inner_accesses.outputs)
                handles.update(
                    {index: passed_outputs[at] for at, index in enumerate(operator.outputs) if at in passed_outputs}
                )

    def info(self, name: str, where: str) -> TensorInfo:
        """Return the info of a variable; `ParseError` with the location `where` is raised if its shape is not known."""
        initial_array = self.initial(name)
        declared = self._declared.get(name)
        declared_info = None if declared is None else tensor_info(*declared)
        quantization = declared_info.quantization if declared_info is not None else None
        if initial_array is not None:
            return TensorInfo(initial_array.shape, initial_array.dtype, quantization)
        if declared_info is None or not declared_info.is_concrete:
            raise ParseError(f"the shape of the variable {name!r} is not known, which is not supported", where=where)
        return declared_info

    def constant(self, name: str) -> Array | None:
        """Return the value of a variable that is initialized and that no other operator writes; None for others."""
        return None if name in self._written_names else self.initial(name)

    def initial(self, name: str) -> Array | None:
        """Return the value that a CALL_ONCE operator assigns to a variable, or None if there is none."""
        if self._initial_arrays is None:
            self._initial_arrays = {}
            for number in self._initializations():
                scope = self._initialize(number)
                assigned_arrays, imported_tables = scope.evaluated()
                self._initial_arrays = {**assigned_arrays, **self._initial_arrays}
                self._tables = {**imported_tables, **self._tables}
        return self._initial_arrays.get(name)

    def table(self, name: str) -> tuple[Array, Array] | None:
        """Return the keys and values of a hash table, or None if nothing initializes it."""
        self.initial(name)
        return self._tables.get(name)

    def _initializations(self) -> list[int]:
        operators = (operator for subgraph in self._model.subgraphs for operator in subgraph.operators)
        numbers = (call.attributes.get(_INITIALIZATION) for call in operators if call.name == "CALL_ONCE")
        return list(dict.fromkeys(int(number) for number in numbers if number))


@dataclass
class Scope:
    """The values of variables at the current operator of one graph.

    A variable that has no value yet gets an Input layer, which reads its state. `written` has the names of the
    variables that operators have written, `tables` the keys and values that were imported into hash tables.
    """

    graph: Graph
    variables: Variables
    values: dict[str, Value] = field(default_factory=dict)
    written: set[str] = field(default_factory=set)
    tables: dict[str, tuple[Value, Value]] = field(default_factory=dict)
    _sources: dict[str, Value] = field(default_factory=dict)
    is_initial: bool = False

    def read(self, name: str, where: str, info: TensorInfo | None = None) -> Value:
        """Return the value of a variable; `where` is the location of the operator for errors.

        `info` is that of the variable, if the file declares it where the variable is used.
        """
        if name not in self.values:
            self.values[name] = self._source(name, info or self.variables.info(name, where), where)
        return self.values[name]

    def _source(self, name: str, info: TensorInfo, where: str) -> Value:
        constant = None if self.is_initial else self.variables.constant(name)
        if constant is not None:
            return self.graph.constant(constant, like=info, name=name)
        initial_array = None if self.is_initial else self.variables.initial(name)
        if initial_array is None and info.quantization is not None and info.dtype is not DataType.INT8:
            initial_array = np.zeros(
                tuple(map(int, info.shape)), info.dtype.numpy
            )  # TFLite sets only int8 to the zero point
        op = Input(free_binding_id(self.graph), name, initial_array)
        layer = self.graph.add(op, name=name, outputs=[info], source=where)
        infer_layer(layer)
        self._sources[name] = layer.output
        return layer.output

    def write(self, name: str, new_value: Value, where: str) -> None:
        """Set the value of a variable; `ParseError` with the location `where` is raised if its shape changes."""
        if not self.is_initial:
            info = self.variables.info(name, where)
            if not info.shape.accepts(new_value.known.shape) or info.dtype is not new_value.known.dtype:
                raise ParseError(f"the variable {name!r} is {info}, but gets {new_value.known}", where=where)
        self.values[name] = new_value
        self.written.add(name)

    def finish(self, where: str) -> None:
        """Add the layers that set the states of all variables that were written."""
        for name, value in self.values.items():
            if name not in self.written:
                continue
            source_value = self._sources.get(name)
            if source_value is None:
                source_value = self._source(name, self.variables.info(name, where), where)
            op = Output(binding_id(source_value.producer), name)
            self.graph.add(op, [value], name=f"{source_value.producer.name}:next")

    def evaluated(self) -> tuple[dict[str, Array], dict[str, tuple[Array, Array]]]:
        """Return the values that were written, and the content of the tables that were imported, as arrays by name."""
        names = sorted(self.written)
        tables = list(self.tables.items())
        values = [self.values[name] for name in names] + [value for _, pair in tables for value in pair]
        arrays = evaluated(self.graph, values)
        table_arrays = arrays[len(names) :]
        content = {name: (table_arrays[2 * i], table_arrays[2 * i + 1]) for i, (name, _) in enumerate(tables)}
        return dict(zip(names, arrays, strict=False)), content


def evaluated(graph: Graph, values: Sequence[Value]) -> list[Array]:
    """Return these values of a graph without inputs of the caller, computed by the reference kernels.

    Raises:
        ParseError: the graph has control flow.
    """
    array_of_value: dict[Value, Array] = {}
    for layer in graph.topological():
        op = layer.op
        if isinstance(op, Constant):
            array_of_value[layer.output] = op.value
        elif isinstance(op, Input):
            array_of_value[layer.output] = initial_value(layer.output.known, op.initial)
        elif layer.regions:
            raise ParseError("control flow in the initialization of variables is not supported", where=layer.source)
        elif not isinstance(op, Output):
            arrays = [None if value is None else array_of_value[value] for value in layer.inputs]
            infos = [None if value is None else value.known for value in layer.inputs]
            try:
                results = evaluate(op, arrays, infos, layer.output_infos)
            except InvalidArgumentError as error:
                raise ParseError(f"the initial values cannot be computed: {error}", where=layer.source) from error
            array_of_value.update(zip(layer.outputs, results, strict=True))
    return [array_of_value[value] for value in values]
