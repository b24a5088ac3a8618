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
from interposer.core.types import MAX_RANK, Array, DataType, Quantization, TensorInfo, TensorShape
from interposer.ir.graph import Graph, Layer, Value
from interposer.ops.control import Constant, Input, Output
from interposer.plugins.capi.abi import structs as abi
from interposer.plugins.capi.abi.attribute_kinds import Kind, kind_of
from interposer.plugins.capi.abi.reading import read, read_array, read_integers, read_text, read_versioned

__all__ = ["read_graph", "read_offered"]

MOST: Final = 1 << 20
"""The largest number of layers, tensors or constants of a graph, and of numbers in an attribute."""
Memory = Callable[[int | None, int, str], bytes | memoryview]
"""Returns the bytes at an address: its arguments are the address, the number of bytes and a text for messages."""
_DTYPES: Final = {number: dtype for dtype, number in abi.DTYPES.items()}


def read_graph(address: int, inputs: Sequence[TensorInfo], outputs: int, what: str) -> Graph:
    """Return the graph that a plug-in describes by an ``ipr_graph`` at this address, in the order of its tables.

    It gets an Input layer for each info in `inputs`, and as many Output layers as `outputs` says. `what` describes the
    graph in error messages.

    Raises:
        BackendContractError: the tables cannot be read, or have an index out of range, an unknown layer or attribute,
            another number of inputs or outputs, or inputs that differ from `inputs`.
    """
    try:
        return _Reader(address, what).graph(inputs, outputs)
    except BackendContractError:
        raise
    except InterposerError as error:
        raise BackendContractError(f"{what}: {error}") from error


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
    def __init__(self, address: int, what: str, memory: Memory = read) -> None:
        self._what, self._memory = what, memory
        self.layers: list[Layer] = []
        versioned = read_versioned(abi.Graph, address, ctypes.sizeof(abi.Graph), what)
        self._given = versioned
        self._tensors = self._table(abi.TensorInfo, "tensor")
        self._layers = self._table(abi.Layer, "layer")
        self._constants = self._table(abi.Constant, "constant")
        self._graph = Graph()
        self._values: dict[int, Value] = {}

    def _table(self, kind: type[Any], name: str) -> list[Any]:
        value = self._given
        count, stride = getattr(value, f"{name}_count"), getattr(value, f"{name}_stride")
        if count > MOST:
            raise self._problem(f"it has {count:,} {name}s")
        return read_array(kind, getattr(value, f"{name}s"), count, stride, f"{self._what}: its {name}s")

    def graph(self, inputs: Sequence[TensorInfo] | None, outputs: int | None) -> Graph:
        value = self._given
        entering = self._indices(value.inputs, value.input_count, "inputs")
        leaving = self._indices(value.outputs, value.output_count, "outputs")
        inputs = [self._info(index) for index in entering] if inputs is None else inputs
        outputs = len(leaving) if outputs is None else outputs
        if len(entering) != len(inputs) or len(leaving) != outputs:
            raise self._problem(
                f"it has {len(entering)} inputs and {len(leaving)} outputs; expected {len(inputs)} and {outputs}"
            )
        for binding, (index, info) in enumerate(zip(entering, inputs, strict=True)):
            result = self._info(index)
            if result != info:
                raise self._problem(f"its input {binding} is {result}, but the tensor is {info}")
            self._values[index] = self._graph.add(Input(binding), outputs=[info]).output
        for number in range(len(self._layers)):
            self._add_layer(number)
        for binding, index in enumerate(leaving):
            self._graph.add(Output(binding), [self._value(index, f"output {binding}")])
        return self._graph

    def _add_layer(self, number: int) -> None:
        arguments = self._layers[number]
        name = read_text(arguments.name, f"{self._what}: the name of layer {number}")
        where = f"layer {number} ({name})"
        cls = op_class(read_text(arguments.type, f"{self._what}: the type of {where}"))
        inputs = self._indices(arguments.inputs, arguments.input_count, f"the inputs of {where}", absent=True)
        outputs = self._indices(arguments.outputs, arguments.output_count, f"the outputs of {where}")
        op = cls(**self._attributes(cls, arguments, where))
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
        value = self._constants[number]
        if not info.is_concrete or value.size != info.num_bytes:
            raise self._problem(f"constant {number} has {value.size:,} bytes, but tensor {index} is {info}")
        raw = self._memory(value.data, value.size, f"{self._what}: constant {number}")
        array: Array = np.frombuffer(raw, info.dtype.numpy).reshape(tuple(info.shape))
        layer = self._graph.add(Constant(array, info.quantization))
        return layer.output

    def _info(self, index: int) -> TensorInfo:
        value = self._tensors[index]
        if value.dtype not in _DTYPES:
            raise self._problem(f"tensor {index} has the type {value.dtype}")
        if value.rank < 0:
            raise self._problem(f"tensor {index} has the rank {value.rank}")
        shape = read_integers(value.shape, value.rank, MAX_RANK, f"{self._what}: the shape of tensor {index}")
        sizes = TensorShape(None if size < 0 else size for size in shape)
        return TensorInfo(sizes, _DTYPES[value.dtype], self._quantization(index))

    def _quantization(self, index: int) -> Quantization | None:
        value = self._tensors[index]
        if not value.scale_count:
            return None
        if value.scale_count > MOST:
            raise self._problem(f"tensor {index} has {value.scale_count:,} scales")
        where = f"{self._what}: the quantization of tensor {index}"
        scales = _floats(value.scales, value.scale_count, where)
        points = read_integers(value.zero_points, value.scale_count, MOST, where)
        return Quantization(scales, points, None if value.axis < 0 else value.axis)

    def _attributes(self, cls: type[Op], value: Any, where: str) -> Mapping[str, Any]:
        if value.attribute_count > MOST:
            raise self._problem(f"{where} has {value.attribute_count:,} attributes")
        stride, what = self._given.attribute_stride, f"{self._what}: the attributes of {where}"
        result = {}
        for item in read_array(abi.Attribute, value.attributes, value.attribute_count, stride, what):
            name = read_text(item.name, what)
            kind = kind_of(annotation(cls, name)) if name in cls.attributes else None
            if kind is None:
                raise self._problem(f"{where}: {cls.op_name()} has no attribute {name!r}")
            result[name] = _attribute(item, kind, f"{what}: {name}")
        return result

    def _indices(self, address: int | None, count: int, what: str, absent: bool = False) -> Sequence[int]:
        least, most = -1 if absent else 0, len(self._tensors)
        integers = read_integers(address, count, MOST, f"{self._what}: {what}")
        for index in integers:
            if not least <= index < most:
                raise self._problem(f"{what}: there is no tensor {index}")
        return integers

    def _problem(self, text: str) -> BackendContractError:
        return BackendContractError(f"{self._what}: {text}")


def _floats(address: int | None, count: int, what: str) -> list[float]:
    if count > MOST:
        raise BackendContractError(f"{what}: {count:,} numbers")
    return list(struct.unpack(f"={count}d", read(address, 8 * count, what)))


def _attribute(item: Any, kind: Kind, what: str) -> Any:
    if item.kind == abi.KIND_NONE:
        return None
    if item.kind != kind.number:
        raise BackendContractError(f"{what} is of kind {item.kind}; expected {kind.number} ({kind})")
    plain: dict[int, Callable[[], Any]] = {
        abi.KIND_BOOL: lambda: bool(item.i),
        abi.KIND_INT: lambda: item.i,
        abi.KIND_FLOAT: lambda: item.f,
        abi.KIND_TEXT: lambda: read_text(item.text, what),
        abi.KIND_ENUM: lambda: _choice(kind, item.text, what),
        abi.KIND_DTYPE: lambda: _dtype(item.i, what),
        abi.KIND_FLOATS: lambda: _floats(item.floats, item.count, what),
        abi.KIND_INTS: lambda: _integers(item, kind, what),
        abi.KIND_ENUMS: lambda: _choices(item, kind, what),
    }
    return plain[kind.number]()


def _dtype(number: int, what: str) -> DataType:
    if number not in _DTYPES:
        raise BackendContractError(f"{what}: there is no type {number}")
    return _DTYPES[number]


def _choice(kind: Kind, text: Any, what: str) -> Enum:
    assert kind.choices is not None
    name = read_text(text, what)
    if name not in kind.choices.__members__:
        raise BackendContractError(f"{what} is {name!r}; expected one of {', '.join(kind.choices.__members__)}")
    return kind.choices[name]


def _choices(item: Any, kind: Kind, what: str) -> list[Enum]:
    if item.count > MOST:
        raise BackendContractError(f"{what}: {item.count:,} texts")
    texts = read_array(abi.String, item.texts, item.count, ctypes.sizeof(abi.String), what)
    return [_choice(kind, text, what) for text in texts]


def _integers(item: Any, kind: Kind, what: str) -> Sequence[Any]:
    flat = read_integers(item.ints, item.count, MOST, what)
    if not kind.columns:
        return flat
    if item.columns != kind.columns or item.count % kind.columns:
        raise BackendContractError(f"{what} has {item.count} numbers in rows of {item.columns}, not of {kind.columns}")
    return [tuple(flat[start : start + kind.columns]) for start in range(0, len(flat), kind.columns)]
