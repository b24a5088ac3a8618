"""The state of an import: the network values of a subgraph's tensors, its variables, and what it calls."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence

from interposer.core.errors import ParseError, UnboundInputError
from interposer.core.types import Array, TensorInfo
from interposer.frontends.importer import Importer
from interposer.frontends.tflite.blockwise import block_weights
from interposer.frontends.tflite.contents import Operator, Subgraph
from interposer.frontends.tflite.inputs import Inputs, Request
from interposer.frontends.tflite.resources import Accesses, Bound
from interposer.frontends.tflite.tensors import constant_array, is_complex, tensor_info
from interposer.frontends.tflite.variables import Scope, Variables
from interposer.frontends.unsupported import Needs, UnboundFormError, UnsupportedFormError, needs_of
from interposer.ir.graph import Graph, Value
from interposer.ir.network import Network

__all__ = ["ImportState"]


class ImportState(Importer):
    """The importer of one subgraph, as far as converters use it; a subgraph that an operator calls has its own.

    `scope` has the values of variables at the operator that is converted, and `place` is the place of this operator in
    the file, for messages. The methods raise `ParseError` for what the file must not have.
    """

    def __init__(self, request: Request, network: Network, outer: ImportState | None = None) -> None:
        super().__init__(network, outer)
        self.request = request
        self.subgraph = request.subgraph
        self.inputs = Inputs(request)
        self.place = ""
        self.variables: Variables = Variables(request.model, self._initialized) if outer is None else outer.variables
        self.scope: Scope = Scope(network.graph, self.variables)
        self._is_resized: bool = self.inputs.is_resized if outer is None else outer._is_resized
        self._values: dict[int, Value] = {}
        self._constants = request.model.constants(self.subgraph)
        self._handles: dict[int, str] = {}

    # --- subgraphs ----------------------------------------------------------------------------------------------------

    @abstractmethod
    def region(self, number: int, infos: Sequence[TensorInfo], bound: Bound = (), names: Sequence[str] = ()) -> Graph:
        """Return subgraph `number` as a region (the graph of a control-flow layer) whose inputs have `infos`.

        `bound` has the variables whose handles are inputs of the subgraph, which the region does not have. The
        variables `names` become additional inputs of the region, which are the last of `infos`, and additional outputs.
        """

    @abstractmethod
    def inlined(self, number: int, values: Sequence[Value], bound: Bound = ()) -> list[Value]:
        """Add the layers of subgraph `number` of the model to this network, applied to `values`; return its outputs.

        `bound` has the variables whose handles are inputs of the subgraph; `values` are the other inputs.
        """

    @abstractmethod
    def _initialized(self, number: int) -> Scope:
        """Convert subgraph `number`, which initializes variables, to a graph of its own; return what it writes."""

    def called_subgraph(self, number: int) -> Subgraph:
        """Return subgraph `number` of the model, which an operator runs."""
        subgraphs = self.request.model.subgraphs
        if not 0 <= number < len(subgraphs):
            raise ParseError(f"subgraph {number} does not exist; there are {len(subgraphs)}")
        return subgraphs[number]

    # --- tensors ------------------------------------------------------------------------------------------------------

    def value(self, index: int) -> Value:
        """Return the network value of the tensor with this index; a constant becomes a layer when it is first used.

        A variable has the value that the operators before have written. The handle of a resource has no value.
        """
        if index in self._values:
            return self._values[index]
        tensor, variable = self.subgraph.tensors[index], self.variables.of_tensor(self.request.number, index)
        if variable is not None:
            return self.scope.read(variable, self.place, tensor_info(tensor, self.place))
        if index not in self._constants:
            kind = "the handle of a resource, whose use here" if index in self._handles else "not computed, which"
            raise ParseError(f"tensor {tensor.name!r} is {kind} is not supported", where=self.place)
        self._values[index] = self._constant_value(index)
        return self._values[index]

    def _constant_value(self, index: int) -> Value:
        """Return a constant of the file; weights with a scale for every block are dequantized by a layer."""
        tensor = self.subgraph.tensors[index]
        array = constant_array(self._constants[index], tensor, self.place)
        name = tensor.name or f"constant_{index}"
        blocks = tensor.quantization.blocks if tensor.quantization else None
        if blocks is None:
            return self.constant(array, name, quantization=tensor_info(tensor, self.place).quantization)
        weights = block_weights(tensor, blocks, self._array, self.place)
        arrays = (array, weights.scales, weights.zero_points)
        operands = [self.constant(operand, name) for operand in arrays if operand is not None]
        return self.add_layer(weights.op, operands, f"{name}:dequantized", self.source(self.place)).output

    def _array(self, index: int) -> Array | None:
        """Return the array of the tensor with this index, or None if the file has no values for it."""
        stored_array = self._constants.get(index)
        return None if stored_array is None else constant_array(stored_array, self.subgraph.tensors[index], self.place)

    def stored_type(self, index: int) -> str:
        """Return the name that the file has for the type of the tensor with this index, such as ``int4``."""
        return self.subgraph.tensors[index].dtype

    def is_complex(self, index: int) -> bool:
        """Return True if the tensor with this index is of complex numbers in the file."""
        return is_complex(self.subgraph.tensors[index])

    def output_info(self, operator: Operator, number: int) -> TensorInfo:
        """Return the info that the file declares for output `number` of an operator.

        All dimensions are open if the caller's shapes contradict the file.
        """
        tensor = self.subgraph.tensors[operator.outputs[number]]
        info = tensor_info(tensor, self.place, dynamic=self.inputs.is_dynamic)
        return info.with_shape([None] * info.rank) if self._is_resized else info

    def intermediate_infos(self, operator: Operator) -> list[TensorInfo | None]:
        """Return the infos of an operator's intermediate tensors, None for absent ones."""
        tensors = self.subgraph.tensors
        return [None if index < 0 else tensor_info(tensors[index], self.place) for index in operator.intermediates]

    def source(self, place: str) -> str:
        """Return the file and `place` (a location in the file), as messages about a layer show it."""
        return f"{self.request.file}, {place}" if self.request.file else place

    # --- what is known ------------------------------------------------------------------------------------------------

    def needs(self, value: Value) -> Needs | None:
        """Return which inputs must have known values or shapes so that a value is known during the import.

        The result is None if the value is always computed at run time.
        """
        return needs_of(value, self._inputs, lambda op: op.pure)

    def can_be_given(self, needs: Needs) -> bool:
        """Return True unless all that `needs` asks for is known already."""
        return bool(needs.values) or (needs.shapes and self.has_open_inputs)

    def refuse_operator(self, operator: Operator, error: UnsupportedFormError) -> None:
        """Raise the error for an operator whose form is not supported.

        Raises:
            UnboundInputError: the form is supported once the caller gives values or shapes of inputs.
            ParseError: it is never supported.
        """
        if not isinstance(error, UnboundFormError):
            raise ParseError(str(error), where=self.place)
        if not self.can_be_given(error.needs):
            raise ParseError(error.reason, where=self.place)
        name, inputs = operator.name, sorted(error.needs.values)
        raise UnboundInputError({name: 1}, inputs, shapes=error.needs.shapes, notes={name: f"{self.place}: {error}"})

    # --- variables and tables -----------------------------------------------------------------------------------------

    def handle(self, index: int) -> str | None:
        """Return the name of the variable or table that tensor `index` is a handle of; None for another tensor."""
        return self._handles.get(index)

    def give_handle(self, index: int, name: str) -> None:
        """Record that tensor `index` is a handle of the variable or the table `name`."""
        self._handles[index] = name

    def read_variable(self, name: str) -> Value:
        """Return the value that a variable has at the operator that is converted."""
        return self.scope.read(name, self.place)

    def write_variable(self, name: str, value: Value) -> None:
        """Set the value that a variable has after the operator that is converted."""
        self.scope.write(name, value, self.place)

    def write_tensor(self, index: int, value: Value) -> None:
        """Set the value of the variable that tensor `index` is; it has to be one.

        Nothing is set if the caller gives the tensor as an input.
        """
        name = self.variables.of_tensor(self.request.number, index)
        if name is not None:
            self.scope.write(name, value, self.place)
        elif index not in self.subgraph.inputs:
            raise ParseError(f"tensor {self.subgraph.tensors[index].name!r} is no variable", where=self.place)

    def is_variable(self, index: int) -> bool:
        """Return True if tensor `index` is a variable."""
        return self.variables.of_tensor(self.request.number, index) is not None

    def accesses(self, numbers: Sequence[int], bound: Bound) -> list[Accesses]:
        """Return what subgraphs do with variables, for the handles `bound` among their inputs.

        Variables that are never written are left out.
        """
        return [self._accesses(self.variables.accesses(number, bound)) for number in numbers]

    def _accesses(self, accesses: Accesses) -> Accesses:
        """Return accesses without those of variables that are never written."""
        constant = self.variables.constant
        written_variables = {
            name: is_written for name, is_written in accesses.written.items() if constant(name) is None
        }
        return Accesses(written_variables, accesses.outputs)

    def import_table(self, name: str, keys: Value, values: Value) -> None:
        """Set the content of a hash table, unless it has been set before."""
        self.scope.tables.setdefault(name, (keys, values))

    def table(self, name: str) -> tuple[Array, Array] | None:
        """Return the keys and values of a hash table, or None if nothing initializes it."""
        return self.variables.table(name)
