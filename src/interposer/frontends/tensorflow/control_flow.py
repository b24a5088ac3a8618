"""TensorFlow converters for calls of functions, conditionals and loops."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, Final, Protocol

import numpy as np

from interposer.core.errors import ParseError
from interposer.core.types import DataType, TensorInfo
from interposer.frontends.branches import branch, reasons
from interposer.frontends.elementwise import NOT_EQUAL
from interposer.frontends.tensorflow.importer import Scope
from interposer.frontends.tensorflow.lists import settled_list
from interposer.frontends.tensorflow.loops import Loop, Place
from interposer.frontends.tensorflow.node import Node
from interposer.frontends.tensorflow.references import data_inputs
from interposer.frontends.tensorflow.results import Absent, Result, TensorList
from interposer.frontends.tensorflow.subgraphs import Body, Region, called, invariants, region
from interposer.frontends.tensorflow.tensorflow_converters import operator
from interposer.frontends.unsupported import UnboundFormError
from interposer.ir.graph import Graph, Value
from interposer.ops.control_flow import If, While, merged_carried
from interposer.ops.elementwise import Where
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
    branch_names = node.function("then_branch"), node.function("else_branch")
    condition_holds = _truth(condition)
    if condition_holds is not None:
        results: list[Result] = node.importer.inlined(branch_names[0 if condition_holds else 1], arguments)
        return results

    def convert(name: str, captures_shapes: bool) -> Region | None:
        return region(node.importer, name, arguments, captures_shapes=captures_shapes)

    outputs = _converted_if(node, condition, [partial(convert, name) for name in branch_names])
    return outputs if isinstance(outputs, Absent) else list(outputs)


def _converted_if(
    node: Node, condition: Value, branches: Sequence[Callable[[bool], Region | None]]
) -> Absent | list[Value]:
    """Add an If with the branches that two functions convert; see `branch`. One of them may not fit the shapes."""
    converted_branches = [branch(node.importer.refusals, convert) for convert in branches]
    if None in converted_branches:
        return Absent.MISSING
    failures = reasons(converted_branches)
    regions = [region if isinstance(region, Region) else Region(Graph(), (), ()) for region in converted_branches]
    num_outputs = max(len(region.infos) for region in regions)
    return _added_if(node, condition, If(num_outputs, *failures), regions) if num_outputs else Absent.MISSING


def _truth(value: Value) -> bool | None:
    """Return whether a condition is true: a number that is not 0; None if it is not known."""
    constant = value.constant
    if constant is None or constant.dtype.kind == "O":
        return None
    return bool(constant.any()) if constant.size == 1 else bool(constant.size)


def _predicate(node: Node, condition: Value) -> Value:
    if condition.known.dtype is DataType.BOOL:
        return condition
    return node.step(NOT_EQUAL, condition, node.scalar_like(0, condition))


@operator("Switch", "RefSwitch", outputs=("output_false", "output_true"))
def switch(node: Node) -> list[Result]:
    """Convert Switch: its input is an output of the branch that is taken; both are if the condition is data."""
    data, predicate = node.inputs[0], node.value(1)
    condition_holds = _truth(predicate)
    if condition_holds is not None:
        return [Absent.DEAD, data] if condition_holds else [data, Absent.DEAD]
    common_guards = frozenset(guard for input_guards in node.guards for guard in input_guards)
    node.decided = [common_guards | {(predicate, truth)} for truth in (False, True)]
    return [data, data]


@operator("Merge", "RefMerge", outputs=("output", "value_index"))
def merge(node: Node) -> list[Result]:
    """Convert Merge: the input from the branch that is taken; the condition selects one if it is data."""
    texts = data_inputs(node.message)
    candidates = zip(node.inputs, node.guards, texts, strict=True)
    live_inputs = [candidate for candidate in candidates if candidate[0] is not Absent.DEAD]
    if len(live_inputs) == 1:
        node.decided = [live_inputs[0][1], live_inputs[0][1]]
        taken_index = next(i for i, value in enumerate(node.inputs) if value is not Absent.DEAD)
        return [live_inputs[0][0], node.constant(_index(taken_index))]
    if len(live_inputs) != 2:
        raise ParseError(f"it has {len(live_inputs)} inputs; expected one or two")
    (first_input, first_guards, first_text), (second_input, second_guards, second_text) = live_inputs
    predicate = next((value for value, truth in first_guards if (value, not truth) in second_guards), None)
    if predicate is None or not isinstance(first_input, Value) or not isinstance(second_input, Value):
        node.unsupported("its inputs are not those of the two branches of a condition")
    node.decided = [first_guards & second_guards] * 2
    is_first = (predicate, True) in first_guards
    branches = {is_first: (first_input, first_text), not is_first: (second_input, second_text)}
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
    converted_branches = [partial(_branch, scope, branches[truth][1], predicate, truth) for truth in (True, False)]
    results = _converted_if(node, predicate, converted_branches)
    return results if isinstance(results, Absent) else results[0]


def _branch(scope: Scope, text: str, predicate: Value, truth: bool, captures_shapes: bool) -> Region | None:
    """Return the nodes in a branch of a condition as a region with the output `text`."""
    body = Body(scope, "then" if truth else "else", scope.nodes, function=scope.is_function)
    body.scope.captures_shapes = captures_shapes
    for name in scope.border(text, (predicate, truth)):
        body.scope.bring_in(name)
    return body.region(body.outputs([text]))


def _added_if(node: Node, condition: Value, op: If, regions: Sequence[Region]) -> list[Value]:
    """Add an If with these regions, which get all values that either of them captures."""
    condition = _predicate(node, condition)
    captured_values = list(dict.fromkeys(value for region in regions for value in region.captured))
    graphs = [region.rebound(captured_values) for region in regions]
    return list(node.control(op, [condition, *captured_values], graphs))


def _index(number: int) -> Any:
    return np.array(number, np.int32)


# --- loops ------------------------------------------------------------------------------------------------------------


@operator("While", "StatelessWhile")
def while_(node: Node) -> Result | list[Result]:
    """Convert While; arguments that the body returns unchanged are captured."""
    condition, body, arguments = node.function("cond"), node.function("body"), list(node.inputs)
    invariant_positions = invariants(node.importer, body, len(arguments))
    carried_positions = [i for i in range(len(arguments)) if i not in invariant_positions]

    def convert(infos: Mapping[int, TensorInfo], *, test: bool) -> tuple[Body, list[Result]]:
        name = condition if test else body
        converted_body, results = called(node.importer, name, arguments, infos)
        return converted_body, results if test else [results[position] for position in carried_positions]

    def once(values: list[Result], *, test: bool) -> list[Result]:
        results: list[Result] = node.importer.inlined(condition if test else body, values)
        return results

    return _looped(node, arguments, carried_positions, convert, once)


@operator("Exit", "RefExit")
def exit_(node: Node) -> Result | list[Result]:
    """Convert a result of a loop of TensorFlow 1, which consists of single nodes; all of its results become known."""
    scope = node.importer
    loop = scope.loops.at(node.name)
    if loop is None or not loop.condition or not all(place.switch for place in loop.places):
        raise ParseError("it belongs to no loop")
    arguments, num_carried = list(node.inputs), len(loop.places)
    constants = dict(zip(loop.constants, arguments[num_carried:], strict=True))
    carried_positions = [i for i, place in enumerate(loop.places) if not _is_invariant(scope, place)]

    def convert(infos: Mapping[int, TensorInfo], *, test: bool) -> tuple[Body, list[Result]]:
        body = Body(scope, loop.name, scope.nodes, function=scope.is_function)
        inputs: dict[int, Result] = {i: body.carried(infos[i], loop.places[i].merge) for i in infos}
        values = [inputs.get(i, argument) for i, argument in enumerate(arguments[:num_carried])]
        _enter(body.scope, loop, map(body.scope.brought_in, values), constants)
        return body, body.outputs([loop.condition] if test else [loop.places[i].following for i in carried_positions])

    def once(values: list[Result], *, test: bool) -> list[Result]:
        inner_scope = Scope(scope.network, scope.shared, scope.nodes, scope, function=scope.is_function)
        _enter(inner_scope, loop, values, constants)
        return inner_scope.converted([loop.condition] if test else [place.following for place in loop.places])

    results = _looped(node, arguments[:num_carried], carried_positions, convert, once)
    if isinstance(results, Absent):
        return results
    result_by_exit = {place.exit: result for place, result in zip(loop.places, results, strict=True) if place.exit}
    for name, result in result_by_exit.items():
        scope.define(name, result)
        scope.guard_like(name, node)
    return result_by_exit[node.name]


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
        producer = scope.message_of(reference.node)
        if reference.node == place.switch:
            return reference.number == 1
        if producer is None or producer.op != "Identity" or not producer.input:
            return False
        text = producer.input[0]
    return False


def _looped(
    node: Node, arguments: list[Result], carried_positions: list[int], convert: Convert, once: Once
) -> Absent | list[Result]:
    """Add the layer of a loop, and return what all arguments are after it.

    `carried_positions` are the positions of carried arguments. `convert` converts the body for their infos, or the
    condition. This is repeated until the infos no longer change. A loop that writes lists of elements without a known
    shape is unrolled with `once`.
    """
    if not carried_positions:
        node.unsupported("its body changes nothing")
    try:
        with_tensors = _with_lists(node, arguments, carried_positions, convert)
    except UnboundFormError:
        return _unrolled(node, arguments, once)
    if with_tensors is None:
        return Absent.MISSING
    arguments = with_tensors
    carried_values = [_tensor(arguments[i]) for i in carried_positions]
    infos = [value.known.with_constant(None) for value in carried_values]
    while True:
        info_by_position = dict(zip(carried_positions, infos, strict=True))
        (loop_body, results), (loop_test, test_results) = (
            convert(info_by_position, test=False),
            convert(info_by_position, test=True),
        )
        body_region, test_region = loop_body.region(results), loop_test.region(test_results)
        if body_region is None or test_region is None:
            return Absent.MISSING
        merged_infos = [*merged_carried(infos, body_region.infos)]
        if merged_infos == infos:
            break
        infos = merged_infos
    captured_values = list(dict.fromkeys((*test_region.captured, *body_region.captured)))
    graphs = [
        loop_region.rebound(captured_values, len(carried_positions)) for loop_region in (test_region, body_region)
    ]
    outputs = list(arguments)
    final_values = node.control(While(len(carried_positions)), [*carried_values, *captured_values], graphs)
    for position, value in zip(carried_positions, final_values, strict=True):
        outputs[position] = value
    return outputs


def _unrolled(node: Node, arguments: list[Result], once: Once) -> Absent | list[Result]:
    """Return what the arguments of a loop are after it; its body is converted in place, once for every iteration."""
    for _ in range(_MOST_ITERATIONS + 1):
        [continues] = once(arguments, test=True)
        is_true = _truth(continues) if isinstance(continues, Value) else None
        if is_true is None:
            break
        if not is_true:
            return arguments
        arguments = once(arguments, test=False)
        if Absent.MISSING in arguments:
            return Absent.MISSING
    return node.open_shape("the shape of its elements is not known")


def _tensor(result: Result) -> Value:
    if not isinstance(result, Value):
        raise ParseError(
            f"it carries a {type(result).__name__} from one iteration to the next; only tensors can be carried"
        )
    return result


def _with_lists(
    node: Node, arguments: list[Result], carried_positions: list[int], convert: Convert
) -> list[Result] | None:
    """Return the arguments with lists whose elements' shape the loop's body determines as tensors.

    Return None if the body has nodes that are not supported.
    """
    list_positions = [i for i in carried_positions if isinstance(arguments[i], TensorList)]
    if not list_positions:
        return arguments
    infos = {i: value.known.with_constant(None) for i in carried_positions if isinstance(value := arguments[i], Value)}
    _, results = convert(infos, test=False)
    if Absent.MISSING in results:
        return None
    replaced_arguments = list(arguments)
    for position, result in zip(carried_positions, results, strict=True):
        argument = arguments[position]
        if isinstance(argument, TensorList):
            if not isinstance(result, TensorList) or result.element_info is None:
                node.unsupported("it carries a list to which it does not write")
            replaced_arguments[position] = settled_list(node, argument, result.element_info)
    return replaced_arguments
