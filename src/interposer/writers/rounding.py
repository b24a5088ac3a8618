"""The rounding of activations (DynamicFakeQuantization), which no format has, as layers of ordinary arithmetic."""

from __future__ import annotations

from typing import Final

import numpy as np

from interposer.core.schema import Op
from interposer.core.types import DataType
from interposer.ir.graph import Graph, Layer, Value
from interposer.ir.inference import infer_graph, infer_layer
from interposer.ops import (
    Addition,
    Cast,
    Constant,
    Division,
    DynamicFakeQuantization,
    ElementwiseUnary,
    Floor,
    Maximum,
    Minimum,
    Multiplication,
    Reduce,
    ReduceOperation,
    Subtraction,
    UnaryOperation,
)
from interposer.ops.reduction import reduced_axes

__all__ = ["with_plain_rounding"]

_LEAST: Final = 1e-36
"""The smallest range, which replaces a range of 0."""


def with_plain_rounding(graph: Graph) -> Graph:
    """Return a copy of a graph in which DynamicFakeQuantization layers are replaced by layers of float32 arithmetic.

    The result is the graph itself if it has none of these layers. Regions are not changed.
    """
    if not any(isinstance(layer.op, DynamicFakeQuantization) for layer in graph):
        return graph
    copy = graph.clone()
    for layer in [layer for layer in copy if isinstance(layer.op, DynamicFakeQuantization)]:
        copy.replace_uses(layer.output, _Expansion(copy, layer).result())
        copy.erase(layer)
    infer_graph(copy)
    return copy


class _Expansion:
    """Adds the layers that replace a DynamicFakeQuantization layer to its graph."""

    def __init__(self, graph: Graph, layer: Layer) -> None:
        assert isinstance(layer.op, DynamicFakeQuantization)
        self.graph, self.layer, self.op = graph, layer, layer.op

    def result(self) -> Value:
        """Add all layers, and return the rounded values."""
        x, dtype = self.layer.values[0], self.layer.output.known.dtype
        if dtype is DataType.FLOAT32:
            return self._rounded(x)
        return self._add(Cast(dtype), self._rounded(self._add(Cast(DataType.FLOAT32), x)))

    def _rounded(self, x: Value) -> Value:
        scale, inverse, zero = self._asymmetric(x) if self.op.asymmetric else self._symmetric(x)
        place = self._add(Addition(), self._add(Multiplication(), x, inverse), zero)
        low = self._number(-128.0 if self.op.asymmetric else -127.0)
        inside = self._add(Minimum(), self._add(Maximum(), place, low), self._number(127.0))
        steps = self._add(Subtraction(), self._nearest(inside), zero)
        return self._add(Multiplication(), steps, scale)

    def _symmetric(self, x: Value) -> tuple[Value, Value, Value]:
        """Return scale, inverse of the scale, and zero point."""
        largest = self._reduced(ReduceOperation.MAX, self._unary(UnaryOperation.ABS, x))
        largest = self._add(Maximum(), largest, self._number(_LEAST))
        steps = self._number(127.0)
        return self._add(Division(), largest, steps), self._add(Division(), steps, largest), self._number(0.0)

    def _asymmetric(self, x: Value) -> tuple[Value, Value, Value]:
        """Return scale, inverse of the scale, and zero point."""
        low = self._add(Minimum(), self._reduced(ReduceOperation.MIN, x), self._number(0.0))
        high = self._add(Maximum(), self._reduced(ReduceOperation.MAX, x), self._number(0.0))
        scale = self._add(Division(), self._add(Subtraction(), high, low), self._number(255.0))
        scale = self._add(Maximum(), scale, self._number(_LEAST))
        zero = self._add(Subtraction(), self._number(-128.0), self._add(Division(), low, scale))
        return scale, self._add(Division(), self._number(1.0), scale), self._nearest(zero)

    def _reduced(self, operation: ReduceOperation, x: Value) -> Value:
        axes = reduced_axes(self.op.axes, x.known.rank)
        return self._add(Reduce(axis=axes, keep_dims=True, operation=operation), x) if axes else x

    def _nearest(self, x: Value) -> Value:
        """Round to whole numbers, halves away from zero."""
        size = self._add(Addition(), self._unary(UnaryOperation.ABS, x), self._number(0.5))
        return self._add(Multiplication(), self._add(Floor(), size), self._unary(UnaryOperation.SIGN, x))

    def _unary(self, operation: UnaryOperation, x: Value) -> Value:
        return self._add(ElementwiseUnary(operation), x)

    def _number(self, value: float) -> Value:
        return self._add(Constant(np.array(value, np.float32)))

    def _add(self, op: Op, *values: Value) -> Value:
        name = self.graph.free_name(self.layer.name)
        layer = self.graph.add(op, values, name=name, source=self.layer.source)
        infer_layer(layer)
        return layer.output
