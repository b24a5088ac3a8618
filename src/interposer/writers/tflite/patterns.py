"""Patterns of several layers that are one TFLite operator, as exporters write functions that their format lacked."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Final

import numpy as np

from interposer.ir.graph import Layer, Value
from interposer.ops.elementwise import BinaryOperation, ElementwiseBinary, ElementwiseUnary, UnaryOperation

__all__ = ["gelu_input"]

_NEAR: Final = 1e-6
B = BinaryOperation


def gelu_input(layer: Layer) -> Value | None:
    """Return the x if a multiplication layer computes ``x * (1 + erf(x / sqrt(2))) / 2``, in any order; else None."""
    factors = list(_factors(layer, deep=True))
    half_values = [value for value in factors if _is_number(value, 0.5)]
    sources = [(value, _raised_error(value)) for value in factors]
    for raised, source in sources:
        plain_factors = [value for value in factors if value is not raised and value not in half_values]
        if source is not None and len(factors) == 3 and len(half_values) == 1 and plain_factors == [source]:
            return source if source.known.shape == layer.output.known.shape else None
    return None


def _factors(layer: Layer, *, deep: bool = False) -> Iterator[Value]:
    """Yield the operands of a multiplication layer; with `deep`, a product among them is replaced by its factors."""
    for value in layer.values:
        if deep and _is(value, B.MUL):
            yield from _factors(value.producer)
        else:
            yield value


def _raised_error(value: Value) -> Value | None:
    """Return the x of ``1 + erf(x / sqrt(2))``; None for any other value."""
    erf = next((addend for addend in _addends(value) if _is_erf(addend)), None)
    if erf is None or not any(_is_number(addend, 1) for addend in _addends(value)):
        return None
    scaled = erf.producer.values[0]
    if _is(scaled, B.DIV) and _is_number(scaled.producer.values[1], math.sqrt(2)):
        return scaled.producer.values[0]
    factors = [value for value in scaled.producer.values if _is(scaled, B.MUL) and _is_number(value, math.sqrt(0.5))]
    return next((value for value in scaled.producer.values if value not in factors), None) if factors else None


def _addends(value: Value) -> tuple[Value, ...]:
    return value.producer.values if _is(value, B.ADD) else ()


def _is(value: Value, operation: BinaryOperation) -> bool:
    op = value.producer.op
    return isinstance(op, ElementwiseBinary) and op.operation is operation and not value.known.is_quantized


def _is_erf(value: Value) -> bool:
    op = value.producer.op
    return isinstance(op, ElementwiseUnary) and op.operation is UnaryOperation.ERF


def _is_number(value: Value, number: float) -> bool:
    array = value.constant
    return array is not None and array.size == 1 and bool(np.abs(array.astype(np.float64) - number).max() < _NEAR)
