"""Functions of the model as regions of control-flow layers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

from interposer.core.errors import ParseError
from interposer.core.types import TensorInfo
from interposer.frontends.tensorflow.importer import Scope, returned
from interposer.frontends.tensorflow.results import Absent, Result
from interposer.ir.graph import Graph, Value
from interposer.ir.network import Network
from interposer.ops.control import Constant, Input

__all__ = ["Region", "invariants", "region"]


class Region(NamedTuple):
    """A converted function as the region of a layer.

    `graph` has inputs for the carried values, and after them one for each of `captured`, the values of the outer graph
    that it uses. `infos` are those of its outputs.
    """

    graph: Graph
    captured: tuple[Value, ...]
    infos: tuple[TensorInfo, ...]

    def rebound(self, captured: Sequence[Value], carried: int = 0) -> Graph:
        """Return the graph with inputs for exactly the outer values in `captured`, after those for carried values."""
        mine = dict(zip(self.captured, self.graph.inputs[carried:], strict=True))
        for number, value in enumerate(captured, carried):
            if value in mine:
                mine[value].op = Input(number)
            else:
                _new_input(self.graph, number, value.known, value.name)
        return self.graph


def region(
    outer: Scope,
    name: str,
    arguments: Sequence[Result],
    carried: Mapping[int, TensorInfo] = MappingProxyType({}),
    outputs: Sequence[int] | None = None,
) -> Region | None:
    """Return a function as a region; None if it has unsupported operators.

    Args:
        outer: the scope of the layer.
        name: the name of the function.
        arguments: its arguments in the outer scope.
        carried: the infos of arguments that are inputs of the region; the others are captured.
        outputs: the outputs of the function that the region returns; None means all.
    """
    body = outer.function(name, len(arguments))
    scope = Scope(Network(name), outer.shared, body.node_def, outer, function=True)
    captured: dict[Value, Value] = {}
    for number, (place, info) in enumerate(carried.items()):
        title = body.signature.input_arg[place].name
        scope.define(title, _new_input(scope.network.graph, number, info, title))
    for place, (argument, value) in enumerate(zip(body.signature.input_arg, arguments, strict=True)):
        if place not in carried:
            scope.define(argument.name, _brought_in(scope, outer, value, captured, len(carried)))
    results = scope.converted(returned(body))
    chosen = results if outputs is None else [results[place] for place in outputs]
    if any(isinstance(item, Absent) for item in chosen):
        return None
    values = [_value(item, name) for item in chosen]
    for number, value in enumerate(values):
        scope.network.add_output_layer(number, value)
    scope.network.graph.erase_dead()
    return Region(scope.network.graph, tuple(captured), tuple(value.known for value in values))


def _value(result: Result, name: str) -> Value:
    if not isinstance(result, Value):
        raise ParseError(f"the function {name!r} returns something that is no tensor")
    return result


def _brought_in(scope: Scope, outer: Scope, result: Result, captured: dict[Value, Value], first: int) -> Result:
    """Return what an argument of a region stands for inside: a constant, an input, or the same handle."""
    if not isinstance(result, Value):
        return result
    if isinstance(result.producer.op, Constant):
        return scope.constant(result.producer.op.value, result.name, result.producer.source)
    if result not in captured:
        inner = _new_input(scope.network.graph, first + len(captured), result.known, result.name)
        captured[result] = inner
        scope.capture(inner, result, outer)
    return captured[result]


def _new_input(graph: Graph, number: int, info: TensorInfo, name: str) -> Value:
    layer = graph.add(Input(number), name=name)
    layer.output.info = info
    return layer.output


def invariants(outer: Scope, name: str, count: int) -> set[int]:
    """Return the positions of a function's arguments that it returns unchanged at the same positions."""
    body = outer.function(name, count)
    nodes = {node.name: node for node in body.node_def}
    result = set()
    for place, (argument, text) in enumerate(zip(body.signature.input_arg, returned(body), strict=False)):
        for _ in range(len(nodes) + 1):
            node = nodes.get(text.split(":")[0])
            if node is None or node.op != "Identity" or not node.input:
                break
            text = node.input[0]
        if text == argument.name:
            result.add(place)
    return result
