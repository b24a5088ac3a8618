"""TensorFlow converters for lookup tables, whose content nodes of the model write when it is loaded."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import field
from pathlib import Path
from typing import Any, Final

import numpy as np

from interposer.core.errors import ParseError
from interposer.core.files import check_regular, reason_of
from interposer.core.records import dataclass
from interposer.core.types import Array, DataType
from interposer.frontends.tensorflow.dtypes import data_type
from interposer.frontends.tensorflow.messages import FunctionDef, NodeDef
from interposer.frontends.tensorflow.node import Node
from interposer.frontends.tensorflow.references import data_inputs
from interposer.frontends.tensorflow.results import Result, Variable
from interposer.frontends.tensorflow.tensorflow_converters import operator
from interposer.frontends.tensorflow.tensors import array_of
from interposer.ir.graph import Value
from interposer.ops.features import LabelEncoder

__all__: list[str] = []

_FROM_TENSORS: Final = frozenset({"InitializeTable", "InitializeTableV2", "LookupTableImport", "LookupTableImportV2"})
_FROM_FILES: Final = frozenset({"InitializeTableFromTextFile", "InitializeTableFromTextFileV2"})
_CALLS: Final = frozenset({"PartitionedCall", "StatefulPartitionedCall"})
_MOST_BODIES: Final = 1 << 12
_MOST_STEPS: Final = 64
_LARGEST_FILE: Final = 1 << 30
_WHOLE_LINE: Final = -2
_LINE_NUMBER: Final = -1


@operator("HashTable", "HashTableV2", "MutableHashTable", "MutableHashTableV2")
def table(node: Node) -> Result:
    """Convert a table to a handle; nodes that initialize the table determine its content."""
    return Variable(node.name)


@operator("LookupTableFind", "LookupTableFindV2")
def find(node: Node) -> Value:
    """Convert LookupTableFindV2: the values of keys, and the third operand for elements that are no key."""
    keys, values = _content(node)
    default = node.array(2, "default value").reshape(-1)
    if default.size != 1:
        raise ParseError(f"its default value has {default.size} elements; expected one")
    return node.result(LabelEncoder(keys, values, default.reshape(())), node.value(1))


@operator("LookupTableSize", "LookupTableSizeV2")
def size(node: Node) -> Value:
    """Convert LookupTableSizeV2 to a constant."""
    return node.named_constant(np.array(len(set(_content(node)[0].tolist())), np.int64))


@dataclass(frozen=True)
class _Body:
    """The nodes of the main graph or of a called function, by name.

    For a function, `arguments` maps the name of each argument to the body that calls the function and the name of the
    value that it passes, and `graph` is the body of the main graph. The main graph has neither.
    """

    nodes: Mapping[str, NodeDef]
    arguments: Mapping[str, tuple[_Body, str]] = field(default_factory=dict)
    graph: _Body | None = None

    def origin(self, text: str) -> NodeDef | None:
        """Return the node with which a value starts, before calls and Identity nodes; None if there is none.

        The value of a variable starts where the value that the graph assigns to this variable does.
        """
        body, node = self._start(text)
        if node is None or node.op != "ReadVariableOp":
            return node
        graph = self.graph or self
        _, variable_node = body._start(_input(node, 0))
        assignments = (candidate for candidate in graph.nodes.values() if candidate.op == "AssignVariableOp")
        writer = next(
            (candidate for candidate in assignments if graph._start(_input(candidate, 0))[1] is variable_node), None
        )
        return node if writer is None else graph._start(_input(writer, 1))[1]

    def _start(self, text: str) -> tuple[_Body, NodeDef | None]:
        """Return the node with which a value starts, and the body that has this node."""
        body = self
        for _ in range(_MOST_STEPS):
            name = text.partition(":")[0]
            if name in body.arguments:
                body, text = body.arguments[name]
                continue
            node = body.nodes.get(name)
            if node is None or node.op != "Identity" or not node.input:
                return body, node
            text = node.input[0]
        return body, None


def _input(node: NodeDef, index: int) -> str:
    """Return the value that a node reads; an empty text if it has too few inputs."""
    inputs = data_inputs(node)
    return inputs[index] if index < len(inputs) else ""


def _bodies(body: _Body, functions: Mapping[str, FunctionDef]) -> Iterator[_Body]:
    """Yield the graph and the bodies of all functions that it calls, up to a limit."""
    graph, pending_bodies, count = body, [body], 0
    while pending_bodies and count < _MOST_BODIES:
        body = pending_bodies.pop()
        count += 1
        yield body
        for node in body.nodes.values():
            function = functions.get(_called(node))
            if function is not None:
                passed_texts = dict(
                    zip((arg.name for arg in function.signature.input_arg), data_inputs(node), strict=False)
                )
                arguments = {name: (body, text) for name, text in passed_texts.items()}
                pending_bodies.append(_Body({inner.name: inner for inner in function.node_def}, arguments, graph))


def _called(node: NodeDef) -> str:
    function = node.attr["f"].func if node.op in _CALLS and "f" in node.attr else None
    return node.op if function is None else function.name


def _content(node: Node) -> tuple[Array, Array]:
    """Return the keys and values of a table; the node is refused if nothing in the model writes them."""
    name, root = node.variable(0).name, node.importer
    while root.outer is not None:
        root = root.outer
    for body in _bodies(_Body({candidate.name: candidate for candidate in root.nodes}), root.shared.functions):
        for candidate in body.nodes.values():
            inputs = data_inputs(candidate)
            if candidate.op not in _FROM_TENSORS | _FROM_FILES or not inputs:
                continue
            handle = body.origin(inputs[0])
            if handle is not None and handle.name == name:
                return _written(node, handle, candidate, [body.origin(text) for text in inputs[1:]])
    return node.unsupported(f"no constants initialize the table {name!r}")


def _written(node: Node, handle: NodeDef, writer: NodeDef, origins: list[NodeDef | None]) -> tuple[Array, Array]:
    arrays = [_constant(origin, node.importer.shared.assets) for origin in origins]
    flat_arrays = [array.reshape(-1) for array in arrays if array is not None]
    if len(flat_arrays) < len(arrays) or len(flat_arrays) != (2 if writer.op in _FROM_TENSORS else 1):
        node.unsupported(f"the content of the table {handle.name!r} is no constant")
    if writer.op in _FROM_FILES:
        return _from_file(node, handle, writer, str(flat_arrays[0][0]) if flat_arrays[0].size else "")
    if len(flat_arrays[0]) != len(flat_arrays[1]):
        raise ParseError(f"the table {handle.name!r} has {len(flat_arrays[0])} keys, but {len(flat_arrays[1])} values")
    return flat_arrays[0], flat_arrays[1]


def _constant(node: NodeDef | None, assets: Mapping[str, str]) -> Array | None:
    """Return the value of a constant, or the path of a file among the assets; None for other nodes."""
    if node is not None and node.name in assets:
        return np.array([assets[node.name]])
    tensor = node.attr["value"].tensor if node is not None and "value" in node.attr else None
    return None if tensor is None else array_of(tensor)


# --- files ------------------------------------------------------------------------------------------------------------


def _from_file(node: Node, handle: NodeDef, writer: NodeDef, name: str) -> tuple[Array, Array]:
    """Return the content of a table from a text file among the assets of a SavedModel."""
    folder = node.importer.shared.folder
    if folder is None:
        node.unsupported(f"the table {handle.name!r} is in the file {name!r}, which only a SavedModel has")
    lines = _lines(Path(folder) / "assets" / Path(name).name)
    offset, count = _integer(writer, "offset", 0), _integer(writer, "vocab_size", -1)
    lines = lines[offset:] if count < 0 else lines[offset : offset + count]
    delimiter = writer.attr["delimiter"].s if "delimiter" in writer.attr else None
    separator = bytes(delimiter or b"\t").decode("utf-8", "replace")
    dtypes = [_kind(handle, name) for name in ("key_dtype", "value_dtype")]
    column_indices = [_integer(writer, name, _WHOLE_LINE) for name in ("key_index", "value_index")]
    keys, values = (
        _column(lines, column, separator, dtype) for column, dtype in zip(column_indices, dtypes, strict=True)
    )
    return keys, values


def _lines(path: Path) -> list[str]:
    try:
        check_regular(path)
        if path.stat().st_size > _LARGEST_FILE:
            raise ParseError(f"the file {path.name!r} of a table has more than {_LARGEST_FILE:,} bytes")
        file_text = path.read_text(encoding="utf-8", errors="replace")
    except (OSError, ValueError) as error:
        raise ParseError(f"the file {path.name!r} of a table cannot be read: {reason_of(error)}") from error
    return file_text.removesuffix("\n").split("\n") if file_text else []


def _integer(node: NodeDef, name: str, default: int) -> int:
    number = node.attr[name].i if name in node.attr else None
    return default if number is None else number


def _kind(handle: NodeDef, name: str) -> DataType:
    type_number = handle.attr[name].type if name in handle.attr else None
    if type_number is None:
        raise ParseError(f"the table {handle.name!r} has no {name}")
    return data_type(type_number)


def _column(lines: list[str], column: int, delimiter: str, dtype: DataType) -> Array:
    if column == _LINE_NUMBER:
        return np.arange(len(lines), dtype=np.int64).astype(dtype.numpy)
    cells: list[Any] = lines if column == _WHOLE_LINE else [line.split(delimiter)[column] for line in lines]
    if dtype is DataType.STRING:
        texts = np.empty(len(cells), object)
        texts[:] = cells
        return texts
    values: Array = np.array([float(cell) if dtype.is_float else int(cell) for cell in cells]).astype(dtype.numpy)
    return values
