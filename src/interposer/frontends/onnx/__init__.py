"""The ONNX front end: `load` turns a model into a `Network`, `template` into what gives one for its inputs' values.

Operators are functions in family files (convolution, elementwise ...), registered with the opset version since which
they hold; a node gets the function for the version that the model imports. A new operator is one more function, under
the decorator of `registry`; users have `operator` for their own::

    @operator("LeakyRelu", since=6)
    def leaky_relu(node: Node) -> Value:
        return node.add(Activation(ActivationFunction.LEAKY_RELU, a=node.number("alpha", 0.01)), node.value(0))
"""

from interposer.frontends.onnx.custom import operator
from interposer.frontends.onnx.model import load, template
from interposer.frontends.onnx.node import Node

__all__ = ["Node", "load", "operator", "template"]
