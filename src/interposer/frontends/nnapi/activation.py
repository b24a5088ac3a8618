"""NNAPI converters for activation functions."""

from __future__ import annotations

from typing import Final

from interposer.frontends.nnapi.nnapi_converters import operator
from interposer.frontends.nnapi.node import Node
from interposer.ir.graph import Value
from interposer.ops.activation import Activation, ActivationFunction, LogSoftmax, Softmax

__all__: list[str] = []

_FUNCTIONS: Final = {
    "HARD_SWISH": Activation(ActivationFunction.HARD_SWISH),
    "LOGISTIC": Activation(ActivationFunction.SIGMOID),
    "RELU": Activation(ActivationFunction.RELU),
    "RELU1": Activation(ActivationFunction.BOUNDED_RELU, a=1.0, b=-1.0),
    "RELU6": Activation(ActivationFunction.BOUNDED_RELU, a=6.0, b=0.0),
    "TANH": Activation(ActivationFunction.TANH, a=1.0, b=1.0),
}


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
