"""One layer of a Caffe network during its conversion to layers of the graph, as its converter sees it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NoReturn

import numpy as np

from interposer.core.constants import share
from interposer.core.errors import ParseError
from interposer.core.schema import Op
from interposer.core.types import Array
from interposer.frontends.caffe.net import Layer
from interposer.frontends.caffe.proto import Message
from interposer.ir.graph import Graph, Value
from interposer.ir.inference import infer_layer
from interposer.ops.control import Constant
from interposer.ops.elementwise import BinaryOperation, ElementwiseBinary
from interposer.ops.reshape import Reshape

__all__ = ["Node"]


@dataclass(frozen=True, slots=True)
class Node:
    """A layer of the file while it is converted, with the values of its input blobs in the graph.

    Converters read `inputs` and add layers through its methods. All layers have `name`, with numbers
    appended, and come from `source`. Errors are `ParseError` with the location of the layer.
    """

    graph: Graph
    layer: Layer
    inputs: tuple[Value, ...]
    name: str
    source: str

    def fail(self, message: str) -> NoReturn:
        """Raise a `ParseError` with this message and the location of the layer."""
        raise ParseError(message, where=self.layer.where)

    def parameters(self, name: str) -> Message:
        """Return the layer's parameters in the field `name`, such as ``pooling_param``, or the default ones."""
        return self.layer.parameters(name)

    @property
    def input(self) -> Value:
        """The value of the only input blob; the layer fails if it has another number of inputs."""
        if len(self.inputs) != 1:
            self.fail(f"it has {len(self.inputs)} bottoms; expected 1")
        return self.inputs[0]

    def image(self) -> Value:
        """Return the value of the only input blob, which must have the axes batch, channels, height and width."""
        if self.input.known.rank != 4:
            self.fail(f"its bottom has the shape {self.input.known.shape}; expected four dimensions")
        return self.input

    def shape(self, value: Value | None = None) -> tuple[int, ...]:
        """Return the shape of a value, of the only input by default; all shapes are known in a Caffe network."""
        return tuple(int(size) for size in (self.input if value is None else value).known.shape)

    def axis(self, axis: int, value: Value | None = None, *, after: bool = False) -> int:
        """Return the number of an axis of a value, counted from the start; negative numbers count from the end.

        With `after`, the number of axes itself is allowed: the place after the last axis.
        """
        rank = len(self.shape(value))
        number = axis + rank + after if axis < 0 else axis
        if not 0 <= number < rank + after:
            self.fail(f"axis is {axis}, but its bottom has {rank} axes")
        return number

    def blob(self, index: int, what: str) -> Array:
        """Return weights of the layer; `what` names them in the message if they are missing."""
        if index >= len(self.layer.blobs):
            self.fail(f"it has no {what}{self._why_missing()}")
        return self.layer.blobs[index]

    def _why_missing(self) -> str:
        number = len(self.layer.blobs)
        if number:
            return f": the file of weights has only {number} blobs for it"
        if self.layer.missing:
            return f": the file of weights {self.layer.missing}"
        return "; give the caffemodel that has them: weights=, or --weights on the command line"

    def weights(self, index: int, shape: Sequence[int], what: str) -> Array:
        """Return weights of the layer in this shape; `what` names them in messages.

        Old files have four dimensions for every blob, so dimensions of size 1 may be missing or too many.
        """
        array = self.blob(index, what)
        if [n for n in array.shape if n != 1] != [n for n in shape if n != 1]:
            self.fail(f"its {what} have the shape {list(array.shape)}; expected {list(shape)}")
        return array.reshape(shape)

    def constant(self, array: Array) -> Value:
        """Add a constant to the graph, and return its value."""
        data = np.ascontiguousarray(array)
        layer = self.graph.add(Constant(share(data)), name=f"{self.name}/constant")
        infer_layer(layer)
        return layer.output

    def add(self, op: Op, *values: Value | None) -> Value:
        """Add a layer to the graph, and return its only output."""
        [result] = self.pieces(op, *values)
        return result

    def pieces(self, op: Op, *values: Value | None) -> Sequence[Value]:
        """Add a layer to the graph, and return all its outputs."""
        for error in op.violations(*(None if value is None else value.known for value in values)):
            self.fail(error)
        layer = self.graph.add(op.canonical(), values, name=self.name, source=self.source)
        for error in infer_layer(layer):
            self.fail(error)
        return layer.outputs

    def binary(self, operation: BinaryOperation, first: Value, second: Value | float) -> Value:
        """Add an elementwise layer on two values, or on a value and a number."""
        other = self.constant(np.asarray(second, np.float32)) if isinstance(second, int | float) else second
        return self.add(ElementwiseBinary(operation), first, other)

    def reshaped(self, value: Value, shape: Sequence[int]) -> Value:
        """Return a value in another shape, of the same number of elements."""
        return value if self.shape(value) == tuple(shape) else self.add(Reshape(tuple(shape)), value)
