"""NNAPI converters for activation functions and normalization."""

from __future__ import annotations

from typing import Final

import numpy as np

from interposer.frontends.elementwise import operators_by_name
from interposer.frontends.nnapi.nnapi_converters import operator
from interposer.frontends.nnapi.node import Node
from interposer.ir.graph import Value
from interposer.ops.activation import Activation, ActivationFunction, LogSoftmax, Softmax
from interposer.ops.normalization import InstanceNormalization, L2Normalization, Normalization

__all__: list[str] = []

_FUNCTIONS: Final = operators_by_name("HARD_SWISH", "RELU", "RELU6", "TANH", LOGISTIC="SIGMOID", RELU1="RELU_N1_TO_1")


@operator(*_FUNCTIONS, inputs=1)
def function(node: Node) -> list[Value]:
    """Convert RELU, RELU1, RELU6, LOGISTIC, TANH and HARD_SWISH to a layer with the equivalent activation."""
    return node.results(_FUNCTIONS[node.operation.name], node.value(0))


@operator("ELU", inputs=2)
def elu(node: Node) -> list[Value]:
    """Convert ELU; alpha is an input."""
    return node.results(Activation(ActivationFunction.ELU, a=node.number_of(1, "alpha")), node.value(0))


@operator("SOFTMAX", inputs=(2, 3))
def softmax(node: Node) -> list[Value]:
    """Convert SOFTMAX, by default along the last axis."""
    axis = node.axis(2, node.info(0).rank, default=-1)
    return node.results(Softmax(node.number_of(1, "beta"), axis), node.value(0))


@operator("LOG_SOFTMAX", inputs=3)
def log_softmax(node: Node) -> list[Value]:
    """Convert LOG_SOFTMAX along an axis."""
    return node.results(LogSoftmax(node.number_of(1, "beta"), node.axis(2, node.info(0).rank)), node.value(0))


# --- normalization ----------------------------------------------------------------------------------------------------


@operator("INSTANCE_NORMALIZATION", inputs=5)
def instance_normalization(node: Node) -> list[Value]:
    """Convert INSTANCE_NORMALIZATION, with one gamma and one beta for all channels."""
    x = node.value(0, rank=4)
    gamma, beta = (
        node.constant(np.array([node.number_of(index, title)], x.known.dtype.numpy))
        for index, title in ((1, "gamma"), (2, "beta"))
    )
    op = InstanceNormalization(node.number_of(3, "epsilon"), node.layout(4))
    return node.results(op, x, gamma, beta)


@operator("L2_NORMALIZATION", inputs=(1, 2))
def l2_normalization(node: Node) -> list[Value]:
    """Convert L2_NORMALIZATION, by default along the last axis."""
    op = L2Normalization(axis=node.axis(1, node.info(0).rank, default=-1))
    return node.results(op, node.value(0))


@operator("LOCAL_RESPONSE_NORMALIZATION", inputs=(5, 6))
def local_response_normalization(node: Node) -> list[Value]:
    """Convert LOCAL_RESPONSE_NORMALIZATION; the window reaches `radius` elements to both sides."""
    radius = node.integer_of(1, "the radius")
    if radius < 0:
        node.fail(f"the radius (input 1) is {radius}; expected 0 or more")
    op = Normalization(
        norm_size=2 * radius + 1,
        k=node.number_of(2, "the bias"),
        alpha=node.number_of(3, "alpha"),
        beta=node.number_of(4, "beta"),
        axis=node.axis(5, node.info(0).rank, default=-1),
    )
    return node.results(op, node.value(0))
