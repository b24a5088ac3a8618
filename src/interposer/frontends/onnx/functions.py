"""Functions: nodes that expand to other nodes, defined by the model or by the standard."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple, TypeAlias

from interposer.core.errors import ParseError
from interposer.frontends.onnx.operator_names import domain_of, title
from interposer.frontends.onnx.order import graphs_in, graphs_of, in_running_order, names_in
from interposer.frontends.onnx.proto import Message

__all__ = ["Body", "Functions", "opsets_of"]

_MOST_NODES: Final = 1 << 20
_DEEPEST: Final = 50

FunctionKey: TypeAlias = tuple[str, str, str]
"""Domain, name and overload."""


class Body(NamedTuple):
    """What a call of a function expands to: its nodes with unique value names, and the opset version of each domain.

    `aliases` are outputs of the call that are just inputs of it: pairs of the output's name and the input's name.
    """

    nodes: tuple[Message, ...]
    opsets: Mapping[str, int]
    aliases: tuple[tuple[str, str], ...]


def opsets_of(imports: Iterable[Message]) -> dict[str, int]:
    """Return the version of every operator set that a model or a function imports, by domain.

    Of several imports of a domain the last one counts, as in ONNX Runtime.
    """
    return {domain_of(entry): int(entry.version) for entry in imports}


class Functions:
    """Expands calls of the functions that a model defines to the nodes of their bodies.

    A call is expanded when the importer reaches it; the names of its values are unique.

    Raises:
        ParseError: two functions have one name, one calls itself, or they expand to too many nodes.
    """

    def __init__(self, model: Message) -> None:
        self._definitions: dict[FunctionKey, Message] = {}
        for function in model.functions:
            key = _key(function, function.name)
            if key in self._definitions:
                raise ParseError(f"the function {_title(key)} is defined twice")
            self._definitions[key] = function
        self._graph = model.graph
        self._taken_names: set[str] | None = None
        self._count_of_function: dict[FunctionKey, int] = {}
        if self._definitions:
            self._count(model.graph.node, ())

    def _count(self, nodes: Iterable[Message], calls: tuple[FunctionKey, ...]) -> int:
        """Return the number of nodes after all calls in `nodes` are expanded, including those in subgraphs.

        `calls` are the functions that are being expanded, outermost first, to detect recursion. `ParseError` is raised
        if the number is too large.
        """
        count, pending_nodes = 0, list(nodes)
        while pending_nodes:
            node = pending_nodes.pop()
            count += 1
            key = _key(node, node.op_type)
            if key in self._definitions:
                count += self._count_in(key, calls)
            for graph in graphs_of(node):
                pending_nodes += graph.node
        if count > _MOST_NODES:
            raise ParseError(f"its functions make more than {_MOST_NODES:,} nodes")
        return count

    def _count_in(self, key: FunctionKey, calls: tuple[FunctionKey, ...]) -> int:
        if key in calls:
            raise ParseError(f"the function {_title(key)} calls itself")
        if len(calls) == _DEEPEST:
            raise ParseError(f"its functions call each other more than {_DEEPEST} deep")
        if key not in self._count_of_function:
            self._count_of_function[key] = self._count(self._definitions[key].node, (*calls, key))
        return self._count_of_function[key]

    def find(self, node: Message) -> Message | None:
        """Return the `FunctionProto` of the model that a node calls, or None if the node is an operator."""
        return self._definitions.get(_key(node, node.op_type)) if self._definitions else None

    def body(self, function: Message, node: Message, name: str) -> Body:
        """Return what the call `node` of a function expands to.

        Names of its nodes are prefixed by `name`, the name of the call. A function of the standard may contain
        subgraphs of the node, which may refer to values outside of the node.

        Raises:
            ParseError: the function uses undefined values, or has other numbers of inputs and outputs.
        """
        names = _Names(function, node, self._prefix(function, name))
        if self.find(node) is not function:
            names.take_from_outside(_undefined(function))
        nodes = _needed(function, node, names)
        attributes = _attributes(function, node)
        unnamed_counts: Counter[str] = Counter()
        renamed_nodes = []
        for inner in nodes:
            renamed_nodes.append(_renamed(inner, names, attributes))
            renamed_nodes[-1].name = f"{name}/{inner.name or _numbered(inner.op_type, unnamed_counts)}"
        aliases = tuple((names.actual_output(output), names(output)) for output in names.passed)
        return Body(tuple(renamed_nodes), opsets_of(function.opset_import), aliases)

    def _prefix(self, function: Message, name: str) -> str:
        """Return a prefix for the names of a function's values in one call: the call's name, with a number if required.

        No name with this prefix is used elsewhere in the graph or by another call.
        """
        if self._taken_names is None:
            self._taken_names = set(_all_names(self._graph.node))
            self._taken_names.update(value.name for value in (*self._graph.input, *self._graph.initializer))
            self._taken_names.update(tensor.values.name for tensor in self._graph.sparse_initializer)
        local_names = {*function.input, *function.output, *_all_names(function.node)}
        prefix, number = f"{name}/", 1
        while any(f"{prefix}{local_name}" in self._taken_names for local_name in local_names):
            number += 1
            prefix = f"{name}_{number}/"
        self._taken_names.update(f"{prefix}{local_name}" for local_name in local_names)
        return prefix


class _Names:
    """Renames the values of a function for one call: parameters get the caller's names, all others a unique prefix.

    An instance is called with a name in the function, and returns the name in the graph that calls it. `passed` lists
    the outputs of the function that are also inputs of it.
    """

    def __init__(self, function: Message, node: Message, prefix: str) -> None:
        title = _title(_key(function, function.name))
        if len(node.input) > len(function.input) or len(node.output) > len(function.output):
            counts = f"{len(node.input)} inputs and {len(node.output)} outputs"
            takes = f"{len(function.input)} and {len(function.output)}"
            raise ParseError(f"it has {counts}, but the function {title} has {takes}")
        self._prefix, self._outside = prefix, set[str]()
        inputs = [*node.input, *[""] * (len(function.input) - len(node.input))]
        self._actual = dict(zip(function.input, inputs, strict=True))
        self._outputs = {
            inner_name: outer_name
            for inner_name, outer_name in zip(function.output, node.output, strict=False)
            if outer_name
        }
        self.passed = [name for name in self._outputs if name in self._actual]
        self._actual |= {
            inner_name: outer_name for inner_name, outer_name in self._outputs.items() if inner_name not in self._actual
        }

    def __call__(self, name: str) -> str:
        return str(self._actual.get(name, f"{self._prefix}{name}")) if name else ""

    def take_from_outside(self, names: Iterable[str]) -> None:
        """Leave `names` unchanged from now on, because they refer to values of the calling graph.

        This occurs if the function's nodes contain subgraphs of the calling node.
        """
        self._outside = set(names)
        self._actual.update((name, name) for name in self._outside)

    def from_outside(self, name: str) -> bool:
        """Return True for a name that was given to `take_from_outside`: it refers to a value of the calling graph."""
        return name in self._outside

    def actual_output(self, name: str) -> str:
        """Return the caller's name of the function's output `name`; the output must be in use."""
        return str(self._outputs[name])


def _key(message: Message, name: str) -> FunctionKey:
    return domain_of(message), str(name), str(getattr(message, "overload", ""))


def _title(key: FunctionKey) -> str:
    domain, name, overload = key
    return repr(":".join(filter(None, [title(domain, name), overload])))


def _numbered(kind: str, counts: Counter[str]) -> str:
    counts[kind] += 1
    return f"{kind}_{counts[kind] - 1}"


def _undefined(function: Message) -> set[str]:
    """Return the names that nodes of a function use, but that are neither its inputs nor computed by its nodes."""
    computed_names = {name for inner in function.node for name in inner.output}
    return {name for inner in function.node for name in names_in(inner)} - computed_names - {*function.input}


def _needed(function: Message, node: Message, names: _Names) -> list[Message]:
    """Return the nodes of a function that a call needs, producers first: those that the outputs in use depend on.

    `ParseError` is raised if they use undefined values.
    """
    title = _title(_key(function, function.name))
    used_outputs = [inner for inner, outer in zip(function.output, node.output, strict=False) if outer]
    for error in _problems(function, used_outputs, names):
        raise ParseError(f"the function {title}: {error}")
    return in_running_order(function.node, used_outputs)


def _problems(function: Message, used_outputs: Sequence[str], names: _Names) -> Iterator[str]:
    computed_names = [name for node in function.node for name in node.output if name]
    seen_names = set(function.input)
    if len(seen_names) < len(function.input):
        yield "two inputs have one name"
    for name in computed_names:
        if name in seen_names:
            yield f"the value {name!r} is defined twice"
        seen_names.add(name)
    missing_names = {name for name in _undefined(function) if not names.from_outside(name)}
    for node in function.node:
        for name in missing_names.intersection(names_in(node)):
            yield f"node {node.name or node.op_type!r} takes the value {name!r}, which is not defined"
    for name in used_outputs:
        if name not in seen_names:
            yield f"the output {name!r} is not defined"


def _attributes(function: Message, node: Message) -> dict[str, Message]:
    """Return the values of a function's attributes in the call `node`, by name: those of the node, or the defaults."""
    defaults = {attribute.name: attribute for attribute in getattr(function, "attribute_proto", ())}
    return defaults | {attribute.name: attribute for attribute in node.attribute}


def _renamed(node: Message, names: Callable[[str], str], attributes: Mapping[str, Message]) -> Message:
    """Return a copy of a node with its values renamed by `names`, and with references to attributes resolved.

    `attributes` has the attributes of the function in this call by name; a reference to an attribute without a value is
    dropped. Subgraphs of the node are treated alike.
    """
    copy = type(node)()
    copy.CopyFrom(node)
    copy.input[:] = [names(name) for name in node.input]
    copy.output[:] = [names(name) for name in node.output]
    del copy.attribute[:]
    for attribute in node.attribute:
        source = attributes.get(attribute.ref_attr_name) if attribute.ref_attr_name else attribute
        if source is None:
            continue  # an attribute without a value is dropped
        resolved_attribute = copy.attribute.add()
        resolved_attribute.CopyFrom(source)
        resolved_attribute.name = attribute.name
        for graph in graphs_in(resolved_attribute) if source is attribute else ():
            _rename_graph(graph, names, attributes)
    return copy


def _rename_graph(graph: Message, names: Callable[[str], str], attributes: Mapping[str, Message]) -> None:
    for value in (*graph.input, *graph.initializer, *graph.output, *graph.value_info):
        value.name = names(value.name)
    for tensor in graph.sparse_initializer:
        tensor.values.name = names(tensor.values.name)
    nodes = [_renamed(node, names, attributes) for node in graph.node]
    del graph.node[:]
    graph.node.extend(nodes)


def _all_names(nodes: Iterable[Message]) -> Iterator[str]:
    """Yield the names of all values that occur in nodes and in their subgraphs, at any depth."""
    pending_nodes = list(nodes)
    while pending_nodes:
        node = pending_nodes.pop()
        yield from node.input
        yield from node.output
        for graph in graphs_of(node):
            yield from (value.name for value in (*graph.input, *graph.initializer, *graph.output))
            yield from (tensor.values.name for tensor in graph.sparse_initializer)
            pending_nodes += graph.node
