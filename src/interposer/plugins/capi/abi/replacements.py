"""Decoding of graphs that the other side passes: the tables of an ``ipr_graph`` become a validated `Graph`."""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Callable, Mapping, Sequence
from enum import Enum
from typing import Any, Final

import numpy as np

from interposer.core.errors import BackendContractError, InterposerError
from interposer.core.schema import Op, annotation, op_class
from interposer.core.types import Array, DataType, Quantization, TensorInfo, TensorShape
from interposer.ir.graph import Graph, Layer, Value
from interposer.ops.control import Constant, Input, Output
from interposer.plugins.capi.abi import structs as abi
from interposer.plugins.capi.abi.attribute_kinds import Kind, kind_of
from interposer.plugins.capi.abi.flatten import MOST_AXES
from interposer.plugins.capi.abi.reading import read, read_array, read_integers, read_text, read_versioned

__all__ = ["read_graph", "read_offered"]

MOST: Final = 1 << 20
"""The largest number of layers, tensors or constants of a graph, and of numbers in an attribute."""
Memory = Callable[[int | None, int, str], bytes | memoryview]
"""Returns the bytes at an address: its arguments are the address, the number of bytes and a text for messages."""
_DTYPES: Final = {number: dtype for dtype, number in abi.DTYPES.items()}


def read_graph(address: int, inputs: Sequence[TensorInfo], num_outputs: int, subject: str) -> Graph:
    """Return the graph that a plug-in describes by an ``ipr_graph`` at this address, in the order of its tables.

    It gets an Input layer for each info in `inputs`, and `num_outputs` Output layers. `subject` describes the graph in
    error messages.

    Raises:
        BackendContractError: the tables cannot be read, or have an index out of range, an unknown layer or attribute,
            another number of inputs or outputs, or inputs that differ from `inputs`.
    """
    try:
        return _Reader(address, subject).graph(inputs, num_outputs)
    except BackendContractError:
        raise
    except InterposerError as error:
        raise BackendContractError(f"{subject}: {error}") from error


def read_offered(address: int, memory: Memory) -> tuple[Graph, list[Layer]]:
    """Return the graph that a host offers by an ``ipr_graph`` at this address, and its layers in the table's order.

    The graph has an Input layer for each input and an Output layer for each output of the tables. `memory` returns the
    bytes of a constant.

    Raises:
        BackendContractError: the tables cannot be read or are not valid, as for `read_graph`.
    """
    reader = _Reader(address, "the graph", memory)
    return reader.graph(None, None), reader.layers


class _Reader:
    def __init__(self, address: int, subject: str, memory: Memory = read) -> None:
        self._subject, self._memory = subject, memory
        self.layers: list[Layer] = []
        graph_struct = read_versioned(abi.Graph, address, ctypes.sizeof(abi.Graph), subject)
        self._struct = graph_struct
        self._tensors = self._table(abi.TensorInfo, "tensor")
        self._layers = self._table(abi.Layer, "layer")
        self._constants = self._table(abi.Constant, "constant")
        self._graph = Graph()
        self._values: dict[int, Value] = {}

    def _table(self, kind: type[Any], name: str) -> list[Any]:
        graph = self._struct
        count, stride = getattr(graph, f"{name}_count"), getattr(graph, f"{name}_stride")
        if count > MOST:
            raise self._problem(f"it has {count:,} {name}s")
        return read_array(kind, getattr(graph, f"{name}s"), count, stride, f"{self._subject}: its {name}s")

    def graph(self, inputs: Sequence[TensorInfo] | None, outputs: int | None) -> Graph:
        graph = self._struct
        entering = self._indices(graph.inputs, graph.input_count, "inputs")
        output_indices = self._indices(graph.outputs, graph.output_count, "outputs")
        inputs = [self._info(index) for index in entering] if inputs is None else inputs
        outputs = len(output_indices) if outputs is None else outputs
        if len(entering) != len(inputs) or len(output_indices) != outputs:
            raise self._problem(
                f"it has {len(entering)} inputs and {len(output_indices)} outputs; expected {len(inputs)} and {outputs}"
            )
        for binding, (index, info) in enumerate(zip(entering, inputs, strict=True)):
            declared_info = self._info(index)
            if declared_info != info:
                raise self._problem(f"its input {binding} is {declared_info}, but the tensor is {info}")
            self._values[index] = self._graph.add(Input(binding), outputs=[info]).output
        for number in range(len(self._layers)):
            self._add_layer(number)
        for binding, index in enumerate(output_indices):
            self._graph.add(Output(binding), [self._value(index, f"output {binding}")])
        return self._graph

    def _add_layer(self, number: int) -> None:
        row = self._layers[number]
        name = read_text(row.name, f"{self._subject}: the name of layer {number}")
        where = f"layer {number} ({name})"
        cls = op_class(read_text(row.type, f"{self._subject}: the type of {where}"))
        inputs = self._indices(row.inputs, row.input_count, f"the inputs of {where}", allows_absent=True)
        outputs = self._indices(row.outputs, row.output_count, f"the outputs of {where}")
        op = cls(**self._attributes(cls, row, where))
        if op.num_results() != len(outputs):
            raise self._problem(f"{where} has {len(outputs)} outputs; {cls.op_name()} gives {op.num_results()}")
        values = [None if index < 0 else self._value(index, where) for index in inputs]
        layer = self._graph.add(op, values, name=name or None, outputs=[self._info(index) for index in outputs])
        self.layers.append(layer)
        for index, value in zip(outputs, layer.outputs, strict=True):
            if index in self._values:
                raise self._problem(f"{where} gives tensor {index}, which has a source already")
            self._values[index] = value

    def _value(self, index: int, where: str) -> Value:
        if index not in self._values and self._tensors[index].constant >= 0:
            self._values[index] = self._constant(index)
        if index not in self._values:
            raise self._problem(f"{where} takes tensor {index}, which nothing before it gives")
        return self._values[index]

    def _constant(self, index: int) -> Value:
        info, number = self._info(index), self._tensors[index].constant
        if number >= len(self._constants):
            raise self._problem(f"tensor {index} is constant {number}; there are {len(self._constants)}")
        constant = self._constants[number]
        if not info.is_concrete or constant.size != info.num_bytes:
            raise self._problem(f"constant {number} has {constant.size:,} bytes, but tensor {index} is {info}")
        constant_bytes = self._memory(constant.data, constant.size, f"{self._subject}: constant {number}")
        array: Array = np.frombuffer(constant_bytes, info.dtype.numpy).reshape(tuple(info.shape))
        layer = self._graph.add(Constant(array, info.quantization))
        return layer.output

    def _info(self, index: int) -> TensorInfo:
        tensor = self._tensors[index]
        if tensor.dtype not in _DTYPES:
            raise self._problem(f"tensor {index} has the type {tensor.dtype}")
        if tensor.rank < 0:
            raise self._problem(f"tensor {index} has the rank {tensor.rank}")
        shape = read_integers(tensor.shape, tensor.rank, MOST_AXES, f"{self._subject}: the shape of tensor {index}")
        sizes = TensorShape(None if size < 0 else size for size in shape)
        return TensorInfo(sizes, _DTYPES[tensor.dtype], self._quantization(index))

    def _quantization(self, index: int) -> Quantization | None:
        tensor = self._tensors[index]
        if not tensor.scale_count:
            return None
        if tensor.scale_count > MOST:
            raise self._problem(f"tensor {index} has {tensor.scale_count:,} scales")
        where = f"{self._subject}: the quantization of tensor {index}"
        scales = _floats(tensor.scales, tensor.scale_count, where)
        points = read_integers(tensor.zero_points, tensor.scale_count, MOST, where)
        return Quantization(scales, points, None if tensor.axis < 0 else tensor.axis)

    def _attributes(self, cls: type[Op], layer: Any, where: str) -> Mapping[str, Any]:
        if layer.attribute_count > MOST:
            raise self._problem(f"{where} has {layer.attribute_count:,} attributes")
        stride, subject = self._struct.attribute_stride, f"{self._subject}: the attributes of {where}"
        values = {}
        for attribute in read_array(abi.Attribute, layer.attributes, layer.attribute_count, stride, subject):
            name = read_text(attribute.name, subject)
            kind = kind_of(annotation(cls, name)) if name in cls.attributes else None
            if kind is None:
                raise self._problem(f"{where}: {cls.op_name()} has no attribute {name!r}")
            values[name] = _attribute(attribute, kind, f"{subject}: {name}")
        return values

    def _indices(self, address: int | None, count: int, subject: str, allows_absent: bool = False) -> Sequence[int]:
        lowest, limit = -1 if allows_absent else 0, len(self._tensors)
        integers = read_integers(address, count, MOST, f"{self._subject}: {subject}")
        for index in integers:
            if not lowest <= index < limit:
                raise self._problem(f"{subject}: there is no tensor {index}")
        return integers

    def _problem(self, text: str) -> BackendContractError:
        return BackendContractError(f"{self._subject}: {text}")


def _floats(address: int | None, count: int, subject: str) -> list[float]:
    if count > MOST:
        raise BackendContractError(f"{subject}: {count:,} numbers")
    return list(struct.unpack(f"={count}d", read(address, 8 * count, subject)))


def _attribute(attribute: Any, kind: Kind, subject: str) -> Any:
    if attribute.kind == abi.KIND_NONE:
        return None
    if attribute.kind != kind.number:
        raise BackendContractError(f"{subject} is of kind {attribute.kind}; expected {kind.number} ({kind})")
    readers: dict[int, Callable[[], Any]] = {
        abi.KIND_BOOL: lambda: bool(attribute.i),
        abi.KIND_INT: lambda: attribute.i,
        abi.KIND_FLOAT: lambda: attribute.f,
        abi.KIND_TEXT: lambda: read_text(attribute.text, subject),
        abi.KIND_ENUM: lambda: _choice(kind, attribute.text, subject),
        abi.KIND_DTYPE: lambda: _dtype(attribute.i, subject),
        abi.KIND_FLOATS: lambda: _floats(attribute.floats, attribute.count, subject),
        abi.KIND_INTS: lambda: _integers(attribute, kind, subject),
        abi.KIND_ENUMS: lambda: _choices(attribute, kind, subject),
    }
    return readers[kind.number]()


def _dtype(number: int, subject: str) -> DataType:
    if number not in _DTYPES:
        raise BackendContractError(f"{subject}: there is no type {number}")
    return _DTYPES[number]


def _choice(kind: Kind, text: Any, subject: str) -> Enum:
    assert kind.choices is not None
    name = read_text(text, subject)
    if name not in kind.choices.__members__:
        raise BackendContractError(f"{subject} is {name!r}; expected one of {', '.join(kind.choices.__members__)}")
    return kind.choices[name]


def _choices(attribute: Any, kind: Kind, subject: str) -> list[Enum]:
    if attribute.count > MOST:
        raise BackendContractError(f"{subject}: {attribute.count:,} texts")
    texts = read_array(abi.String, attribute.texts, attribute.count, ctypes.sizeof(abi.String), subject)
    return [_choice(kind, text, subject) for text in texts]


def _integers(attribute: Any, kind: Kind, subject: str) -> Sequence[Any]:
    integers = read_integers(attribute.ints, attribute.count, MOST, subject)
    if not kind.columns:
        return integers
    if attribute.columns != kind.columns or attribute.count % kind.columns:
        raise BackendContractError(
            f"{subject} has {attribute.count} numbers in rows of {attribute.columns}, not of {kind.columns}"
        )
    return [tuple(integers[start : start + kind.columns]) for start in range(0, len(integers), kind.columns)]
