"""Rewrites that merge a Pad into the padding of the following convolution or pooling."""

from __future__ import annotations

import math
from typing import Final, NamedTuple

import numpy as np

from interposer.core.types import DataLayout
from interposer.ir.graph import Layer, Value
from interposer.ops import (
    Activation,
    ActivationFunction,
    Convolution2d,
    DepthwiseConvolution2d,
    Pad,
    PaddingMethod,
    PaddingMode,
    Pooling2d,
    PoolingAlgorithm,
)
from interposer.rewriting.pattern import New, Replacement, above, gives, keeps_codes, rewrite

__all__ = ["PADS"]


class Border(NamedTuple):
    """The result of matching a Pad: the `image` it pads, the pad value, and the width on each side in elements."""

    image: Value
    value: float
    top: int
    bottom: int
    left: int
    right: int


def _border(value: Value | None, layout: DataLayout) -> Border | None:
    """Return the image that a Pad produces `value` from, and what the Pad adds on each side.

    None if the producer is not a Pad, if it pads the batch or the channels, or if the padding is not a constant value.
    `layout` is that of the image.
    """
    pad = above(value, Pad)
    if pad is None or pad.op.padding_mode is not PaddingMode.CONSTANT or not keeps_codes(pad.layer):
        return None
    height, width, _ = layout.axes()
    pads = pad.op.pad_list
    other_pads = [pair for axis, pair in enumerate(pads) if axis not in (height, width)]
    if any(map(any, other_pads)):
        return None
    return Border(pad.layer.values[0], pad.op.pad_value, *pads[height], *pads[width])


@rewrite(Convolution2d, DepthwiseConvolution2d)
def fold_pad_into_convolution(op: Convolution2d | DepthwiseConvolution2d, layer: Layer) -> Replacement:
    """Merge a Pad with zeros into the padding of the following convolution."""
    border = _border(layer.inputs[0], op.data_layout)
    if border is None or border.value != 0:
        return None
    return New(op.replace(**_pads(op, border)), [border.image, *layer.inputs[1:]])


def _pads(op: Convolution2d | DepthwiseConvolution2d | Pooling2d, border: Border) -> dict[str, int]:
    sides = ("top", "bottom", "left", "right")
    return {f"pad_{side}": getattr(op, f"pad_{side}") + getattr(border, side) for side in sides}


@rewrite(Pooling2d)
def fold_pad_into_pooling(op: Pooling2d, layer: Layer) -> Replacement:
    """Merge a Pad into the padding of the following pooling, if the pad value cannot change the result.

    This applies to values that are never a maximum, and to zeros that count in a mean. Means of quantized values are
    not affected, as they may be rounded differently.
    """
    border = _border(layer.inputs[0], op.data_layout)
    if border is None or not (op.pool_width and op.pool_height):
        return None
    pads = _pads(op, border)
    if op.pool_type is PoolingAlgorithm.MAX:
        fits, method = _never_wins(op, border, pads), op.padding_method
    else:
        fits, method = _counts_as_zero(op, border), PaddingMethod.IGNORE_VALUE
    padded = op.replace(**pads, padding_method=method)
    return New(padded, [border.image]) if fits and gives(padded, [border.image]) == layer.output.known else None


def _never_wins(op: Pooling2d, border: Border, pads: dict[str, int]) -> bool:
    """Return True if the pad value cannot be the maximum of any window of a pooling.

    Every window must have an element of the image, and no element of the image may be less than the pad value. `pads`
    has the padding of the merged pooling, by attribute.
    """
    has_rows = max(pads["pad_top"], pads["pad_bottom"]) < op.pool_height
    has_columns = max(pads["pad_left"], pads["pad_right"]) < op.pool_width
    return has_rows and has_columns and op.dilation_x == op.dilation_y == 1 and border.value <= _least(border.image)


def _counts_as_zero(op: Pooling2d, border: Border) -> bool:
    has_padding = op.pad_top or op.pad_bottom or op.pad_left or op.pad_right
    same_divisor = op.padding_method is PaddingMethod.IGNORE_VALUE or not has_padding
    return same_divisor and border.value == 0 and not border.image.known.is_quantized


def _least(value: Value) -> float:
    """Return a lower bound of the elements of a value."""
    info = value.known
    lower_bound = -math.inf
    if info.is_quantized:
        lower_bound = (np.iinfo(info.dtype.numpy).min - info.zero_point) * info.scale
    activation = above(value, Activation)
    if activation is None:
        return lower_bound
    bounds = {ActivationFunction.RELU: 0.0, ActivationFunction.SIGMOID: 0.0}
    bounds[ActivationFunction.BOUNDED_RELU] = activation.op.b
    return max(lower_bound, bounds.get(activation.op.function, lower_bound))


PADS: Final = (fold_pad_into_convolution, fold_pad_into_pooling)
