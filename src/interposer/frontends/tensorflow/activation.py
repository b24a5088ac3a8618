"""TensorFlow converters for activation functions."""

from __future__ import annotations

from typing import Final

import numpy as np

from interposer.frontends.elementwise import operators_by_name
from interposer.frontends.tensorflow.node import Node
from interposer.frontends.tensorflow.tensorflow_converters import operator
from interposer.ir.graph import Value
from interposer.ops.activation import Activation, ActivationFunction, LogSoftmax, Softmax

__all__: list[str] = []

_PLAIN: Final = operators_by_name(
    Elu="ELU", Relu="RELU", Relu6="RELU6", Selu="SELU", Sigmoid="SIGMOID", Softplus="SOFTPLUS", Softsign="SOFTSIGN",
    Tanh="TANH", LogSoftmax=LogSoftmax(), Softmax=Softmax(),
)  # fmt: skip


@operator(*_PLAIN)
def activation(node: Node) -> Value:
    """Convert activation functions without attributes."""
    return node.result(_PLAIN[node.kind], node.value(0))


@operator("LeakyRelu")
def leaky_relu(node: Node) -> Value:
    """Convert LeakyRelu; the slope is the attribute alpha."""
    return node.result(
        Activation(ActivationFunction.LEAKY_RELU, a=node.number("alpha", float(np.float32(0.2)))), node.value(0)
    )
