"""One operation during its conversion to layers, as its converter sees it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, NoReturn, Protocol

from interposer.core.errors import ParseError
from interposer.core.schema import Op
from interposer.core.types import Array, DataLayout, Dim, Quantization, TensorInfo, TensorShape
from interposer.frontends.nnapi.document import Operand, Operation
from interposer.ir.graph import Graph, Value
from interposer.ir.inference import infer_layer
from interposer.ops.activation import Activation, ActivationFunction
from interposer.ops.axes import transposed
from interposer.ops.rearrange import Transpose
from interposer.ops.reshape import Reshape

__all__ = ["Import", "Node"]

_FUSED: Final = {
    1: ("RELU", Activation(ActivationFunction.RELU)),
    2: ("RELU1", Activation(ActivationFunction.BOUNDED_RELU, a=1.0, b=-1.0)),
    3: ("RELU6", Activation(ActivationFunction.BOUNDED_RELU, a=6.0, b=0.0)),
}
_TO_NCHW: Final = (0, 3, 1, 2)


class Import(Protocol):
    """The part of the importer that converters may use: the operands, their network values, and the graph so far.

    `is_resized` is True if the caller gave an input a shape that the document does not allow.
    """

    graph: Graph
    operands: tuple[Operand, ...]
    is_resized: bool

    def value(self, index: int, where: str) -> Value:
        """Return the network value of the operand with this index; a constant becomes a layer when it is first used.

        `ParseError` with the location `where` is raised if the operand has no value.
        """

    def constant(self, array: Array, quantization: Quantization | None, name: str) -> Value:
        """Add a constant layer with this array, quantization and name to the graph, and return its output."""

    def region(self, number: int, infos: Sequence[TensorInfo], where: str) -> Graph:
        """Return referenced model `number` as a region (the graph of a control-flow layer) whose inputs have `infos`.

        `where` is the location of the operation in the document, for errors.
        """

    def inlined(self, number: int, values: Sequence[Value], where: str) -> list[Value]:
        """Add the layers of referenced model `number` to this graph, applied to `values`, and return its outputs.

        `where` is the location of the operation in the document, for errors.
        """


@dataclass(frozen=True, slots=True)
class Node:
    """An operation of the document while it is converted, with the network values of its inputs.

    Converters read inputs and add layers through its methods, which take the number of an input in the operation;
    `what` names the input in messages. All layers are named after `name` and come from `source`. Errors are
    `ParseError` with the location of the operation.
    """

    importer: Import
    operation: Operation
    name: str
    source: str

    def fail(self, message: str) -> NoReturn:
        """Raise a `ParseError` with this message and the location of the operation."""
        raise ParseError(message, where=self.operation.where)

    @property
    def count(self) -> int:
        """The number of inputs, omitted ones included."""
        return len(self.operation.inputs)

    def operand(self, index: int) -> Operand | None:
        """Return the document's operand of an input; None if the input is omitted."""
        if index >= self.count:
            return None
        result = self.importer.operands[self.operation.inputs[index]]
        return None if result.omitted else result

    def is_of(self, index: int, *types: str) -> bool:
        """Return True if an input is present and its operand has one of these types, such as "TENSOR_FLOAT32"."""
        operand = self.operand(index)
        return operand is not None and operand.type in types

    @property
    def results(self) -> list[Operand]:
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
        return self.importer.value(self.operation.inputs[index], self.operation.where)

    def scalar(self, index: int) -> Value:
        """Return the network value of a required input that is a scalar; fail if it is omitted."""
        if self.operand(index) is None:
            self.fail(f"input {index} is missing")
        return self.importer.value(self.operation.inputs[index], self.operation.where)

    def input(self, index: int, *, rank: int | None = None) -> Value:
        """Return the network value of a required tensor input; fail if it is omitted, or if its rank is not `rank`."""
        result = self.optional(index)
        if result is None:
            self.fail(f"input {index} is missing")
        if rank is not None and result.known.rank != rank:
            self.fail(f"input {index} has shape {result.known.shape}; expected rank {rank}")
        return result

    def inputs(self, start: int = 0, stop: int | None = None) -> list[Value | None]:
        """Return the network values of the tensor inputs from `start` to before `stop`, with None for omitted ones."""
        return [self.optional(index) for index in range(start, self.count if stop is None else stop)]

    def info(self, index: int) -> TensorInfo:
        """Return the info of a tensor input."""
        return self.input(index).known

    def weights(self, index: int, layout: DataLayout) -> Value:
        """Return weights, which the document stores as (O, H, W, I), in the order that layers of `layout` expect."""
        weights = self.input(index, rank=4)
        return weights if layout is DataLayout.NHWC else self.transposed(weights, _TO_NCHW)

    def transposed(self, value: Value, permutation: tuple[int, ...]) -> Value:
        """Return a tensor with its axes in the order `permutation`; a constant is transposed during the import."""
        info = transposed(value.known, permutation)
        if value.constant is None:
            return self.add(Transpose(permutation), value, quantization=info.quantization)
        return self.constant(value.constant.transpose(permutation), info.quantization)

    # --- what must be known -------------------------------------------------------------------------------------------

    def is_computed(self, index: int) -> bool:
        """Return True if an input is present and is computed at run time."""
        operand = self.operand(index)
        return operand is not None and operand.value is None

    def known(self, index: int, what: str, kinds: str) -> Array:
        """Return the value of a constant input; fail if it is missing, computed at run time, or of another kind.

        `kinds` are the allowed NumPy kinds of the type, such as "iu" for integers.
        """
        operand = self.operand(index)
        if operand is None:
            self.fail(f"{what} (input {index}) is missing")
        if operand.value is None:
            self.fail(f"{what} (input {index}) is computed while running; only constants are supported")
        if operand.value.dtype.kind not in kinds:
            self.fail(f"{what} (input {index}) is {operand.type}; expected {_EXPECTED[kinds]}")
        return operand.value

    def _scalar(self, index: int, what: str, kinds: str) -> Array:
        value = self.known(index, what, kinds)
        if value.size != 1:
            self.fail(f"{what} (input {index}) has {value.size} elements; expected one")
        return value.reshape(())

    def integer(self, index: int, what: str) -> int:
        """Return the value of a constant integer scalar; `what` names the input in messages."""
        return int(self._scalar(index, what, "iu"))

    def real(self, index: int, what: str, default: float | None = None) -> float:
        """Return the value of a constant float scalar, or the default if the input is omitted."""
        if default is not None and self.operand(index) is None:
            return default
        return float(self._scalar(index, what, "f"))

    def flag(self, index: int, what: str, default: bool | None = None) -> bool:
        """Return the value of a constant boolean scalar, or the default if the input is omitted."""
        if default is not None and self.operand(index) is None:
            return default
        return bool(self._scalar(index, what, "b"))

    def layout(self, index: int) -> DataLayout:
        """Return the data layout that a constant boolean input selects: NCHW if true, NHWC if false or omitted."""
        return DataLayout.NCHW if self.flag(index, "the layout", False) else DataLayout.NHWC

    def integers(self, index: int, what: str) -> tuple[int, ...]:
        """Return the elements of a constant tensor of integers, in order."""
        return tuple(self.known(index, what, "iu").ravel().tolist())

    def pairs(self, index: int, what: str) -> tuple[tuple[int, int], ...]:
        """Return the rows of a constant matrix of integers with two columns, as pairs."""
        values = self.known(index, what, "iu")
        if values.shape[1:] != (2,):
            self.fail(f"{what} (input {index}) has shape {TensorShape(values.shape)}; expected two columns")
        return tuple((first, second) for first, second in values.tolist())

    def axis(self, index: int, rank: int, default: int | None = None) -> int:
        """Return the axis that a constant input gives for a tensor of rank `rank`, counted from the front.

        If the input is omitted, the result is the default, which may be negative.
        """
        left_out = default is not None and self.operand(index) is None
        axis = default if left_out and default is not None else self.integer(index, "the axis")
        if not -rank <= axis < rank:
            self.fail(f"the axis (input {index}) is {axis}; expected {-rank} to {rank - 1}")
        return axis % rank

    def reported_shape(self, index: int = 0) -> tuple[int, ...] | None:
        """Return the shape that the document declares for output `index`; None if a dimension or the rank is open."""
        operand = self.results[index]
        return operand.dims if operand.has_rank and all(operand.dims) else None

    # --- layers -------------------------------------------------------------------------------------------------------

    def constant(self, array: Array, quantization: Quantization | None = None) -> Value:
        """Return a new constant that is not in the document, named after the operation."""
        return self.importer.constant(array, quantization, self.name)

    def add(self, op: Op, *values: Value | None, quantization: Quantization | None = None) -> Value:
        """Add a layer for an intermediate result of the operation, and return the layer's first output."""
        return self.layer(op, *values, quantization=quantization)[0]

    def layer(
        self,
        op: Op,
        *values: Value | None,
        reported: Sequence[int | None] = (None,),
        quantization: Quantization | None = None,
        suffix: str = "",
    ) -> list[Value]:
        """Add a layer, and return its outputs.

        `reported` says for each output of the layer which output of the operation it is, by number, or None for an
        intermediate result; missing entries count as None. Outputs of the operation get the info that the document
        declares, others have `quantization`, if any. `suffix` distinguishes the layer's name from other layers of this
        operation.
        """
        infos = [None if value is None else value.known for value in values]
        for error in op.violations(*infos):
            self.fail(error)
        results = self.results
        least = 1 + max((number for number in reported if number is not None), default=-1)
        if len(results) < least:
            self.fail(f"it has {len(results)} outputs; expected {least}")
        reported = [*reported, *[None] * (op.num_results() - len(reported))]
        inferred = op.infer_infos(*infos)
        declared = [
            _with(info, quantization) if number is None else self._agreed(info, results[number], number)
            for info, number in zip(inferred, reported, strict=True)
        ]
        name = f"{self.name}:{suffix}" if suffix else self.name
        layer = self.importer.graph.add(op.canonical(), values, name=name, outputs=declared, source=self.source)
        for error in infer_layer(layer):
            self.fail(error)
        pairs = zip(layer.outputs, reported, strict=True)
        return [value if number is None else self._widened(value, number) for value, number in pairs]

    def _widened(self, value: Value, number: int) -> Value:
        """Return a scalar as a tensor of shape [1] if the document declares output `number` so, else the value."""
        if value.known.rank or self.results[number].dims != (1,):
            return value
        return self.layer(Reshape((1,)), value, reported=[number], suffix="RESHAPE")[0]

    def result(self, op: Op, *values: Value | None, activation: int | None = None) -> list[Value]:
        """Add the layer that computes all outputs of the operation, and return them.

        `activation` is the number of the input with the fused activation function, which is applied to the first
        output.
        """
        count = len(self.results)
        if op.num_results() != count:
            self.fail(f"it has {count} outputs; expected {op.num_results()}")
        created = self.layer(op, *values, reported=range(count))
        fused = 0 if activation is None else self.integer(activation, "the fused activation")
        return created if fused == 0 else [self._activated(created[0], fused)]

    def _activated(self, value: Value, activation: int) -> Value:
        if activation not in _FUSED:
            self.fail(f"the fused activation {activation} is not known; expected 0 to {max(_FUSED)}")
        suffix, function = _FUSED[activation]
        return self.layer(function, value, reported=[0], suffix=suffix)[0]

    def _agreed(self, inferred: TensorInfo | None, reported: Operand, number: int) -> TensorInfo | None:
        """Return the info to declare for output `number` of the operation, or None if all of it is inferred.

        Only the quantization, and sizes that cannot be inferred, are taken from `reported`, the document's operand. The
        operation fails if the inferred type or shape contradicts the document.
        """
        if inferred is None:
            return reported.info() if reported.has_rank else self.fail(f"the rank of its output {number} is not known")
        if inferred.dtype is not reported.dtype:
            self.fail(f"its output {number} is {reported.type}, but it gives {inferred.dtype}")
        shape = inferred.shape if not reported.has_rank else self._agreed_shape(inferred.shape, reported, number)
        if reported.quantization is None and inferred.is_concrete:
            return None
        return TensorInfo(shape, inferred.dtype, reported.quantization)

    def _agreed_shape(self, inferred: TensorShape, reported: Operand, number: int) -> TensorShape:
        """Return a shape with the document's size for each dimension that is not inferred, and None for all others.

        The operation fails if the inferred shape contradicts the document's shape of output `number`. A scalar does not
        contradict the shape [1].
        """
        tensor_shape = reported.info().shape
        if self.importer.is_resized and len(tensor_shape) == len(inferred):
            tensor_shape = TensorShape([None] * len(tensor_shape))
        if not len(inferred) and tensor_shape == (1,):
            return inferred
        if not tensor_shape.accepts(inferred):
            self.fail(f"its output {number} has shape {tensor_shape} in the document, but it gives {inferred}")
        return TensorShape(g if isinstance(i, Dim) else None for g, i in zip(tensor_shape, inferred, strict=True))


_EXPECTED: Final = {"iu": "integers", "f": "float values", "b": "a truth value"}


def _with(inferred: TensorInfo | None, quantization: Quantization | None) -> TensorInfo | None:
    """Return the info to declare for an intermediate result: only the quantization, as type and shape are inferred.

    The result is None if there is no quantization to declare.
    """
    if inferred is None or quantization is None:
        return None
    return TensorInfo([None] * inferred.rank, inferred.dtype, quantization)
