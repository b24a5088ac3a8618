"""One node of a model while it is converted: the class that the nodes of all formats derive from, and its vocabulary.

A converter is a function that takes a node and returns its outputs as values of the network. It reads *operands* by
their index, and *attributes* by their name; what the two give has the same nouns:

=======================  ==================================================================================
``value(i)``             the network value of operand `i`; `optional` where it may be absent; `values`: all
``info(i)``              the type and shape of operand `i`
``array(i, title)``      the elements of operand `i`, which must be constant; `title` names it in messages
``integers_of(i, t)``    its elements, which must be integers; `integer_of`, `number_of`, `pairs_of` likewise
``dimensions_of(i, t)``  its elements, which are dimensions; they may be unknown ones
``is_computed(i)``       whether it is only known at run time
``integer(name)``        an attribute of the node; `integers`, `number`, `flag`, `text` likewise
``result(op, ...)``      add the layer that gives the node's output, and return it; `results`: several outputs
``step(op, ...)``        add a layer for an intermediate value, and return it; `steps`: several values
``chain(op, values)``    add layers that apply a binary operator to all values, from left to right
``constant(array)``      a constant that is not in the file; `scalar_like` has the type of another value
``unsupported(why)``     refuse the form of the node: the import goes on, and reports all refusals together
``fail(what)``           raise `ParseError`: the node violates the format
``open_shape(why)``      refuse the node until the caller gives the shapes of the inputs
=======================  ==================================================================================

The layers and refusals of the table are methods of `Layers`, and the operands those of `Node`. A format derives its
node class from `Node`. It provides `optional` and `num_inputs`; how messages call an operand, if they differ; and its
attributes, whose forms differ: a table of options or a descriptor may stand for them. Words of users' converters, which
a format had before (`add`, `input`, `ints`), stay as methods that call those of this class. PyTorch's operators get
their operands as arguments of the converter, so its class derives from `Layers`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from functools import reduce
from typing import NoReturn

import numpy as np

from interposer.core.errors import OutOfRangeError, ParseError
from interposer.core.schema import Op
from interposer.core.types import Array, DataType, Dim, Quantization, TensorInfo, TensorShape
from interposer.frontends.importer import Importer
from interposer.frontends.unsupported import Needs, UnboundFormError, UnsupportedFormError
from interposer.ir.graph import Graph, Value
from interposer.ops.control_flow import ControlFlow
from interposer.ops.quantization import Cast

__all__ = ["Layers", "Node"]


class Layers:
    """What a converter adds to the network for one node, and how it refuses the node.

    `name` is that of the node, after which its layers are named. `source` says where it is in the file, for messages.

    Raises from all methods:
        ParseError: an operator does not accept its operands.
        UnsupportedFormError: the node has a form that is not supported.
    """

    importer: Importer

    def __init__(self, importer: Importer, name: str, source: str) -> None:
        self.importer = importer
        self.name, self.source = name, source

    # --- layers -------------------------------------------------------------------------------------------------------

    def result(self, op: Op, *operands: Value | None, quantization: Quantization | None = None) -> Value:
        """Add the layer that computes the node's output under the node's name, and return the output.

        If all operands are constants, it may be a constant instead. `quantization` is that of the output.
        """
        return self.importer.add(op, operands, self.name, self.source, quantization)[0]

    def results(self, op: Op, *operands: Value | None) -> list[Value]:
        """Add the layer that computes all outputs of the node under the node's name, and return them."""
        return self.importer.add(op, operands, self.name, self.source)

    def step(self, op: Op, *operands: Value | None, quantization: Quantization | None = None) -> Value:
        """Add a layer for an intermediate value, and return its first output, which may have a `quantization`."""
        return self.importer.add(op, operands, self.step_name(op), self.source, quantization)[0]

    def steps(self, op: Op, *operands: Value | None) -> list[Value]:
        """Add a layer for several intermediate values, and return them."""
        return self.importer.add(op, operands, self.step_name(op), self.source)

    def step_name(self, op: Op) -> str:
        """Return the name of a layer for an intermediate value, made of those of the node and the operator."""
        return f"{self.name}/{op.op_name()}"

    def chain(self, op: Op, operands: Sequence[Value]) -> Value:
        """Add layers that apply a binary operator from left to right; the last one computes the node's output.

        A single operand is the output itself.
        """
        *previous_operands, last_operand = operands
        return (
            self.result(op, reduce(lambda a, b: self.step(op, a, b), previous_operands), last_operand)
            if previous_operands
            else last_operand
        )

    def control(self, op: ControlFlow, operands: Sequence[Value | None], graphs: Sequence[Graph]) -> list[Value]:
        """Add a control-flow layer with the regions `graphs` under the node's name, and return all outputs."""
        return self.importer.add_control(op, operands, graphs, self.name, self.source)

    def constant(self, array: Array, quantization: Quantization | None = None) -> Value:
        """Return a new constant with this array, named after the node."""
        return self.importer.constant(array, f"{self.name}/constant", self.source, quantization)

    def scalar_like(self, number: float, like: Value) -> Value:
        """Return a new constant scalar of the type of `like`."""
        return self.constant(np.array(number).astype(like.known.dtype.numpy))

    def cast(self, value: Value, dtype: DataType) -> Value:
        """Return a value converted to a type; unchanged if it has the type already."""
        return value if value.known.dtype is dtype else self.step(Cast(dtype), value)

    # --- refusals -----------------------------------------------------------------------------------------------------

    def fail(self, problem: str) -> NoReturn:
        """Raise `ParseError`, as the node violates the format; the importer adds the node's place."""
        raise ParseError(problem)

    def out_of_range(
        self, problem: str, value: float, allowed: tuple[float | None, float | None] | None = None
    ) -> NoReturn:
        """Raise `ParseError`, as an element of an operand has a `value` that is not `allowed`; None for no bound."""
        raise ParseError(problem) from OutOfRangeError(problem, value, allowed)

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


class Node(Layers, ABC):
    """A node while it is converted; converters read its operands and attributes, and add layers through its methods.

    `kind` is the operator, and `name` that of the node, after which its layers are named. `source` says where it is in
    the file, for messages. An index is that of an operand, and `title` is what messages call it.

    Raises from all methods:
        ParseError: the node violates the format: an operand or attribute is missing or of the wrong kind.
        UnsupportedFormError: it is valid, but has a form that is not supported.
    """

    def __init__(self, importer: Importer, kind: str, name: str, source: str) -> None:
        super().__init__(importer, name, source)
        self.kind = kind

    # --- what a format provides ---------------------------------------------------------------------------------------

    @property
    @abstractmethod
    def num_inputs(self) -> int:
        """The number of operands that are listed, absent ones included."""

    @abstractmethod
    def optional(self, index: int) -> Value | None:
        """Return the network value of an operand, or None if it is absent."""

    def absence(self, index: int) -> str:
        """Return the message about a required operand that is absent."""
        return f"it has no input number {index}"

    def called(self, index: int, title: str) -> str:
        """Return what messages call an operand, as the subject of a sentence."""
        return f"its {title}"

    def mismatch(self, index: int, title: str, array: Array, expected: str) -> str:
        """Return the message about a constant operand whose elements are not as `expected`."""
        return f"{self.called(index, title)} is {array.dtype}{list(array.shape)}; expected {expected}"

    # --- operands -----------------------------------------------------------------------------------------------------

    def value(self, index: int, *, rank: int | None = None) -> Value:
        """Return the network value of a required operand, whose rank has to be `rank` if that is given."""
        value = self.optional(index)
        if value is None:
            self.fail(self.absence(index))
        if rank is not None and value.known.rank != rank:
            self.fail(f"input {index} has shape {value.known.shape}; expected rank {rank}")
        return value

    def values(self, start: int = 0) -> list[Value]:
        """Return all operands from `start` on, all of which are required."""
        return [self.value(index) for index in range(start, self.num_inputs)]

    def info(self, index: int) -> TensorInfo:
        """Return the type and shape of a required operand."""
        return self.value(index).known

    # --- constant operands --------------------------------------------------------------------------------------------

    def array(self, index: int, title: str) -> Array:
        """Return the elements of an operand that must be a constant; refuse the node otherwise."""
        return self.importer.elements_of(self.value(index), title)

    def integers_of(self, index: int, title: str) -> tuple[int, ...]:
        """Return the elements of a constant operand of integers, in order."""
        array = self.array(index, title)
        if array.dtype.kind not in "iu":
            self.fail(self.mismatch(index, title, array, "integers"))
        return tuple(array.reshape(-1).tolist())

    def integer_of(self, index: int, title: str) -> int:
        """Return the only element of a constant operand of integers."""
        numbers = self.integers_of(index, title)
        if len(numbers) != 1:
            self.fail(f"{self.called(index, title)} has {len(numbers)} elements; expected one")
        return numbers[0]

    def number_of(self, index: int, title: str) -> float:
        """Return the only element of a constant operand as a Python number: a bool, an int or a float."""
        array = self.array(index, title)
        if array.size != 1 or array.dtype.kind == "O":
            self.fail(self.mismatch(index, title, array, "one number"))
        number: float = array.astype(float).item() if array.dtype.kind == "V" else array.item()
        return number

    def pairs_of(self, index: int, title: str) -> tuple[tuple[int, int], ...]:
        """Return the rows of a constant operand, a matrix of integers with two columns."""
        numbers, shape = self.integers_of(index, title), self.array(index, title).shape
        if shape[1:] != (2,):
            self.fail(f"{self.called(index, title)} has shape {TensorShape(shape)}; expected two columns")
        return tuple(zip(numbers[::2], numbers[1::2], strict=True))

    def dimensions_of(self, index: int, title: str) -> tuple[int, ...]:
        """Return the dimensions that an operand of rank 1 has as elements, for example the target shape of a reshape.

        An unknown dimension is a `Dim`, but their number must be known.
        """
        dimensions = self.importer.dimensions_of(self.value(index))
        if dimensions is None:
            return self.integers_of(index, title)
        self.importer.note_read(self.value(index), title, dimensions)
        return tuple(dimensions.reshape(-1).tolist())

    # --- operands that are computed -----------------------------------------------------------------------------------

    def is_computed(self, *indices: int) -> bool:
        """Return True if a dynamic operator is required, because one of these operands is only known at run time.

        An operand that shapes or values from the caller would determine does not count. The result is False if a
        present operand is not a vector of known length, as the dynamic operators require.
        """
        values = [value for value in map(self.optional, indices) if value is not None]
        are_vectors = all(
            operand.known.is_ranked and operand.known.rank == 1 and operand.known.is_concrete for operand in values
        )
        return are_vectors and any(map(self.is_from_data, values))

    def is_from_data(self, value: Value) -> bool:
        """Return True if a value is only known at run time, whatever shapes and values of inputs the caller gives."""
        if value.constant is not None:
            return False
        dimensions = self.importer.dimensions_of(value)
        is_known = dimensions is not None and not any(isinstance(dim, Dim) for dim in dimensions.flat)
        return not is_known and self.importer.needs(value) is None
