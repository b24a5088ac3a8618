"""The ONNX front end: `load` converts a model to a `Network`, `template` to a `Template` of networks.

Converters are functions in family files (convolution, elementwise ...), registered with the first opset version for
which they are valid; a node is converted by the function for the version that the model imports. To support a new
operator, add a function with the decorator of `onnx_converters`; users register their own with `operator`::

    @operator("LeakyRelu", since=6)
    def leaky_relu(node: Node) -> Value:
        return node.result(Activation(ActivationFunction.LEAKY_RELU, a=node.number("alpha", 0.01)), node.value(0))
"""

from interposer.frontends.onnx.custom import operator
from interposer.frontends.onnx.model import load, template
from interposer.frontends.onnx.node import Node

__all__ = ["Node", "load", "operator", "template"]
