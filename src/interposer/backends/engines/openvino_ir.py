"""Layers that stand for a network in OpenVINO's IR, as `interposer.frontends.openvino` makes them."""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from interposer.backend import SubgraphView
from interposer.backends.engines.memory import shareable
from interposer.core.types import Array
from interposer.ir.graph import Layer, Value
from interposer.ops.control import StandIn

__all__ = ["is_network", "model_of", "positions"]

_DESCRIPTION: Final = "OpenVINO IR "
_FILES: Final = 2
"""The number of operands before the inputs of the network: the bytes of the file with the layers, and the weights."""


def is_network(layer: Layer) -> bool:
    """Return True if a layer stands for a network in OpenVINO's IR, with the files as constants."""
    return (
        isinstance(layer.op, StandIn)
        and layer.op.description.startswith(_DESCRIPTION)
        and len(layer.inputs) >= _FILES
        and all(value is not None and value.is_constant for value in layer.inputs[:_FILES])
    )


def model_of(view: SubgraphView, core: Any) -> Any:
    """Return OpenVINO's model of the only layer in a view.

    Its inputs have the shapes of the layer's. Inputs that are constants become constants of the model, and its outputs
    are those of the view in order.
    """
    import openvino  # noqa: PLC0415 - optional, and slow to import

    (layer,) = view
    text, weights = (_elements(value) for value in layer.inputs[:_FILES])
    model = core.read_model(text.tobytes(), openvino.Tensor(shareable(weights), shared_memory=True))
    inputs = layer.inputs[_FILES:]
    model.reshape({index: openvino.PartialShape(list(_value(value).known.shape)) for index, value in enumerate(inputs)})
    outputs = [model.outputs[value.index] for value in view.outputs]
    parameters = [port.get_node() for port in model.inputs]
    remaining_parameters = [
        node for node, value in zip(parameters, inputs, strict=True) if not _value(value).is_constant
    ]
    for node, value in zip(parameters, inputs, strict=True):
        if _value(value).is_constant:
            node.output(0).replace(openvino.op.Constant(_elements(value)).output(0))
    return openvino.Model(
        [port.get_node().input_value(0) for port in outputs], remaining_parameters, model.get_friendly_name()
    )


def positions(view: SubgraphView) -> list[int | None]:
    """Return for each input of a view its position among the inputs of the model that `model_of` returns."""
    (layer,) = view
    inputs = [value for value in layer.inputs[_FILES:] if not _value(value).is_constant]
    return [inputs.index(value) for value in view.inputs]


def _value(value: Value | None) -> Value:
    assert value is not None
    return value


def _elements(value: Value | None) -> Array:
    array = _value(value).constant
    assert array is not None
    return np.ascontiguousarray(array)
