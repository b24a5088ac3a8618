"""Caffe converters for operations on elements of several blobs."""

from __future__ import annotations

from functools import reduce
from typing import Final

from interposer.frontends.caffe.caffe_converters import layer
from interposer.frontends.caffe.node import Node
from interposer.frontends.caffe.schema import ENUMS
from interposer.ir.graph import Value
from interposer.ops.elementwise import BinaryOperation

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
