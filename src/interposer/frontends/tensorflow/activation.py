"""TensorFlow converters for activation functions."""

from __future__ import annotations

from typing import Final

import numpy as np

from interposer.frontends.tensorflow.node import Node
from interposer.frontends.tensorflow.tensorflow_converters import operator
from interposer.ir.graph import Value
from interposer.ops.activation import Activation, ActivationFunction, LogSoftmax, Softmax

__all__: list[str] = []

F = ActivationFunction
_PLAIN: Final = {
    "Elu": Activation(F.ELU, a=1.0),
    "Relu": Activation(F.RELU),
    "Relu6": Activation(F.BOUNDED_RELU, a=6.0),
    "Selu": Activation(F.SELU, a=1.6732632423543772, b=1.0507009873554805),
    "Sigmoid": Activation(F.SIGMOID),
    "Softplus": Activation(F.SOFT_RELU),
    "Softsign": Activation(F.SOFTSIGN),
    "Tanh": Activation(F.TANH, a=1.0, b=1.0),
    "LogSoftmax": LogSoftmax(),
    "Softmax": Softmax(),
}


@operator(*_PLAIN)
def activation(node: Node) -> Value:
    """Convert activation functions without attributes."""
    return node.result(_PLAIN[node.kind], node.value(0))


@operator("LeakyRelu")
def leaky_relu(node: Node) -> Value:
    """Convert LeakyRelu; the slope is the attribute alpha."""
    return node.result(Activation(F.LEAKY_RELU, a=node.number("alpha", float(np.float32(0.2)))), node.value(0))
