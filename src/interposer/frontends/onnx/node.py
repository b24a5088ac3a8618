"""An ONNX node while it is converted: how its operands and attributes are found."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Final

from interposer.core.types import Array, DataType, TensorInfo
from interposer.frontends.node import Node as SharedNode
from interposer.frontends.onnx.attributes import Attributes
from interposer.frontends.onnx.proto import Message
from interposer.frontends.onnx.state import ImportState
from interposer.ir.graph import Value
from interposer.ops.control import StandIn
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


class Node(SharedNode, Attributes):
    """An ONNX node while it is converted; converters read operands and attributes and add layers through its methods.

    `version` is that of the opset with which the model imports the node's domain. Indices are those of the node's
    inputs.

    Raises from all methods:
        ParseError: the node breaks the format: an operand or attribute is missing or of the wrong kind.
        UnsupportedFormError: it is valid, but has a form that is not supported.
    """

    importer: ImportState

    def __init__(self, importer: ImportState, message: Message, name: str, version: int) -> None:
        kind: str = message.op_type
        SharedNode.__init__(self, importer, kind, name, f"node {name!r} ({kind})")
        Attributes.__init__(self, message.attribute)
        self.version = version
        self._inputs: tuple[str, ...] = tuple(message.input)
        self._outputs: tuple[str, ...] = tuple(message.output)
        self._operands: dict[int, Value] = {}
        self._infos: dict[int, TensorInfo] = {}
        self._message = message

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
        remaining_attributes = [attribute for attribute in message.attribute if attribute.name not in without]
        del message.attribute[:]
        message.attribute.extend(remaining_attributes)
        for name, numbers in integers.items():
            message.attribute.add(name=name, type=7, ints=numbers)
        return Node(self.importer, message, self.name, self.version)

    def replace(self, index: int, value: Value) -> None:
        """Use `value` as the input with this index, whether or not the node has this input."""
        self._operands[index] = value
        self._infos.pop(index, None)

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
            value = self.importer.value(self._inputs[index])
            self._operands[index] = value if self.kind in _KEEPS_QUANTIZATION else self.plain(value)
        return self._operands[index]

    def unused_initializer(self, index: int) -> Array | None:
        """Return the elements of an input that is an initializer and no constant of the network yet, else None.

        Reading them does not add a constant to the network.
        """
        if index in self._operands or index >= len(self._inputs):
            return None
        return self.importer.unused_initializer(self._inputs[index])

    def stored_info(self, index: int) -> TensorInfo:
        """Return the info of a required input; that of an initializer does not add a constant to the network."""
        info = self._infos.get(index)
        if info is None:
            is_listed = index not in self._operands and index < len(self._inputs)
            info = self.importer.unused_info(self._inputs[index]) if is_listed else None
            self._infos[index] = info = self.info(index) if info is None else info
        return info

    def known_array(self, index: int) -> Array | None:
        """Return the elements of a required input, or None if they are only known at run time."""
        return self.stored_info(index).constant

    def dtype(self, index: int) -> DataType:
        """Return the data type of a required input."""
        return self.stored_info(index).dtype

    def array(self, index: int, title: str) -> Array:
        """Return the elements of an input that must be a constant; refuse the node otherwise."""
        array = self.unused_initializer(index)
        return super().array(index, title) if array is None else array

    def plain(self, value: Value) -> Value:
        """Return a quantized value as plain integers (a cast removes its scale and zero point), others unchanged."""
        return self.step(Cast(value.known.dtype), value) if value.known.is_quantized else value

    def integers_of(self, index: int, title: str) -> tuple[int, ...]:
        """Return the integers of a constant input of rank 0 or 1; `title` names the input in messages."""
        array = self.array(index, title)
        if array.ndim > 1 or array.dtype.kind not in "iu":
            self.fail(self.mismatch(index, title, array, "a list of integers"))
        return tuple(array.reshape(-1).tolist())

    def tensor_array(self, name: str) -> Array:
        """Return the attribute `name`, a tensor, as an array."""
        return self.importer.array(self.tensor(name))

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
        shapes = [self.importer.declared.get(name) for name in (self._inputs[index], self._outputs[output])]
        first_size, second_size = (shape[axis] if shape is not None and len(shape) > axis else None for shape in shapes)
        return first_size is not None and first_size == second_size

    def give_up(self) -> list[Value]:
        """Mark the node's outputs as missing because a subgraph is not supported, and return placeholders for them.

        The error that lists all unsupported operators is raised later.
        """
        self.importer.give_up(self._outputs)
        infos = [TensorInfo(())] * len(self._outputs)
        return list(self.importer.network.add_layer(StandIn(len(infos)), outputs=infos).outputs)
