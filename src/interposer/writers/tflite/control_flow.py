"""TFLite writers for layers with regions: subgraphs of the file, which cannot access outer tensors."""

from __future__ import annotations

from interposer.ir.graph import Graph
from interposer.ops.control_flow import If, While
from interposer.writers.borders import Border
from interposer.writers.refusals import refuse, refuse_empty_branches
from interposer.writers.tflite.cleaning import clean
from interposer.writers.tflite.draft import Draft
from interposer.writers.tflite.layers import bind_inputs, name_outputs, write_layers
from interposer.writers.tflite.sheet import Sheet, Tensor
from interposer.writers.tflite.tflite_layer_writers import writer

__all__: list[str] = []


def _region(region: Graph, passed_on: int = 0) -> Sheet:
    """Return a region as a sheet, which becomes a subgraph; refuse the layer if the region cannot be written.

    The last `passed_on` inputs are added as outputs, since a subgraph must return all values that the loop carries.
    """
    inputs = [(layer.name, layer.output) for layer in region.inputs]
    outputs = [(layer.name, layer.values[0]) for layer in region.outputs]
    border, sheet = Border(region.name, region.topological(), inputs, outputs), Sheet(region.name or "region")
    for name, (kind, reason) in dict([*bind_inputs(border, sheet), *write_layers(border, sheet)]).items():
        refuse(f"in its region {region.name!r}, layer {name!r} ({kind}): {reason}")
    name_outputs(border, sheet)
    sheet.outputs += sheet.inputs[len(sheet.inputs) - passed_on :]
    clean(sheet)
    return sheet


@writer(If, also_quantized=True, typed=True)
def if_(draft: Draft, op: If) -> list[Tensor]:
    """Write If: two subgraphs with the same inputs."""
    refuse_empty_branches(op)
    then_sheet, else_sheet = (_region(region) for region in draft.layer.regions)
    return draft.finals("IF", *draft.tensors(), then_subgraph_index=then_sheet, else_subgraph_index=else_sheet)


@writer(While, also_quantized=True, typed=True)
def while_(draft: Draft, op: While) -> list[Tensor]:
    """Write While; all values are carried, including captured ones, which do not change."""
    tensors = draft.tensors()
    captured = tensors[op.num_carried :]
    condition, body = draft.layer.regions
    infos = [*draft.results, *(tensor.info for tensor in captured)]
    results = draft.nodes(
        "WHILE",
        *tensors,
        giving=infos,
        cond_subgraph_index=_region(condition),
        body_subgraph_index=_region(body, len(captured)),
    )
    return results[: op.num_carried]
