"""The conversion of a subgraph of a TFLite file: its inputs, then its operators in order, then its outputs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from graphlib import TopologicalSorter
from typing import Any, Final

from interposer.core.errors import ParseError
from interposer.core.types import UNRANKED, TensorInfo
from interposer.frontends.importer import input_of_region, keep_names
from interposer.frontends.refusals import missing_operators
from interposer.frontends.template import check_names, value_of
from interposer.frontends.tflite.consistency import called
from interposer.frontends.tflite.contents import Operator, Subgraph
from interposer.frontends.tflite.custom import STAND_IN
from interposer.frontends.tflite.flexbuffer import FlexOptions
from interposer.frontends.tflite.inputs import Request, output_ports
from interposer.frontends.tflite.node import Node
from interposer.frontends.tflite.resources import Bound
from interposer.frontends.tflite.state import ImportState
from interposer.frontends.tflite.tensors import is_complex, tensor_info
from interposer.frontends.tflite.tflite_converters import Entry, find, find_complex
from interposer.frontends.tflite.variables import Scope
from interposer.ir.graph import Graph, Value
from interposer.ir.inference import infer_layer
from interposer.ir.network import Network
from interposer.ops.control import Constant, Input, Output

__all__ = ["SubgraphImporter"]

_UNDEFINED: Final = {
    "CONCAT_EMBEDDINGS": "no version of TensorFlow Lite computes it",
    "DELEGATE": "it stands for operators that a delegate replaced, which are not in the file",
    "PLACEHOLDER_FOR_GREATER_OP_CODES": "it is not an operator; the file lacks the code of the operator",
}
"""Why builtin operators are refused that have a code, but no definition."""

_MOST_OPERATORS: Final = 1 << 16
"""The limit of converted operators per import; those of a subgraph count once per call."""

_INLINED: Final = ("CALL", "STABLEHLO_COMPOSITE")
"""The operators whose subgraphs are always inlined."""


class SubgraphImporter(ImportState):
    """Converts the subgraph of a request to layers of `network`, or of a new network if that is None.

    The importer of a subgraph that an operator calls has the importer of this operator as `outer`.
    """

    def __init__(self, request: Request, outer: SubgraphImporter | None = None, network: Network | None = None) -> None:
        name = request.file or request.subgraph.name or "tflite"
        super().__init__(request, Network(name) if network is None else network, outer)
        self._output_indices = output_ports(self.subgraph, request.signature)
        self._num_converted: list[int] = [0] if outer is None else outer._num_converted
        self._sizes: Mapping[int, int] = _sizes(request.model.subgraphs) if outer is None else outer._sizes

    def convert(self) -> Network:
        """Convert the whole subgraph, and return the network.

        `UnsupportedOperatorError` is raised first if there are unknown operators.
        """
        self._refuse_unknown()
        self._add_inputs()
        self._convert_all()
        self._add_outputs()
        self.scope.finish(self.source("variables"))
        self._drop_unused_constants()
        if not self.network.graph.sinks:
            self.network.graph.erase_dead()
        return self.network

    def outputs(self) -> dict[str, TensorInfo | None]:
        """Return the infos of the outputs by name: their types, with unknown rank, as shapes depend on the inputs."""
        tensors = self.subgraph.tensors
        infos = {name: tensor_info(tensors[index], "outputs") for name, index in self._output_indices.items()}
        return {name: TensorInfo(UNRANKED, info.dtype) for name, info in infos.items()}

    # --- subgraphs ----------------------------------------------------------------------------------------------------

    def region(self, number: int, infos: Sequence[TensorInfo], bound: Bound = (), names: Sequence[str] = ()) -> Graph:
        """Return subgraph `number` as a region (the graph of a control-flow layer) whose inputs have `infos`.

        `bound` has the variables whose handles are inputs of the subgraph, which the region does not have. The
        variables `names` become additional inputs of the region, which are the last of `infos`, and additional outputs.
        """
        infos, states = infos[: len(infos) - len(names)], infos[len(infos) - len(names) :]
        indices = self._inputs_of(number, infos, bound)
        region_importer = self._inside(number, Network(self.called_subgraph(number).name))
        region_importer._bind(bound)
        region_importer._add_region_inputs(indices, infos, names, states)
        region_importer._convert_all()
        region_importer._add_outputs()
        graph = region_importer.network.graph
        for name in names:
            graph.add(Output(len(graph.outputs)), [region_importer.scope.values[name]], name=f"{name}:next")
        region_importer._drop_unused_constants()
        return graph

    def inlined(self, number: int, values: Sequence[Value], bound: Bound = ()) -> list[Value]:
        """Add the layers of subgraph `number` of the model to this network, applied to `values`; return its outputs.

        `bound` has the variables whose handles are inputs of the subgraph; `values` are the other inputs.
        """
        indices = self._inputs_of(number, [value.known for value in values], bound)
        inlined_importer = self._inside(number, self.network)
        inlined_importer.scope = self.scope
        inlined_importer._bind(bound)
        inlined_importer._values.update(zip(indices, values, strict=True))
        inlined_importer._convert_all()
        inlined_importer.place = "outputs"
        return [
            inlined_importer.value(index)
            for index in inlined_importer.subgraph.outputs
            if index not in inlined_importer._handles
        ]

    def _initialized(self, number: int) -> Scope:
        """Convert subgraph `number`, which initializes variables, to a graph of its own; return what it writes."""
        initializer = self._inside(number, Network(self.called_subgraph(number).name))
        initializer.scope = Scope(initializer.network.graph, self.variables, is_initial=True)
        initializer._refuse_unknown()
        initializer._convert_all()
        return initializer.scope

    def _inside(self, number: int, network: Network) -> SubgraphImporter:
        """Return an importer for subgraph `number` of the model that adds its layers to `network`."""
        return SubgraphImporter(self.request.of_called(number), self, network)

    def _bind(self, bound: Bound) -> None:
        self._handles.update({self.subgraph.inputs[position]: name for position, name in bound})

    def _inputs_of(self, number: int, infos: Sequence[TensorInfo], bound: Bound) -> Sequence[int]:
        """Return the tensor indices of the inputs of subgraph `number`, without the handles in `bound`.

        `ParseError` is raised if the inputs cannot have `infos`: they differ in number, type or quantization.
        """
        subgraph = self.called_subgraph(number)
        handles = dict(bound)
        indices = [index for position, index in enumerate(subgraph.inputs) if position not in handles]
        if len(indices) != len(infos):
            raise ParseError(f"subgraph {number} has {len(indices)} inputs; expected {len(infos)}")
        for index, info in zip(indices, infos, strict=True):
            declared_info = tensor_info(subgraph.tensors[index], self.place)
            if (declared_info.dtype, declared_info.quantization) != (info.dtype, info.quantization):
                raise ParseError(f"subgraph {number} takes {declared_info}, but gets {info}")
        return indices

    # --- inputs and outputs -------------------------------------------------------------------------------------------

    def _add_inputs(self) -> None:
        binding_id, values = 0, self.request.values
        check_names(values, self.inputs.indices)
        for name, index in self.inputs.indices.items():
            info = self.inputs.info(name)
            if name in values:
                array = value_of(name, info, values[name])
                self._values[index] = self.constant(array, name, quantization=info.quantization)
                self.give(self._values[index])
                continue
            source = self.source("inputs")
            layer = self.network.graph.add(Input(binding_id), name=name, outputs=[info], source=source)
            infer_layer(layer)
            self.add_input(layer.output)
            self._values[index] = layer.output
            binding_id += 1

    def _add_region_inputs(
        self, indices: Sequence[int], infos: Sequence[TensorInfo], names: Sequence[str], states: Sequence[TensorInfo]
    ) -> None:
        """Add the inputs of a region: one for each tensor in `indices`, then one for each variable in `names`."""
        graph, place = self.network.graph, f"subgraphs[{self.request.number}]"
        for binding_id, (index, info) in enumerate(zip(indices, infos, strict=True)):
            name = self.subgraph.tensors[index].name or f"input_{binding_id}"
            self._values[index] = input_of_region(graph, binding_id, info, name, self.source(f"{place}.inputs"))
        for binding_id, (name, info) in enumerate(zip(names, states, strict=True), len(indices)):
            self.scope.values[name] = input_of_region(graph, binding_id, info, name, self.source(place))

    def _add_outputs(self) -> None:
        self.place = "outputs"
        graph, tensors = self.network.graph, self.subgraph.tensors
        ports = ((name, index) for name, index in self._output_indices.items() if index not in self._handles)
        for binding_id, (name, index) in enumerate(ports):
            graph.add(Output(binding_id), [self.value(index)], name=name)
        keep_names(graph, ((tensors[i].name, value) for i, value in self._values.items() if tensors[i].name))

    def _drop_unused_constants(self) -> None:
        graph = self.network.graph
        for layer in graph:
            if isinstance(layer.op, Constant) and not layer.output.uses:
                graph.erase(layer)

    # --- operators ----------------------------------------------------------------------------------------------------

    def _refuse_unknown(self) -> None:
        """Raise `UnsupportedOperatorError` for unknown operators of this subgraph and of called subgraphs."""
        operators, pending_subgraphs, seen_subgraphs = list[Operator](), [self.request.number], set[int]()
        while pending_subgraphs:
            number = pending_subgraphs.pop()
            if number not in seen_subgraphs:
                seen_subgraphs.add(number)
                of_subgraph = self.request.model.subgraphs[number].operators
                operators += of_subgraph
                pending_subgraphs += (inner for operator in of_subgraph for _, inner in called(operator))
        unknown_operators = [operator for operator in operators if self._find(operator) is None]
        if unknown_operators:
            raise missing_operators((_title(operator), _place(operator)) for operator in unknown_operators)

    def _convert_all(self) -> None:
        if self._num_converted[0] + self._sizes[self.request.number] > _MOST_OPERATORS:
            raise ParseError(f"the subgraphs make more than {_MOST_OPERATORS:,} operators, which is not supported")
        self._num_converted[0] += 1 + len(self.subgraph.operators)
        for index, operator in enumerate(self.subgraph.operators):
            self._convert(index, operator, self._entry(operator))

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
        return STAND_IN if entry is None and operator.is_custom and self.request.stand_in else entry

    def _convert(self, index: int, operator: Operator, entry: Entry) -> None:
        name, self.place = self.titles(index, operator)
        with self.conversion(self.place, partial(self.refuse_operator, operator), name):
            converted_operator = entry.convert(
                Node(self, operator, _options(operator, entry), name, self.source(self.place))
            )
            self._take(operator, [converted_operator] if isinstance(converted_operator, Value) else converted_operator)

    def titles(self, index: int, operator: Operator) -> tuple[str, str]:
        """Return the name of the layers of the operator with this index, and its place in the file for messages."""
        number, place = self.request.number, f"operators[{index}] {operator.name}"
        return f"{operator.name}:{number}:{index}", f"subgraphs[{number}].{place}" if number else place

    def _take(self, operator: Operator, values: Sequence[Value | None]) -> None:
        """Record the values of an operator's outputs, except for those that are handles of resources."""
        outputs = [index for index in operator.outputs if index not in self._handles]
        if len(values) != len(outputs):
            raise ParseError(f"it has {len(outputs)} outputs; expected {len(values)}")
        self._values.update((index, value) for index, value in zip(outputs, values, strict=True) if value is not None)


def _sizes(subgraphs: Sequence[Subgraph]) -> dict[int, int]:
    """Return the number of operators of each subgraph, with those that it always inlines, up to the limit + 1."""
    inlined_subgraphs = {
        number: [inner for operator in subgraph.operators if operator.name in _INLINED for _, inner in called(operator)]
        for number, subgraph in enumerate(subgraphs)
    }
    sizes: dict[int, int] = {}
    for number in TopologicalSorter(inlined_subgraphs).static_order():
        size = 1 + len(subgraphs[number].operators) + sum(sizes[inner] for inner in inlined_subgraphs[number])
        sizes[number] = min(size, _MOST_OPERATORS + 1)
    return sizes


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
