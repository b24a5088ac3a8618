"""One operator during its conversion to layers, as its converter sees it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, TypeVar

from interposer.core.errors import InvalidArgumentError
from interposer.core.schema import Op
from interposer.core.types import Array, DataType, Dim, Quantization, TensorInfo, TensorShape
from interposer.frontends.elementwise import RELU, RELU6, RELU_N1_TO_1, TANH
from interposer.frontends.node import Node as SharedNode
from interposer.frontends.tflite.contents import Operator
from interposer.frontends.tflite.state import ImportState
from interposer.frontends.unsupported import UnboundFormError
from interposer.ir.graph import Value
from interposer.kernels import evaluate
from interposer.ops.quantization import Dequantize
from interposer.ops.reshape import Reshape

__all__ = ["Node"]

Number = TypeVar("Number", bool, int, float)

FOLDED_ELEMENTS: Final = 4096
"""The largest size of tensors that are folded if they follow from constants, such as shapes and axes."""

_FUSED: Final = {
    1: ("RELU", RELU),
    2: ("RELU_N1_TO_1", RELU_N1_TO_1),
    3: ("RELU6", RELU6),
    4: ("TANH", TANH),
}


class Node(SharedNode):
    """An operator of the file while it is converted, with the network values of its inputs.

    `options` are the operator's options by the schema's names, defaults filled in; those of a custom operator have the
    names of its FlexBuffer. An `index` is the number of an input, and `title` what messages call the input.
    """

    importer: ImportState

    def __init__(
        self, importer: ImportState, operator: Operator, options: Mapping[str, Any], name: str, source: str
    ) -> None:
        super().__init__(importer, operator.name, name, source)
        self.operator = operator
        self.options = options

    # --- options ------------------------------------------------------------------------------------------------------

    @property
    def raw_options(self) -> bytes:
        """The bytes of the options of a custom operator; empty if it has none."""
        return bytes(self.operator.custom_options or b"")

    def option(self, name: str, kind: type[Number], default: Number | None = None) -> Number:
        """Return an option of a custom operator as an int, a float or a bool.

        The operator fails if the option is absent and has no default, or is no number.
        """
        option_number = self.options.get(name, default)
        if option_number is None:
            self.fail(f"the option {name} is missing")
        if not isinstance(option_number, int | float):
            self.fail(f"the option {name} is {option_number!r}; expected a number")
        return kind(option_number)

    # --- inputs and outputs -------------------------------------------------------------------------------------------

    @property
    def num_inputs(self) -> int:
        """The number of inputs, absent ones included."""
        return len(self.operator.inputs)

    def absence(self, index: int) -> str:
        """Return the message about a required input that is absent."""
        return f"input {index} is missing"

    def called(self, index: int, title: str) -> str:
        """Return the text that names input `index` in messages, such as "the shape (input 1)"."""
        return f"{title} (input {index})"

    def mismatch(self, index: int, title: str, array: Array, expected: str) -> str:
        """Return the message about a constant input whose type is not `expected`."""
        return f"{self.called(index, title)} is {array.dtype}; expected {expected}"

    def optional(self, index: int) -> Value | None:
        """Return the network value of an input, or None if it is absent."""
        indices = self.operator.inputs
        return self.importer.value(indices[index]) if index < len(indices) and indices[index] >= 0 else None

    def is_complex_input(self, index: int) -> bool:
        """Return True if an input is of complex numbers in the file."""
        return self.importer.is_complex(self.operator.inputs[index])

    def is_complex_output(self, index: int) -> bool:
        """Return True if an output is of complex numbers in the file."""
        return self.importer.is_complex(self.operator.outputs[index])

    @property
    def output_infos(self) -> list[TensorInfo]:
        """The infos that the file declares for the outputs."""
        return [self.importer.output_info(self.operator, number) for number in range(len(self.operator.outputs))]

    @property
    def output_info(self) -> TensorInfo:
        """The info that the file declares for the first output."""
        return self.output_infos[0]

    @property
    def intermediate_infos(self) -> list[TensorInfo | None]:
        """The infos of the intermediate tensors, of which an operator in integers uses the scales; None if absent."""
        return self.importer.intermediate_infos(self.operator)

    def like(self, index: int, other: Value, *, rank: int | None = None, fold: bool = True) -> Value:
        """Return an input, dequantized if `other` is float: the quantized weights of a float operator.

        Without `fold`, a layer dequantizes constants, so that backends may compute with quantized weights.
        """
        value = self.value(index, rank=rank)
        if other.known.is_quantized or not other.known.dtype.is_float or not value.known.is_quantized:
            return value
        return self.dequantized(index, other.known.dtype, fold=fold)

    def dequantized(self, index: int, dtype: DataType, *, fold: bool = True) -> Value:
        """Return a quantized input as floats of type `dtype`; without `fold`, a layer dequantizes even a constant."""
        return self.step(Dequantize(dtype), self.value(index), fold=fold)

    def scalar(self, index: int) -> Value:
        """Return an input with one element as a scalar."""
        value = self.value(index)
        return value if value.known.rank == 0 else self.step(Reshape(()), value)

    # --- variables ----------------------------------------------------------------------------------------------------

    def is_state(self, index: int) -> bool:
        """Return True if an input is a variable."""
        return self.importer.is_variable(self.operator.inputs[index])

    def write_state(self, index: int, value: Value) -> None:
        """Set the value that an input, which is a variable, has after the operator; fail if it is no variable."""
        self.importer.write_tensor(self.operator.inputs[index], value)

    def variable(self) -> str:
        """Return the name of the variable or table that the first input is a handle of; fail if it is none."""
        name = self.importer.handle(self.operator.inputs[0]) if self.operator.inputs else None
        return name if name is not None else self.fail("its first input is not the handle of a resource")

    # --- what must be known -------------------------------------------------------------------------------------------

    def array(self, index: int, title: str) -> Array:
        """Return the elements of an input that must be known during the import."""
        value = self.value(index)
        if value.constant is None:
            reason, needs = f"{self.called(index, title)} is computed while running", self.importer.needs(value)
            if needs is not None and self.importer.can_be_given(needs):
                raise UnboundFormError(reason, needs)
            self.fail(f"{reason}; only known values are supported")
        self.importer.note_read(value, title, value.constant)
        return value.constant

    def is_computed(self, *indices: int) -> bool:
        """Return True if one of these inputs is only known at run time, so that a dynamic operator is required.

        An input that shapes or values from the caller would determine does not count.
        """
        return any(self.is_from_data(value) for value in map(self.optional, indices) if value is not None)

    def is_from_data(self, value: Value) -> bool:
        """Return True if a value is only known at run time, whatever shapes and values of inputs the caller gives."""
        if value.constant is not None:
            return False
        needs = self.importer.needs(value)
        return needs is None or not self.importer.can_be_given(needs)

    # --- layers -------------------------------------------------------------------------------------------------------

    def result(
        self,
        op: Op,
        *operands: Value | None,
        quantization: Quantization | None = None,
        activation: int = 0,
        fold: bool = False,
    ) -> Value:
        """Add the layer that computes the operator's output, and the fused activation; return the output.

        `quantization` is that of an output for which the file declares none; the other arguments are those of
        `results`.
        """
        return self._results(op, operands, quantization, activation, fold)[0]

    def results(self, op: Op, *operands: Value | None, activation: int = 0, fold: bool = False) -> list[Value]:
        """Add the layer that computes all outputs of the operator, and the fused activation; return the outputs.

        `activation` is the value of the option fused_activation_function, 0 for none; `fold` is as for `layer`.
        """
        return self._results(op, operands, None, activation, fold)

    def _results(
        self, op: Op, operands: Sequence[Value | None], quantization: Quantization | None, activation: int, fold: bool
    ) -> list[Value]:
        infos = self.output_infos
        if op.num_results() != len(infos):
            self.fail(f"it has {len(infos)} outputs; expected {op.num_results()}")
        values = self.layer(op, *operands, declared=infos, quantization=quantization, fold=fold)
        return [self._activated(value, info, activation) for value, info in zip(values, infos, strict=True)]

    def _activated(self, value: Value, info: TensorInfo, activation: int) -> Value:
        if activation == 0:
            return value
        if activation not in _FUSED:
            self.fail(f"the fused activation {activation} is not supported")
        suffix, function = _FUSED[activation]
        return self.layer(function, value, declared=[info], suffix=suffix)[0]

    def output(self, number: int, op: Op, *operands: Value | None) -> Value:
        """Add a layer whose only output is output `number` of the operator, and return this output."""
        return self.layer(op, *operands, declared=[self.output_infos[number]])[0]

    def step(
        self, op: Op, *operands: Value | None, quantization: Quantization | None = None, fold: bool = False
    ) -> Value:
        """Add a layer for an intermediate value, and return its first output; `fold` is as for `layer`."""
        return self.layer(op, *operands, quantization=quantization, fold=fold)[0]

    def steps(self, op: Op, *operands: Value | None) -> list[Value]:
        """Add a layer for several intermediate values, and return them."""
        return self.layer(op, *operands)

    def layer(
        self,
        op: Op,
        *operands: Value | None,
        declared: Sequence[TensorInfo | None] = (),
        quantization: Quantization | None = None,
        fold: bool = False,
        suffix: str = "",
    ) -> list[Value]:
        """Add a layer, and return its outputs; small results that are known already become constants instead.

        Args:
            op: the operator of the layer.
            operands: its operands, None for an absent one.
            declared: the info that the file declares for each output, None for an intermediate value; missing entries
                count as None.
            quantization: that of outputs for which the file declares none.
            fold: evaluate the layer now if its operands are constants, at any size.
            suffix: what distinguishes the layer's name from other layers of this operator.
        """
        infos = [None if value is None else value.known for value in operands]
        for error in op.violations(*infos):
            self.fail(error)
        inferred_infos = op.infer_infos(*infos)
        of_file = declared or [None] * len(inferred_infos)
        outputs = [
            self._agreed(*inferred_and_stored, quantization)
            for inferred_and_stored in zip(inferred_infos, of_file, strict=True)
        ]
        name = f"{self.name}:{suffix}" if suffix else self.name
        arrays = _known(inferred_infos) or _folded(op, infos, outputs, fold)
        if arrays is not None:
            constants = zip(arrays, outputs, strict=True)
            return [self.importer.constant(array, name, quantization=info.quantization) for array, info in constants]
        to_declare = [
            _declared(*output_and_inferred) for output_and_inferred in zip(outputs, inferred_infos, strict=True)
        ]
        return list(self.importer.add_layer(op, operands, name, self.source, to_declare).outputs)

    def constant(self, array: Array, quantization: Quantization | None = None) -> Value:
        """Return a new constant that is not in the file, named after the operator."""
        return self.importer.constant(array, self.name, quantization=quantization)

    def _agreed(
        self, inferred: TensorInfo | None, declared: TensorInfo | None, quantization: Quantization | None
    ) -> TensorInfo:
        """Return the inferred info of an output, completed by what the file declares.

        The file gives the quantization, and the sizes of dimensions that cannot be inferred. The operator fails if the
        types differ. `quantization` is that of the output if the file declares none.
        """
        if inferred is None or declared is None:
            info = inferred or declared or self.fail("its result cannot be inferred")
            return info if quantization is None else TensorInfo(info.shape, info.dtype, quantization)
        if inferred.dtype is not declared.dtype and self.kind in _TYPED_BY_OPERANDS and _are_plain(inferred, declared):
            declared = TensorInfo(declared.shape, inferred.dtype)
        if inferred.dtype is not declared.dtype:
            self.fail(f"its output is {declared.dtype} in the file, but it gives {inferred.dtype}")
        shape = inferred.shape
        if declared.rank == inferred.rank:
            sizes = zip(shape, declared.shape, strict=True)
            shape = TensorShape(in_file if isinstance(size, Dim) else size for size, in_file in sizes)
        return TensorInfo(shape, inferred.dtype, declared.quantization or quantization or inferred.quantization)

    # --- the words of users' converters -------------------------------------------------------------------------------

    @property
    def count(self) -> int:
        """The number of inputs, absent ones included; converters of users call `num_inputs` so."""
        return self.num_inputs

    def input(self, index: int, *, rank: int | None = None) -> Value:
        """Return the network value of a required input; converters of users call `value` so."""
        return self.value(index, rank=rank)

    def inputs(self) -> list[Value]:
        """Return all inputs, all of which are required; converters of users call `values` so."""
        return self.values()

    def ints(self, index: int, title: str) -> tuple[int, ...]:
        """Return the integers of an input that must be known; converters of users call `integers_of` so."""
        return self.integers_of(index, title)

    def number(self, index: int, title: str) -> int:
        """Return the only integer of an input that must be known; converters of users call `integer_of` so."""
        return self.integer_of(index, title)

    def pairs(self, index: int, title: str) -> tuple[tuple[int, int], ...]:
        """Return the rows of an input that must be known; converters of users call `pairs_of` so."""
        return self.pairs_of(index, title)

    def add(self, op: Op, *operands: Value | None, fold: bool = False) -> Value:
        """Add a layer for an intermediate value, and return it; converters of users call `step` so."""
        return self.step(op, *operands, fold=fold)

    def pieces(self, op: Op, *operands: Value | None) -> list[Value]:
        """Add a layer for several intermediate values, and return them; converters of users call `steps` so."""
        return self.steps(op, *operands)


def _declared(info: TensorInfo, inferred_info: TensorInfo | None) -> TensorInfo | None:
    """Return the info to declare for an output so that its shape can still change with the inputs' shapes.

    If the whole shape can be inferred, only the quantization is declared, with all dimensions open; without a
    quantization the result is None.
    """
    if inferred_info is None or not inferred_info.is_concrete:
        return info
    return TensorInfo([None] * info.rank, info.dtype, info.quantization) if info.quantization else None


def _known(inferred_infos: Sequence[TensorInfo | None]) -> list[Array] | None:
    """Return the values of a layer's outputs if inference determines them all, as for Shape; else None."""
    arrays = [info.constant for info in inferred_infos if info is not None and info.constant is not None]
    return arrays if arrays and len(arrays) == len(inferred_infos) else None


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


_TYPED_BY_OPERANDS: Final = frozenset(
    {"ADD", "SUB", "DIV", "FLOOR_DIV", "POW", "MAXIMUM", "MINIMUM", "SQUARED_DIFFERENCE", "NEG", "EXP", "FLOOR"}
)
"""Operators whose result has the type of the operands in LiteRT, whatever type the file declares for it."""


def _are_plain(*infos: TensorInfo) -> bool:
    return all(info.quantization is None for info in infos)
