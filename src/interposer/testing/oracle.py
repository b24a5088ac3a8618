"""The expected results of networks, computed layer by layer with the reference kernels."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from interposer.backend import Backend, Capabilities, KernelTable
from interposer.core.types import Array, TensorInfo
from interposer.ir.graph import Graph, Layer, Value, binding_id
from interposer.ir.inference import infos_for
from interposer.ir.states import input_value
from interposer.kernels.evaluation import evaluate, reference
from interposer.ops.control import Constant, Input, Output

__all__ = ["Oracle", "reference_outputs", "reference_values"]


class Oracle(Backend):
    """A backend of the reference kernels, which runs the layers that the backend under test does not support."""

    id: ClassVar = "Oracle"
    kernels: ClassVar[KernelTable] = reference()
    capabilities: ClassVar = Capabilities(DynamicShapes=True, Sequences=True)


def reference_values(graph: Graph, feeds: Mapping[int, Array]) -> dict[Value, Array]:
    """Return every value of a graph as the reference kernels compute it from the inputs `feeds`, by binding id."""
    values: dict[Value, Array] = {}
    for layer in graph.topological():
        if isinstance(layer.op, Input):
            values[layer.output] = input_value(layer, feeds)
        elif isinstance(layer.op, Constant):
            values[layer.output] = layer.op.value
        elif not isinstance(layer.op, Output):
            values.update(zip(layer.outputs, layer_values(layer, values), strict=True))
    return values


def layer_values(layer: Layer, values: Mapping[Value, Array]) -> list[Array]:
    """Return the results of one layer as its reference kernel computes them from the arrays in `values`.

    Unknown shapes are inferred from these arrays.
    """
    arrays = [None if value is None else values[value] for value in layer.inputs]
    infos = [_info(value, values) for value in layer.inputs]
    return evaluate(layer.op, arrays, infos, infos_for(layer, infos))


def _info(value: Value | None, values: Mapping[Value, Array]) -> TensorInfo | None:
    if value is None or value.known.is_concrete:
        return None if value is None else value.known
    return value.known.with_shape(values[value].shape)


def reference_outputs(graph: Graph, feeds: Mapping[int, Array]) -> dict[int, Array]:
    """Return the outputs of a graph as the reference kernels compute them from `feeds`; both are by binding id."""
    values = reference_values(graph, feeds)
    return {binding_id(layer): values[layer.values[0]] for layer in graph.outputs}
