"""The ranges that Arm NN's quantizer assumes for each layer when there is no calibration data."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from interposer.core.traits import Role, Trait
from interposer.core.types import DataType
from interposer.ir.graph import Layer, Value
from interposer.ir.network import Network
from interposer.ops import (
    Activation,
    ActivationFunction,
    BinaryOperation,
    Constant,
    ElementwiseBinary,
    ElementwiseUnary,
    Output,
    Pooling2d,
    Resize,
    Softmax,
    UnaryOperation,
)
from interposer.quantization.schemes import Scheme

__all__ = ["per_tensor", "static_ranges"]

Range = tuple[float, float]
_DEFAULT: Final = (-15.0, 15.0)
_WIDE: Final = (-20.0, 20.0)
_POSITIVE: Final = frozenset(
    {ActivationFunction.ABS, ActivationFunction.LINEAR, ActivationFunction.RELU, ActivationFunction.SOFT_RELU}
)


def per_tensor(scheme: Scheme) -> Scheme:
    """Return the scheme with a bias of 32 bits and one scale for all weights of a layer.

    Weights of uint8 are asymmetric. Signed weights are symmetric, as TensorFlow Lite takes no others.
    """
    return replace(scheme, per_channel=False, narrow_bias=True)


def static_ranges(network: Network) -> dict[Value, Range]:
    """Return the range of each float32 value of a network that Arm NN's quantizer assumes by the kind of the layer."""
    ranges: dict[Value, Range] = {}
    for layer in network.graph.topological():
        for value in layer.outputs if not isinstance(layer.op, Output) else ():
            if value.info is not None and value.known.dtype is DataType.FLOAT32:
                ranges[value] = _range(layer, ranges)
    return ranges


def _range(layer: Layer, known_ranges: dict[Value, Range]) -> Range:
    op = layer.op
    match op:
        case Activation():
            return _of_function(op)
        case Softmax():
            return 0.0, 1.0
        case Constant():
            return float(op.value.min(initial=0)), float(op.value.max(initial=0))
        case ElementwiseUnary() if op.operation is UnaryOperation.ABS:
            return _WIDE
        case ElementwiseBinary() if op.operation is BinaryOperation.ADD:
            return _WIDE
    if Trait.MOVES in op.traits or isinstance(op, Pooling2d | Resize):
        data_values = [layer.inputs[index] for index in op.inputs_of(Role.DATA, len(layer.inputs))]
        ranges = [known_ranges.get(value, _DEFAULT) for value in data_values if value is not None]
        return min(low for low, _ in ranges), max(high for _, high in ranges)
    return _DEFAULT


def _of_function(op: Activation) -> Range:
    if op.function in _POSITIVE:
        return 0.0, 15.0
    if op.function is ActivationFunction.BOUNDED_RELU:
        return 0.0, op.a
    if op.function is ActivationFunction.TANH:
        return -1.0, 1.0
    return (-5.0, 15.0) if op.function is ActivationFunction.LEAKY_RELU else _DEFAULT
