"""One node of the model as a converter sees it: operands, attributes, and the layers that it becomes."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Final, NoReturn

import numpy as np

from interposer.core.errors import ParseError
from interposer.core.schema import Op
from interposer.core.types import Array, Dim, Quantization, TensorInfo, TensorShape
from interposer.frontends.needs import Needs
from interposer.frontends.onnx.attributes import Attributes
from interposer.frontends.onnx.proto import Message
from interposer.frontends.onnx.state import ImportState
from interposer.frontends.unsupported import UnboundFormError, UnsupportedFormError
from interposer.ir.graph import Graph, Value
from interposer.ops.control import StandIn
from interposer.ops.control_flow import ControlFlow
from interposer.ops.quantization import Cast

__all__ = ["Node"]

# The operators that move or compare elements, or that have scales among their operands. For all other operators, the
# format says that the elements are plain integers.
_KEEPS_QUANTIZATION: Final = frozenset(
    {
        "Concat", "DepthToSpace", "DequantizeLinear", "Expand", "Flatten", "Gather", "GatherND", "GlobalMaxPool",
        "Identity", "MaxPool", "QGemm", "QLinearAdd", "QLinearAveragePool", "QLinearConcat", "QLinearConv",
        "QLinearGlobalAveragePool", "QLinearLeakyRelu", "QLinearMatMul", "QLinearMul", "QLinearReduceMean",
        "QLinearSigmoid", "QLinearSoftmax", "QLinearWhere", "Reshape", "Shape", "Size", "Slice", "SpaceToDepth",
        "Split", "Squeeze", "Tile", "Transpose", "Unsqueeze",
    }
)  # fmt: skip


class Node(Attributes):
    """An ONNX node while it is converted; converters read operands and attributes and add layers through its methods.

    `version` is that of the opset with which the model imports the node's domain. Indices are those of the node's
    inputs.

    Raises from all methods:
        ParseError: the node breaks the format: an operand or attribute is missing or of the wrong kind.
        UnsupportedFormError: it is valid, but has a form that is not supported.
    """

    def __init__(self, importer: ImportState, message: Message, name: str, version: int) -> None:
        super().__init__(message.attribute)
        self.name, self.version = name, version
        self.kind: str = message.op_type
        self._importer = importer
        self._inputs: tuple[str, ...] = tuple(message.input)
        self._outputs: tuple[str, ...] = tuple(message.output)
        self._operands: dict[int, Value] = {}
        self._message = message

    @property
    def importer(self) -> ImportState:
        """The state of the import that the node is part of."""
        return self._importer

    def inside(self, importer: ImportState) -> Node:
        """Return a copy of this node that adds its layers to another import, such as that of a subgraph."""
        return Node(importer, self._message, self.name, self.version)

    def rewritten(
        self, inputs: Sequence[int], integers: Mapping[str, Sequence[int]], without: Collection[str] = ()
    ) -> Node:
        """Return a copy of this node with the inputs of these indices, and with lists of integers as more attributes.

        The attributes in `without` are removed before. An operator that is another one with attributes as operands is
        converted by it.
        """
        message = type(self._message)()
        message.CopyFrom(self._message)
        del message.input[:]
        message.input.extend(self._inputs[index] if self.has(index) else "" for index in inputs)
        remaining = [item for item in message.attribute if item.name not in without]
        del message.attribute[:]
        message.attribute.extend(remaining)
        for name, numbers in integers.items():
            message.attribute.add(name=name, type=7, ints=numbers)
        return Node(self._importer, message, self.name, self.version)

    def replace(self, index: int, value: Value) -> None:
        """Use `value` as the input with this index, whether or not the node has this input."""
        self._operands[index] = value

    # --- operands -----------------------------------------------------------------------------------------------------

    @property
    def num_inputs(self) -> int:
        """The number of inputs that are listed, absent ones included."""
        return len(self._inputs)

    def has(self, index: int) -> bool:
        """Return True if the node has an input with this index that is not absent."""
        return index < len(self._inputs) and bool(self._inputs[index])

    def optional(self, index: int) -> Value | None:
        """Return the value of an input, or None if it is absent.

        If the operator is defined on plain integers, a quantized value is returned without its quantization.
        """
        if index not in self._operands:
            if not self.has(index):
                return None
            value = self._importer.value(self._inputs[index])
            self._operands[index] = value if self.kind in _KEEPS_QUANTIZATION else self.plain(value)
        return self._operands[index]

    def plain(self, value: Value) -> Value:
        """Return a quantized value as plain integers (a cast removes its scale and zero point), others unchanged."""
        return self.step(Cast(value.known.dtype), value) if value.known.is_quantized else value

    def value(self, index: int) -> Value:
        """Return the network value of a required input; `ParseError` is raised if it is absent."""
        result = self.optional(index)
        if result is None:
            raise ParseError(f"it has no input number {index}")
        return result

    def values(self) -> list[Value]:
        """Return all inputs, all of which are required."""
        return [self.value(index) for index in range(max(1, len(self._inputs)))]

    def info(self, index: int) -> TensorInfo:
        """Return the info of a required input."""
        return self.value(index).known

    def array(self, index: int, title: str) -> Array:
        """Return the value of an input that must be a constant; refuse the node otherwise.

        `title` names the input in messages.
        """
        value = self.value(index)
        if value.constant is None:
            self._importer.ask_for(value, title)
        return value.constant

    def is_computed(self, *indices: int) -> bool:
        """Return True if a dynamic operator is required, because one of these inputs is only known at run time.

        An input that shapes or values from the caller would determine does not count. The result is False if a present
        input is not a vector of known length, as the dynamic operators require.
        """
        values = [value for value in map(self.optional, indices) if value is not None]
        lists = all(item.known.is_ranked and item.known.rank == 1 and item.known.is_concrete for item in values)
        return lists and any(map(self._is_computed, values))

    def _is_computed(self, value: Value) -> bool:
        known = value.constant is not None or self._importer.extents(value) is not None
        return not known and self._importer.needs(value) is None

    def array_integers(self, index: int, title: str) -> tuple[int, ...]:
        """Return the integers of a constant input of rank 0 or 1; `title` names the input in messages."""
        array = self.array(index, title)
        if array.ndim > 1 or array.dtype.kind not in "iu":
            raise ParseError(f"its {title} is {array.dtype}{list(array.shape)}; expected a list of integers")
        return tuple(array.reshape(-1).tolist())

    def array_scalar(self, index: int, title: str) -> float | int | bool:
        """Return the only element of a constant input; `title` names the input in messages."""
        array = self.array(index, title)
        if array.size != 1 or array.dtype.kind == "O":
            raise ParseError(f"its {title} is {array.dtype}{list(array.shape)}; expected one number")
        number: float | int | bool = array.astype(float).item() if array.dtype.kind == "V" else array.item()
        return number

    def extents(self, index: int, title: str) -> tuple[int, ...]:
        """Return the dimensions that an input of rank 1 has as elements, for example the target shape of Reshape.

        An unknown dimension is a `Dim`, but their number must be known. `title` names the input in messages.
        """
        known = self._importer.extents(self.value(index))
        if known is None:
            self._importer.ask_for(self.value(index), title)
        return tuple(known.reshape(-1).tolist())

    # --- results ------------------------------------------------------------------------------------------------------

    @property
    def num_outputs(self) -> int:
        """The number of outputs that are listed, unused ones included."""
        return len(self._outputs)

    def wants(self, index: int) -> bool:
        """Return True if the node has an output with this index and gives it a name, so that its value may be used."""
        return index < len(self._outputs) and bool(self._outputs[index])

    def keeps_size(self, index: int, output: int, axis: int) -> bool:
        """Return True if the model declares the same size along an axis for an input and an output of the node.

        Both have to be inputs and outputs of the model's graph. Open dimensions are the same if their names are.
        """
        if not (self.has(index) and self.wants(output)):
            return False
        shapes = [self._importer.declared.get(name) for name in (self._inputs[index], self._outputs[output])]
        first, second = (shape[axis] if shape is not None and len(shape) > axis else None for shape in shapes)
        return first is not None and first == second

    def add(self, op: Op, *operands: Value | None, quantization: Quantization | None = None) -> Value:
        """Add a layer for a result of the node, and return its first output, whose `quantization` may be given.

        The layer has the node's name. If all operands are constants, the result may be a constant instead.
        """
        return self._importer.add(op, operands, self.name, self.source, quantization)[0]

    def add_many(self, op: Op, *operands: Value | None) -> list[Value]:
        """Add a layer for several results of the node under its name, and return all outputs."""
        return self._importer.add(op, operands, self.name, self.source)

    def control(self, op: ControlFlow, operands: Sequence[Value | None], graphs: Sequence[Graph]) -> list[Value]:
        """Add a control-flow layer with the regions `graphs` under the node's name, and return all outputs."""
        return self._importer.add_control(op, operands, graphs, self.name, self.source)

    def give_up(self) -> list[Value]:
        """Mark the node's outputs as missing because a subgraph is not supported, and return placeholders for them.

        The error that lists all unsupported operators is raised later.
        """
        self._importer.give_up(self._outputs)
        infos = [TensorInfo(())] * len(self._outputs)
        return list(self._importer.network.add_layer(StandIn(len(infos)), outputs=infos).outputs)

    def step(self, op: Op, *operands: Value | None, quantization: Quantization | None = None) -> Value:
        """Add a layer for an intermediate result, named after node and operator, and return its first output."""
        return self._importer.add(op, operands, f"{self.name}/{op.op_name()}", self.source, quantization)[0]

    def tensor_array(self, name: str) -> Array:
        """Return the attribute `name`, a tensor, as an array."""
        return self._importer.array(self.tensor(name))

    def constant(self, array: Array, quantization: Quantization | None = None) -> Value:
        """Return a new constant with this array, named after the node."""
        return self._importer.constant(array, f"{self.name}/constant", self.source, quantization)

    def scalar_like(self, value: float, like: Value) -> Value:
        """Return a new constant scalar `value` of the type of `like`."""
        return self.constant(np.array(value).astype(like.known.dtype.numpy))

    @property
    def source(self) -> str:
        """The node's name and operator, for error messages."""
        return f"node {self.name!r} ({self.kind})"

    def unsupported(self, reason: str) -> NoReturn:
        """Refuse the node by raising `UnsupportedFormError` with a reason."""
        raise UnsupportedFormError(reason)

    def open_shape(self, reason: str) -> NoReturn:
        """Refuse the node with a reason; the error asks the caller for the shapes of the model's inputs."""
        raise UnboundFormError(reason, Needs(shapes=True))

    def concrete(self, shape: TensorShape, title: str) -> tuple[int, ...]:
        """Return a shape as a tuple of integers; refuse the node if a dimension is unknown.

        `title` names the tensor in the message, which asks for shapes of the model's inputs.
        """
        if not shape.is_concrete:
            self.open_shape(f"its {title} has the shape {shape}")
        return tuple(shape)

    def known(self, size: int, title: str) -> int:
        """Return a size; refuse the node if it is an unknown dimension. `title` names the size in the message."""
        if isinstance(size, Dim):
            self.open_shape(f"its {title} is not known")
        return size
