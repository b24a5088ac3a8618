"""The pass that inlines control flow that is known before running: branches that are taken, and short loops."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final

import numpy as np

from interposer.core.errors import InvalidNetworkError
from interposer.core.schema import Op
from interposer.ir.graph import Graph, Layer, Value
from interposer.ir.inference import failing_branches_emptied, infer_layer
from interposer.ir.regions import region_title
from interposer.ops import Gather, If, Input, Loop, Output, Scan, Stack
from interposer.ops.control_flow import ControlFlow
from interposer.rewriting.driver import Rewritten
from interposer.rewriting.pattern import INSERTED

__all__ = ["MOST_LAYERS", "unroll"]

MOST_LAYERS: Final = 1024
"""The maximum number of layers that a loop is unrolled to."""


def unroll(graph: Graph) -> Rewritten:
    """Replace control flow layers with known behaviour by the layers that they run.

    These are branches with a known condition, and loops with a small known number of iterations. The infos of the
    following layers are then inferred again. Returns how often each replacement was made.

    Raises:
        InvalidNetworkError: dimensions that became known do not fit a layer.
    """
    counts: Counter[str] = Counter()
    stale_layers: set[Layer] = set()
    for layer in graph.topological() if any(isinstance(layer.op, ControlFlow) for layer in graph) else ():
        if layer in stale_layers:
            stale_layers |= _infer_again(graph, layer)
        new_values = _unrolled(graph, layer)
        if new_values is None:
            continue
        counts[unroll.__name__] += 1
        stale_layers |= {use.layer for value in layer.outputs for use in value.uses}
        for old_value, new_value in zip(layer.outputs, new_values, strict=True):
            graph.replace_uses(old_value, new_value)
        graph.erase_dead([layer])
        if layer in graph:
            graph.erase(layer)
    return Rewritten(counts)


def _infer_again(graph: Graph, layer: Layer) -> set[Layer]:
    """Infer the outputs of a layer again, and return the layers to infer next.

    These are the layers that read its outputs, if an output's info has changed; none otherwise.
    """
    earlier_facts = [(value.info, value.constant is None) for value in layer.outputs]
    _infer(graph, layer)
    if earlier_facts == [(value.info, value.constant is None) for value in layer.outputs]:
        return set()
    return {use.layer for value in layer.outputs for use in value.uses}


def _infer(graph: Graph, layer: Layer) -> None:
    with failing_branches_emptied():
        errors: Iterable[str] = infer_layer(layer)
    if errors:
        raise InvalidNetworkError([f"layer {layer}: {error}" for error in errors], graph.name)


def _unrolled(graph: Graph, layer: Layer) -> list[Value] | None:
    """Add the layers that a control flow layer would run to the graph, and return the values that replace its outputs.

    None if the layer has to stay, because its behaviour depends on data or its copies would be too large.
    """
    for kind, function in _UNROLLED.items():
        if isinstance(layer.op, kind):
            return function(graph, layer, layer.op)
    return None


def _branch(graph: Graph, layer: Layer, op: If) -> list[Value] | None:
    condition = layer.values[0].constant
    if condition is None or condition.size != 1:
        return None
    taken_index = 0 if condition.reshape(-1)[0] else 1
    return None if op.failures[taken_index] else _in_place(graph, layer, taken_index, layer.values[1:])


def _loop(graph: Graph, layer: Layer, op: Loop) -> list[Value] | None:
    body = layer.regions[0]
    trips, next_condition = _count(layer, op), body.outputs[0].values[0].constant
    is_endless = next_condition is None or next_condition.size != 1 or not next_condition.reshape(-1)[0]
    if trips is None or (trips > 1 and is_endless) or (trips == 0 and op.num_scan_outputs):
        return None
    if trips * _size(body) > MOST_LAYERS:
        return None
    inputs = [value for value in layer.inputs[2:] if value is not None]
    carried_values, captured_values, collected_values = (
        inputs[: op.num_carried],
        inputs[op.num_carried :],
        list[list[Value]](),
    )
    for iteration in range(trips):
        iteration_and_condition = [graph.constant(np.array(iteration, np.int64)), graph.constant(np.array(True))]
        region_results = _in_place(graph, layer, 0, [*iteration_and_condition, *carried_values, *captured_values])
        carried_values = region_results[1 : 1 + op.num_carried]
        collected_values.append(region_results[1 + op.num_carried :])
    return [
        *carried_values,
        *(_added(graph, layer, Stack(0), *values) for values in zip(*collected_values, strict=True)),
    ]


def _count(layer: Layer, op: Loop) -> int | None:
    condition = layer.inputs[1] if len(layer.inputs) > 1 else None
    if condition is not None and (condition.constant is None or condition.constant.size != 1):
        return None
    return op.iterations(op.arguments(layer.input_infos))


def _scan(graph: Graph, layer: Layer, op: Scan) -> list[Value] | None:
    trips, values = op.iterations(op.arguments(layer.input_infos)), layer.values
    scanned = values[op.num_states : op.first_captured]
    if (
        not trips
        or trips * _size(layer.regions[0]) > MOST_LAYERS
        or not all(array.known.is_ranked for array in scanned)
    ):
        return None
    axes = [op.axis(index, value.known.rank) for index, value in enumerate(scanned)]
    backwards = op.reverse_inputs or (False,) * len(scanned)
    carried_values, collected_values = list(values[: op.num_states]), list[list[Value]]()
    for iteration in range(trips):
        slices = []
        for value, axis, is_backward in zip(scanned, axes, backwards, strict=True):
            place = graph.constant(np.array(trips - 1 - iteration if is_backward else iteration))
            slices.append(_added(graph, layer, Gather(axis), value, place))
        region_results = _in_place(graph, layer, 0, [*carried_values, *slices, *values[op.first_captured :]])
        carried_values = region_results[: op.num_states]
        collected_values.append(region_results[op.num_states :])
    columns = enumerate(zip(*collected_values, strict=True))
    return [*carried_values, *(_collected(graph, layer, op, index, column) for index, column in columns)]


def _collected(graph: Graph, layer: Layer, op: Scan, index: int, values: Sequence[Value]) -> Value:
    axis = op.output_axes[index] if op.output_axes else 0
    backwards = bool(op.reverse_outputs) and op.reverse_outputs[index]
    return _added(graph, layer, Stack(axis), *(values[::-1] if backwards else values))


_UNROLLED: Final[dict[type[Op], Callable[[Graph, Layer, Any], list[Value] | None]]] = {
    If: _branch,
    Loop: _loop,
    Scan: _scan,
}


def _in_place(graph: Graph, layer: Layer, index: int, values: Sequence[Value]) -> list[Value]:
    """Copy the layers of region number `index` of a control flow layer into the graph, with `values` as its inputs.

    The copies are added after all other layers, and their names begin with those of the layer and the region. Returns
    the values that the region's outputs have in the graph.
    """
    region = layer.regions[index]
    argument_of = dict(zip((layers_inside.output for layers_inside in region.inputs), values, strict=True))
    layers_inside = [
        inner_layer for inner_layer in region.topological() if not isinstance(inner_layer.op, Input | Output)
    ]
    copies = graph.absorb(layers_inside, argument_of)
    for copy in dict.fromkeys(copies[value].producer for inner_layer in layers_inside for value in inner_layer.outputs):
        graph.rename(copy, f"{layer.name}/{region_title(layer, index)}/{copy.name}")
        _infer(graph, copy)
    return [copies[output.values[0]] for output in region.outputs]


def _added(graph: Graph, layer: Layer, op: Op, *values: Value) -> Value:
    added = graph.add(op, values, name=f"{op.op_name().lower()}-{layer.name}", source=INSERTED)
    _infer(graph, added)
    return added.output


def _size(graph: Graph) -> int:
    """Return the number of layers of a graph after unrolling all loops with a known number of iterations."""
    return sum(1 + _times(layer) * sum(map(_size, layer.regions)) for layer in graph)


def _times(layer: Layer) -> int:
    iterations = layer.op.iterations(layer.op.arguments(layer.input_infos)) if isinstance(layer.op, ControlFlow) else 1
    return 1 if iterations is None else iterations
