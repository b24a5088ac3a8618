"""Caffe converters for activations and other functions of single elements."""

from __future__ import annotations

import math
from typing import Final

import numpy as np

from interposer.core.types import DataType
from interposer.frontends.caffe.caffe_converters import layer
from interposer.frontends.caffe.node import Node
from interposer.frontends.elementwise import EXP, GREATER, LOG, RELU, operators_by_name
from interposer.ir.graph import Value
from interposer.ops.activation import Activation, ActivationFunction, Softmax
from interposer.ops.elementwise import BinaryOperation, Prelu
from interposer.ops.quantization import Cast

__all__: list[str] = []

_PLAIN: Final = operators_by_name(
    AbsVal=Activation(ActivationFunction.ABS), BNLL="SOFTPLUS", HardSwish="HARD_SWISH", Mish="MISH", ReLU6="RELU6",
    Sigmoid="SIGMOID", TanH="TANH",
)  # fmt: skip


@layer(*_PLAIN)
def plain(node: Node) -> Value:
    """Convert functions without parameters."""
    return node.result(_PLAIN[node.layer.type], node.only_value)


@layer("ReLU")
def relu(node: Node) -> Value:
    """Convert ReLU, which multiplies negative elements with ``negative_slope``."""
    slope = node.parameters("relu_param").negative_slope
    if slope:
        return node.result(Activation(ActivationFunction.LEAKY_RELU, a=slope), node.only_value)
    return node.result(RELU, node.only_value)


@layer("PReLU")
def prelu(node: Node) -> Value:
    """Convert PReLU, with a slope for each channel or one for all."""
    x, slopes = node.only_value, node.blob(0, "slopes").ravel()
    channels = node.shape(x)[1] if x.known.rank > 1 else 1
    if len(slopes) not in (1, channels):
        node.fail(f"it has {len(slopes)} slopes for {channels} channels")
    return node.result(Prelu(), x, node.constant(slopes.reshape(-1, *[1] * (x.known.rank - 2))))


@layer("ELU")
def elu(node: Node) -> Value:
    """Convert ELU."""
    return node.result(Activation(ActivationFunction.ELU, a=node.parameters("elu_param").alpha), node.only_value)


@layer("Swish")
def swish(node: Node) -> Value:
    """Convert Swish: x / (1 + exp(-beta * x))."""
    return node.result(Activation(ActivationFunction.SWISH, a=node.parameters("swish_param").beta), node.only_value)


@layer("Clip")
def clip(node: Node) -> Value:
    """Convert Clip."""
    bounds = node.parameters("clip_param")
    return node.result(Activation(ActivationFunction.BOUNDED_RELU, a=bounds.max, b=bounds.min), node.only_value)


@layer("Threshold")
def threshold(node: Node) -> Value:
    """Convert Threshold: 1 where an element exceeds the threshold, else 0."""
    limit = node.constant(np.asarray(node.parameters("threshold_param").threshold, np.float32))
    return node.result(Cast(DataType.FLOAT32), node.step(GREATER, node.only_value, limit))


@layer("Power")
def power(node: Node) -> Value:
    """Convert Power: (shift + scale * x) ** power."""
    parameters = node.parameters("power_param")
    x = _linear(node, parameters.scale, parameters.shift)
    return x if parameters.power == 1 else node.binary(BinaryOperation.POWER, x, parameters.power)


@layer("Exp")
def exponential(node: Node) -> Value:
    """Convert Exp: base ** (shift + scale * x), where base -1 stands for e."""
    parameters = node.parameters("exp_param")
    factor = _logarithm(node, parameters.base)
    x = _linear(node, parameters.scale * factor, parameters.shift * factor)
    return node.result(EXP, x)


@layer("Log")
def logarithm(node: Node) -> Value:
    """Convert Log: the logarithm of shift + scale * x to a base, where -1 stands for e."""
    parameters = node.parameters("log_param")
    x = node.step(LOG, _linear(node, parameters.scale, parameters.shift))
    factor = _logarithm(node, parameters.base)
    return x if factor == 1 else node.binary(BinaryOperation.MUL, x, 1 / factor)


def _logarithm(node: Node, base: float) -> float:
    """Return the natural logarithm of a base, where -1 stands for e."""
    if base != -1 and (base <= 0 or base == 1):
        node.fail(f"base is {base}; expected a positive number other than 1, or -1 for e")
    return 1.0 if base == -1 else math.log(base)


def _linear(node: Node, scale: float, shift: float) -> Value:
    """Return ``scale * x + shift`` for the input x."""
    if scale == 1 and shift == 0:
        return node.only_value
    return node.result(Activation(ActivationFunction.LINEAR, a=scale, b=shift), node.only_value)


@layer("Softmax")
def softmax(node: Node) -> Value:
    """Convert Softmax along an axis, the channels by default."""
    axis = node.axis(node.parameters("softmax_param").axis)
    return node.result(Softmax(axis=axis), node.only_value)
