"""Caffe converters for products with matrices of weights."""

from __future__ import annotations

import math

from interposer.core.types import DataType
from interposer.frontends.caffe.caffe_converters import layer
from interposer.frontends.caffe.node import Node
from interposer.ir.graph import Value
from interposer.ops.elementwise import BinaryOperation
from interposer.ops.gather import Gather
from interposer.ops.matmul import FullyConnected
from interposer.ops.quantization import Cast

__all__: list[str] = []


@layer("InnerProduct")
def inner_product(node: Node) -> Value:
    """Convert InnerProduct: the axes from ``axis`` on are flattened and multiplied with the weights."""
    parameters, shape = node.parameters("inner_product_param"), node.shape()
    axis = node.axis(parameters.axis)
    depth, outputs = math.prod(shape[axis:]), parameters.num_output
    size = (depth, outputs) if parameters.transpose else (outputs, depth)
    weights = node.constant(node.weights(0, size, "weights"))
    bias = None
    if parameters.bias_term:
        bias = node.constant(node.weights(1, (outputs,), "bias"))
    rows = node.reshaped(node.only_value, (math.prod(shape[:axis]), depth))
    product = node.step(FullyConnected(transpose_weight_matrix=not parameters.transpose), rows, weights, bias)
    return node.reshaped(product, (*shape[:axis], outputs))


@layer("Embed")
def embedding(node: Node) -> Value:
    """Convert Embed: the row of the weights that each number of the bottom selects, and the bias."""
    parameters = node.parameters("embed_param")
    outputs = parameters.num_output
    weights = node.constant(node.weights(0, (parameters.input_dim, outputs), "weights"))
    embedded = node.step(Gather(axis=0), weights, node.step(Cast(DataType.INT32), node.only_value))
    if not parameters.bias_term:
        return embedded
    bias = node.constant(node.weights(1, (outputs,), "bias"))
    return node.binary(BinaryOperation.ADD, embedded, bias)
