"""Bias correction: the mean error that rounded weights cause in each output channel is subtracted from the bias."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from interposer.core.types import Array
from interposer.ir.graph import Layer, Value
from interposer.ir.network import Network
from interposer.ops import Convolution2d, DepthwiseConvolution2d, FullyConnected
from interposer.quantization.rules import Rule

__all__ = ["averaged_axes", "mean_error"]

Floats = NDArray[np.float64]


def averaged_axes(network: Network) -> dict[Value, int]:
    """Return the channel axis of each value that a layer with correctable bias reads; -1 for rows of features."""
    axes: dict[Value, int] = {}
    for layer in network.graph:
        value = layer.inputs[0] if layer.inputs else None
        if value is not None and value.info is not None and value.known.is_ranked:
            axis = _axis(layer, value)
            if axis is not None:
                axes[value] = axis
    return axes


def _axis(layer: Layer, value: Value) -> int | None:
    match layer.op:
        case Convolution2d() | DepthwiseConvolution2d():
            return layer.op.data_layout.axes().channels
        case _ if layer.kind in ("FullyConnected", "BatchMatMul") and value.known.rank >= 2:
            return -1
    return None


def mean_error(layer: Layer, rule: Rule, errors: Floats, means: Mapping[Value, Floats]) -> Array | None:
    """Return the mean error of each output channel that the `errors` of the weights cause, or None if it is unknown.

    `means` has the mean of each channel of the layer's input. Windows that reach over the border are ignored.
    """
    value = layer.inputs[0]
    mean = None if value is None else means.get(value)
    if mean is None:
        return None
    match rule.op:
        case Convolution2d() as op:
            return _of_convolution(op, errors, mean)
        case DepthwiseConvolution2d():
            sums = errors.sum(axis=(0, 1, 2))
            return np.asarray(sums * np.repeat(mean, len(sums) // max(1, len(mean))))
        case FullyConnected() as op if errors.shape[1 - op.output_axis] == len(mean):
            return np.asarray(errors @ mean if op.output_axis == 0 else mean @ errors)
    return None


def _of_convolution(op: Convolution2d, errors: Floats, mean: Floats) -> Array:
    rows, columns, _ = op.data_layout.axes()
    sums = errors.sum(axis=(rows, columns))
    inputs = mean.reshape(op.groups, -1)
    grouped_sums = sums.reshape(op.groups, -1, sums.shape[1])
    return np.asarray(np.einsum("goi,gi->go", grouped_sums, inputs).reshape(-1))
