"""Cross-layer equalization: channels of convolutions in a row are scaled so that their weights have similar ranges.

The method is that of Nagel et al., "Data-Free Quantization Through Weight Equalization and Bias Correction" (2019),
section 4.1. Scales are powers of two here, so that the float results stay the same, bit by bit.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from interposer.core.types import Array, DataType
from interposer.ir.graph import Layer, Value
from interposer.ir.inference import infer_layer
from interposer.ir.network import Network
from interposer.ops import Activation, Constant, Convolution2d, DepthwiseConvolution2d
from interposer.ops.activation import ActivationFunction

__all__ = ["equalize"]

Floats: TypeAlias = NDArray[np.float64]
_ROUNDS: Final = 16
"""The most rounds over all pairs. A layer in the middle of a row is in two pairs, which change each other's ranges."""
_LARGEST: Final = 30
"""The largest exponent of a scale."""


class _Pair(NamedTuple):
    """Two convolutions, the second of which reads the result of the first, possibly through a ReLU."""

    first: Layer
    second: Layer


def equalize(network: Network) -> int:
    """Equalize the weights of convolutions in a row in place, and return the number of pairs that were changed.

    A pair is a `Convolution2d` or `DepthwiseConvolution2d`, then a ReLU or nothing, then a second convolution without
    groups, if nothing else reads the values between them or their weights. A scale multiplies an output channel of the
    first layer and divides the input channel of the second one.
    """
    pairs, changed_pairs = list(_pairs(network)), set[_Pair]()
    for _ in range(_ROUNDS):
        scaled_pairs = [pair for pair in pairs if _scaled(network, pair)]
        changed_pairs.update(scaled_pairs)
        if not scaled_pairs:
            break
    return len(changed_pairs)


def _pairs(network: Network) -> Iterator[_Pair]:
    for layer in network.graph.topological():
        if not _is_convolution(layer) or not _has_own_constants(layer):
            continue
        next_layer = _only_consumer(layer.output)
        if next_layer is not None and _is_relu(next_layer):
            next_layer = _only_consumer(next_layer.output)
        if next_layer is not None and _fits(layer, next_layer):
            yield _Pair(layer, next_layer)


def _is_convolution(layer: Layer) -> bool:
    return isinstance(layer.op, Convolution2d | DepthwiseConvolution2d) and layer.output.known.dtype is DataType.FLOAT32


def _is_relu(layer: Layer) -> bool:
    return isinstance(layer.op, Activation) and layer.op.function is ActivationFunction.RELU


def _fits(first: Layer, second: Layer) -> bool:
    ops = first.op, second.op
    assert isinstance(ops[0], Convolution2d | DepthwiseConvolution2d)
    if not _is_convolution(second) or not _has_own_constants(second):
        return False
    is_same_layout = ops[0].data_layout is ops[1].data_layout  # type: ignore[attr-defined] # it is a convolution
    return is_same_layout and not (isinstance(ops[1], Convolution2d) and ops[1].groups != 1)


def _only_consumer(value: Value) -> Layer | None:
    consumers = value.consumers
    return consumers[0] if len(consumers) == 1 and len(value.uses) == 1 else None


def _has_own_constants(layer: Layer) -> bool:
    """Return True if the weights and the bias are finite constants that no other layer reads."""
    values = [value for value in layer.inputs[1:] if value is not None]
    return all(
        value.constant is not None and len(value.uses) == 1 and bool(np.isfinite(value.constant).all())
        for value in values
    )


def _scaled(network: Network, pair: _Pair) -> bool:
    """Scale the channels between two layers; return False if all scales are 1."""
    first_weights, second_weights = _array(pair.first, 1), _array(pair.second, 1)
    outgoing_ranges, incoming_ranges = (
        _output_ranges(pair.first, first_weights),
        _input_ranges(pair.second, second_weights, pair.first),
    )
    with np.errstate(all="ignore"):
        exponents = np.rint(np.log2(incoming_ranges / outgoing_ranges) / 2)
    exponents = np.where(np.isfinite(exponents), np.clip(exponents, -_LARGEST, _LARGEST), 0)
    if not exponents.any():
        return False
    scales = np.exp2(exponents)
    _replace(network, pair.first, 1, first_weights * _along_outputs(pair.first, scales))
    if len(pair.first.inputs) > 2 and pair.first.inputs[2] is not None:
        _replace(network, pair.first, 2, _array(pair.first, 2) * scales)
    _replace(network, pair.second, 1, second_weights / _along_inputs(pair.second, scales))
    return True


def _array(layer: Layer, position: int) -> Floats:
    value = layer.inputs[position]
    assert value is not None
    return np.asarray(value.constant, np.float64)


def _output_ranges(layer: Layer, weights: Floats) -> Floats:
    """Return the largest absolute weight of each output channel."""
    axis = layer.op.output_axis
    ranges: Floats = np.abs(weights).max(
        axis=tuple(other_axis for other_axis in range(4) if other_axis != axis), initial=0
    )
    return ranges


def _input_ranges(layer: Layer, weights: Floats, first: Layer) -> Floats:
    """Return the largest absolute weight of each input channel, which are the output channels of `first`."""
    if isinstance(layer.op, DepthwiseConvolution2d):
        channels = _array(first, 1).shape[first.op.output_axis]
        grouped_weights = np.abs(weights).reshape(-1, channels, weights.shape[3] // channels)
        return np.asarray(grouped_weights.max(axis=(0, 2), initial=0))
    axis = _input_axis(layer)
    return np.asarray(
        np.abs(weights).max(axis=tuple(other_axis for other_axis in range(4) if other_axis != axis), initial=0)
    )


def _input_axis(layer: Layer) -> int:
    assert isinstance(layer.op, Convolution2d)
    return layer.op.data_layout.axes().channels


def _along_outputs(layer: Layer, scales: Floats) -> Floats:
    shape = [1, 1, 1, 1]
    shape[layer.op.output_axis] = len(scales)
    return scales.reshape(shape)


def _along_inputs(layer: Layer, scales: Floats) -> Floats:
    if isinstance(layer.op, DepthwiseConvolution2d):
        return np.repeat(scales, _array(layer, 1).shape[3] // len(scales)).reshape(1, 1, 1, -1)
    shape = [1, 1, 1, 1]
    shape[_input_axis(layer)] = len(scales)
    return scales.reshape(shape)


def _replace(network: Network, layer: Layer, position: int, array: Array) -> None:
    """Replace a constant operand of a layer by another one."""
    value = layer.inputs[position]
    assert value is not None
    old_layer = value.producer
    constant = network.graph.add(Constant(array.astype(np.float32)), name=old_layer.name, source=old_layer.source)
    infer_layer(constant)
    constant.output.aliases = value.aliases
    network.graph.set_input(layer, position, constant.output)
    name = old_layer.name
    network.graph.erase(old_layer)
    network.graph.rename(constant, name)
