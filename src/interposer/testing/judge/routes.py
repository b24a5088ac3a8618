"""Routes: networks that are written as a model file and read back."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum

from interposer.core.errors import MissingDependencyError, UnboundInputError, UnwritableError
from interposer.core.schema import Op
from interposer.core.types import Array
from interposer.frontends import onnx as onnx_frontend
from interposer.frontends import tflite as tflite_frontend
from interposer.ir.network import Network
from interposer.ops.quantization import Requantization
from interposer.writers import onnx as onnx_writer
from interposer.writers import tflite as tflite_writer

__all__ = ["Route", "bound_again", "through"]


class Route(Enum):
    """The model file through which a network is passed before it is run.

    It is ONNX, ONNX whose quantized layers are written inexactly, or TFLite.
    """

    ONNX = "onnx"
    ONNX_INEXACT = "onnx-inexact"
    TFLITE = "tflite"

    def is_exact(self, network: Network) -> bool:
        """Return True if the model file expresses exactly the computation of a network, also for quantized layers.

        TFLite files round in fixed point, also what the network rounds half to even.
        """
        if self is Route.TFLITE:
            return not any(_rounds_half_to_even(layer.op) for layer in network.graph)
        return self is not Route.ONNX_INEXACT


def _rounds_half_to_even(op: Op) -> bool:
    return getattr(op, "requantization", Requantization.FIXED_POINT) is not Requantization.FIXED_POINT


def through(route: Route, network: Network) -> Network | str:
    """Write the network as a model, read the model back, and return the imported network.

    If the format cannot express the network, the reason is returned as text.

    Raises:
        InterposerError: the front end refuses the written model.
    """
    try:
        model = _written(route, network)
    except (UnwritableError, MissingDependencyError) as error:
        return str(error)
    try:
        imported_network = tflite_frontend.load(model) if route is Route.TFLITE else onnx_frontend.load(model)
    except UnboundInputError as error:
        return f"the model becomes a network only when values of inputs are known: {error}"
    if len(imported_network.graph.outputs) != len(network.graph.outputs):
        return "outputs are lost"
    return imported_network


def _written(route: Route, network: Network) -> bytes:
    if route is Route.TFLITE:
        return tflite_writer.write(network)
    model = onnx_writer.write(network, exact=route is not Route.ONNX_INEXACT)
    content: bytes = model.SerializeToString()
    return content


def bound_again(network: Network, imported: Network, feeds: Mapping[int, Array]) -> dict[int, Array] | str:
    """Return the input arrays `feeds` of a network by the binding ids of the imported network.

    If the imported network has other inputs, a text says how they differ.
    """
    inputs_of_both = list(zip(network.graph.inputs, imported.graph.inputs, strict=False))
    if len(inputs_of_both) != len(network.graph.inputs) or len(inputs_of_both) != len(imported.graph.inputs):
        return "inputs are lost"
    feeds_by_id = {}
    for old_input, new_input in inputs_of_both:
        if old_input.output.known.dtype is not new_input.output.known.dtype:
            return f"an input of type {old_input.output.known.dtype} becomes {new_input.output.known.dtype}"
        feeds_by_id[new_input.op.binding_id] = feeds[old_input.op.binding_id]  # type: ignore[attr-defined]
    return feeds_by_id
