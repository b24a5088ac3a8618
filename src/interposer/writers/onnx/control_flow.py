"""ONNX writers for layers with regions: subgraphs in attributes, which access outer tensors by name."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from interposer.core.types import DataType, TensorInfo
from interposer.ir.graph import Graph
from interposer.ops.control_flow import If, Loop, Scan, While
from interposer.writers.borders import Border
from interposer.writers.onnx.cleaning import clean
from interposer.writers.onnx.draft import Draft
from interposer.writers.onnx.graphs import fill, name_outputs, write_layers
from interposer.writers.onnx.onnx_layer_writers import writer
from interposer.writers.onnx.protos import Message, onnx, value_info
from interposer.writers.onnx.sheet import Node, Sheet
from interposer.writers.onnx.tensor import Tensor
from interposer.writers.refusals import refuse, refuse_empty_branches

__all__: list[str] = []


def _names(draft: Draft, tensors: Sequence[Tensor]) -> list[str]:
    return [draft.name_of(tensor) for tensor in tensors]


def _bound(sheet: Sheet, region: Graph, tensors: Sequence[Tensor]) -> None:
    """Let the inputs of a region stand for `tensors`, in order, when the region's layers are written to `sheet`."""
    for layer, tensor in zip(region.inputs, tensors, strict=True):
        sheet.values[layer.output] = tensor


def _inner(draft: Draft, region: Graph, num_formal: int, captured_names: Sequence[str]) -> tuple[Sheet, Border]:
    """Return an empty sheet for the nodes of a region, and its border: what to write, with named inputs and outputs.

    The region's first `num_formal` inputs become inputs of the subgraph. The others stand for the outer tensors named
    in `captured_names`, which a subgraph in ONNX may access by name.
    """
    sheet = draft.sheet.inner()
    own_inputs = [(sheet.names.free(layer.name), layer.output) for layer in region.inputs[:num_formal]]
    tensors = [Tensor(name, value.known.dtype) for name, value in own_inputs]
    captured_tensors = [
        Tensor(name, layer.output.known.dtype)
        for name, layer in zip(captured_names, region.inputs[num_formal:], strict=True)
    ]
    _bound(sheet, region, [*tensors, *captured_tensors])
    outputs = [(sheet.names.free(layer.name), layer.values[0]) for layer in region.outputs]
    return sheet, Border(region.name, region.topological(), own_inputs, outputs)


def _written(draft: Draft, border: Border, sheet: Sheet) -> None:
    """Write the layers in `border` to `sheet`; refuse the control-flow layer if one of them cannot be expressed."""
    refusals = dict(write_layers(border, sheet))
    for name, (kind, reason) in refusals.items():
        refuse(f"in its region {border.name!r}, layer {name!r} ({kind}): {reason}")


def _graph(border: Border, sheet: Sheet, more_names: Sequence[str] = ()) -> Message:
    """Return a region whose layers are on `sheet` as a `GraphProto`.

    The outputs are those of `border`; the nodes that compute the tensors named in `more_names` are included too.
    """
    name_outputs(border, sheet)
    clean(sheet, [*(name for name, _ in border.outputs), *more_names], [])
    graph = onnx().GraphProto(name=border.name or "region")
    fill(graph, border, sheet)
    return graph


def _region(draft: Draft, region: Graph, num_formal: int, captured_names: Sequence[str]) -> Message:
    sheet, border = _inner(draft, region, num_formal, captured_names)
    _written(draft, border, sheet)
    return _graph(border, sheet)


def _put(
    draft: Draft, kind: str, inputs: Sequence[str], captured_names: Sequence[str], **attributes: Any
) -> list[Tensor]:
    present_attributes = {name: value for name, value in attributes.items() if value is not None}
    node = Node(kind, list(inputs), [], present_attributes, captured=tuple(captured_names))
    return draft.put(node, [info.dtype for info in draft.results])


@writer(If, moves=True, also_quantized=True)
def if_(draft: Draft, op: If) -> list[Tensor]:
    """Write If; both subgraphs access outer tensors by name."""
    refuse_empty_branches(op)
    condition, *captured = _names(draft, draft.tensors())
    then_branch, else_branch = (_region(draft, region, 0, captured) for region in draft.layer.regions)
    return _put(draft, "If", [condition], captured, then_branch=then_branch, else_branch=else_branch)


@writer(Loop, moves=True, also_quantized=True)
def loop(draft: Draft, op: Loop) -> list[Tensor]:
    """Write Loop; the body's own inputs are the iteration number, the condition and the carried values."""
    heads = [tensor and draft.name_of(tensor) for tensor in (draft.optional(0), draft.optional(1))]
    names = _names(draft, [operand for operand in draft.operands[2:] if operand is not None])
    carried_names, captured_names = names[: op.num_carried], names[op.num_carried :]
    body = _region(draft, draft.layer.regions[0], 2 + op.num_carried, captured_names)
    return _put(draft, "Loop", [*(name or "" for name in heads), *carried_names], captured_names, body=body)


@writer(Scan, moves=True, also_quantized=True)
def scan(draft: Draft, op: Scan) -> list[Tensor]:
    """Write Scan; the body's own inputs are states and slices."""
    names = _names(draft, draft.tensors())
    num_formal = op.num_states + op.num_scan_inputs
    body = _region(draft, draft.layer.regions[0], num_formal, names[num_formal:])
    return _put(
        draft,
        "Scan",
        names[:num_formal],
        names[num_formal:],
        body=body,
        num_scan_inputs=op.num_scan_inputs,
        scan_input_axes=list(op.input_axes) or None,
        scan_output_axes=list(op.output_axes) or None,
        scan_input_directions=[int(reverse_input) for reverse_input in op.reverse_inputs] or None,
        scan_output_directions=[int(reverse_output) for reverse_output in op.reverse_outputs] or None,
    )


@writer(While, moves=True, also_quantized=True)
def while_(draft: Draft, op: While) -> list[Tensor]:
    """Write While as a Loop without trip count; the condition is computed before the loop and after each iteration."""
    tensors = draft.tensors()
    names = _names(draft, tensors)
    carried_names, captured_names = names[: op.num_carried], names[op.num_carried :]
    condition, body = draft.layer.regions
    first_condition = _first_condition(draft, condition, tensors)
    loop_body = _loop_body(draft, condition, body, captured_names, op.num_carried)
    return _put(draft, "Loop", ["", first_condition, *carried_names], captured_names, body=loop_body)


def _first_condition(draft: Draft, condition: Graph, tensors: Sequence[Tensor]) -> str:
    """Write the layers of a While's condition before the loop, on its initial values; return the name of the result."""
    sheet = draft.sheet
    _bound(sheet, condition, tensors)
    condition_value = condition.outputs[0].values[0]
    _written(draft, Border(condition.name, condition.topological(), [], []), sheet)
    return draft.name_of(draft.reshape(sheet.values[condition_value], []))


def _loop_body(draft: Draft, condition: Graph, body: Graph, captured_names: Sequence[str], num_carried: int) -> Message:
    """Return the body of an ONNX Loop for a While: the layers of `body`, then `condition` on the body's results.

    `captured_names` names the outer tensors that both regions access after their `num_carried` carried values. The
    subgraph's first inputs are ONNX's iteration number and condition, and its first output is the new condition.
    """
    sheet, border = _inner(draft, body, num_carried, captured_names)
    _written(draft, border, sheet)
    carried_tensors = [sheet.values[value] for _, value in border.outputs]
    captured_tensors = [sheet.values[layer.output] for layer in body.inputs[num_carried:]]
    _bound(sheet, condition, [*carried_tensors, *captured_tensors])
    _written(draft, Border(condition.name, condition.topological(), [], []), sheet)
    condition_draft = Draft(sheet, draft.layer, ())
    name = sheet.names.free("condition")
    scalar = condition_draft.reshape(sheet.values[condition.outputs[0].values[0]], [])
    condition_draft.finish([condition_draft.node("Identity", scalar)], [name])
    graph = _graph(border, sheet, [name])
    heads = [(sheet.names.free("iteration"), DataType.INT64), (sheet.names.free("go_on"), DataType.BOOL)]
    _prepend(graph.input, [value_info(head, TensorInfo((), dtype)) for head, dtype in heads])
    _prepend(graph.output, [value_info(name, TensorInfo((), DataType.BOOL))])
    return graph


def _prepend(field: Any, messages: Sequence[Message]) -> None:
    present_entries = list(field)
    del field[:]
    field.extend([*messages, *present_entries])
