"""One operator during its conversion to layers, as its converter sees it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NoReturn, Protocol, TypeVar

from interposer.core.errors import InvalidArgumentError, ParseError, UnboundInputError
from interposer.core.schema import Op
from interposer.core.types import Array, DataType, Dim, Quantization, TensorInfo, TensorShape
from interposer.frontends.needs import Needs
from interposer.frontends.tflite.contents import Operator, Subgraph
from interposer.frontends.tflite.resources import Accesses, Bound
from interposer.ir.graph import Graph, Value
from interposer.ir.inference import infer_layer
from interposer.kernels import evaluate
from interposer.ops.activation import Activation, ActivationFunction
from interposer.ops.quantization import Dequantize
from interposer.ops.reshape import Reshape

__all__ = ["Import", "Node"]

Number = TypeVar("Number", bool, int, float)

FOLDED_ELEMENTS: Final = 4096
"""The largest size of tensors that are folded if they follow from constants, such as shapes and axes."""

_FUSED: Final = {
    1: ("RELU", Activation(ActivationFunction.RELU)),
    2: ("RELU_N1_TO_1", Activation(ActivationFunction.BOUNDED_RELU, a=1.0, b=-1.0)),
    3: ("RELU6", Activation(ActivationFunction.BOUNDED_RELU, a=6.0, b=0.0)),
    4: ("TANH", Activation(ActivationFunction.TANH, a=1.0, b=1.0)),
}


class Import(Protocol):
    """The part of the importer that converters may use: the network values of the subgraph's tensors, and the graph."""

    graph: Graph

    @property
    def has_open_inputs(self) -> bool:
        """True if the shape of an input is not known."""

    def value(self, index: int, where: str) -> Value:
        """Return the network value of the tensor with this index; a constant becomes a layer when it is first used.

        A variable has the value that the operators before have written. `ParseError` with the location `where` is
        raised for the handle of a resource.
        """

    def called_subgraph(self, number: int, where: str) -> Subgraph:
        """Return subgraph `number` of the model, which an operator at location `where` runs."""

    def stored_type(self, index: int) -> str:
        """Return the name that the file has for the type of the tensor with this index, such as ``int4``."""

    def is_complex(self, index: int) -> bool:
        """Return True if the tensor with this index is of complex numbers in the file."""

    def constant(self, array: Array, quantization: Quantization | None, name: str) -> Value:
        """Add a constant layer with this array, quantization and name to the graph, and return its output."""

    def output_info(self, operator: Operator, number: int, where: str) -> TensorInfo:
        """Return the info that the file declares for output `number` of an operator; `where` is for errors."""

    def intermediate_infos(self, operator: Operator, where: str) -> list[TensorInfo | None]:
        """Return the infos of an operator's intermediate tensors, None for absent ones; `where` is for errors."""

    def needs(self, value: Value) -> Needs | None:
        """Return which model inputs must have known values or shapes so that a value is known during the import.

        The result is None if the value is always computed at run time.
        """

    def region(
        self, number: int, infos: Sequence[TensorInfo], where: str, bound: Bound = (), names: Sequence[str] = ()
    ) -> Graph:
        """Return subgraph `number` as a region (the graph of a control-flow layer) whose inputs have `infos`.

        `where` is the location of the operator in the file, for errors. `bound` has the variables whose handles are
        inputs of the subgraph, which the region does not have. The variables `names` become additional inputs of the
        region, which are the last of `infos`, and additional outputs.
        """

    def inlined(self, number: int, values: Sequence[Value], where: str, bound: Bound = ()) -> list[Value]:
        """Add the layers of subgraph `number` of the model to this graph, applied to `values`, and return its outputs.

        `where` is the location of the operator in the file, for errors. `bound` has the variables whose handles are
        inputs of the subgraph; `values` are the other inputs.
        """

    def handle(self, index: int) -> str | None:
        """Return the name of the variable or table that tensor `index` is a handle of; None for another tensor."""

    def give_handle(self, index: int, name: str) -> None:
        """Let tensor `index` be a handle of a variable or table."""

    def read_variable(self, name: str, where: str) -> Value:
        """Return the value that a variable has at the operator that is converted; `where` is for errors."""

    def write_variable(self, name: str, value: Value, where: str) -> None:
        """Set the value that a variable has after the operator that is converted; `where` is for errors."""

    def write_tensor(self, index: int, value: Value, where: str) -> None:
        """Set the value of the variable that tensor `index` is; `where` is the location of the operator for errors.

        `ParseError` is raised if it is no variable. Nothing is set if the caller gives the tensor as an input.
        """

    def is_variable(self, index: int) -> bool:
        """Return True if tensor `index` is a variable."""

    def accesses(self, numbers: Sequence[int], bound: Bound) -> Sequence[Accesses]:
        """Return what subgraphs do with variables, for the handles `bound` among their inputs.

        Variables that are never written are left out.
        """

    def import_table(self, name: str, keys: Value, values: Value) -> None:
        """Set the content of a hash table, unless it has been set before."""

    def table(self, name: str) -> tuple[Array, Array] | None:
        """Return the keys and values of a hash table, or None if nothing initializes it."""


@dataclass(frozen=True, slots=True)
class Node:
    """An operator of the file while it is converted, with the network values of its inputs.

    Converters read inputs and add layers through its methods; an `index` is the number of an input. `options` are the
    operator's options by the schema's names, defaults filled in. All layers are named after `name` and come from
    `source`; errors are `ParseError` with the location `where`.
    """

    importer: Import
    operator: Operator
    options: Mapping[str, Any]
    name: str
    where: str
    source: str

    @property
    def raw_options(self) -> bytes:
        """The bytes of the options of a custom operator; empty if it has none."""
        return bytes(self.operator.custom_options or b"")

    def option(self, name: str, kind: type[Number], default: Number | None = None) -> Number:
        """Return an option of a custom operator as an int, a float or a bool.

        The operator fails if the option is absent and has no default, or is no number.
        """
        value = self.options.get(name, default)
        if value is None:
            self.fail(f"the option {name} is missing")
        if not isinstance(value, int | float):
            self.fail(f"the option {name} is {value!r}; expected a number")
        return kind(value)

    def fail(self, message: str) -> NoReturn:
        """Raise a `ParseError` with this message and the location of the operator."""
        raise ParseError(message, where=self.where)

    @property
    def count(self) -> int:
        """The number of inputs, absent ones included."""
        return len(self.operator.inputs)

    def is_complex_input(self, index: int) -> bool:
        """Return True if an input is of complex numbers in the file."""
        return self.importer.is_complex(self.operator.inputs[index])

    def is_complex_output(self, index: int) -> bool:
        """Return True if an output is of complex numbers in the file."""
        return self.importer.is_complex(self.operator.outputs[index])

    def optional(self, index: int) -> Value | None:
        """Return the network value of an input, or None if it is absent."""
        inputs = self.operator.inputs
        if index >= len(inputs) or inputs[index] < 0:
            return None
        return self.importer.value(inputs[index], self.where)

    def input(self, index: int, *, rank: int | None = None) -> Value:
        """Return the network value of a required input; fail if it is absent, or if its rank is not `rank`."""
        result = self.optional(index)
        if result is None:
            self.fail(f"input {index} is missing")
        if rank is not None and result.known.rank != rank:
            self.fail(f"input {index} has shape {result.known.shape}; expected rank {rank}")
        return result

    def state(self, index: int) -> tuple[Value, Callable[[Value], None]]:
        """Return the value of an input that is a variable, and a function that sets the value after the operator."""
        return self.input(index), lambda value: self.write_state(index, value)

    def is_state(self, index: int) -> bool:
        """Return True if an input is a variable."""
        return self.importer.is_variable(self.operator.inputs[index])

    def write_state(self, index: int, value: Value) -> None:
        """Set the value that an input, which is a variable, has after the operator; fail if it is no variable."""
        self.importer.write_tensor(self.operator.inputs[index], value, self.where)

    def variable(self) -> str:
        """Return the name of the variable or table that the first input is a handle of; fail if it is none."""
        name = self.importer.handle(self.operator.inputs[0]) if self.operator.inputs else None
        return name if name is not None else self.fail("its first input is not the handle of a resource")

    def inputs(self) -> list[Value]:
        """Return all inputs, all of which are required."""
        return [self.input(index) for index in range(self.count)]

    def info(self, index: int) -> TensorInfo:
        """Return the info of an input."""
        return self.input(index).known

    @property
    def output_infos(self) -> list[TensorInfo]:
        """The infos that the file declares for the outputs."""
        return [self.importer.output_info(self.operator, i, self.where) for i in range(len(self.operator.outputs))]

    @property
    def output_info(self) -> TensorInfo:
        """The info that the file declares for the first output."""
        return self.output_infos[0]

    @property
    def intermediate_infos(self) -> list[TensorInfo | None]:
        """The infos of the intermediate tensors, of which an operator in integers uses the scales; None if absent."""
        return self.importer.intermediate_infos(self.operator, self.where)

    def like(self, index: int, other: Value, *, rank: int | None = None, fold: bool = True) -> Value:
        """Return an input, dequantized if `other` is float: the quantized weights of a float operator.

        Without `fold`, a layer dequantizes constants, so that backends may compute with quantized weights.
        """
        value = self.input(index, rank=rank)
        if other.known.is_quantized or not other.known.dtype.is_float or not value.known.is_quantized:
            return value
        return self.dequantized(index, other.known.dtype, fold=fold)

    def dequantized(self, index: int, dtype: DataType, *, fold: bool = True) -> Value:
        """Return a quantized input as floats of type `dtype`; without `fold`, a layer dequantizes even a constant."""
        return self.add(Dequantize(dtype), self.input(index), fold=fold)

    def known(self, index: int, what: str) -> Array:
        """Return the value of an input that must be known during the import; `what` names the input in messages.

        Raises:
            UnboundInputError: it would be known if inputs of the model had values or shapes.
            ParseError: it is computed from data.
        """
        value = self.input(index)
        if value.constant is None:
            reason = f"{what} (input {index}) is computed while running"
            self._ask_for(self.importer.needs(value), reason)
            self.fail(f"{reason}; only known values are supported")
        return value.constant

    def is_computed(self, *indices: int) -> bool:
        """Return True if one of these inputs is only known at run time, so that a dynamic operator is required.

        An input that shapes or values from the caller would determine does not count.
        """
        return any(self._is_computed(value) for value in map(self.optional, indices) if value is not None)

    def _is_computed(self, value: Value) -> bool:
        if value.constant is not None:
            return False
        needs = self.importer.needs(value)
        return needs is None or not (needs.values or (needs.shapes and self.importer.has_open_inputs))

    def open_shape(self, reason: str) -> NoReturn:
        """Refuse the operator because a shape is unknown; the error asks for inputs' shapes that are still open."""
        self._ask_for(Needs(shapes=True), reason)
        self.fail(reason)

    def _ask_for(self, needs: Needs | None, reason: str) -> None:
        """Raise `UnboundInputError` with a reason if the caller can give `needs`, so that the operator is supported.

        Return if `needs` is None, or if all that it asks for is known already.
        """
        open_shapes = needs is not None and needs.shapes and self.importer.has_open_inputs
        if needs is not None and (needs.values or open_shapes):
            note = f"{self.where}: {reason}; give {needs}"
            name = self.operator.name
            raise UnboundInputError({name: 1}, sorted(needs.values), shapes=needs.shapes, notes={name: note})

    def ints(self, index: int, what: str) -> tuple[int, ...]:
        """Return the elements of an input, which must be known integers; `what` names the input in messages."""
        value = self.known(index, what)
        if value.dtype.kind not in "iu":
            self.fail(f"{what} (input {index}) is {value.dtype}; expected integers")
        return tuple(value.ravel().tolist())

    def number(self, index: int, what: str) -> int:
        """Return the value of an input, which must be one known integer; `what` names the input in messages."""
        values = self.ints(index, what)
        if len(values) != 1:
            self.fail(f"{what} (input {index}) has {len(values)} elements; expected one")
        return values[0]

    def scalar(self, index: int) -> Value:
        """Return an input with one element as a scalar."""
        value = self.input(index)
        return value if value.known.rank == 0 else self.add(Reshape(()), value)

    def pairs(self, index: int, what: str) -> tuple[tuple[int, int], ...]:
        """Return the rows of an input as pairs; it must be a known matrix of integers with two columns.

        `what` names the input in messages.
        """
        values = self.ints(index, what)
        if self.info(index).shape[1:] != (2,):
            self.fail(f"{what} (input {index}) has shape {self.info(index).shape}; expected two columns")
        return tuple(zip(values[::2], values[1::2], strict=True))

    def add(self, op: Op, *values: Value | None, fold: bool = False) -> Value:
        """Add a layer for an intermediate result of the operator, and return its first output.

        With `fold`, the layer is evaluated now if its inputs are constants, at any size, and the result is a constant.
        """
        return self._add(op, values, [None], fold)[0]

    def pieces(self, op: Op, *values: Value | None) -> list[Value]:
        """Add a layer with several outputs for intermediate results of the operator, and return all outputs."""
        return self._add(op, values, [None] * op.num_results())

    def results(self, op: Op, values: Sequence[Value | None], reported: Sequence[TensorInfo | None]) -> list[Value]:
        """Add a layer and return all its outputs; `reported` has the info that the file declares for each, or None."""
        return self._add(op, values, reported)

    def output(self, index: int, op: Op, *values: Value | None) -> Value:
        """Add a layer whose first output is output `index` of the operator, and return this output."""
        return self._add(op, values, [self.output_infos[index]])[0]

    def result(self, op: Op, *values: Value | None, activation: int = 0, fold: bool = False) -> list[Value]:
        """Add a layer whose outputs are those of the operator, and the fused activation; return the results.

        `activation` is the value of the option fused_activation_function, 0 for none; `fold` is as for `add`.
        """
        infos = self.output_infos
        if op.num_results() != len(infos):
            self.fail(f"it has {len(infos)} outputs; expected {op.num_results()}")
        created = self._add(op, values, infos, fold)
        return [self._activated(value, info, activation) for value, info in zip(created, infos, strict=True)]

    def _activated(self, value: Value, info: TensorInfo, activation: int) -> Value:
        if activation == 0:
            return value
        if activation not in _FUSED:
            self.fail(f"the fused activation {activation} is not supported")
        suffix, function = _FUSED[activation]
        return self._add(function, [value], [info], suffix=suffix)[0]

    def _add(
        self, op: Op, values: Sequence[Value | None], reported: Sequence[TensorInfo | None],
        fold: bool = False, suffix: str = "",
    ) -> list[Value]:  # fmt: skip
        infos = [None if value is None else value.known for value in values]
        for error in op.violations(*infos):
            self.fail(error)
        inferred = op.infer_infos(*infos)
        outputs = [self._agreed(*pair) for pair in zip(inferred, reported, strict=True)]
        name = f"{self.name}:{suffix}" if suffix else self.name
        known = _known(inferred) or _folded(op, infos, outputs, fold)
        if known is not None:
            return [self.constant(*pair, name) for pair in zip(known, outputs, strict=True)]
        declared = [_declared(*pair) for pair in zip(outputs, inferred, strict=True)]
        layer = self.importer.graph.add(op.canonical(), values, name=name, outputs=declared, source=self.source)
        for error in infer_layer(layer):
            self.fail(error)
        return list(layer.outputs)

    def constant(self, array: Array, like: TensorInfo | None = None, name: str = "") -> Value:
        """Return a new constant that is not in the file, with the quantization of `like` if it is given.

        It has the node's name unless `name` is given.
        """
        return self.importer.constant(array, like.quantization if like else None, name or self.name)

    def _agreed(self, inferred: TensorInfo | None, reported: TensorInfo | None) -> TensorInfo:
        """Return the inferred info of an output, completed by what the file declares.

        The file gives the quantization, and the sizes of dimensions that cannot be inferred. The operator fails if the
        types differ.
        """
        if inferred is None or reported is None:
            return inferred or reported or self.fail("its result cannot be inferred")
        if inferred.dtype is not reported.dtype:
            self.fail(f"its output is {reported.dtype} in the file, but it gives {inferred.dtype}")
        shape = inferred.shape
        if reported.rank == inferred.rank:
            shape = TensorShape(t if isinstance(i, Dim) else i for i, t in zip(shape, reported.shape, strict=True))
        return TensorInfo(shape, inferred.dtype, reported.quantization or inferred.quantization)


def _declared(info: TensorInfo, inferred: TensorInfo | None) -> TensorInfo | None:
    """Return the info to declare for an output so that its shape can still change with the inputs' shapes.

    If the whole shape can be inferred, only the quantization is declared, with all dimensions open; without a
    quantization the result is None.
    """
    if inferred is None or not inferred.is_concrete:
        return info
    return TensorInfo([None] * info.rank, info.dtype, info.quantization) if info.quantization else None


def _known(inferred: Sequence[TensorInfo | None]) -> list[Array] | None:
    """Return the values of a layer's outputs if inference determines them all, as for Shape; else None."""
    result = [info.constant for info in inferred if info is not None and info.constant is not None]
    return result if result and len(result) == len(inferred) else None


def _folded(
    op: Op, infos: Sequence[TensorInfo | None], outputs: Sequence[TensorInfo], whatever_size: bool
) -> list[Array] | None:
    """Return the results of an operator on constants, or None if they are to be computed at run time.

    `infos` are those of the inputs, with their values if constant. Tensors with more than `FOLDED_ELEMENTS` elements
    are only folded with `whatever_size`.
    """
    arrays = [None if info is None else info.constant for info in infos]
    if any(info is not None and array is None for info, array in zip(infos, arrays, strict=True)):
        return None
    sizes = [info.num_elements for info in (*infos, *outputs) if info is not None]
    if not op.pure or any(isinstance(size, Dim) or (size > FOLDED_ELEMENTS and not whatever_size) for size in sizes):
        return None
    try:
        return evaluate(op, arrays, infos, outputs)
    except InvalidArgumentError:
        return None
