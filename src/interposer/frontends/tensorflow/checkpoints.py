"""Which tensor of a checkpoint is the value of which variable: as the model's own nodes that restore it say."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from interposer.core.errors import ParseError
from interposer.core.types import Array
from interposer.frontends.tensorflow.bundle import Checkpoint
from interposer.frontends.tensorflow.messages import FunctionDef, GraphDef, NodeDef
from interposer.frontends.tensorflow.references import data_inputs
from interposer.frontends.tensorflow.tensors import array_of

__all__ = ["Variables"]

_ASSIGNMENTS = frozenset({"Assign", "AssignVariableOp"})
_MOST_STEPS = 64


class Variables:
    """The values of a SavedModel's variables by the names of the nodes that create them.

    Files are opened when the first value is requested.
    """

    def __init__(self, graph: GraphDef, folder: Path | None) -> None:
        self._nodes = {node.name: node for node in graph.node}
        self._functions = {function.signature.name: function for function in graph.library.function}
        self._prefix = None if folder is None else folder / "variables" / "variables"
        self._checkpoint: Checkpoint | None = None
        self._keys: dict[str, str] = {}

    def __call__(self, name: str) -> Array:
        """Return the value of the variable that the node `name` creates.

        Raises:
            ParseError: there are no variables, or none for this node.
        """
        if self._checkpoint is None:
            if self._prefix is None:
                raise ParseError("it reads a variable, but the file has no values of variables; freeze the graph")
            self._checkpoint = Checkpoint(self._prefix)
            self._keys = self._all_keys(self._checkpoint)
        if name not in self._keys:
            raise ParseError(f"the checkpoint has no value for the variable {name!r}")
        return self._checkpoint.array(self._keys[name])

    def _all_keys(self, checkpoint: Checkpoint) -> dict[str, str]:
        keys_by_name = checkpoint.keys_by_name()
        keys = {}
        for name, node in self._nodes.items():
            if node.op in {"VarHandleOp", "VariableV2", "Variable"}:
                for candidate in (_text(node, "shared_name"), name):
                    key = keys_by_name.get(candidate) or (candidate if candidate in checkpoint else None)
                    if key is not None:
                        keys[name] = key
                        break
        return {**keys, **dict(self._restored())}

    def _restored(self) -> Iterator[tuple[str, str]]:
        """Yield the variables that nodes of the graph restore, each with its key; also in functions that it calls."""
        yield from _assigned(self._nodes)
        for node in self._nodes.values():
            function = self._called(node)
            if function is not None:
                yield from self._restored_in(function, data_inputs(node))

    def _called(self, node: NodeDef) -> FunctionDef | None:
        attribute = node.attr.get("f")
        if attribute is None or attribute.func is None:
            return self._functions.get(node.op)
        return self._functions.get(attribute.func.name)

    def _restored_in(self, function: FunctionDef, inputs: Sequence[str]) -> Iterator[tuple[str, str]]:
        if not any(node.op == "RestoreV2" for node in function.node_def):
            return
        sources = {arg.name: source for arg, source in zip(function.signature.input_arg, inputs, strict=False)}
        for name, key in _assigned({node.name: node for node in function.node_def}):
            if name in sources:
                yield sources[name].split(":")[0], key


def _assigned(nodes: Mapping[str, NodeDef]) -> Iterator[tuple[str, str]]:
    """Yield the target of every assignment of a restored tensor, and the key of the tensor."""
    keys: dict[str, list[str]] = {}
    for node in nodes.values():
        inputs = data_inputs(node)
        if node.op not in _ASSIGNMENTS or len(inputs) != 2:
            continue
        source, index = _traced(nodes, inputs[1])
        if source is None or source.op != "RestoreV2":
            continue
        if source.name not in keys:
            keys[source.name] = _names_of(nodes, source)
        if index < len(keys[source.name]):
            yield _traced_name(nodes, inputs[0]), keys[source.name][index]


def _traced(nodes: Mapping[str, NodeDef], text: str) -> tuple[NodeDef | None, int]:
    """Return the node that computes a value, and the number of the output, without the nodes that pass it on."""
    for _ in range(_MOST_STEPS):
        name, *suffixes = text.split(":")
        node = nodes.get(name)
        if node is None or node.op not in {"Identity", "Cast"} or not data_inputs(node):
            output_index = suffixes[-1] if suffixes else "0"
            return node, int(output_index) if output_index.isdecimal() else 0
        text = data_inputs(node)[0]
    return None, 0


def _traced_name(nodes: Mapping[str, NodeDef], text: str) -> str:
    node, _ = _traced(nodes, text)
    return text.split(":", maxsplit=1)[0] if node is None else node.name


def _names_of(nodes: Mapping[str, NodeDef], restore: NodeDef) -> list[str]:
    inputs = data_inputs(restore)
    names_node, _ = _traced(nodes, inputs[1]) if len(inputs) == 3 else (None, 0)
    names_attribute = names_node.attr.get("value") if names_node is not None else None
    if names_attribute is None or names_attribute.tensor is None:
        return []
    return [str(key) for key in array_of(names_attribute.tensor).reshape(-1)]


def _text(node: NodeDef, name: str) -> str:
    attribute = node.attr.get(name)
    return "" if attribute is None or attribute.s is None else bytes(attribute.s).decode("utf-8", "replace")
