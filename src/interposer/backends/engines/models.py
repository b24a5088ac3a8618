"""Subgraphs as ONNX models with separate large constants, for the engines that read ONNX."""

from __future__ import annotations

from typing import Any, NamedTuple

from interposer.backend import SubgraphView
from interposer.core.types import Array
from interposer.ir.graph import Layer

__all__ = ["OnnxPart", "constants_as_inputs", "onnx_part", "onnx_reasons"]


class OnnxPart(NamedTuple):
    """A subgraph as an ONNX model, for an engine that reads ONNX.

    `model` is an `onnx.ModelProto`. `inputs` and `outputs` are the names that the subgraph's inputs and outputs have in
    it, in the subgraph's order. `constants` are the arrays of the large constants by name: the model declares them as
    external data, and does not contain their values.
    """

    model: Any
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    constants: dict[str, Array]


def onnx_part(view: SubgraphView, *, exact: bool, opset: int | None = None) -> OnnxPart:
    """Return a subgraph as an ONNX model; raise `UnwritableError` if ONNX cannot express a layer.

    With `exact`, quantized layers whose ONNX form rounds differently cannot be written; otherwise they become float
    layers between DequantizeLinear and QuantizeLinear. `opset` is the opset of the model; None means the writer's
    default.
    """
    from interposer.writers import onnx  # noqa: PLC0415 - large, and not needed to know that a backend is there

    constants: dict[str, Array] = {}
    model = onnx.write(view, exact=exact, opset=opset, external=constants)
    graph = model.graph
    inputs, outputs = (tuple(value.name for value in values) for values in (graph.input, graph.output))
    return OnnxPart(model, inputs, outputs, constants)


def onnx_reasons(layer: Layer, *, exact: bool, opset: int | None = None) -> list[str]:
    """Return the reasons why `onnx_part` cannot write a layer with this `exact` and `opset`; empty if it can."""
    from interposer.writers import onnx  # noqa: PLC0415

    return onnx.reasons(layer, exact=exact, opset=opset)


def constants_as_inputs(part: OnnxPart) -> Any:
    """Return the model with its large constants as additional inputs, for readers without support of external data."""
    model = type(part.model)()
    model.CopyFrom(part.model)
    small_constants = []
    for tensor in model.graph.initializer:
        if tensor.name in part.constants:
            declared_input = model.graph.input.add(name=tensor.name)
            declared_input.type.tensor_type.elem_type = tensor.data_type
            declared_input.type.tensor_type.shape.SetInParent()
            for size in tensor.dims:
                declared_input.type.tensor_type.shape.dim.add(dim_value=size)
        else:
            small_constants.append(tensor)
    del model.graph.initializer[:]
    model.graph.initializer.extend(small_constants)
    return model
