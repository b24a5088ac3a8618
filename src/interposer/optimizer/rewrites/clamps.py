"""Rewrites of clamps: Maximum and Minimum with constants, and activations that clamp a clamped value."""

from __future__ import annotations

import math
from typing import Final, NamedTuple

from interposer.ir.graph import Layer, Value
from interposer.ops import Activation, ActivationFunction, Maximum, Minimum
from interposer.rewriting.pattern import New, Replacement, above, rewrite, scalar

__all__ = ["CLAMPS"]


class Bounds(NamedTuple):
    """The interval to which an activation, a Minimum or a Maximum clamps values; infinite if a side has no bound."""

    low: float
    high: float

    def clamp(self, value: float) -> float:
        """Return the nearest number in the interval."""
        return min(self.high, max(self.low, value))

    def activation(self) -> Activation | None:
        """Return the activation that clamps to this interval; None if no activation with finite parameters does."""
        if self.high == math.inf:
            return Activation(ActivationFunction.RELU) if self.low == 0 else None
        return Activation(ActivationFunction.BOUNDED_RELU, self.high, self.low) if self.low > -math.inf else None


class Limit(NamedTuple):
    """The operand that a Minimum or a Maximum bounds, and the constant number that bounds it."""

    value: Value
    bound: float


@rewrite(Minimum, Maximum)
def bound_by_activation(op: Minimum | Maximum, layer: Layer) -> Replacement:
    """Replace a Minimum and a Maximum with constant numbers, in either order, by a bounded ReLU."""
    outer_limit = _limit(layer)
    inner_layer = above(outer_limit.value, Maximum if isinstance(op, Minimum) else Minimum) if outer_limit else None
    inner_limit = _limit(inner_layer.layer) if inner_layer else None
    if outer_limit is None or inner_limit is None:
        return None
    bounds = (
        Bounds(inner_limit.bound, outer_limit.bound)
        if isinstance(op, Minimum)
        else Bounds(outer_limit.bound, inner_limit.bound)
    )
    activation = bounds.activation() if bounds.low <= bounds.high else None
    return None if activation is None else New(activation, [inner_limit.value])


def _limit(layer: Layer) -> Limit | None:
    """Return the bounded operand of a Minimum or Maximum with a constant number, and the number.

    None if there is no such constant, or if the layer changes the operand's shape or quantization.
    """
    for value, number in (layer.values, reversed(layer.values)):
        bound, info = scalar(number), value.known
        same_info = layer.output.known == info and number.known.quantization == info.quantization
        if bound is not None and same_info and (info.dtype.is_float or info.is_quantized):
            return Limit(value, bound)
    return None


@rewrite(Activation)
def join_clamps(op: Activation, layer: Layer) -> Replacement:
    """Merge two consecutive clamps into one; the second one is removed if it bounds no further."""
    inner_clamp = above(layer.inputs[0], Activation)
    outer_bounds = _bounds(op)
    inner_bounds = _bounds(inner_clamp.op) if inner_clamp else None
    if inner_clamp is None or outer_bounds is None or inner_bounds is None:
        return None
    if inner_clamp.layer.output.known != layer.output.known:
        return None
    merged_bounds = Bounds(*map(outer_bounds.clamp, inner_bounds))
    if merged_bounds == inner_bounds:
        return inner_clamp.layer.output
    activation = merged_bounds.activation()
    same_info = inner_clamp.layer.values[0].known == layer.output.known
    return New(activation, inner_clamp.layer.inputs) if activation and same_info else None


def _bounds(op: Activation) -> Bounds | None:
    if op.function is ActivationFunction.RELU:
        return Bounds(0, math.inf)
    return Bounds(op.b, op.a) if op.function is ActivationFunction.BOUNDED_RELU else None


CLAMPS: Final = (bound_by_activation, join_clamps)
