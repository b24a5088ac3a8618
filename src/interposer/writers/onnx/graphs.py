"""Conversion of a graph to a sheet, and of a sheet to a message: for the model's graph and for subgraphs."""

from __future__ import annotations

from typing import Final

from interposer.core.types import Array, DataType
from interposer.ir.graph import Layer, Value
from interposer.writers import emission
from interposer.writers.borders import Border
from interposer.writers.emission import Refusals, array_of
from interposer.writers.onnx.draft import Draft
from interposer.writers.onnx.forms import has_type
from interposer.writers.onnx.layers import written
from interposer.writers.onnx.protos import Message, add_node, add_tensor, add_value
from interposer.writers.onnx.sheet import Sheet
from interposer.writers.onnx.tensor import Tensor

__all__ = ["bind_inputs", "fill", "name_outputs", "write_layers"]

_EXTERNAL: Final = 1024
"""The smallest size in bytes of constants in external data."""


def bind_inputs(border: Border, sheet: Sheet) -> Refusals:
    """Reserve the names of the inputs and outputs, and enter the inputs as tensors on the sheet.

    The result has the name of each input or output that a model's graph cannot have, with its operator and the reason.
    """
    sheet.names.reserve([name for name, _ in (*border.inputs, *border.outputs)])
    for name, value in (*border.inputs, *border.outputs):
        if not value.known.is_ranked:
            reason = "its rank is not known, as that of a model's inputs and outputs must be"
            yield name, border.refused(value.producer, reason)[1]
    for name, value in border.inputs:
        sheet.values[value] = Tensor(name, value.known.dtype)
        if value.known.element is None and not has_type(value.known.dtype, sheet.opset):
            yield name, border.refused(value.producer, f"opset {sheet.opset} has no type {value.known.dtype}")[1]


def write_layers(border: Border, sheet: Sheet) -> Refusals:
    """Write all layers of `border` to the sheet, and yield each refused layer as (name, (operator, reason))."""
    output_names = {value: name for name, value in border.outputs}
    names: dict[Value, str] = {}

    def constant(value: Value) -> Tensor:
        return Tensor(value.producer.name, value.known.dtype, array_of(value))

    def write(layer: Layer) -> list[Tensor]:
        names.update((value, output_names.get(value) or sheet.names.free(value.name)) for value in layer.outputs)
        draft = Draft(sheet, layer, [None if value is None else sheet.values[value] for value in layer.inputs])
        return draft.finish(written(draft), [names[value] for value in layer.outputs])

    def stand_ins(layer: Layer) -> list[Tensor]:
        return [Tensor(names[value], value.known.dtype) for value in layer.outputs]

    return emission.write_layers(border, sheet.values, constant, write, stand_ins)


def name_outputs(border: Border, sheet: Sheet) -> list[str]:
    """Return the names of the outputs in `border`, each of which becomes the name of a tensor.

    An output whose tensor is a constant or has another name gets an Identity node.
    """
    for name, value in border.outputs:
        tensor = sheet.values[value]
        if tensor.array is not None or tensor.name != name:
            draft = Draft(sheet, value.producer, ())
            draft.finish([draft.node("Identity", tensor)], [name])
    return [name for name, _ in border.outputs]


def fill(graph: Message, border: Border, sheet: Sheet, external: dict[str, Array] | None = None) -> None:
    """Add the nodes and constants of the sheet, and the inputs and outputs of `border`, to a `GraphProto`.

    Large constants are added to `external` by name if it is given; the graph then only declares them.
    """
    for field, values in ((graph.input, border.inputs), (graph.output, border.outputs)):
        for name, value in values:
            add_value(field, name, value.known)
    for name, array in sheet.constants.items():
        is_external = external is not None and _may_be_external(array)
        add_tensor(graph.initializer, name, array, external=is_external)
        if external is not None and is_external:
            external[name] = array
    for node in sheet.nodes:
        add_node(graph.node, node.kind, node.name, node.inputs, node.outputs, node.attributes, node.source, node.domain)
    inner_names = {name for node in sheet.nodes for name in node.outputs} - {name for name, _ in border.outputs}
    for value, tensor in sheet.values.items():
        if tensor.array is None and tensor.name in inner_names and value.known.is_ranked:
            inner_names.discard(tensor.name)
            add_value(graph.value_info, tensor.name, value.known)


def _may_be_external(array: Array) -> bool:
    return array.nbytes >= _EXTERNAL and array.dtype != object and DataType.of(array.dtype).bits >= 8
