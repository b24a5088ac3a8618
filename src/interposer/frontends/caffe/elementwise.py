"""Caffe converters for operations on elements of several blobs, and for reductions."""

from __future__ import annotations

import math
from functools import reduce
from typing import Final

from interposer.core.types import DataType
from interposer.frontends.caffe.caffe_converters import layer
from interposer.frontends.caffe.node import Node
from interposer.frontends.caffe.schema import ENUMS
from interposer.ir.graph import Value
from interposer.ops.activation import Activation, ActivationFunction
from interposer.ops.choice import TopK
from interposer.ops.elementwise import BinaryOperation
from interposer.ops.quantization import Cast
from interposer.ops.rearrange import Concat
from interposer.ops.reduction import Mean, Reduce, ReduceOperation

__all__: list[str] = []

_OPERATIONS: Final = {
    ENUMS["EltwiseOp"]["PROD"]: BinaryOperation.MUL,
    ENUMS["EltwiseOp"]["SUM"]: BinaryOperation.ADD,
    ENUMS["EltwiseOp"]["MAX"]: BinaryOperation.MAXIMUM,
}


@layer("Eltwise")
def eltwise(node: Node) -> Value:
    """Convert Eltwise: the sum, with a coefficient for each blob, the product or the maximum of blobs of one shape."""
    parameters, values = node.parameters("eltwise_param"), list(node.values())
    if len(values) < 2 or len({node.shape(value) for value in values}) > 1:
        shapes = [list(node.shape(value)) for value in values]
        node.fail(f"its bottoms have the shapes {shapes}; expected two or more of one shape")
    coefficients = list(parameters.coeff)
    if coefficients and (len(coefficients) != len(values) or parameters.operation != ENUMS["EltwiseOp"]["SUM"]):
        node.fail(f"it has {len(coefficients)} coefficients for {len(values)} bottoms; they are only for sums")
    for index, factor in enumerate(coefficients):
        if factor != 1:
            values[index] = node.binary(BinaryOperation.MUL, values[index], factor)
    operation = _OPERATIONS[parameters.operation]
    return reduce(lambda a, b: node.binary(operation, a, b), values)


@layer("Axpy")
def axpy(node: Node) -> Value:
    """Convert Axpy of SENet: multiply each channel of the second bottom by a number of the first, and add the third."""
    if node.num_inputs != 3:
        node.fail(f"it has {node.num_inputs} bottoms; expected 3")
    factors, x, y = node.values()
    shape = (*node.shape(x)[:2], *[1] * (x.known.rank - 2))
    scaled = node.binary(BinaryOperation.MUL, x, node.reshaped(factors, shape))
    return node.binary(BinaryOperation.ADD, scaled, y)


# --- reduction --------------------------------------------------------------------------------------------------------


@layer("Reduction")
def reduction(node: Node) -> Value:
    """Convert Reduction of the axes from ``axis`` on: sum, sum of magnitudes, sum of squares, or mean."""
    parameters, x = node.parameters("reduction_param"), node.only_value
    axes = tuple(range(node.axis(parameters.axis), x.known.rank))
    kinds = ENUMS["ReductionOp"]
    if parameters.operation == kinds["ASUM"]:
        x = node.step(Activation(ActivationFunction.ABS), x)
    if parameters.operation == kinds["SUMSQ"]:
        x = node.binary(BinaryOperation.MUL, x, x)
    is_mean = parameters.operation == kinds["MEAN"]
    reduced = node.step(Mean(axis=axes) if is_mean else Reduce(axis=axes, operation=ReduceOperation.SUM), x)
    return reduced if parameters.coeff == 1 else node.binary(BinaryOperation.MUL, reduced, parameters.coeff)


@layer("ArgMax")
def arg_max(node: Node) -> Value:
    """Convert ArgMax: the places of the largest elements of an axis or of each image, as floats.

    With ``out_max_val``, the elements themselves: instead of the places along an axis, or after those of an image.
    """
    parameters, shape = node.parameters("argmax_param"), node.shape()
    if parameters.HasField("axis"):
        values, places = node.results(TopK(k=parameters.top_k, axis=node.axis(parameters.axis)), node.only_value)
        return values if parameters.out_max_val else node.step(Cast(DataType.FLOAT32), places)
    flat_bottom = node.reshaped(node.only_value, (shape[0], 1, math.prod(shape[1:])))
    values, places = node.results(TopK(k=parameters.top_k), flat_bottom)
    indices = node.step(Cast(DataType.FLOAT32), places)
    indices = node.step(Concat(axis=1), indices, values) if parameters.out_max_val else indices
    return node.reshaped(indices, (*node.shape(indices), *[1] * (len(shape) - 3)))
