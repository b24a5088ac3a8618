"""References to outputs of nodes, as nodes list them among their inputs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

from interposer.core.errors import ParseError
from interposer.frontends.tensorflow.messages import FunctionDef, NodeDef
from interposer.frontends.tensorflow.tensorflow_converters import find

__all__ = ["Reference", "control_inputs", "data_inputs", "in_function", "in_graph", "output_names", "title"]


class Reference(NamedTuple):
    """Output `number` of a node, or an argument of a function (with number 0)."""

    node: str
    number: int = 0


def title(reference: Reference) -> str:
    """Return the name of a tensor in TensorFlow's notation: the node's name, with ``:1`` for its second output."""
    return f"{reference.node}:{reference.number}" if reference.number else reference.node


def data_inputs(node: NodeDef) -> list[str]:
    """Return the inputs of a node that are tensors."""
    return [name for name in node.input if not name.startswith("^")]


def control_inputs(node: NodeDef) -> list[str]:
    """Return the names of the nodes that must run before a node."""
    return [name[1:] for name in node.input if name.startswith("^")]


def in_graph(text: str) -> Reference:
    """Return the reference in a graph: ``name`` or ``name:1``."""
    name, colon, index = text.rpartition(":")
    if not colon:
        return Reference(text)
    return Reference(name, _index(text, index))


def in_function(nodes: Mapping[str, NodeDef], names: Callable[[NodeDef], tuple[str, ...]], text: str) -> Reference:
    """Return the reference in the body of a function: an argument, or ``node:output:0``.

    `nodes` are those of the body; `names` returns the names of a node's outputs if it has several.
    """
    parts = text.split(":")
    if len(parts) < 3 or parts[0] not in nodes:
        return Reference(parts[0], _index(text, parts[-1]) if len(parts) == 2 else 0)
    known_outputs = names(nodes[parts[0]])
    offset = known_outputs.index(parts[1]) if parts[1] in known_outputs else 0
    return Reference(parts[0], offset + _index(text, parts[2]))


def _index(text: str, digits: str) -> int:
    if not digits.isdecimal() or len(digits) > 9:
        raise ParseError(f"{text!r} does not name an output of a node")
    return int(digits)


def output_names(node: NodeDef, functions: Mapping[str, FunctionDef]) -> tuple[str, ...]:
    """Return the names of a node's outputs if it has several; empty if it has one, or a list of them."""
    if node.op in functions:
        return tuple(arg.name for arg in functions[node.op].signature.output_arg)
    entry = find(node.op)
    return entry.outputs if entry is not None else ()
