"""Conversion of a graph to a sheet, and of a sheet to a message: for the model's graph and for subgraphs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final, TypeAlias

import numpy as np

from interposer.core.types import Array, DataType
from interposer.ir.graph import Layer, Value
from interposer.ops.control import Constant, Input, Output
from interposer.writers.borders import Border
from interposer.writers.onnx.draft import Draft
from interposer.writers.onnx.forms import has_type
from interposer.writers.onnx.layers import written
from interposer.writers.onnx.protos import Message, external_tensor_proto, node_proto, tensor_proto, value_info
from interposer.writers.onnx.sheet import Sheet
from interposer.writers.onnx.tensor import Tensor
from interposer.writers.refusals import RefusedError

__all__ = ["bind_inputs", "fill", "name_outputs", "write_layers"]

Refusals: TypeAlias = Iterator[tuple[str, tuple[str, str]]]
_EXTERNAL: Final = 1024
"""The smallest size in bytes of constants in external data."""


def bind_inputs(border: Border, sheet: Sheet) -> Refusals:
    """Reserve the names of the inputs and outputs, and enter the inputs as tensors on the sheet.

    The result has the name of each input or output that a model's graph cannot have, with its operator and the reason.
    """
    sheet.reserve([name for name, _ in (*border.inputs, *border.outputs)])
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
    names = {value: name for name, value in border.outputs}
    for layer in border.layers:
        if isinstance(layer.op, Constant):
            sheet.values[layer.output] = _tensor_of(layer.output, layer.name)
        elif not isinstance(layer.op, Input | Output):
            requested_names = [names.get(value) or sheet.free_name(value.name) for value in layer.outputs]
            reason = _write_layer(layer, sheet, requested_names)
            if reason is not None:
                yield border.refused(layer, reason)


def _tensor_of(value: Value, name: str) -> Tensor:
    """Return the tensor that stands for a value from outside the written layers, under `name`.

    If a constant layer produces the value, the tensor is a constant with its array.
    """
    constant = value.producer.op.value if isinstance(value.producer.op, Constant) else None
    return Tensor(name, value.known.dtype, None if constant is None else np.asarray(constant))


def _write_layer(layer: Layer, sheet: Sheet, names: Sequence[str]) -> str | None:
    """Write a layer to the sheet; return the reason if it cannot be written, else None.

    `names` are the requested names of its outputs. The outputs of a refused layer become tensors too, so that the
    layers after it can be tried.
    """
    draft = Draft(sheet, layer, [None if value is None else sheet.values[value] for value in layer.inputs])
    try:
        with np.errstate(all="ignore"):
            results = draft.finish(written(draft), names)
    except RefusedError as error:
        results = [Tensor(name, info.dtype) for name, info in zip(names, layer.output_infos, strict=True)]
        sheet.values.update(zip(layer.outputs, results, strict=True))
        return str(error)
    sheet.values.update(zip(layer.outputs, results, strict=True))
    return None


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
    graph.input.extend(value_info(name, value.known) for name, value in border.inputs)
    graph.output.extend(value_info(name, value.known) for name, value in border.outputs)
    graph.initializer.extend(_constant(name, array, external) for name, array in sheet.constants.items())
    for node in sheet.nodes:
        graph.node.append(node_proto(node.kind, node.name, node.inputs, node.outputs, node.attributes))
        graph.node[-1].doc_string = node.source
    inner = {name for node in sheet.nodes for name in node.outputs} - {name for name, _ in border.outputs}
    for value, tensor in sheet.values.items():
        if tensor.array is None and tensor.name in inner and value.known.is_ranked:
            inner.discard(tensor.name)
            graph.value_info.append(value_info(tensor.name, value.known))


def _constant(name: str, array: Array, external: dict[str, Array] | None) -> Message:
    if external is None or array.nbytes < _EXTERNAL or array.dtype == object or DataType.of(array.dtype).bits < 8:
        return tensor_proto(name, array)
    external[name] = array
    return external_tensor_proto(name, array)
