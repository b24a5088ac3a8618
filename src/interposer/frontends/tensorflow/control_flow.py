"""TensorFlow converters for calls of functions, conditionals and loops."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final, Protocol

import numpy as np

from interposer.core.errors import ParseError
from interposer.core.types import DataType, TensorInfo
from interposer.frontends.tensorflow.importer import Scope
from interposer.frontends.tensorflow.lists import settled_list
from interposer.frontends.tensorflow.loops import Loop, Place
from interposer.frontends.tensorflow.node import Node
from interposer.frontends.tensorflow.references import data_inputs
from interposer.frontends.tensorflow.results import Absent, Result, TensorList
from interposer.frontends.tensorflow.subgraphs import Body, Region, called, invariants, region
from interposer.frontends.tensorflow.tensorflow_converters import operator
from interposer.frontends.unsupported import UnboundFormError
from interposer.ir.graph import Value
from interposer.ops.control_flow import If, While, merged_carried
from interposer.ops.elementwise import Comparison, ComparisonOperation, Where
from interposer.ops.quantization import Cast

__all__: list[str] = []

_MOST_STEPS: Final = 64
_MOST_ITERATIONS: Final = 64
"""The limit of iterations of a loop that is unrolled."""


class Convert(Protocol):
    """Function that converts the body of a loop, or its condition, for infos of the carried arguments by position."""

    def __call__(self, infos: Mapping[int, TensorInfo], *, test: bool) -> tuple[Body, list[Result]]: ...


class Once(Protocol):
    """Function that converts the body of a loop, or its condition, in place for these arguments."""

    def __call__(self, values: list[Result], *, test: bool) -> list[Result]: ...


@operator("PartitionedCall", "StatefulPartitionedCall", "TPUPartitionedCall")
def call(node: Node) -> list[Result]:
    """Convert a call of a function, whose nodes are converted in place of the call."""
    results: list[Result] = node.importer.inlined(node.function("f"), node.inputs)
    return results


# --- conditionals -----------------------------------------------------------------------------------------------------


@operator("If", "StatelessIf")
def if_(node: Node) -> Result | list[Result]:
    """Convert If; a known condition selects a branch, which is converted in place of the node."""
    condition, arguments = node.value(0), list(node.inputs[1:])
    names = node.function("then_branch"), node.function("else_branch")
    known = _truth(condition)
    if known is not None:
        results: list[Result] = node.importer.inlined(names[0 if known else 1], arguments)
        return results
    regions = [region(node.importer, name, arguments) for name in names]
    branches = [item for item in regions if item is not None]
    if len(branches) < len(regions) or not branches[0].infos:
        return Absent.MISSING
    return list(_added_if(node, condition, branches))


def _truth(value: Value) -> bool | None:
    """Return whether a condition is true: a number that is not 0; None if it is not known."""
    constant = value.constant
    if constant is None or constant.dtype.kind == "O":
        return None
    return bool(constant.any()) if constant.size == 1 else bool(constant.size)


def _predicate(node: Node, condition: Value) -> Value:
    if condition.known.dtype is DataType.BOOL:
        return condition
    return node.step(Comparison(ComparisonOperation.NOT_EQUAL), condition, node.scalar_like(0, condition))


@operator("Switch", "RefSwitch", outputs=("output_false", "output_true"))
def switch(node: Node) -> list[Result]:
    """Convert Switch: its input is an output of the branch that is taken; both are if the condition is data."""
    data, predicate = node.inputs[0], node.value(1)
    known = _truth(predicate)
    if known is not None:
        return [Absent.DEAD, data] if known else [data, Absent.DEAD]
    common = frozenset(guard for item in node.guards for guard in item)
    node.decided = [common | {(predicate, truth)} for truth in (False, True)]
    return [data, data]


@operator("Merge", "RefMerge", outputs=("output", "value_index"))
def merge(node: Node) -> list[Result]:
    """Convert Merge: the input from the branch that is taken; the condition selects one if it is data."""
    texts = data_inputs(node.message)
    alive = [item for item in zip(node.inputs, node.guards, texts, strict=True) if item[0] is not Absent.DEAD]
    if len(alive) == 1:
        node.decided = [alive[0][1], alive[0][1]]
        place = next(i for i, item in enumerate(node.inputs) if item is not Absent.DEAD)
        return [alive[0][0], node.constant(_index(place))]
    if len(alive) != 2:
        raise ParseError(f"it has {len(alive)} inputs; expected one or two")
    (first, own, text), (second, other, other_text) = alive
    predicate = next((value for value, truth in own if (value, not truth) in other), None)
    if predicate is None or not isinstance(first, Value) or not isinstance(second, Value):
        node.unsupported("its inputs are not those of the two branches of a condition")
    node.decided = [own & other] * 2
    is_first = (predicate, True) in own
    branches = {is_first: (first, text), not is_first: (second, other_text)}
    index = node.step(Cast(DataType.INT32), predicate)
    if is_first:
        index = node.step(Where(), predicate, node.constant(_index(0)), node.constant(_index(1)))
    return [_selected(node, predicate, branches), index]


def _selected(node: Node, predicate: Value, branches: Mapping[bool, tuple[Value, str]]) -> Result:
    """Return the value from the branch that is taken; `branches` has each branch's value and the reference to it.

    The nodes in the branches become the regions of an If, so that only one branch runs.
    """
    scope = node.importer
    (if_true, _), (if_false, _) = branches[True], branches[False]
    is_empty = not any(scope.is_guarded(text, (predicate, truth)) for truth, (_, text) in branches.items())
    is_same = if_true.known.with_constant(None) == if_false.known.with_constant(None)
    if is_empty and is_same and if_true.known.is_ranked:
        return node.result(Where(), predicate, if_true, if_false)
    regions = [_branch(scope, branches[truth][1], predicate, truth) for truth in (True, False)]
    converted = [item for item in regions if item is not None]
    if len(converted) < len(regions):
        return Absent.MISSING
    return _added_if(node, predicate, converted)[0]


def _branch(scope: Scope, text: str, predicate: Value, truth: bool) -> Region | None:
    """Return the nodes in a branch of a condition as a region with the output `text`."""
    body = Body(scope, "then" if truth else "else", scope.nodes, function=scope.is_function)
    for name in scope.border(text, (predicate, truth)):
        body.scope.bring_in(name)
    return body.region(body.outputs([text]))


def _added_if(node: Node, condition: Value, regions: list[Region]) -> list[Value]:
    """Add an If with these regions, which get all values that either of them captures."""
    condition = _predicate(node, condition)
    captured = list(dict.fromkeys(value for item in regions for value in item.captured))
    graphs = [item.rebound(captured) for item in regions]
    return list(node.control(If(len(regions[0].infos)), [condition, *captured], graphs))


def _index(number: int) -> Any:
    return np.array(number, np.int32)


# --- loops ------------------------------------------------------------------------------------------------------------


@operator("While", "StatelessWhile")
def while_(node: Node) -> Result | list[Result]:
    """Convert While; arguments that the body returns unchanged are captured."""
    condition, body, arguments = node.function("cond"), node.function("body"), list(node.inputs)
    fixed = invariants(node.importer, body, len(arguments))
    places = [i for i in range(len(arguments)) if i not in fixed]

    def convert(infos: Mapping[int, TensorInfo], *, test: bool) -> tuple[Body, list[Result]]:
        name = condition if test else body
        converted_body, results = called(node.importer, name, arguments, infos)
        return converted_body, results if test else [results[place] for place in places]

    def once(values: list[Result], *, test: bool) -> list[Result]:
        results: list[Result] = node.importer.inlined(condition if test else body, values)
        return results

    return _looped(node, arguments, places, convert, once)


@operator("Exit", "RefExit")
def exit_(node: Node) -> Result | list[Result]:
    """Convert a result of a loop of TensorFlow 1, which consists of single nodes; all of its results become known."""
    scope = node.importer
    loop = scope.loops.at(node.name)
    if loop is None or not loop.condition or not all(place.switch for place in loop.places):
        raise ParseError("it belongs to no loop")
    arguments, count = list(node.inputs), len(loop.places)
    constants = dict(zip(loop.constants, arguments[count:], strict=True))
    places = [i for i, place in enumerate(loop.places) if not _is_invariant(scope, place)]

    def convert(infos: Mapping[int, TensorInfo], *, test: bool) -> tuple[Body, list[Result]]:
        body = Body(scope, loop.name, scope.nodes, function=scope.is_function)
        inputs: dict[int, Result] = {i: body.carried(infos[i], loop.places[i].merge) for i in infos}
        values = [inputs.get(i, item) for i, item in enumerate(arguments[:count])]
        _enter(body.scope, loop, map(body.scope.brought_in, values), constants)
        return body, body.outputs([loop.condition] if test else [loop.places[i].following for i in places])

    def once(values: list[Result], *, test: bool) -> list[Result]:
        inner = Scope(scope.network, scope.shared, scope.nodes, scope, function=scope.is_function)
        _enter(inner, loop, values, constants)
        return inner.converted([loop.condition] if test else [place.following for place in loop.places])

    results = _looped(node, arguments[:count], places, convert, once)
    if isinstance(results, Absent):
        return results
    known = {place.exit: result for place, result in zip(loop.places, results, strict=True) if place.exit}
    for name, result in known.items():
        scope.define(name, result)
        scope.guard_like(name, node)
    return known[node.name]


def _enter(scope: Scope, loop: Loop, values: Iterable[Result], constants: Mapping[str, Result]) -> None:
    """Define what the nodes at the start of an iteration stand for: the carried values, and those that enter once."""
    for place, value in zip(loop.places, values, strict=True):
        scope.define(place.merge, value)
        scope.define(place.switch, Absent.DEAD, value)
    for name, result in constants.items():
        scope.define(name, scope.brought_in(result))


def _is_invariant(scope: Scope, place: Place) -> bool:
    """Return True if the next iteration gets what this one got."""
    text = place.following
    for _ in range(_MOST_STEPS):
        reference = scope.reference(text)
        inner = scope.message_of(reference.node)
        if reference.node == place.switch:
            return reference.number == 1
        if inner is None or inner.op != "Identity" or not inner.input:
            return False
        text = inner.input[0]
    return False


def _looped(
    node: Node, arguments: list[Result], places: list[int], convert: Convert, once: Once
) -> Absent | list[Result]:
    """Add the layer of a loop, and return what all arguments are after it.

    `places` are the positions of carried arguments. `convert` converts the body for their infos, or the condition. This
    is repeated until the infos no longer change. A loop that writes lists of elements without a known shape is
    unrolled with `once`.
    """
    if not places:
        node.unsupported("its body changes nothing")
    try:
        settled = _with_lists(node, arguments, places, convert)
    except UnboundFormError:
        return _unrolled(node, arguments, once)
    if settled is None:
        return Absent.MISSING
    arguments = settled
    carried = [_tensor(arguments[i]) for i in places]
    infos = [value.known.with_constant(None) for value in carried]
    while True:
        known = dict(zip(places, infos, strict=True))
        (inner, results), (tested, truth) = convert(known, test=False), convert(known, test=True)
        body, test = inner.region(results), tested.region(truth)
        if body is None or test is None:
            return Absent.MISSING
        wider = [*merged_carried(infos, body.infos)]
        if wider == infos:
            break
        infos = wider
    captured = list(dict.fromkeys((*test.captured, *body.captured)))
    graphs = [item.rebound(captured, len(places)) for item in (test, body)]
    outputs = list(arguments)
    created = node.control(While(len(places)), [*carried, *captured], graphs)
    for place, value in zip(places, created, strict=True):
        outputs[place] = value
    return outputs


def _unrolled(node: Node, arguments: list[Result], once: Once) -> Absent | list[Result]:
    """Return what the arguments of a loop are after it; its body is converted in place, once for every iteration."""
    for _ in range(_MOST_ITERATIONS + 1):
        [again] = once(arguments, test=True)
        truth = _truth(again) if isinstance(again, Value) else None
        if truth is None:
            break
        if not truth:
            return arguments
        arguments = once(arguments, test=False)
        if Absent.MISSING in arguments:
            return Absent.MISSING
    return node.open_shape("the shape of its elements is not known")


def _tensor(result: Result) -> Value:
    if not isinstance(result, Value):
        raise ParseError("it carries something that is no tensor")
    return result


def _with_lists(node: Node, arguments: list[Result], places: list[int], convert: Convert) -> list[Result] | None:
    """Return the arguments with lists whose elements' shape the loop's body determines as tensors.

    Return None if the body has nodes that are not supported.
    """
    lists = [i for i in places if isinstance(arguments[i], TensorList)]
    if not lists:
        return arguments
    infos = {i: value.known.with_constant(None) for i in places if isinstance(value := arguments[i], Value)}
    _, results = convert(infos, test=False)
    if Absent.MISSING in results:
        return None
    settled = list(arguments)
    for place, result in zip(places, results, strict=True):
        before = arguments[place]
        if isinstance(before, TensorList):
            if not isinstance(result, TensorList) or result.item is None:
                node.unsupported("it carries a list to which it does not write")
            settled[place] = settled_list(node, before, result.item)
    return settled
