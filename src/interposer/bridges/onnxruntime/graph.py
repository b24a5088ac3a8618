"""Graphs of ONNX Runtime as ONNX models, which the ONNX front end reads."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from typing import Any, Final, NamedTuple
from weakref import WeakValueDictionary

import numpy as np

from interposer.bridges.claims import HostNode, label
from interposer.bridges.onnxruntime.abi import OrtApi, OrtError
from interposer.bridges.onnxruntime.contexts import is_context, source_of
from interposer.core.errors import InterposerError, InvalidArgumentError, ParseError
from interposer.core.types import Array, DataType
from interposer.frontends.onnx import template
from interposer.frontends.onnx.proto import Document, Message, onnx_package
from interposer.frontends.onnx.tensors import data_type, type_number
from interposer.frontends.template import Template

__all__ = ["OrtGraph"]

_OLDEST_IR: Final = 4
"""The first version of the format in which initializers need not be inputs."""
_PACKED: Final = frozenset(
    {
        DataType.INT2, DataType.UINT2, DataType.INT4, DataType.UINT4, DataType.FLOAT4_E2M1FN, DataType.FLOAT6_E2M3FN,
        DataType.FLOAT6_E3M2FN,
    }
)  # fmt: skip
"""Types of which ONNX Runtime packs several elements into a byte."""
_INT, _FLOAT, _STRING, _INTS, _FLOATS, _STRINGS, _GRAPH, _TENSOR = 1, 3, 5, 2, 4, 6, 7, 8
_SUBGRAPHS: Final = "it has subgraphs, and control flow is left to the host"


class _Value(NamedTuple):
    """A value of the graph: its name, and its type if it is a tensor of known rank."""

    name: str
    element_type: int
    shape: tuple[int | str | None, ...]
    obstacle: str


class _Node(NamedTuple):
    """A node: its address, its operator with domain, and the values that it reads and gives, "" if absent."""

    address: int
    name: str
    operator: str
    domain: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    implicit: tuple[str, ...]


class OrtGraph:
    """A graph at an address in ONNX Runtime, valid during the call that passes it; see `claims.HostGraph`.

    The arrays of its constants are copies, since ONNX Runtime releases its own when the groups are compiled.

    Raises:
        MissingDependencyError: the package onnx is not installed.
    """

    def __init__(self, api: OrtApi, address: int) -> None:
        self._api, self._address, self._onnx = api, address, onnx_package()
        self.name = api.text("Graph_GetName", address)
        self._values: dict[str, _Value] = {}
        self._nodes = [self._node(node) for node in api.listed(address, "Graph.Nodes")]
        self.outputs = [self._noted(value) for value in api.listed(address, "Graph.Outputs")]
        self._constants: dict[str, int] = dict(self._find_constants())
        self._contents: WeakValueDictionary[str, Array] = WeakValueDictionary()
        self.nodes = [self._host_node(node) for node in self._nodes]

    def addresses(self, members: Sequence[int]) -> list[int]:
        """Return the addresses of nodes."""
        return [self._nodes[n].address for n in members]

    def own_contexts(self, provider: str) -> list[int]:
        """Return the indices of the context nodes that a provider of this name has made."""
        return [
            n
            for n, node in enumerate(self._nodes)
            if is_context(node.domain, node.operator) and source_of(self._api, node.address) == provider
        ]

    def dtypes(self, index: int) -> dict[str, np.dtype[Any]]:
        """Return the NumPy types of the inputs and outputs of a node by their names.

        Raises:
            InvalidArgumentError: a value is no tensor, or its type is one that backends do not exchange with the host.
        """
        node = self._nodes[index]
        values = [self._values[name] for name in (*node.inputs, *node.outputs) if name]
        for value in values:
            if value.obstacle:
                raise InvalidArgumentError(value.obstacle)
        return {value.name: data_type(value.element_type).numpy for value in values}

    @property
    def path(self) -> str:
        """The path of the model; empty if it was not loaded from a file."""
        return self._api.text("Graph_GetModelPath", self._address)

    def copied_bytes(self) -> int:
        """Return the bytes of the constants of which parts of this graph have copies."""
        return sum(content.nbytes for content in self._contents.values())

    def template(self, members: Sequence[int]) -> Template:
        """Return the part of the graph that consists of these nodes; see `claims.HostGraph`."""
        try:
            return template(self._document([self._nodes[n] for n in members], [label(n) for n in members]))
        except OrtError as error:
            raise ParseError(f"ONNX Runtime cannot read its graph: {error}") from error

    # --- what files of compiled groups depend on

    def facts(self) -> Iterator[Any]:
        """Yield all but the data of constants; see `stored.StoredGraph`."""
        yield self._api.version
        yield [(opset.domain, opset.version) for opset in self._opsets]
        for node, host_node in zip(self._nodes, self.nodes, strict=True):
            yield host_node
            if not host_node.obstacle:
                yield self._node_message(node, "").SerializeToString(deterministic=True)
        yield from self._values.values()
        yield [*self._constants]

    def constants(self) -> Iterator[bytes]:
        """Yield the bytes of the constants that nodes without an obstacle read."""
        readable_names = {name for node in self.nodes if not node.obstacle for name in node.inputs}
        for name, address in self._constants.items():
            if name in readable_names:
                yield self._api.content(self._api.pointer("ValueInfo_GetInitializerValue", address))

    # --- reading

    def _noted(self, address: int) -> str:
        """Record a value at an address, and return its name."""
        if not address:
            return ""
        name = self._api.text("GetValueInfoName", address)
        if name and name not in self._values:
            self._values[name] = self._value(name, address)
        return name

    def _value(self, name: str, address: int) -> _Value:
        api = self._api
        type_info = api.pointer("GetValueInfoTypeInfo", address)
        tensor = api.pointer("CastTypeInfoToTensorInfo", type_info) if type_info else 0
        if not tensor:
            return _Value(name, 0, (), f"{name!r} is no tensor")
        number = api.number("GetTensorElementType", tensor, ctypes.c_int32)
        has_shape = not api.has("TensorTypeAndShape_HasShape") or api.call("TensorTypeAndShape_HasShape", tensor)
        value = _Value(name, number, self._shape(tensor) if has_shape else (), "")
        rank_obstacle = "" if has_shape else f"the rank of {name!r} is not known"
        return value._replace(obstacle=_type_obstacle(value) or _packed_obstacle(value) or rank_obstacle)

    def _shape(self, tensor: int) -> tuple[int | str | None, ...]:
        sizes = self._api.dimensions(tensor)
        names = (ctypes.c_char_p * len(sizes))()
        self._api.call("GetSymbolicDimensions", tensor, names, len(sizes))
        return tuple(
            size if size >= 0 else (name or b"").decode() or None for size, name in zip(sizes, names, strict=True)
        )

    def _node(self, address: int) -> _Node:
        api = self._api
        inputs, outputs, implicit = (
            tuple(map(self._noted, api.listed(address, f"Node.{kind}")))
            for kind in ("Inputs", "Outputs", "ImplicitInputs")
        )
        name, operator, domain = (
            api.text(f"Node_Get{attribute}", address) for attribute in ("Name", "OperatorType", "Domain")
        )
        return _Node(address, name, operator, domain, inputs, outputs, implicit)

    def _find_constants(self) -> Iterator[tuple[str, int]]:
        for address in self._api.listed(self._address, "Graph.Initializers"):
            if self._api.number("ValueInfo_IsConstantInitializer", address, ctypes.c_bool):
                yield self._noted(address), address

    def _host_node(self, node: _Node) -> HostNode:
        name = node.name or f"{node.operator}:{next(filter(None, node.outputs), '')}"
        kind = f"{node.domain}.{node.operator}" if node.domain else node.operator
        return HostNode(name, kind, (*node.inputs, *node.implicit), node.outputs, self._obstacle(node))

    def _obstacle(self, node: _Node) -> str:
        provider = self._api.text("Node_GetEpName", node.address)
        if provider:
            return f"{provider} runs it, which the session asked first"
        if is_context(node.domain, node.operator):
            return f"it was compiled by {source_of(self._api, node.address) or 'an unknown provider'}"
        if self._api.number("Node_GetNumSubgraphs", node.address):
            return _SUBGRAPHS
        for name in filter(None, (*node.inputs, *node.outputs)):
            value = self._values[name]
            obstacle = _type_obstacle(value) if name in self._constants else value.obstacle
            if obstacle:
                return obstacle
            if name in node.inputs and name not in self._constants and self._may_lack_rank(value):
                return f"the rank of {name!r} is not known"
        return ""

    def _may_lack_rank(self, value: _Value) -> bool:
        """Return True if the rank may be unknown: older versions do not distinguish such a tensor from a scalar."""
        return not value.shape and not self._api.has("TensorTypeAndShape_HasShape")

    # --- conversion

    def _document(self, nodes: Sequence[_Node], labels: Sequence[str]) -> Document:
        computed_names = {name for node in nodes for name in node.outputs if name}
        names_read = dict.fromkeys(name for node in nodes for name in node.inputs if name)
        inputs = [name for name in names_read if name not in computed_names and name not in self._constants]
        graph = self._onnx.GraphProto(name=self.name or "network")
        graph.node.extend(self._node_message(*pair) for pair in zip(nodes, labels, strict=True))
        graph.input.extend(self._declared(name) for name in inputs)
        graph.output.extend(self._declared(name) for name in self._outputs(nodes, computed_names))
        constants = [name for name in names_read if name in self._constants]
        external_constants = {position: self._add_constant(graph, name) for position, name in enumerate(constants)}
        model = self._onnx.ModelProto(
            ir_version=max(_OLDEST_IR, self._api.number("Graph_GetOnnxIRVersion", self._address))
        )
        model.graph.CopyFrom(graph)
        model.opset_import.extend(self._opsets)
        return Document(model, None, external_constants)

    def _outputs(self, nodes: Sequence[_Node], computed_names: set[str]) -> list[str]:
        """Return the results of nodes that others read, or that the graph returns."""
        members = {node.address for node in nodes}
        other_nodes = (node for node in self._nodes if node.address not in members)
        needed_names = {name for node in other_nodes for name in (*node.inputs, *node.implicit)} | {*self.outputs}
        return [name for node in nodes for name in node.outputs if name in needed_names and name in computed_names]

    def _declared(self, name: str) -> Message:
        value = self._values[name]
        return self._onnx.helper.make_tensor_value_info(name, value.element_type, value.shape)

    def _add_constant(self, graph: Message, name: str) -> memoryview:
        """Add an initializer without data to a graph, and return a copy of its data, which all parts share."""
        ort_value = self._api.pointer("ValueInfo_GetInitializerValue", self._constants[name])
        dtype, shape = self._api.tensor_type(ort_value)
        graph.initializer.append(self._onnx.TensorProto(name=name, data_type=type_number(dtype), dims=shape))
        content = self._contents.get(name)
        if content is None:
            content = self._contents[name] = np.frombuffer(self._api.content(ort_value), np.uint8)
        return content.data

    @cached_property
    def _opsets(self) -> list[Any]:
        count = self._api.number("Graph_GetNumOperatorSets", self._address)
        domains, versions = (ctypes.c_char_p * count)(), (ctypes.c_int64 * count)()
        self._api.call("Graph_GetOperatorSets", self._address, domains, versions, count)
        return [
            self._onnx.helper.make_opsetid((domain or b"").decode(), version)
            for domain, version in zip(domains, versions, strict=True)
        ]

    def _node_message(self, node: _Node, name: str) -> Message:
        message = self._onnx.helper.make_node(node.operator, node.inputs, node.outputs, name=name, domain=node.domain)
        attributes = [address for address in self._api.listed(node.address, "Node.Attributes") if address]
        message.attribute.extend(map(self._attribute, attributes))
        return message

    def _attribute(self, address: int) -> Message:
        api = self._api
        name = api.text("OpAttr_GetName", address)
        kind = api.number("OpAttr_GetType", address, ctypes.c_int32)
        if kind == _TENSOR:
            return self._onnx.helper.make_attribute(
                name, self._onnx.numpy_helper.from_array(api.attribute_tensor(address))
            )
        reader = _READERS.get(kind)
        if reader is None:
            raise InvalidArgumentError(f"the attribute {name!r} has the type {kind}, which bridges do not read")
        element = {_INT: ctypes.c_int64, _FLOAT: ctypes.c_float}.get(kind)
        number = self._onnx.AttributeProto.AttributeType.Value(_ONNX_TYPES[kind])
        attribute_value = reader(api.attribute(address, kind, element))
        return self._onnx.helper.make_attribute(name, attribute_value, attr_type=number)


def _numbers(dtype: str) -> Callable[[bytes], list[Any]]:
    return lambda data: np.frombuffer(data, dtype).tolist()


_READERS: Final[dict[int, Callable[[bytes], Any]]] = {
    _INT: lambda data: int.from_bytes(data, "little", signed=True),
    _FLOAT: lambda data: float(np.frombuffer(data, np.float32)[0]),
    _STRING: lambda data: data.rstrip(b"\0"),
    _INTS: _numbers("<i8"),
    _FLOATS: _numbers("<f4"),
    _STRINGS: lambda data: data.split(b"\0")[:-1],
}
"""How the bytes of attributes are read, by the number of their type in ONNX Runtime."""
_ONNX_TYPES: Final = {
    _INT: "INT",
    _FLOAT: "FLOAT",
    _STRING: "STRING",
    _INTS: "INTS",
    _FLOATS: "FLOATS",
    _STRINGS: "STRINGS",
}


def _type_obstacle(value: _Value) -> str:
    """Return why a node with a tensor of this type stays with the host, or an empty text."""
    try:
        dtype = data_type(value.element_type)
    except InterposerError as error:
        return str(error) if value.element_type else value.obstacle
    return f"{value.name!r} has texts, which are left to the host" if dtype.numpy.hasobject else ""


def _packed_obstacle(value: _Value) -> str:
    is_packed = data_type(value.element_type) in _PACKED
    return f"{value.name!r} has packed elements, which are only read from constants" if is_packed else ""
