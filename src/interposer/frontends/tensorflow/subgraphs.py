"""Functions of the model, and bodies of loops, as regions of control-flow layers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

from interposer.core.errors import ParseError
from interposer.core.types import TensorInfo
from interposer.frontends.tensorflow.importer import Scope, returned
from interposer.frontends.tensorflow.messages import NodeDef
from interposer.frontends.tensorflow.results import Absent, Result
from interposer.ir.graph import Graph, Value
from interposer.ir.network import Network
from interposer.ops.control import Input

__all__ = ["Body", "Region", "called", "invariants", "region"]


class Region(NamedTuple):
    """Converted nodes as the region of a layer.

    `graph` has inputs for the carried values, and after them one for each of `captured`, the values of the outer graph
    that it uses. `infos` are those of its outputs.
    """

    graph: Graph
    captured: tuple[Value, ...]
    infos: tuple[TensorInfo, ...]

    def rebound(self, captured: Sequence[Value], carried: int = 0) -> Graph:
        """Return the graph with inputs for exactly the outer values in `captured`, after those for carried values."""
        own_inputs = dict(zip(self.captured, self.graph.inputs[carried:], strict=True))
        for number, value in enumerate(captured, carried):
            if value in own_inputs:
                own_inputs[value].op = Input(number)
            else:
                _new_input(self.graph, number, value.known, value.name)
        return self.graph


class Body:
    """A scope whose network becomes a region: carried values are its first inputs, captured ones follow."""

    def __init__(self, outer: Scope, name: str, nodes: Sequence[NodeDef], *, function: bool) -> None:
        self.scope = Scope(Network(name), outer.shared, nodes, outer, function=function)
        self._name = name
        self._num_carried = 0

    def carried(self, info: TensorInfo, name: str) -> Value:
        """Add an input for a carried value; all of them come before captured values."""
        value = _new_input(self.scope.network.graph, self._num_carried, info, name)
        self._num_carried += 1
        return value

    def outputs(self, texts: Sequence[str]) -> list[Result]:
        """Convert the nodes on which these outputs depend, and return the outputs."""
        return self.scope.converted(texts)

    def region(self, results: Sequence[Result]) -> Region | None:
        """Return the region with these results; None if they depend on an unsupported operator."""
        if any(isinstance(result, Absent) for result in results):
            return None
        network = self.scope.network
        values = [self._value(result) for result in results]
        for number, value in enumerate(values):
            network.add_output_layer(number, value)
        network.graph.erase_dead()
        return Region(network.graph, tuple(self.scope.captured), tuple(value.known for value in values))

    def _value(self, result: Result) -> Value:
        if not isinstance(result, Value):
            raise ParseError(f"{self._name!r} returns something that is no tensor")
        return result


def region(
    outer: Scope,
    name: str,
    arguments: Sequence[Result],
    carried: Mapping[int, TensorInfo] = MappingProxyType({}),
    outputs: Sequence[int] | None = None,
    *,
    captures_shapes: bool = True,
) -> Region | None:
    """Return a function as a region; None if it has unsupported operators.

    Args:
        outer: the scope of the layer.
        name: the name of the function.
        arguments: its arguments in the outer scope.
        carried: the infos of arguments that are inputs of the region; the others are captured.
        outputs: the outputs of the function that the region returns; None means all.
        captures_shapes: False if nothing is to be known of the shapes of captured values, except for constants.
    """
    body, results = called(outer, name, arguments, carried, captures_shapes=captures_shapes)
    return body.region(results if outputs is None else [results[index] for index in outputs])


def called(
    outer: Scope,
    name: str,
    arguments: Sequence[Result],
    carried: Mapping[int, TensorInfo],
    *,
    captures_shapes: bool = True,
) -> tuple[Body, list[Result]]:
    """Return the scope of a function whose layers are in a network of their own, and the function's outputs."""
    function = outer.function(name, len(arguments))
    body = Body(outer, name, function.node_def, function=True)
    body.scope.captures_shapes = captures_shapes
    argument_names = [argument.name for argument in function.signature.input_arg]
    for index, info in carried.items():
        body.scope.define(argument_names[index], body.carried(info, argument_names[index]))
    for index, value in enumerate(arguments):
        if index not in carried:
            body.scope.define(argument_names[index], body.scope.brought_in(value))
    return body, body.outputs(returned(function))


def _new_input(graph: Graph, number: int, info: TensorInfo, name: str) -> Value:
    layer = graph.add(Input(number), name=name)
    layer.output.info = info
    return layer.output


def invariants(outer: Scope, name: str, count: int) -> set[int]:
    """Return the positions of a function's arguments that it returns unchanged at the same positions."""
    body = outer.function(name, count)
    nodes = {node.name: node for node in body.node_def}
    unchanged = set()
    for index, (argument, text) in enumerate(zip(body.signature.input_arg, returned(body), strict=False)):
        for _ in range(len(nodes) + 1):
            node = nodes.get(text.split(":")[0])
            if node is None or node.op != "Identity" or not node.input:
                break
            text = node.input[0]
        if text == argument.name:
            unchanged.add(index)
    return unchanged
