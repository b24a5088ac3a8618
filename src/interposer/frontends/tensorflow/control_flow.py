"""TensorFlow converters for calls of functions, conditionals and loops."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from interposer.core.errors import ParseError
from interposer.core.types import DataType, TensorInfo
from interposer.frontends.tensorflow.node import Node
from interposer.frontends.tensorflow.results import Absent, Result
from interposer.frontends.tensorflow.subgraphs import Region, invariants, region
from interposer.frontends.tensorflow.tensorflow_converters import operator
from interposer.frontends.unsupported import UnsupportedFormError
from interposer.ir.graph import Value
from interposer.ops.control_flow import If, While, merged_carried
from interposer.ops.elementwise import Comparison, ComparisonOperation, Where
from interposer.ops.quantization import Cast

__all__: list[str] = []


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
    condition = _predicate(node, condition)
    captured = list(dict.fromkeys(value for item in branches for value in item.captured))
    graphs = [item.rebound(captured) for item in branches]
    return list(node.control(If(len(branches[0].infos)), [condition, *captured], graphs))


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
    alive = [(item, guards) for item, guards in zip(node.inputs, node.guards, strict=True) if item is not Absent.DEAD]
    if len(alive) == 1:
        node.decided = [alive[0][1], alive[0][1]]
        index = next(i for i, item in enumerate(node.inputs) if item is not Absent.DEAD)
        return [alive[0][0], node.constant(_index(index))]
    if len(alive) != 2:
        raise ParseError(f"it has {len(alive)} inputs; expected one or two")
    (first, own), (second, other) = alive
    predicate = next((value for value, truth in own if (value, not truth) in other), None)
    if predicate is None or not isinstance(first, Value) or not isinstance(second, Value):
        node.unsupported("its inputs are not those of the two branches of a condition")
    is_first = (predicate, True) in own
    return _selected(node, predicate, *((first, second) if is_first else (second, first)), own & other, is_first)


def _selected(
    node: Node, predicate: Value, if_true: Value, if_false: Value, guards: Any, true_is_first: bool
) -> list[Result]:
    if if_true.known.dtype is not if_false.known.dtype or if_true.known.shape != if_false.known.shape:
        node.unsupported("its branches give tensors of different shapes, and its condition is data")
    node.decided = [guards, guards]
    chosen = node.add(Where(), predicate, if_true, if_false)
    index = node.step(Cast(DataType.INT32), predicate)
    if true_is_first:
        index = node.step(Where(), predicate, node.constant(_index(0)), node.constant(_index(1)))
    return [chosen, index]


def _index(number: int) -> Any:
    return np.array(number, np.int32)


# --- loops ------------------------------------------------------------------------------------------------------------


@operator("While", "StatelessWhile")
def while_(node: Node) -> Result | list[Result]:
    """Convert While.

    Arguments that the body returns unchanged are captured. The regions are converted repeatedly until the infos of the
    carried values no longer change.
    """
    condition, body = node.function("cond"), node.function("body")
    arguments = list(node.inputs)
    fixed = invariants(node.importer, body, len(arguments))
    places = [i for i in range(len(arguments)) if i not in fixed]
    carried = [node.value(i) for i in places]
    infos = [value.known.with_constant(None) for value in carried]
    while True:
        result = region(node.importer, body, arguments, dict(zip(places, infos, strict=True)), places)
        test = region(node.importer, condition, arguments, dict(zip(places, infos, strict=True)))
        if result is None or test is None:
            return Absent.MISSING
        wider = _merged(infos, result.infos)
        if wider == infos:
            break
        infos = wider
    return _looped(node, arguments, places, result, test)


def _merged(before: Sequence[TensorInfo], after: Sequence[TensorInfo]) -> list[TensorInfo]:
    if len(before) != len(after):
        raise ParseError(f"its body gives {len(after)} tensors; expected {len(before)}")
    return [*merged_carried(before, after)]


def _looped(node: Node, arguments: list[Result], places: list[int], body: Region, test: Region) -> list[Result]:
    if not places:
        raise UnsupportedFormError("its body changes nothing")
    captured = list(dict.fromkeys((*test.captured, *body.captured)))
    graphs = [item.rebound(captured, len(places)) for item in (test, body)]
    operands = [node.value(i) for i in places]
    results = node.control(While(len(places)), [*operands, *captured], graphs)
    outputs = list(arguments)
    for place, value in zip(places, results, strict=True):
        outputs[place] = value
    return outputs
