"""One node of an fx graph as a converter sees it: its operands' types, its result's type, and layers to add."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np

from interposer.core.schema import Op
from interposer.core.types import Array, DataType, Dim, TensorInfo, TensorShape
from interposer.frontends.elementwise import ADD, DIV, LOGICAL_AND, LOGICAL_NOT, LOGICAL_OR, MUL, SUB
from interposer.frontends.importer import Importer
from interposer.frontends.node import Layers
from interposer.frontends.reshaping import reshape_to
from interposer.frontends.torch.package import torch
from interposer.frontends.torch.sizes import is_symbolic
from interposer.frontends.torch.tensors import data_type
from interposer.ir.graph import Graph, Value
from interposer.ops.dynamic import DynamicBroadcastTo, DynamicReshape
from interposer.ops.elementwise import Where
from interposer.ops.gather import Gather
from interposer.ops.quantization import Cast
from interposer.ops.rearrange import Concat, Slice, Stack, Transpose
from interposer.ops.reshape import BroadcastTo, Reshape, Shape

__all__ = ["Call", "Number", "Operand", "Size", "SubgraphImport"]

Number: TypeAlias = "bool | int | float"
Operand: TypeAlias = "Value | bool | int | float"
Size: TypeAlias = "int | Value"
"""A size: an integer, an unknown dimension, or a tensor of rank 0 that holds it at run time."""


class SubgraphImport(Importer, ABC):
    """An import that can convert the graph modules of control flow; `known` are the values of symbols by name."""

    known: dict[str, int]

    @abstractmethod
    def inlined(self, module: Any, operands: Sequence[Any]) -> list[Any]:
        """Convert a graph module in place, applied to operands, and return its results."""

    @abstractmethod
    def applied(self, call: Call, operator: Any, operands: Sequence[Any], dtype: Any) -> Any:
        """Convert an operator applied to operands, in place of a node of the same shape; `dtype` is PyTorch's type."""

    @abstractmethod
    def region(self, module: Any, operands: Sequence[Any], infos: Sequence[TensorInfo]) -> Graph:
        """Return a graph module as a region, whose inputs have `infos`."""


class Call(Layers):
    """A node of an fx graph while it is converted; converters read types and add layers through its methods.

    Methods that add layers return the value of the first output. Operands that are Python numbers become constants.
    """

    importer: SubgraphImport

    def __init__(self, importer: SubgraphImport, node: Any, name: str, source: str) -> None:
        super().__init__(importer, name, source)
        self.node = node

    # --- types --------------------------------------------------------------------------------------------------------

    @property
    def val(self) -> Any:
        """The example result that the export recorded: a fake tensor, a symbolic number, or a list of these."""
        return self.node.meta.get("val")

    @property
    def example(self) -> Any:
        """The first fake tensor of the result."""
        return self.val[0] if isinstance(self.val, list | tuple) else self.val

    @property
    def dtype(self) -> DataType:
        """The data type of the first result; that of the parts if it is complex."""
        return data_type(self.example.dtype)

    def promoted(self, *operands: Any) -> DataType:
        """Return the type to which PyTorch promotes operands, given as nodes, fake tensors or Python numbers."""
        examples = [operand.meta["val"] if isinstance(operand, torch.fx.Node) else operand for operand in operands]
        return data_type(_common([_example(operand) if is_symbolic(operand) else operand for operand in examples]))

    # --- values -------------------------------------------------------------------------------------------------------

    def scalar(self, number: Operand, dtype: DataType) -> Value:
        """Return a constant scalar of this type."""
        return self.constant(np.asarray(number).astype(dtype.numpy))

    def cast(self, operand: Operand, dtype: DataType) -> Value:
        """Return a tensor or number as a tensor of type `dtype`; a tensor that has the type is returned itself."""
        if not isinstance(operand, Value):
            return self.scalar(operand, dtype)
        return operand if operand.known.dtype is dtype else self.step(Cast(dtype), operand)

    def pair(self, a: Operand, b: Operand) -> tuple[Value, Value]:
        """Return two operands as tensors; a Python number gets the type of the other operand."""
        dtype = next(operand.known.dtype for operand in (a, b) if isinstance(operand, Value))
        return self.cast(a, dtype), self.cast(b, dtype)

    def is_complex(self, index: int) -> bool:
        """Return True if operand number `index` of the node is a complex tensor."""
        operand = self.node.args[index]
        example = operand.meta.get("val") if isinstance(operand, torch.fx.Node) else operand
        return isinstance(example, torch.Tensor) and bool(example.is_complex())

    # --- shapes -------------------------------------------------------------------------------------------------------

    def shape(self, value: Value) -> tuple[int, ...]:
        """Return the shape of a value; refuse the node if a dimension is unknown."""
        if not value.known.shape.is_concrete:
            self.open_shape(f"an operand has the shape {value.known.shape}")
        return tuple(map(int, value.known.shape))

    def size(self, value: Value, axis: int) -> int:
        """Return one size of a value; refuse the node if it is unknown."""
        size = value.known.shape[axis]
        if isinstance(size, Dim):
            self.open_shape(f"an operand has the shape {value.known.shape}")
        return int(size)

    def sizes(self, value: Value) -> list[Size]:
        """Return the sizes of a value, with a tensor of rank 0 for each unknown dimension."""
        return [self.runtime_size(value, i) if isinstance(d, Dim) else d for i, d in enumerate(value.known.shape)]

    def runtime_size(self, value: Value, axis: int) -> Value:
        """Return a tensor of rank 0 (int64) with a size that is only known at run time."""
        sizes = self.step(Shape(DataType.INT64), value)
        return self.step(Gather(0), sizes, self.constant(np.array(axis)))

    def axis(self, dim: int, rank: int) -> int:
        """Return an axis counted from the front; a tensor of rank 0 has the axes 0 and -1."""
        return dim % max(rank, 1)

    def axes(self, dims: Sequence[int] | int | None, rank: int) -> tuple[int, ...]:
        """Return axes counted from the front, in ascending order; None or no axes stand for all of them."""
        if dims is None or (not isinstance(dims, int) and not dims):
            return tuple(range(rank))
        listed_dims = [dims] if isinstance(dims, int) else list(dims)
        return tuple(sorted(dim % rank for dim in listed_dims)) if rank else ()

    def size_vector(self, sizes: Sequence[Size]) -> Value:
        """Return sizes as a vector of type int64."""
        vectors = [
            self.step(_reshape((1,)), self.cast(size, DataType.INT64))
            if isinstance(size, Value)
            else self.constant(np.array([size], np.int64))
            for size in sizes
        ]
        if not vectors:
            return self.constant(np.zeros(0, np.int64))
        return vectors[0] if len(vectors) == 1 else self.step(Concat(0), *vectors)

    # --- layers -------------------------------------------------------------------------------------------------------

    def step_name(self, op: Op) -> str:
        """Return the name of a layer, made of those of the node and the operator."""
        return f"{self.name}/{op.op_name().lower()}"

    def binary(self, op: Op, a: Operand, b: Operand) -> Value:
        """Apply an elementwise operator to two operands, which broadcast; one of them may be a number."""
        return self.step(op, *self.pair(a, b))

    def plus(self, a: Operand, b: Operand) -> Value:
        """Add two operands."""
        return self.binary(ADD, a, b)

    def minus(self, a: Operand, b: Operand) -> Value:
        """Subtract `b` from `a`."""
        return self.binary(SUB, a, b)

    def times(self, a: Operand, b: Operand) -> Value:
        """Multiply two operands."""
        return self.binary(MUL, a, b)

    def over(self, a: Operand, b: Operand) -> Value:
        """Divide `a` by `b`."""
        return self.binary(DIV, a, b)

    def both(self, a: Value, b: Value) -> Value:
        """Return the logical and of two tensors of bool."""
        return self.step(LOGICAL_AND, a, b)

    def either(self, a: Value, b: Value) -> Value:
        """Return the logical or of two tensors of bool."""
        return self.step(LOGICAL_OR, a, b)

    def negated(self, a: Value) -> Value:
        """Return the logical not of a tensor of bool."""
        return self.step(LOGICAL_NOT, a)

    def where(self, condition: Value, a: Operand, b: Operand) -> Value:
        """Select elements of `a` where the condition is True, and of `b` elsewhere."""
        return self.step(Where(), condition, *self.pair(a, b))

    def reshape(self, value: Value, sizes: Sequence[Size]) -> Value:
        """Reshape a value; a size may be unknown or a tensor, and one may be -1."""
        shape = value.known.shape
        if not any(isinstance(size, Dim | Value) for size in sizes):
            if shape.is_concrete and tuple(shape) == tuple(sizes):
                return value
            return self.step(_reshape(_filled(shape, sizes)), value)
        if not any(isinstance(size, Value) for size in sizes):
            op = reshape_to(shape, [size for size in sizes if not isinstance(size, Value)])
            if op is not None:
                return self.step(op, value)
        sizes = self._sizes_at_runtime(value, sizes)
        if any(isinstance(size, Dim) for size in sizes):
            self.open_shape("the dimensions of its result depend on several unknown ones")
        return self.step(DynamicReshape(), value, self.size_vector(sizes))

    def _sizes_at_runtime(self, value: Value, sizes: Sequence[Size]) -> list[Size]:
        """Return the sizes of a reshaped value, with those that are dimensions of the value read from its shape.

        If a single unknown size is left, it is -1.
        """
        axes = {dim: axis for axis, dim in enumerate(value.known.shape) if isinstance(dim, Dim) and dim.name}
        sizes_found: list[Size] = [
            self.runtime_size(value, axes[size]) if isinstance(size, Dim) and size in axes else size for size in sizes
        ]
        unknown_indices = [index for index, size in enumerate(sizes_found) if isinstance(size, Dim)]
        has_rest = any(not isinstance(size, Dim | Value) and size == -1 for size in sizes_found)
        if len(unknown_indices) == 1 and not has_rest:
            sizes_found[unknown_indices[0]] = -1
        return sizes_found

    def broadcast(self, value: Value, sizes: Sequence[Size]) -> Value:
        """Broadcast a value to a shape; a size may be a tensor."""
        if any(isinstance(size, Dim) for size in sizes):
            if value.known.rank == len(sizes) and all(
                a is b or a == b for a, b in zip(value.known.shape, sizes, strict=True)
            ):
                return value
            self.open_shape(f"its result has the sizes {list(sizes)}")
        if any(isinstance(size, Value) for size in sizes):
            return self.step(DynamicBroadcastTo(), value, self.size_vector(sizes))
        if tuple(value.known.shape) == tuple(sizes):
            return value
        return self.step(BroadcastTo(tuple(int(size) for size in sizes if not isinstance(size, Value))), value)

    def transpose(self, value: Value, permutation: Sequence[int]) -> Value:
        """Return a value with its axes in another order."""
        if list(permutation) == list(range(len(permutation))):
            return value
        return self.step(Transpose(tuple(permutation)), value)

    def swapped(self, value: Value, first: int, second: int) -> Value:
        """Swap two axes of a value."""
        order = list(range(value.known.rank))
        order[first], order[second] = order[second], order[first]
        return self.transpose(value, order)

    def unsqueezed(self, value: Value, *axes: int) -> Value:
        """Insert axes of size 1, which are counted from the front in the result, in ascending order."""
        sizes = list(value.known.shape)
        for axis in axes:
            sizes.insert(axis, 1)
        if value.known.shape.is_concrete or reshape_to(value.known.shape, sizes) is not None:
            return self.reshape(value, sizes)
        for axis in axes:
            value = self.step(Stack(axis), value)
        return value

    def squeezed(self, value: Value, *axes: int) -> Value:
        """Remove axes, which have size 1."""
        sizes = [size for axis, size in enumerate(value.known.shape) if axis not in axes]
        if value.known.shape.is_concrete or reshape_to(value.known.shape, sizes) is not None:
            return self.reshape(value, sizes)
        for axis in sorted(axes, reverse=True):
            value = self.gather(value, 0, axis)
        return value

    def cut(self, value: Value, axis: int, start: int, length: int) -> Value:
        """Return `length` elements along an axis from `start` on; a length of -1 takes all that follow."""
        rank = value.known.rank
        if (start, length) in {(0, value.known.shape[axis]), (0, -1)}:
            return value
        begin = tuple(start if i == axis else 0 for i in range(rank))
        return self.step(Slice(begin, tuple(length if i == axis else -1 for i in range(rank))), value)

    def gather(self, value: Value, places: Array | Sequence[int] | int, axis: int) -> Value:
        """Return the elements at constant indices along an axis; indices of rank 0 remove the axis."""
        return self.step(Gather(axis), value, self.constant(np.asarray(places, np.int64)))

    def joined(self, values: Sequence[Value], axis: int) -> Value:
        """Concatenate values along an axis."""
        return values[0] if len(values) == 1 else self.step(Concat(axis), *values)

    # --- subgraphs ----------------------------------------------------------------------------------------------------

    def inlined(self, module: Any, operands: Sequence[Any]) -> list[Any]:
        """Return the results of a graph module on operands; its nodes are converted in place of this node."""
        return self.importer.inlined(module, operands)

    def applied(self, operator: Any, operands: Sequence[Any], dtype: DataType) -> Any:
        """Return the result of an operator on operands, which has the shape of this node's result and type `dtype`."""
        return self.importer.applied(self, operator, operands, getattr(torch, str(dtype)))

    def region(self, module: Any, operands: Sequence[Any], infos: Sequence[TensorInfo]) -> Graph:
        """Return a graph module as a region whose inputs, one for each operand that is a value, have `infos`."""
        return self.importer.region(module, operands, infos)


def _example(number: Any) -> Number:
    """Return a plain number of the same kind as a symbolic one."""
    return {torch.SymFloat: 1.0, torch.SymBool: True}.get(type(number), 1)


def _common(operands: Sequence[Any]) -> Any:
    """Return the ``torch.dtype`` to which tensors and numbers are promoted together."""
    tensors = [operand for operand in operands if isinstance(operand, torch.Tensor)]
    numbers = [operand for operand in operands if not isinstance(operand, torch.Tensor)]
    promoted_probe: Any = None
    for operand in sorted(tensors, key=lambda tensor: tensor.dim() == 0):
        probe = _probe(operand.dtype, operand.dim())  # an example itself cannot be combined with other tensors
        promoted_probe = (
            probe if promoted_probe is None else _probe(torch.result_type(promoted_probe, probe), promoted_probe.dim())
        )
    for number in numbers:
        promoted_probe = (
            number
            if promoted_probe is None
            else _probe(torch.result_type(promoted_probe, number), _rank(promoted_probe))
        )
    return torch.result_type(promoted_probe, promoted_probe)


def _probe(dtype: Any, rank: int) -> Any:
    return torch.empty((1,) * rank, dtype=dtype, device="meta")


def _rank(operand: Any) -> int:
    return int(operand.dim()) if isinstance(operand, torch.Tensor) else 0


def _reshape(sizes: Sequence[int]) -> Op:
    return Reshape(tuple(sizes))


def _filled(shape: TensorShape, sizes: Sequence[Any]) -> tuple[int, ...]:
    """Return the sizes of a reshape, with the number that -1 stands for if the sizes of the input are known."""
    known_sizes = [int(size) for size in sizes]
    if -1 in known_sizes and shape.is_concrete:
        product_of_others = math.prod(size for size in known_sizes if size != -1)
        known_sizes[known_sizes.index(-1)] = math.prod(shape) // product_of_others if product_of_others else 0
    return tuple(known_sizes)
