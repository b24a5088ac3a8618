"""Networks that are quantized before `quantize` sees them: wholly, which is refused, or in part."""

from __future__ import annotations

from interposer.core.errors import InvalidArgumentError
from interposer.core.traits import Trait
from interposer.core.types import TensorInfo
from interposer.ir.graph import Layer
from interposer.ir.network import Network
from interposer.ops.control import Constant, Input, Output
from interposer.ops.quantization import Dequantize, Quantize

__all__ = ["check_float"]


def check_float(network: Network) -> int:
    """Return how many layers of a network compute with quantized values already, and so stay as they are.

    Raises:
        InvalidArgumentError: these are at least half of the layers that do more than move elements.
    """
    layers = [layer for layer in network.graph.topological() if _computes(layer)]
    quantized_layers = [layer for layer in layers if any(info.is_quantized for info in _infos(layer))]
    if quantized_layers and 2 * len(quantized_layers) >= len(layers):
        first, dtype = (
            quantized_layers[0],
            next(info.dtype for info in _infos(quantized_layers[0]) if info.is_quantized),
        )
        raise InvalidArgumentError(
            f"the network is quantized already: {len(quantized_layers)} of its {len(layers)} layers compute with "
            f"quantized values, such as {first.name!r} ({first.kind}) with {dtype}; give the float network that it was "
            "made from"
        )
    return len(quantized_layers)


def _computes(layer: Layer) -> bool:
    is_conversion = isinstance(layer.op, Constant | Input | Output | Quantize | Dequantize)
    return not is_conversion and Trait.MOVES not in layer.op.traits


def _infos(layer: Layer) -> list[TensorInfo]:
    """Return the infos of the results and the operands of a layer, as far as they are known."""
    return [value.known for value in (*layer.outputs, *layer.values) if value.info is not None]
