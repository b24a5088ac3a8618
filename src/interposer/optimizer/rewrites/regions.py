"""The pass that minimizes the inputs of regions: constants move inside, and unused operands are removed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from interposer.ir.graph import Graph, Layer, Value
from interposer.ops import Constant, Input, Loop, Output, While
from interposer.ops.control_flow import ControlFlow
from interposer.rewriting.driver import Rewritten

__all__ = ["tidy_regions"]


def tidy_regions(graph: Graph) -> Rewritten:
    """Minimize the inputs of all regions in a graph.

    A carried value that no iteration changes becomes a captured value. A captured constant becomes a constant of the
    regions, which backends can prepare once. Operands that the regions do not read are removed.
    """
    counts: Counter[str] = Counter()
    for original_layer in graph:
        layer = _with_unchanged_captured(graph, original_layer, counts)
        if isinstance(layer.op, ControlFlow):
            counts["sink_constants"] += sum(1 for _ in _sink_constants(layer, layer.op))
            counts["drop_operands"] += sum(1 for _ in _drop_operands(graph, layer, layer.op))
    return Rewritten(counts)


def _region_inputs(layer: Layer, op: ControlFlow, position: int) -> list[Layer]:
    """Return the Input layer in each region to which operand number `position` of a control flow layer is bound.

    The operand must be a captured one, which has the same place in all regions.
    """
    return [region.inputs[position - op.offset] for region in layer.regions]


def _sink_constants(layer: Layer, op: ControlFlow) -> Iterator[Value]:
    for position in range(op.first_captured, len(layer.inputs)):
        value = layer.inputs[position]
        if value is None or not isinstance(value.producer.op, Constant):
            continue
        for region, region_input in zip(layer.regions, _region_inputs(layer, op, position), strict=True):
            if region_input.output.uses:
                captured_info = value.known
                region.replace_uses(
                    region_input.output, region.constant(value.producer.op.value, like=captured_info, name=value.name)
                )
                yield value


def _drop_operands(graph: Graph, layer: Layer, op: ControlFlow) -> Iterator[int]:
    for position in reversed(range(op.first_captured, len(layer.inputs))):
        region_inputs = _region_inputs(layer, op, position)
        if any(region_input.output.uses for region_input in region_inputs):
            continue
        for region, region_input in zip(layer.regions, region_inputs, strict=True):
            region.erase(region_input)
            _number(region, position - op.offset, -1)
        graph.set_inputs(layer, [*layer.inputs[:position], *layer.inputs[position + 1 :]])
        yield position


def _number(region: Graph, first: int, step: int) -> None:
    """Add `step` to the binding ids of a region's inputs whose id is at least `first`."""
    for layer in region.inputs:
        if isinstance(layer.op, Input) and layer.op.binding_id >= first:
            layer.op = Input(layer.op.binding_id + step)


def _with_unchanged_captured(graph: Graph, layer: Layer, counts: Counter[str]) -> Layer:
    """Turn the carried values of a loop that its body returns unchanged into captured values.

    Returns the layer that replaces the loop, or the loop itself if it has no such value. Each change is counted in
    `counts`.
    """
    while isinstance(layer.op, Loop | While):
        index = _unchanged(layer, layer.op)
        if index is None:
            break
        layer = _with_captured(graph, layer, layer.op, index)
        counts["capture_unchanged"] += 1
    return layer


def _unchanged(layer: Layer, op: Loop | While) -> int | None:
    body, first = layer.regions[-1], op.first_captured - op.num_carried
    num_conditions = 1 if isinstance(op, Loop) else 0
    for index in range(op.num_carried if op.num_results() > 1 else 0):
        value, body_result = layer.inputs[first + index], body.outputs[num_conditions + index].values[0]
        unchanged = body_result is body.inputs[first + index].output
        if unchanged and value is not None and value.known == layer.outputs[index].known:
            return index
    return None


def _with_captured(graph: Graph, layer: Layer, op: Loop | While, index: int) -> Layer:
    """Replace a loop by a copy in which the carried value number `index` is a captured value; return the copy.

    The loop's output for this value is replaced by the operand with which it began.
    """
    first_carried, num_conditions = op.first_captured - op.num_carried, 1 if isinstance(op, Loop) else 0
    num_operands, value = len(layer.inputs), layer.inputs[first_carried + index]
    assert value is not None
    regions = layer.regions
    for region in regions:
        region_input = region.inputs[first_carried + index]
        _number(region, first_carried + index, -1)
        region_input.op = Input(num_operands - 1)
    body = regions[-1]
    body.erase(body.outputs[num_conditions + index])
    for body_output in body.outputs:
        if isinstance(body_output.op, Output) and body_output.op.binding_id > num_conditions + index:
            body_output.op = Output(body_output.op.binding_id - 1)
    operands = [*layer.inputs[: first_carried + index], *layer.inputs[first_carried + index + 1 :], value]
    remaining_outputs = [output for output in layer.outputs if output.index != index]
    new_loop = graph.add(
        op.replace(num_carried=op.num_carried - 1), operands,
        outputs=[output.declared for output in remaining_outputs], source=layer.source, regions=regions,
    )  # fmt: skip
    new_loop.hint, new_loop.backend, new_loop.merged = layer.hint, layer.backend, layer.merged
    for old_value, new_value in zip(remaining_outputs, new_loop.outputs, strict=True):
        new_value.info = old_value.info
        graph.replace_uses(old_value, new_value)
    graph.replace_uses(layer.outputs[index], value)
    name, layer.regions = layer.name, ()
    graph.erase(layer)
    graph.rename(new_loop, name)
    return new_loop
