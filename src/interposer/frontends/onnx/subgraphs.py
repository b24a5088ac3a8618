"""Subgraphs of nodes: converted in place of the node, or as regions of a layer."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final, NamedTuple, TypeAlias

from interposer.core.errors import ParseError
from interposer.core.types import Array, TensorInfo
from interposer.frontends.importer import input_of_region
from interposer.frontends.onnx.importer import GraphImporter
from interposer.frontends.onnx.order import graphs_of, in_running_order
from interposer.frontends.onnx.proto import Message
from interposer.frontends.onnx.state import ImportState
from interposer.frontends.unsupported import UnsupportedFormError
from interposer.ir.graph import Graph, Value
from interposer.ir.network import Network
from interposer.ops.control import Input
from interposer.ops.quantization import Cast

__all__ = ["Region", "Scope", "count_nodes", "in_place", "initializers", "rebound", "region", "spent"]

Arrays: TypeAlias = Mapping[str, Array]

_DEPTH: Final = 32
_MOST_NODES: Final = 1 << 18
"""Limits of nesting depth and of subgraph nodes per import; nodes that are converted twice count twice."""


class Scope(GraphImporter):
    """Converts a subgraph of a node; names that the subgraph does not define are looked up in the outer importer.

    Without a separate `network`, layers are added to the outer network. With one, a value from outside becomes an input
    and is listed in `captured`; a constant is added again, without a copy of its array.
    """

    outer: ImportState

    def __init__(
        self, outer: ImportState, graph: Message, network: Network | None = None, arrays: Arrays | None = None
    ) -> None:
        self._is_region = network is not None
        super().__init__(
            outer.network if network is None else network,
            outer._opsets, outer._files, outer._functions, outer._operators, outer,
        )  # fmt: skip
        self.graph = graph
        self.depth: int = 1 + (outer.depth if isinstance(outer, Scope) else 0)
        self._missing = set(outer._missing)
        if not self._is_region:
            self._numbers = outer._numbers
        _spend(outer, graph)
        for error in _problems(graph, self.depth):
            raise ParseError(error)
        self._arrays = dict(initializers(outer, graph) if arrays is None else arrays)

    def bind(self, values: Sequence[Value]) -> None:
        """Let the inputs of the subgraph stand for `values`, in order."""
        for declared_input, value in zip(self.graph.input, values, strict=True):
            self.define(declared_input.name, value)

    def converted(self) -> list[Value] | None:
        """Convert the subgraph's nodes, and return its outputs; None if one depends on an unsupported operator."""
        names = [output.name for output in self.graph.output]
        for message in in_running_order(self.graph.node, names):
            self._convert_node(message, self._node_name(message))
        return None if self._missing.intersection(names) else [self.value(name) for name in names]

    def value(self, name: str) -> Value:
        """Return the network value of a name that is defined in the subgraph or in an outer scope."""
        if name not in self._values and name not in self._arrays:
            value = self.outer.value(name)
            self._values[name] = self.capture(value) if self._is_region else value
        return super().value(name)


class Region(NamedTuple):
    """A converted subgraph as the region of a control-flow layer.

    `graph` has the subgraph's own inputs, and after them one for each of `captured`, the values of the outer graph that
    it uses. `infos` are those of its outputs. `held` are the indices of carried values that are optionals, but that the
    subgraph's nodes return unwrapped.
    """

    graph: Graph
    captured: tuple[Value, ...]
    infos: tuple[TensorInfo, ...]
    held: tuple[int, ...] = ()


def initializers(outer: ImportState, graph: Message) -> Arrays:
    """Return the initializers of a subgraph as arrays by name; `outer` is the import of the enclosing graph.

    Callers that convert the subgraph several times call this once.
    """
    arrays = {tensor.name: outer.array(tensor) for tensor in graph.initializer}
    return arrays | {tensor.values.name: outer.dense_array(tensor) for tensor in graph.sparse_initializer}


def region(
    outer: ImportState,
    graph: Message,
    infos: Sequence[TensorInfo],
    arrays: Arrays | None = None,
    *,
    captures_shapes: bool = True,
) -> Region | None:
    """Return a subgraph, whose inputs have `infos`, as a region; None if it has unsupported operators.

    `outer` resolves names of the enclosing graph, and `arrays` are the initializers if they have been read already.
    Without `captures_shapes`, nothing is known of the shapes of values of the enclosing graph, except for constants.

    Raises:
        ParseError: the graph violates the format.
    """
    network = Network(graph.name)
    scope = Scope(outer, graph, network, arrays)
    scope.captures_shapes = captures_shapes
    names = [value.name for value in graph.input]
    scope.reserve({output.name for output in graph.output})
    scope.bind([input_of_region(network.graph, i, *pair) for i, pair in enumerate(zip(infos, names, strict=True))])
    outputs = scope.converted()
    if outputs is None:
        return None
    plain_outputs = [_plain(scope, value) for value in outputs]
    for number, (value, output) in enumerate(zip(plain_outputs, graph.output, strict=True)):
        network.add_output_layer(number, value, name=output.name)
    network.graph.erase_dead()
    scope.keep_names()
    return Region(network.graph, tuple(scope.captured), tuple(value.known for value in plain_outputs))


def _plain(scope: Scope, value: Value) -> Value:
    """Return a result of a subgraph as plain integers; a cast removes the quantization.

    Scales may differ between branches or iterations, so a region's results have none. `scope` is the import of the
    subgraph.
    """
    if not value.known.is_quantized:
        return value
    return scope.add(Cast(value.known.dtype), [value], f"{value.name}/plain", value.producer.source)[0]


def in_place(
    outer: ImportState, graph: Message, values: Sequence[Value], arrays: Arrays | None = None
) -> list[Value] | None:
    """Convert a subgraph into the network of `outer`, applied to `values`, and return its outputs.

    The result is None if it has unsupported operators. `arrays` are its initializers if they have been read already.

    Raises:
        ParseError: the graph violates the format.
    """
    scope = Scope(outer, graph, arrays=arrays)
    scope.bind(values)
    return scope.converted()


def rebound(converted: Region, captured: Sequence[Value]) -> Graph:
    """Return the region's graph with inputs for exactly the outer values in `captured`, in this order.

    The regions of one layer must capture the same values.
    """
    own_inputs = dict(zip(converted.captured, converted.graph.inputs, strict=True))
    for number, value in enumerate(captured):
        if value in own_inputs:
            own_inputs[value].op = Input(number)
        else:
            input_of_region(converted.graph, number, value.known, value.name)
    return converted.graph


def count_nodes(graph: Message) -> int:
    """Return the number of nodes in a graph, including those in its subgraphs."""
    return sum(1 + sum(map(count_nodes, graphs_of(node))) for node in graph.node)


def spent(importer: ImportState) -> int:
    """Return the number of nodes in subgraphs that the whole import has converted so far.

    The unrolling of loops is limited by it.
    """
    return _root(importer).converted_inside


def _root(importer: ImportState) -> ImportState:
    while isinstance(importer, Scope):
        importer = importer.outer
    return importer


def _spend(outer: ImportState, graph: Message) -> None:
    root = _root(outer)
    root.converted_inside += 1 + len(graph.node)
    if root.converted_inside > _MOST_NODES:
        raise UnsupportedFormError(f"the graphs in the model's nodes make more than {_MOST_NODES:,} nodes")


def _problems(graph: Message, depth: int) -> Iterator[str]:
    if depth > _DEPTH:
        yield f"graphs are nested in more than {_DEPTH} levels, which is not supported"
    defined_names = [*(value.name for value in graph.input), *(tensor.name for tensor in graph.initializer)]
    defined_names += [tensor.values.name for tensor in graph.sparse_initializer]
    defined_names += [name for node in graph.node for name in node.output if name]
    seen_names: set[str] = set()
    for name in defined_names:
        if name in seen_names:
            yield f"the graph {graph.name!r} defines the value {name!r} twice"
        seen_names.add(name)
