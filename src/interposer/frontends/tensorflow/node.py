"""One node of the model as a converter sees it: operands, attributes, and the layers that it becomes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NoReturn

import numpy as np

from interposer.core.errors import ParseError
from interposer.core.schema import Op
from interposer.core.types import Array, DataType, Dim, TensorInfo, TensorShape
from interposer.frontends.importer import Importer
from interposer.frontends.needs import Needs
from interposer.frontends.tensorflow.dtypes import data_type
from interposer.frontends.tensorflow.messages import AttrValue, NodeDef
from interposer.frontends.tensorflow.results import Absent, Complex, Result, TensorList, Variable
from interposer.frontends.tensorflow.tensors import array_of
from interposer.frontends.unsupported import UnboundFormError, UnsupportedFormError
from interposer.ir.graph import Graph, Value
from interposer.ops.control_flow import ControlFlow
from interposer.ops.quantization import Cast

__all__ = ["Node"]


class Node:
    """A node while it is converted; converters read operands and attributes and add layers through its methods.

    Indices are those of the node's inputs, without control inputs.

    Raises from all methods:
        ParseError: the node breaks the format: an operand or attribute is missing or of the wrong kind.
        UnsupportedFormError: it is valid, but has a form that is not supported.
    """

    def __init__(self, importer: Any, message: NodeDef, inputs: Sequence[Result]) -> None:
        self.name, self.kind = message.name, message.op
        self.importer = importer
        self.inputs: tuple[Result, ...] = tuple(inputs)
        self._layers: Importer = importer
        self._attr = message.attr
        self.guards: list[Any] = []
        """For each input, the conditions under which it is used; see `importer.Guards`."""
        self.decided: list[Any] | None = None
        """The conditions of each output, if they are not those of all inputs together."""

    # --- attributes ---------------------------------------------------------------------------------------------------

    def attribute(self, name: str) -> AttrValue | None:
        """Return the message of an attribute, or None if the node does not have it."""
        return self._attr.get(name)

    def _member(self, name: str, member: str, default: Any) -> Any:
        message = self._attr.get(name)
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
        message = self._attr.get(name)
        return None if message is None or message.shape is None else message.shape.dims()

    # --- operands -----------------------------------------------------------------------------------------------------

    @property
    def num_inputs(self) -> int:
        """The number of inputs."""
        return len(self.inputs)

    def value(self, index: int) -> Value:
        """Return the network value of an input."""
        if index >= len(self.inputs):
            raise ParseError(f"it has no input number {index}")
        result = self.inputs[index]
        if not isinstance(result, Value):
            kinds = {Variable: "a variable", TensorList: "a list of tensors", Complex: "complex", Absent: "absent"}
            raise ParseError(f"its input number {index} is {kinds[type(result)]}; expected a tensor")
        return result

    def values(self, start: int = 0) -> list[Value]:
        """Return all inputs from `start` on."""
        return [self.value(index) for index in range(start, len(self.inputs))]

    def variable(self, index: int) -> Variable:
        """Return the handle of the variable that an input is."""
        result = self.inputs[index] if index < len(self.inputs) else None
        if not isinstance(result, Variable):
            raise ParseError(f"its input number {index} is no variable")
        return result

    def info(self, index: int) -> TensorInfo:
        """Return the info of an input."""
        return self.value(index).known

    def array(self, index: int, title: str) -> Array:
        """Return the value of an input that must be a constant; refuse the node otherwise.

        `title` names the input in messages.
        """
        value = self.value(index)
        if value.constant is None:
            self._layers.ask_for(value, title)
        return value.constant

    def is_only_reader(self, value: Value) -> bool:
        """Return True if no other node, and no output of the model, takes the value."""
        return bool(self.importer.is_read_once(value))

    def integers_of(self, index: int, title: str) -> tuple[int, ...]:
        """Return the integers of a constant input of any shape; `title` names the input in messages."""
        array = self.array(index, title)
        if array.dtype.kind not in "iu":
            raise ParseError(f"its {title} is {array.dtype}{list(array.shape)}; expected integers")
        return tuple(array.reshape(-1).tolist())

    def integer_of(self, index: int, title: str) -> int:
        """Return the only element of a constant input of integers; `title` names the input in messages."""
        values = self.integers_of(index, title)
        if len(values) != 1:
            raise ParseError(f"its {title} has {len(values)} elements; expected one")
        return values[0]

    def number_of(self, index: int, title: str) -> float:
        """Return the only element of a constant input as a float; `title` names the input in messages."""
        array = self.array(index, title)
        if array.size != 1 or array.dtype.kind == "O":
            raise ParseError(f"its {title} is {array.dtype}{list(array.shape)}; expected one number")
        return float(array.reshape(-1)[0])

    def pairs_of(self, index: int, title: str) -> tuple[tuple[int, int], ...]:
        """Return the rows of a constant matrix of integers with two columns; `title` names the input in messages."""
        values = self.integers_of(index, title)
        if len(values) % 2 or self.info(index).shape[1:] != (2,):
            raise ParseError(f"its {title} has the shape {self.info(index).shape}; expected two columns")
        return tuple(zip(values[::2], values[1::2], strict=True))

    def is_computed(self, *indices: int) -> bool:
        """Return True if one of these inputs is a vector of known length whose elements are computed at run time.

        An input that shapes or values from the caller would determine does not count.
        """
        values = [self.value(index) for index in indices]
        ranks = all(item.known.is_ranked and item.known.rank == 1 and item.known.is_concrete for item in values)
        return ranks and any(map(self.is_from_data, values))

    def is_from_data(self, value: Value) -> bool:
        """Return True if a value is computed from data at run time, so that it is not known before.

        Data are also inputs that have other elements than integers. Integers, such as a size, can be given by the
        caller, and so can the shapes of inputs that are not known.
        """
        if value.constant is not None or self._layers.dimensions_of(value) is not None:
            return False
        return bool(self.importer.is_from_data(self._layers.needs(value)))

    def is_unknown(self, value: Value) -> bool:
        """Return True if a value is computed from data, or holds unknown dimensions."""
        if value.constant is not None:
            return False
        return self._layers.dimensions_of(value) is not None or self.is_from_data(value)

    def dimensions_of(self, index: int, title: str) -> tuple[int, ...]:
        """Return the elements of an input that holds dimensions; unknown ones are `Dim` objects.

        `title` names the input in messages.
        """
        value = self.value(index)
        array = self._layers.dimensions_of(value)
        if array is None:
            return self.integers_of(index, title)
        return tuple(item if isinstance(item, Dim) else int(item) for item in array.reshape(-1).tolist())

    # --- layers -------------------------------------------------------------------------------------------------------

    def add(self, op: Op, *operands: Value | None) -> Value:
        """Add a layer for a result of the node, and return its first output.

        The layer has the node's name. If all operands are constants, the result may be a constant instead.
        """
        return self._layers.add(op, operands, self.name, self.source)[0]

    def add_many(self, op: Op, *operands: Value | None) -> list[Value]:
        """Add a layer for several results of the node under its name, and return all outputs."""
        return self._layers.add(op, operands, self.name, self.source)

    def step(self, op: Op, *operands: Value | None) -> Value:
        """Add a layer for an intermediate result, named after node and operator, and return its first output."""
        return self._layers.add(op, operands, f"{self.name}/{op.op_name()}", self.source)[0]

    def steps(self, op: Op, *operands: Value | None) -> list[Value]:
        """Add a layer for intermediate results like `step`, and return all outputs."""
        return self._layers.add(op, operands, f"{self.name}/{op.op_name()}", self.source)

    def control(self, op: ControlFlow, operands: Sequence[Value | None], graphs: Sequence[Graph]) -> list[Value]:
        """Add a control-flow layer with the regions `graphs` under the node's name, and return all outputs."""
        return self._layers.add_control(op, operands, graphs, self.name, self.source)

    def constant(self, array: Array) -> Value:
        """Return a new constant with this array, named after the node."""
        return self._layers.constant(array, f"{self.name}/constant", self.source)

    def named_constant(self, array: Array) -> Value:
        """Return a new constant with this array under the node's name."""
        return self._layers.constant(array, self.name, self.source)

    def scalar_like(self, value: float, like: Value) -> Value:
        """Return a new constant scalar `value` of the type of `like`."""
        return self.constant(np.array(value).astype(like.known.dtype.numpy))

    def cast(self, value: Value, dtype: DataType) -> Value:
        """Return the value converted to a type; unchanged if it has it already."""
        return value if value.known.dtype is dtype else self.step(Cast(dtype), value)

    @property
    def source(self) -> str:
        """The node's name and operator, for error messages."""
        return f"node {self.name!r} ({self.kind})"

    # --- refusals -----------------------------------------------------------------------------------------------------

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
