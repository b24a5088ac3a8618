"""A TensorFlow node while it is converted: how its operands and attributes are found."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from interposer.core.errors import ParseError
from interposer.core.types import Array, DataType
from interposer.frontends.node import Node as SharedNode
from interposer.frontends.tensorflow.dtypes import data_type
from interposer.frontends.tensorflow.messages import AttrValue, NodeDef
from interposer.frontends.tensorflow.results import Absent, Complex, Result, TensorList, Variable
from interposer.frontends.tensorflow.tensors import array_of
from interposer.ir.graph import Value

__all__ = ["Node"]

_KINDS: Final = {Variable: "a variable", TensorList: "a list of tensors", Complex: "complex", Absent: "absent"}


class Node(SharedNode):
    """A node while it is converted; converters read operands and attributes and add layers through its methods.

    Indices are those of the node's inputs, without control inputs.

    Raises from all methods:
        ParseError: the node breaks the format: an operand or attribute is missing or of the wrong kind.
        UnsupportedFormError: it is valid, but has a form that is not supported.
    """

    importer: Any
    """The `Scope` in which the node is converted; it creates nodes, so this module cannot name its type."""

    def __init__(self, importer: Any, message: NodeDef, inputs: Sequence[Result]) -> None:
        super().__init__(importer, message.op, message.name, f"node {message.name!r} ({message.op})")
        self.inputs: tuple[Result, ...] = tuple(inputs)
        self.message = message
        self._attributes = message.attr
        self.guards: list[Any] = []
        """For each input, the conditions under which it is used; see `importer.Guards`."""
        self.decided: list[Any] | None = None
        """The conditions of each output, if they are not those of all inputs together."""

    # --- attributes ---------------------------------------------------------------------------------------------------

    def attribute(self, name: str) -> AttrValue | None:
        """Return the message of an attribute, or None if the node does not have it."""
        return self._attributes.get(name)

    def _member(self, name: str, member: str, default: Any) -> Any:
        message = self._attributes.get(name)
        if message is None:
            if default is None:
                raise ParseError(f"it needs the attribute {name!r}")
            return default
        value = getattr(message, member)
        if value is None:
            raise ParseError(f"the attribute {name!r} is of the wrong kind")
        return value

    def integer(self, name: str, default: int | None = None) -> int:
        """Return an integer attribute; one without a default is required."""
        return int(self._member(name, "i", default))

    def number(self, name: str, default: float | None = None) -> float:
        """Return a float attribute; one without a default is required."""
        return float(self._member(name, "f", default))

    def flag(self, name: str, default: bool | None = None) -> bool:
        """Return a boolean attribute; one without a default is required."""
        return bool(self._member(name, "b", default))

    def text(self, name: str, default: str | None = None) -> str:
        """Return a string attribute; one without a default is required."""
        value = self._member(name, "s", default)
        return value if isinstance(value, str) else bytes(value).decode("utf-8", "replace")

    def integers(self, name: str, default: Sequence[int] | None = None) -> tuple[int, ...]:
        """Return an attribute that is a list of integers; one without a default is required."""
        value = self._member(name, "list", default)
        return tuple(value) if isinstance(value, Sequence) else tuple(value.i)

    def dtype(self, name: str, default: DataType | None = None) -> DataType:
        """Return an attribute that is a data type; one without a default is required."""
        value = self._member(name, "type", default)
        return value if isinstance(value, DataType) else data_type(value)

    def function(self, name: str) -> str:
        """Return the name of the function that an attribute refers to."""
        return str(self._member(name, "func", None).name)

    def tensor(self, name: str) -> Array:
        """Return an attribute that is a tensor as an array."""
        return array_of(self._member(name, "tensor", None))

    def dims(self, name: str) -> list[int | None] | None:
        """Return the sizes of an attribute that is a shape, None for unknown sizes; None if it has no rank."""
        message = self._attributes.get(name)
        return None if message is None or message.shape is None else message.shape.dims()

    # --- operands -----------------------------------------------------------------------------------------------------

    @property
    def num_inputs(self) -> int:
        """The number of inputs."""
        return len(self.inputs)

    def optional(self, index: int) -> Value | None:
        """Return the network value of an input, which must be a tensor; None if there is no such input."""
        if index >= len(self.inputs):
            return None
        operand = self.inputs[index]
        if not isinstance(operand, Value):
            self.fail(f"its input number {index} is {_KINDS[type(operand)]}; expected a tensor")
        return self._widened(operand)

    def _widened(self, operand: Value) -> Value:
        """Return an operand as float32 if it is a constant of half precision beside an operand of float32.

        Converters store weights so, to halve the size of a file.
        """
        if operand.known.dtype is not DataType.FLOAT16 or operand.constant is None:
            return operand
        other_types = (value.known.dtype for value in self.inputs if isinstance(value, Value))
        return self.cast(operand, DataType.FLOAT32) if DataType.FLOAT32 in other_types else operand

    def variable(self, index: int) -> Variable:
        """Return the handle of the variable that an input is."""
        operand = self.inputs[index] if index < len(self.inputs) else None
        if not isinstance(operand, Variable):
            self.fail(f"its input number {index} is no variable")
        return operand

    def is_only_reader(self, value: Value) -> bool:
        """Return True if no other node, and no output of the model, takes the value."""
        return bool(self.importer.is_read_once(value))

    def is_from_data(self, value: Value) -> bool:
        """Return True if a value is computed from data at run time, so that it is not known before.

        Data are also inputs that have other elements than integers. Integers, such as a size, can be given by the
        caller, and so can the shapes of inputs that are not known.
        """
        if value.constant is not None or self.importer.dimensions_of(value) is not None:
            return False
        return bool(self.importer.is_from_data(self.importer.needs(value)))

    def is_unknown(self, value: Value) -> bool:
        """Return True if a value is computed from data, or holds unknown dimensions."""
        if value.constant is not None:
            return False
        return self.importer.dimensions_of(value) is not None or self.is_from_data(value)

    # --- layers -------------------------------------------------------------------------------------------------------

    def named_constant(self, array: Array) -> Value:
        """Return a new constant with this array under the node's name."""
        value: Value = self.importer.constant(array, self.name, self.source)
        return value
