"""TFLite converters for activation functions that are separate operators, and for normalization."""

from __future__ import annotations

from typing import Final

from interposer.core.types import DataType
from interposer.frontends.elementwise import operators_by_name
from interposer.frontends.tflite.node import Node
from interposer.frontends.tflite.tflite_converters import operator
from interposer.ir.graph import Value
from interposer.ops.activation import Activation, ActivationFunction, LogSoftmax, Softmax
from interposer.ops.elementwise import Prelu
from interposer.ops.normalization import L2Normalization, Normalization
from interposer.ops.quantization import Dequantize, Quantize

__all__: list[str] = []

F = ActivationFunction
_PLAIN: Final = operators_by_name(
    "TANH", "RELU", "RELU6", "RELU_0_TO_1", "RELU_N1_TO_1", "ELU", "HARD_SWISH",
    LOGISTIC="SIGMOID", LOG_SOFTMAX=LogSoftmax(),
)  # fmt: skip


@operator(*_PLAIN)
def activation(node: Node) -> Value:
    """Convert RELU, TANH, ELU and other activation functions that have no options."""
    return node.result(_PLAIN[node.kind], node.value(0))


@operator("LEAKY_RELU", options=True)
def leaky_relu(node: Node) -> Value:
    """Convert LEAKY_RELU; the slope is the option alpha."""
    return node.result(Activation(F.LEAKY_RELU, a=node.options["alpha"]), node.value(0))


@operator("GELU", options=True)
def gelu(node: Node) -> Value:
    """Convert GELU, either exact or with the tanh approximation."""
    return node.result(Activation(F.GELU_TANH if node.options["approximate"] else F.GELU), node.value(0))


@operator("SOFTMAX", options=True)
def softmax(node: Node) -> Value:
    """Convert SOFTMAX along the last axis; LiteRT also gives quantized int16 for 8 bits."""
    op, x, output_info = Softmax(beta=node.options["beta"]), node.value(0), node.output_info
    if x.known.quantization and output_info.quantization and (x.known.dtype, output_info.dtype) in _WIDENED:
        probabilities = node.step(op, node.step(Dequantize(DataType.FLOAT32), x))
        return node.result(Quantize(output_info.dtype), probabilities)
    return node.result(op, x)


_WIDENED: Final = {(DataType.INT8, DataType.INT16), (DataType.UINT8, DataType.INT16)}
"""The types of an operand and a result between which SOFTMAX widens."""


@operator("PRELU")
def prelu(node: Node) -> Value:
    """Convert PRELU; the slopes are an input."""
    x = node.value(0)
    return node.result(Prelu(), x, node.like(1, x))


# --- normalization ----------------------------------------------------------------------------------------------------


@operator("L2_NORMALIZATION", options=True)
def l2_normalization(node: Node) -> Value:
    """Convert L2_NORMALIZATION along the last axis."""
    activation = node.options["fused_activation_function"]
    return node.result(L2Normalization(axis=-1), node.value(0), activation=activation)


@operator("LOCAL_RESPONSE_NORMALIZATION", options=True)
def local_response_normalization(node: Node) -> Value:
    """Convert LOCAL_RESPONSE_NORMALIZATION across the channels, which are the last axis."""
    options = node.options
    if options["radius"] < 0:
        node.fail(f"the radius is {options['radius']}; expected 0 or more")
    op = Normalization(
        norm_size=2 * options["radius"] + 1, alpha=options["alpha"], beta=options["beta"], k=options["bias"], axis=-1
    )
    return node.result(op, node.value(0))
