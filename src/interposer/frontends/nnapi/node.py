"""One operation during its conversion to layers, as its converter sees it."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import Final

from interposer.core.schema import Op
from interposer.core.types import Array, DataLayout, Dim, Quantization, TensorInfo, TensorShape
from interposer.frontends.elementwise import RELU, RELU6, RELU_N1_TO_1
from interposer.frontends.importer import Importer
from interposer.frontends.nnapi.document import Operand, Operation
from interposer.frontends.node import Node as SharedNode
from interposer.ir.graph import Graph, Value
from interposer.ops.axes import transposed
from interposer.ops.rearrange import Transpose
from interposer.ops.reshape import Reshape

__all__ = ["DocumentImporter", "Node"]

_FUSED: Final = {
    1: ("RELU", RELU),
    2: ("RELU1", RELU_N1_TO_1),
    3: ("RELU6", RELU6),
}
_TO_NCHW: Final = (0, 3, 1, 2)


class DocumentImporter(Importer):
    """The part of the importer that converters may use: the operands, their network values, and the network so far.

    `is_resized` is True if the caller gave an input a shape that the document does not allow.
    """

    operands: tuple[Operand, ...]
    is_resized: bool

    @abstractmethod
    def value(self, index: int) -> Value:
        """Return the network value of the operand with this index; a constant becomes a layer when it is first used.

        `ParseError` is raised if the operand has no value.
        """

    @abstractmethod
    def region(self, number: int, infos: Sequence[TensorInfo]) -> Graph:
        """Return referenced model `number` as a region: the graph of a control-flow layer, with inputs of `infos`."""

    @abstractmethod
    def inlined(self, number: int, values: Sequence[Value]) -> list[Value]:
        """Add the layers of referenced model `number` to this network, applied to `values`, and return its outputs."""


class Node(SharedNode):
    """An operation of the document while it is converted, with the network values of its inputs.

    Many operands are scalars that other formats have as attributes: `integer_of`, `number_of` and `flag_of` read them.
    """

    importer: DocumentImporter

    def __init__(self, importer: DocumentImporter, operation: Operation, source: str) -> None:
        super().__init__(importer, operation.name, operation.name, source)
        self.operation = operation

    @property
    def num_inputs(self) -> int:
        """The number of inputs, omitted ones included."""
        return len(self.operation.inputs)

    def absence(self, index: int) -> str:
        """Return the message about a required input that is omitted."""
        return f"input {index} is missing"

    def called(self, index: int, title: str) -> str:
        """Return what messages call an input."""
        return f"{title} (input {index})"

    def mismatch(self, index: int, title: str, array: Array, expected: str) -> str:
        """Return the message about a constant input whose type in the document is not `expected`."""
        operand_type = self.importer.operands[self.operation.inputs[index]].type
        return f"{self.called(index, title)} is {operand_type}; expected {expected}"

    def operand(self, index: int) -> Operand | None:
        """Return the document's operand of an input; None if the input is omitted."""
        if index >= self.num_inputs:
            return None
        operand = self.importer.operands[self.operation.inputs[index]]
        return None if operand.omitted else operand

    def is_of(self, index: int, *types: str) -> bool:
        """Return True if an input is present and its operand has one of these types, such as "TENSOR_FLOAT32"."""
        operand = self.operand(index)
        return operand is not None and operand.type in types

    @property
    def outputs(self) -> list[Operand]:
        """The operands of the outputs."""
        return [self.importer.operands[index] for index in self.operation.outputs]

    # --- tensors ------------------------------------------------------------------------------------------------------

    def optional(self, index: int) -> Value | None:
        """Return the network value of a tensor input, or None if it is omitted."""
        operand = self.operand(index)
        if operand is None:
            return None
        if operand.is_scalar:
            self.fail(f"input {index} is the scalar {operand.type}; expected a tensor")
        return self.importer.value(self.operation.inputs[index])

    def scalar(self, index: int) -> Value:
        """Return the network value of a required input that is a scalar."""
        if self.operand(index) is None:
            self.fail(self.absence(index))
        return self.importer.value(self.operation.inputs[index])

    def optionals(self, start: int = 0, stop: int | None = None) -> list[Value | None]:
        """Return the network values of the tensor inputs from `start` to before `stop`, with None for omitted ones."""
        return [self.optional(index) for index in range(start, self.num_inputs if stop is None else stop)]

    def weights(self, index: int, layout: DataLayout) -> Value:
        """Return weights, which the document stores as (O, H, W, I), in the order that layers of `layout` expect."""
        weights = self.value(index, rank=4)
        return weights if layout is DataLayout.NHWC else self.transposed(weights, _TO_NCHW)

    def transposed(self, value: Value, permutation: tuple[int, ...]) -> Value:
        """Return a tensor with its axes in the order `permutation`; a constant is transposed during the import."""
        info = transposed(value.known, permutation)
        if value.constant is None:
            return self.step(Transpose(permutation), value, quantization=info.quantization)
        return self.constant(value.constant.transpose(permutation), info.quantization)

    # --- what must be known -------------------------------------------------------------------------------------------

    def is_computed(self, *indices: int) -> bool:
        """Return True if one of these inputs is present and is computed at run time."""
        operands = map(self.operand, indices)
        return any(operand is not None and operand.value is None for operand in operands)

    def array(self, index: int, title: str) -> Array:
        """Return the elements of a constant input; the operation fails if it is missing or computed at run time."""
        operand = self.operand(index)
        if operand is None:
            self.fail(f"{self.called(index, title)} is missing")
        if operand.value is None:
            self.fail(f"{self.called(index, title)} is computed while running; only constants are supported")
        return operand.value

    def number_of(self, index: int, title: str, default: float | None = None) -> float:
        """Return the value of a constant float scalar, or the default if the input is omitted."""
        if default is not None and self.operand(index) is None:
            return default
        return float(self._scalar(index, title, "f", "float values"))

    def flag_of(self, index: int, title: str, default: bool | None = None) -> bool:
        """Return the value of a constant boolean scalar, or the default if the input is omitted."""
        if default is not None and self.operand(index) is None:
            return default
        return bool(self._scalar(index, title, "b", "a truth value"))

    def _scalar(self, index: int, title: str, kind: str, expected: str) -> Array:
        """Return the only element of a constant input whose type is of a NumPy kind, which messages call `expected`."""
        array = self.array(index, title)
        if array.dtype.kind != kind:
            self.fail(self.mismatch(index, title, array, expected))
        if array.size != 1:
            self.fail(f"{self.called(index, title)} has {array.size} elements; expected one")
        return array.reshape(())

    def layout(self, index: int) -> DataLayout:
        """Return the data layout that a constant boolean input selects: NCHW if true, NHWC if false or omitted."""
        return DataLayout.NCHW if self.flag_of(index, "the layout", False) else DataLayout.NHWC

    def axis(self, index: int, rank: int, default: int | None = None) -> int:
        """Return the axis that a constant input gives for a tensor of rank `rank`, counted from the front.

        If the input is omitted, the result is the default, which may be negative.
        """
        left_out = default is not None and self.operand(index) is None
        axis = default if left_out and default is not None else self.integer_of(index, "the axis")
        if not -rank <= axis < rank:
            self.fail(f"the axis (input {index}) is {axis}; expected {-rank} to {rank - 1}")
        return axis % rank

    def declared_shape(self, index: int = 0) -> tuple[int, ...] | None:
        """Return the shape that the document declares for output `index`; None if a dimension or the rank is open."""
        operand = self.outputs[index]
        return operand.dims if operand.has_rank and all(operand.dims) else None

    # --- layers -------------------------------------------------------------------------------------------------------

    def constant(self, array: Array, quantization: Quantization | None = None) -> Value:
        """Return a new constant that is not in the document, named after the operation."""
        return self.importer.constant(array, self.name, quantization=quantization)

    def step(self, op: Op, *operands: Value | None, quantization: Quantization | None = None) -> Value:
        """Add a layer for an intermediate result of the operation, and return the layer's first output."""
        return self.layer(op, *operands, quantization=quantization)[0]

    def layer(
        self,
        op: Op,
        *values: Value | None,
        output_numbers: Sequence[int | None] = (None,),
        quantization: Quantization | None = None,
        suffix: str = "",
    ) -> list[Value]:
        """Add a layer, and return its outputs.

        `output_numbers` has for each output of the layer the number of the operation's output that it is, or None for
        an intermediate result; missing entries count as None. Outputs of the operation get the info that the document
        declares, others have `quantization`, if any. `suffix` distinguishes the layer's name from other layers of this
        operation.
        """
        infos = [None if value is None else value.known for value in values]
        for error in op.violations(*infos):
            self.fail(error)
        outputs = self.outputs
        num_outputs = 1 + max((number for number in output_numbers if number is not None), default=-1)
        if len(outputs) < num_outputs:
            self.fail(f"it has {len(outputs)} outputs; expected {num_outputs}")
        numbers = [*output_numbers, *[None] * (op.num_results() - len(output_numbers))]
        declared_infos = [
            _with(info, quantization) if number is None else self._agreed(info, outputs[number], number)
            for info, number in zip(op.infer_infos(*infos), numbers, strict=True)
        ]
        name = f"{self.name}:{suffix}" if suffix else self.name
        layer = self.importer.add_layer(op, values, name, self.source, declared_infos)
        pairs = zip(layer.outputs, numbers, strict=True)
        return [value if number is None else self._widened(value, number) for value, number in pairs]

    def _widened(self, value: Value, number: int) -> Value:
        """Return a scalar as a tensor of shape [1] if the document declares output `number` so, else the value."""
        if value.known.rank or self.outputs[number].dims != (1,):
            return value
        return self.layer(Reshape((1,)), value, output_numbers=[number], suffix="RESHAPE")[0]

    def results(self, op: Op, *operands: Value | None, activation: int | None = None) -> list[Value]:
        """Add the layer that computes all outputs of the operation, and return them.

        `activation` is the number of the input with the fused activation function, which is applied to the first
        output.
        """
        count = len(self.outputs)
        if op.num_results() != count:
            self.fail(f"it has {count} outputs; expected {op.num_results()}")
        values = self.layer(op, *operands, output_numbers=range(count))
        fused_number = 0 if activation is None else self.integer_of(activation, "the fused activation")
        return values if fused_number == 0 else [self._activated(values[0], fused_number)]

    def _activated(self, value: Value, activation: int) -> Value:
        if activation not in _FUSED:
            self.fail(f"the fused activation {activation} is not known; expected 0 to {max(_FUSED)}")
        suffix, function = _FUSED[activation]
        return self.layer(function, value, output_numbers=[0], suffix=suffix)[0]

    def _agreed(self, inferred_info: TensorInfo | None, declared_operand: Operand, number: int) -> TensorInfo | None:
        """Return the info to declare for output `number` of the operation, or None if all of it is inferred.

        Only the quantization, and sizes that cannot be inferred, are taken from `declared_operand`, the document's
        operand. The operation fails if the inferred type or shape contradicts the document.
        """
        if inferred_info is None:
            return (
                declared_operand.info()
                if declared_operand.has_rank
                else self.fail(f"the rank of its output {number} is not known")
            )
        if inferred_info.dtype is not declared_operand.dtype:
            self.fail(f"its output {number} is {declared_operand.type}, but it gives {inferred_info.dtype}")
        shape = (
            inferred_info.shape
            if not declared_operand.has_rank
            else self._agreed_shape(inferred_info.shape, declared_operand, number)
        )
        if declared_operand.quantization is None and inferred_info.is_concrete:
            return None
        return TensorInfo(shape, inferred_info.dtype, declared_operand.quantization)

    def _agreed_shape(self, inferred_shape: TensorShape, declared_operand: Operand, number: int) -> TensorShape:
        """Return a shape with the document's size for each dimension that is not inferred, and None for all others.

        The operation fails if the inferred shape contradicts the document's shape of output `number`. A scalar does not
        contradict the shape [1].
        """
        tensor_shape = declared_operand.info().shape
        if self.importer.is_resized and len(tensor_shape) == len(inferred_shape):
            tensor_shape = TensorShape([None] * len(tensor_shape))
        if not len(inferred_shape) and tensor_shape == (1,):
            return inferred_shape
        if not tensor_shape.accepts(inferred_shape):
            self.fail(f"its output {number} has shape {tensor_shape} in the document, but it gives {inferred_shape}")
        return TensorShape(g if isinstance(i, Dim) else None for g, i in zip(tensor_shape, inferred_shape, strict=True))


def _with(inferred_info: TensorInfo | None, quantization: Quantization | None) -> TensorInfo | None:
    """Return the info to declare for an intermediate result: only the quantization, as type and shape are inferred.

    The result is None if there is no quantization to declare.
    """
    if inferred_info is None or quantization is None:
        return None
    return TensorInfo([None] * inferred_info.rank, inferred_info.dtype, quantization)
