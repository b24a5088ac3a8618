"""TensorFlow converters for type conversion, and for the simulation of quantization."""

from __future__ import annotations

from interposer.core.errors import ParseError
from interposer.core.types import DataType
from interposer.frontends.bits import reinterpreted
from interposer.frontends.tensorflow.node import Node
from interposer.frontends.tensorflow.tensorflow_converters import operator
from interposer.ir.graph import Value
from interposer.ops.quantization import Cast, FakeQuantization
from interposer.ops.rearrange import Concat, Splitter

__all__: list[str] = []


@operator("Cast")
def cast(node: Node) -> Value:
    """Convert Cast; floats are truncated to integers."""
    x, dtype = node.value(0), node.dtype("DstT")
    if x.known.dtype is dtype:
        return x
    if DataType.STRING in (dtype, x.known.dtype):
        node.unsupported("it converts to or from texts")
    return node.result(Cast(dtype), x)


@operator("Bitcast")
def bitcast(node: Node) -> Value:
    """Convert Bitcast."""
    return reinterpreted(node, node.value(0), node.dtype("type"))


@operator("FakeQuantWithMinMaxVars")
def fake_quantization(node: Node) -> Value:
    """Convert FakeQuantWithMinMaxVars; the bounds of the range must be constants."""
    return node.result(_fake(node, node.number_of(1, "min"), node.number_of(2, "max")), node.value(0))


@operator("FakeQuantWithMinMaxArgs")
def fake_quantization_by_attributes(node: Node) -> Value:
    """Convert FakeQuantWithMinMaxArgs, whose bounds are attributes."""
    return node.result(_fake(node, node.number("min", -6.0), node.number("max", 6.0)), node.value(0))


@operator("FakeQuantWithMinMaxVarsPerChannel")
def fake_quantization_of_channels(node: Node) -> Value:
    """Convert FakeQuantWithMinMaxVarsPerChannel: every channel of the last axis has a range of its own."""
    x, low, high = node.value(0), node.array(1, "min").reshape(-1), node.array(2, "max").reshape(-1)
    if not low.size == high.size == x.known.shape[-1]:
        raise ParseError(f"it has {low.size} and {high.size} bounds for the shape {x.known.shape}")
    pieces = node.steps(Splitter(x.known.rank - 1, (1,) * low.size), x)
    quantized = [
        node.step(_fake(node, float(a), float(b)), piece) for a, b, piece in zip(low, high, pieces, strict=True)
    ]
    return node.result(Concat(x.known.rank - 1), *quantized)


def _fake(node: Node, low: float, high: float) -> FakeQuantization:
    """Return the operator for a range; one without zero is shifted to begin or end there, as in TensorFlow."""
    if low > 0:
        low, high = 0.0, high - low
    elif high < 0:
        low, high = low - high, 0.0
    if not low < high:
        raise ParseError(f"its range is {low:g} to {high:g}")
    return FakeQuantization(low, high, node.integer("num_bits", 8), node.flag("narrow_range", False))
