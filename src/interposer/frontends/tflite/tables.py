"""TFLite converters for resource variables and hash tables."""

from __future__ import annotations

import numpy as np

from interposer.core.types import Array
from interposer.frontends.tflite.node import Node
from interposer.frontends.tflite.resources import handle_name
from interposer.frontends.tflite.tflite_converters import operator
from interposer.ir.graph import Value
from interposer.ops.features import LabelEncoder

__all__: list[str] = []


@operator("VAR_HANDLE", "HASHTABLE", options=False)
def handle(node: Node) -> list[Value]:
    """Convert VAR_HANDLE and HASHTABLE: their output is the handle of a resource, for which there is no layer."""
    node.importer.give_handle(node.operator.outputs[0], handle_name(node.operator))
    return []


@operator("READ_VARIABLE")
def read_variable(node: Node) -> Value:
    """Convert READ_VARIABLE to the value that the variable has here."""
    value = node.importer.read_variable(node.variable())
    if value.known.dtype is not node.output_info.dtype:
        node.fail(f"the variable is {value.known}, but its value becomes {node.output_info}")
    return value


@operator("ASSIGN_VARIABLE")
def assign_variable(node: Node) -> list[Value]:
    """Convert ASSIGN_VARIABLE: what reads the variable afterwards gets the value."""
    node.importer.write_variable(node.variable(), node.value(1))
    return []


@operator("HASHTABLE_IMPORT")
def import_table(node: Node) -> list[Value]:
    """Convert HASHTABLE_IMPORT: the keys and values become the content of the table."""
    node.importer.import_table(node.variable(), node.value(1), node.value(2))
    return []


@operator("HASHTABLE_FIND")
def find(node: Node) -> Value:
    """Convert HASHTABLE_FIND to LabelEncoder; the default is that of elements which are no key."""
    keys, values = _content(node)
    default = node.array(2, "the default value")
    return node.result(LabelEncoder(keys, values, default.reshape(-1)[:1].reshape(())), node.value(1))


@operator("HASHTABLE_SIZE")
def size(node: Node) -> Value:
    """Convert HASHTABLE_SIZE to a constant."""
    return node.constant(np.array([len(_content(node)[0])], np.int64))


def _content(node: Node) -> tuple[Array, Array]:
    """Return the keys of a table, each once, and their values; the first value of a key counts."""
    content = node.importer.table(node.variable())
    if content is None:
        node.fail("nothing initializes the table")
    keys, values = content[0].reshape(-1), content[1].reshape(-1)
    places = {key: place for place, key in reversed(list(enumerate(keys.tolist())))}
    order = sorted(places.values())
    return keys[order], values[order]
