"""One layer of a Caffe network during its conversion to layers of the graph, as its converter sees it."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from interposer.core.schema import Op
from interposer.core.types import Array, Quantization
from interposer.frontends.caffe.net import Layer
from interposer.frontends.caffe.proto import Message
from interposer.frontends.importer import Importer
from interposer.frontends.node import Node as SharedNode
from interposer.ir.graph import Value
from interposer.ops.elementwise import BinaryOperation, ElementwiseBinary
from interposer.ops.reshape import Reshape

__all__ = ["Node"]


class Node(SharedNode):
    """A layer of the file while it is converted, with the values of its input blobs, which Caffe calls bottoms.

    All layers that its methods add have `name`, with numbers appended. All shapes are known in a Caffe network.
    """

    def __init__(self, importer: Importer, layer: Layer, bottoms: Sequence[Value], name: str, source: str) -> None:
        super().__init__(importer, layer.type, name, source)
        self.layer = layer
        self._bottoms = tuple(bottoms)

    @property
    def num_inputs(self) -> int:
        """The number of bottoms."""
        return len(self._bottoms)

    def optional(self, index: int) -> Value | None:
        """Return the value of a bottom, or None if there is none with this index."""
        return self._bottoms[index] if index < len(self._bottoms) else None

    def step_name(self, op: Op) -> str:
        """Return the name of a layer for an intermediate value, which is that of the file's layer."""
        return self.name

    def inside(self, importer: Importer) -> Node:
        """Return a copy of this node without bottoms, which adds its layers to another import: that of a region."""
        return Node(importer, self.layer, (), self.name, self.source)

    def parameters(self, name: str) -> Message:
        """Return the layer's parameters in the field `name`, such as ``pooling_param``, or the default ones."""
        return self.layer.parameters(name)

    @property
    def only_value(self) -> Value:
        """The value of the only bottom; the layer fails if it has another number of bottoms."""
        if self.num_inputs != 1:
            self.fail(f"it has {self.num_inputs} bottoms; expected 1")
        return self.value(0)

    def image(self) -> Value:
        """Return the value of the only input blob, which must have the axes batch, channels, height and width."""
        if self.only_value.known.rank != 4:
            self.fail(f"its bottom has the shape {self.only_value.known.shape}; expected four dimensions")
        return self.only_value

    def shape(self, value: Value | None = None) -> tuple[int, ...]:
        """Return the shape of a value, of the only input by default; all shapes are known in a Caffe network."""
        return tuple(int(size) for size in (self.only_value if value is None else value).known.shape)

    def axis(self, axis: int, value: Value | None = None, *, after: bool = False) -> int:
        """Return the number of an axis of a value, counted from the start; negative numbers count from the end.

        With `after`, the number of axes itself is allowed: the place after the last axis.
        """
        rank = len(self.shape(value))
        number = axis + rank + after if axis < 0 else axis
        if not 0 <= number < rank + after:
            self.fail(f"axis is {axis}, but its bottom has {rank} axes")
        return number

    def blob(self, index: int, title: str) -> Array:
        """Return weights of the layer; `title` names them in the message if they are missing."""
        if index >= len(self.layer.blobs):
            self.fail(f"it has no {title}{self._why_missing()}")
        return self.layer.blobs[index]

    def _why_missing(self) -> str:
        number = len(self.layer.blobs)
        if number:
            return f": the file of weights has only {number} blobs for it"
        if self.layer.missing:
            return f": the file of weights {self.layer.missing}"
        return "; give the caffemodel that has them: weights="

    def weights(self, index: int, shape: Sequence[int], title: str) -> Array:
        """Return weights of the layer in this shape; `title` names them in messages.

        Old files have four dimensions for every blob, so dimensions of size 1 may be missing or too many.
        """
        array = self.blob(index, title)
        if [n for n in array.shape if n != 1] != [n for n in shape if n != 1]:
            self.fail(f"its {title} have the shape {list(array.shape)}; expected {list(shape)}")
        return array.reshape(shape)

    def constant(self, array: Array, quantization: Quantization | None = None) -> Value:
        """Return a new constant with the elements of this array in row-major order."""
        return super().constant(np.ascontiguousarray(array), quantization)

    def binary(self, operation: BinaryOperation, first: Value, second: Value | float) -> Value:
        """Add an elementwise layer on two values, or on a value and a number."""
        operand = self.constant(np.asarray(second, np.float32)) if isinstance(second, int | float) else second
        return self.step(ElementwiseBinary(operation), first, operand)

    def reshaped(self, value: Value, shape: Sequence[int]) -> Value:
        """Return a value in another shape, of the same number of elements."""
        return value if self.shape(value) == tuple(shape) else self.step(Reshape(tuple(shape)), value)
