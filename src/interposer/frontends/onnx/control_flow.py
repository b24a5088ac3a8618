"""ONNX converters for control flow: unrolled if the condition or trip count is known, else layers with regions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from interposer.core.errors import ParseError
from interposer.core.types import DataType, Dim, TensorInfo
from interposer.frontends.branches import branch, reasons
from interposer.frontends.importer import input_of_region
from interposer.frontends.onnx.node import Node
from interposer.frontends.onnx.onnx_converters import operator
from interposer.frontends.onnx.proto import Message
from interposer.frontends.onnx.subgraphs import (
    Region,
    Scope,
    count_nodes,
    in_place,
    initializers,
    rebound,
    region,
    spent,
)
from interposer.frontends.unsupported import UnboundFormError
from interposer.ir.graph import Graph, Value
from interposer.ir.inference import infer_layer
from interposer.ir.network import Network
from interposer.ops.containers import OptionalConstruct, OptionalGetElement
from interposer.ops.control_flow import If, Loop, Scan, merged_carried
from interposer.ops.gather import Gather
from interposer.ops.rearrange import Stack

__all__: list[str] = []

_UNROLLED: Final = 1024
_ALL_UNROLLED: Final = 8192
"""Limits of the nodes from one unrolled loop, and from all subgraphs of a model, for unrolling loops."""

Infos = tuple[TensorInfo, ...]


# --- If ---------------------------------------------------------------------------------------------------------------


@operator("If")
def if_(node: Node) -> Sequence[Value]:
    """Convert If; a known condition selects a branch, which is converted in place of the node."""
    condition = node.value(0)
    branches = node.graph("then_branch"), node.graph("else_branch")
    for graph in branches:
        _check_counts(graph, 0, node.num_outputs)
    known_condition = _known(condition, DataType.BOOL)
    if known_condition is not None:
        taken_branch = branches[0 if known_condition else 1]
        return in_place(node.importer, taken_branch, []) or node.give_up()
    counts = [len(graph.output) for graph in branches]
    if counts[0] != counts[1]:
        raise ParseError(f"its graphs have {counts[0]} and {counts[1]} outputs; expected the same number")
    converted_branches = [_branch(node, graph) for graph in branches]
    if None in converted_branches:
        return node.give_up()
    failures = reasons(converted_branches)
    regions = [
        branch_region if isinstance(branch_region, Region) else Region(Graph(), (), ())
        for branch_region in converted_branches
    ]
    if not any(failures):
        _check_ranks(node, condition, regions)
    captured_values = list(dict.fromkeys(value for branch_region in regions for value in branch_region.captured))
    return node.control(
        If(counts[0], *failures),
        [condition, *captured_values],
        [rebound(branch_region, captured_values) for branch_region in regions],
    )


def _branch(node: Node, graph: Message) -> Region | ParseError | None:
    """Return a branch as a region; an error if it does not fit the shapes at hand, None if it is not supported."""

    def convert(captures_shapes: bool) -> Region | None:
        return region(node.importer, graph, [], captures_shapes=captures_shapes)

    return branch(node.importer.refusals, convert)


def _known(value: Value, dtype: DataType) -> Any:
    """Return the single element of a constant tensor of type `dtype`; None if the value is not such a constant."""
    constant = value.constant
    if constant is None or constant.size != 1 or value.known.dtype is not dtype:
        return None
    return constant.reshape(-1)[0]


def _check_ranks(node: Node, condition: Value, regions: Sequence[Region]) -> None:
    """Refuse an If whose branches return tensors of different rank, if its condition depends on the inputs' sizes only.

    Once the caller gives these sizes, the condition is constant and one branch remains; the error asks for them.
    """
    infos_of_branches = zip(*(branch.infos for branch in regions), strict=True)
    if all(a.shape.joined(b.shape).is_ranked for a, b in infos_of_branches):
        return
    needs = node.importer.needs(condition)
    if needs is not None and all(node.importer.value(name).known.dtype.is_integer for name in needs.values):
        raise UnboundFormError("its branches give results of several ranks, and its condition is no constant", needs)


def _check_counts(graph: Message, num_inputs: int, num_outputs: int) -> None:
    if len(graph.input) != num_inputs:
        raise ParseError(f"its graph {graph.name!r} has {len(graph.input)} inputs; expected {num_inputs}")
    if len(graph.output) < num_outputs or not graph.output:
        raise ParseError(f"its graph {graph.name!r} has {len(graph.output)} outputs; expected {max(1, num_outputs)}")


# --- Loop -------------------------------------------------------------------------------------------------------------


def _converged_region(
    node: Node, body: Message, initial_infos: Infos, head: Infos, tail: Infos, skip: int
) -> Region | None:
    """Return the region of a loop body, converted repeatedly until the infos of the carried values no longer change.

    The region's inputs are `head`, the carried values (at first with the infos `initial_infos`) and `tail`. Its first
    `skip` outputs are not carried values. The result is None if the body has unsupported operators.
    """
    carried_infos = tuple(info.with_constant(None) for info in initial_infos)
    arrays = initializers(node.importer, body)
    while True:
        body_region = region(node.importer, body, [*head, *carried_infos, *tail], arrays)
        if body_region is None:
            return None
        body_region = _with_optionals_wrapped(body_region, carried_infos, skip)
        returned_infos = body_region.infos[skip : skip + len(carried_infos)]
        merged_infos = merged_carried(carried_infos, returned_infos)
        if merged_infos == carried_infos:
            return body_region
        carried_infos = merged_infos


def _with_optionals_wrapped(body_region: Region, carried_infos: Infos, skip: int) -> Region:
    """Return the region with an OptionalConstruct layer added where a carried value must be an optional, but is not.

    A body may return the bare element of an optional that it was given. `carried_infos` are the infos of the carried
    values, which begin at output `skip`; the result's `held` lists those that were wrapped.
    """
    infos, held_positions = list(body_region.infos), list[int]()
    for index, info in enumerate(carried_infos):
        output = body_region.graph.outputs[skip + index]
        if info.dtype is not DataType.OPTIONAL or infos[skip + index].dtype is DataType.OPTIONAL:
            continue
        wrapping_layer = body_region.graph.add(OptionalConstruct(), output.values)
        for error in infer_layer(wrapping_layer):
            raise ParseError(error)
        body_region.graph.set_input(output, 0, wrapping_layer.output)
        infos[skip + index] = wrapping_layer.output.known
        held_positions.append(index)
    return body_region._replace(infos=tuple(infos), held=tuple(held_positions))


@operator("Loop")
def loop(node: Node) -> Sequence[Value]:
    """Convert Loop; a loop with a small known number of iterations is unrolled."""
    body, trip_count, condition = node.graph("body"), node.optional(0), node.optional(1)
    initial_values = [node.value(index) for index in range(2, node.num_inputs)]
    _check_counts(body, 2 + len(initial_values), 1 + max(len(initial_values), node.num_outputs))
    unrolled = _unrolled_loop(node, body, trip_count, condition, initial_values)
    if unrolled is not None:
        return unrolled
    iteration_infos = TensorInfo((), DataType.INT64), TensorInfo((), DataType.BOOL, None, np.array(True))
    body_region = _converged_region(
        node, body, tuple(value.known for value in initial_values), iteration_infos, (), skip=1
    )
    if body_region is None:
        return node.give_up()
    op = Loop(len(initial_values), len(body.output) - 1 - len(initial_values))
    outputs = node.control(op, [trip_count, condition, *initial_values, *body_region.captured], [body_region.graph])
    return [
        node.step(OptionalGetElement(), output) if k in body_region.held else output for k, output in enumerate(outputs)
    ]


def _unrolled_loop(
    node: Node, body: Message, trip_count: Value | None, condition: Value | None, initial_values: list[Value]
) -> list[Value] | None:
    """Return the outputs of a Loop whose body is converted once per iteration, with no loop layer.

    `initial_values` are the initial carried values. The result is None if the loop must become a layer: the number of
    iterations is unknown or too large, or an iteration computes the condition at run time.
    """
    count = _known_count(trip_count, condition)
    num_scan_outputs = len(body.output) - 1 - len(initial_values)
    if count is None or not _is_few(node, count, body) or (num_scan_outputs and not count):
        return None
    carried_values, collected_values = initial_values, list[list[Value]]()
    mark, arrays = node.importer.mark(), initializers(node.importer, body)
    for iteration in range(count):
        iteration_values = [node.constant(np.array(iteration, np.int64)), node.constant(np.array(True))]
        outputs = in_place(node.importer, body, [*iteration_values, *carried_values], arrays)
        if outputs is None:
            return node.give_up()
        continues = _known(outputs[0], DataType.BOOL)
        if continues is None:
            node.importer.forget(mark)
            return None
        carried_values = outputs[1 : 1 + len(initial_values)]
        collected_values.append(outputs[1 + len(initial_values) :])
        if not continues:
            break
    return [*carried_values, *(node.step(Stack(0), *values) for values in zip(*collected_values, strict=True))]


def _is_few(node: Node, iterations: int, body: Message) -> bool:
    num_nodes = iterations * max(1, count_nodes(body))
    return num_nodes <= _UNROLLED and spent(node.importer) + num_nodes <= _ALL_UNROLLED


def _known_count(trip_count: Value | None, condition: Value | None) -> int | None:
    starts = True if condition is None else _known(condition, DataType.BOOL)
    if starts is None or not starts:
        return None if starts is None else 0
    count = None if trip_count is None else _known(trip_count, DataType.INT64)
    return None if count is None else max(0, int(count))


# --- Scan -------------------------------------------------------------------------------------------------------------


@operator("Scan", since=9)
def scan(node: Node) -> Sequence[Value]:
    """Convert Scan; a scan along an axis of small known size is unrolled."""
    body, values = node.graph("body"), [node.value(index) for index in range(node.num_inputs)]
    op = _scan_op(node, body, len(values))
    _check_counts(body, len(values), max(op.num_states, node.num_outputs))
    infos = tuple(value.known for value in values)
    for error in op.violations(*infos):
        raise ParseError(error)
    length = op.iterations([infos])
    if length and _is_few(node, length, body) and all(info.is_ranked for info in infos):
        return _unrolled_scan(node, body, op, values, length)
    body_region = _converged_region(node, body, infos[: op.num_states], (), _slices(op, infos), skip=0)
    if body_region is None:
        return node.give_up()
    return node.control(op, [*values, *body_region.captured], [body_region.graph])


def _scan_op(node: Node, body: Message, num_inputs: int) -> Scan:
    num_scanned = node.integer("num_scan_inputs")
    if not 1 <= num_scanned <= num_inputs:
        raise ParseError(f"its num_scan_inputs is {num_scanned}, but it has {num_inputs} inputs")
    num_states = num_inputs - num_scanned
    num_scan_outputs = len(body.output) - num_states
    if num_scan_outputs < 0:
        raise ParseError(f"its graph {body.name!r} has {len(body.output)} outputs; expected at least {num_states}")
    return Scan(
        num_states=num_states,
        num_scan_inputs=num_scanned,
        num_scan_outputs=num_scan_outputs,
        input_axes=node.integers("scan_input_axes", ()),
        output_axes=node.integers("scan_output_axes", ()),
        reverse_inputs=_flags(node, "scan_input_directions"),
        reverse_outputs=_flags(node, "scan_output_directions"),
    )


def _flags(node: Node, name: str) -> tuple[bool, ...]:
    flags = node.integers(name, ())
    if not {0, 1}.issuperset(flags):
        raise ParseError(f"its {name} is {flags}; each must be 0 or 1")
    return tuple(map(bool, flags))


def _slices(op: Scan, infos: Infos) -> Infos:
    return op.bound([infos], infos[: op.num_states])[0][op.num_states : op.num_states + op.num_scan_inputs]


def _unrolled_scan(node: Node, body: Message, op: Scan, values: list[Value], length: int) -> list[Value]:
    carried_values, scanned, collected_values = values[: op.num_states], values[op.num_states :], list[list[Value]]()
    axes = [op.axis(index, value.known.rank) for index, value in enumerate(scanned)]
    backwards, arrays = op.reverse_inputs or (False,) * len(scanned), initializers(node.importer, body)
    for iteration in range(length):
        positions = [length - 1 - iteration if backward else iteration for backward in backwards]
        slices = [
            node.step(Gather(axis), value, node.constant(np.array(position)))
            for axis, value, position in zip(axes, scanned, positions, strict=True)
        ]
        outputs = in_place(node.importer, body, [*carried_values, *slices], arrays)
        if outputs is None:
            return node.give_up()
        carried_values = outputs[: op.num_states]
        collected_values.append(outputs[op.num_states :])
    stacked = [
        _stacked(node, op, index, slices_of_output)
        for index, slices_of_output in enumerate(zip(*collected_values, strict=True))
    ]
    return [*carried_values, *stacked]


def _stacked(node: Node, op: Scan, index: int, slices: Sequence[Value]) -> Value:
    axis = op.output_axes[index] if op.output_axes else 0
    backwards = bool(op.reverse_outputs) and op.reverse_outputs[index]
    return node.step(Stack(axis), *(slices[::-1] if backwards else slices))


@operator("Scan", since=8)
def scan_of_batches(node: Node) -> Sequence[Value]:
    """Convert Scan of opset 8: a scan along axis 1 for every index of axis 0, as two nested scans."""
    body, values = node.graph("body"), [node.value(index) for index in range(1, node.num_inputs)]
    num_scanned = node.integer("num_scan_inputs")
    if not 1 <= num_scanned <= len(values):
        raise ParseError(f"its num_scan_inputs is {num_scanned}, but it has {len(values)} inputs after sequence_lens")
    num_states, num_scan_outputs = len(values) - num_scanned, len(body.output) - len(values) + num_scanned
    _check_counts(body, len(values), max(num_states, node.num_outputs))
    _check_lengths(node, values[num_states].known)
    batch_scan = Scan(0, len(values), num_states + num_scan_outputs)
    for error in batch_scan.violations(*(value.known for value in values)):
        raise ParseError(error)
    step_scan = Scan(num_states, num_scanned, num_scan_outputs, reverse_inputs=_flags(node, "directions"))
    network = Network(node.name)
    scope = Scope(node.importer, type(body)(), network)
    infos = _slices(batch_scan, _infos(values))
    region_inputs = [input_of_region(network.graph, i, info, f"slice_{i}") for i, info in enumerate(infos)]
    body_region = _converged_region(
        node.inside(scope),
        body,
        _infos(region_inputs[:num_states]),
        (),
        _slices(step_scan, _infos(region_inputs)),
        skip=0,
    )
    if body_region is None:
        return node.give_up()
    layer = network.add_layer(
        step_scan, *region_inputs, *body_region.captured, name=node.name, regions=[body_region.graph]
    )
    for number, value in enumerate(layer.outputs):
        network.add_output_layer(number, value)
    return node.control(batch_scan, [*values, *scope.captured], [network.graph])


def _infos(values: Sequence[Value]) -> Infos:
    return tuple(value.known for value in values)


def _check_lengths(node: Node, first: TensorInfo) -> None:
    """Refuse a Scan of opset 8 whose operand sequence_lens has lengths other than the full size of axis 1.

    `first` is the info of the first scanned tensor, as [batch, steps, ...].
    """
    if not node.has(0):
        return
    lengths, size = node.array(0, "sequence_lens"), first.shape[1] if first.rank > 1 else 0
    if isinstance(size, Dim) or (lengths != size).any():
        node.unsupported("its sequences have different lengths")
