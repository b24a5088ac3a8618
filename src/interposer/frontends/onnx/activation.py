"""ONNX converters for activation functions, softmax included."""

from __future__ import annotations

import math
from typing import Final

import numpy as np

from interposer.core.errors import ParseError
from interposer.core.types import DataType
from interposer.frontends.axes import checked_axis
from interposer.frontends.elementwise import RELU, operators_by_name
from interposer.frontends.onnx.elementwise import unary
from interposer.frontends.onnx.node import Node
from interposer.frontends.onnx.onnx_converters import Converter, operator
from interposer.frontends.onnx.shaping import product
from interposer.frontends.reshaping import final_reshape_like, reshaped
from interposer.ir.graph import Value
from interposer.ops.activation import Activation, ActivationFunction, Hardmax, LogSoftmax, Softmax
from interposer.ops.elementwise import ElementwiseUnary, Maximum, Minimum, Multiplication, Prelu, UnaryOperation, Where
from interposer.ops.quantization import Cast

__all__: list[str] = []

_FUNCTIONS: Final = operators_by_name(
    HardSwish="HARD_SWISH", Mish="MISH", Relu="RELU", Sigmoid="SIGMOID", Softplus="SOFTPLUS", Softsign="SOFTSIGN",
    Tanh="TANH",
)  # fmt: skip
# The names of the attributes for the parameters a and b of each function, with their defaults.
_PARAMETERS: Final[dict[str, tuple[ActivationFunction, dict[str, float]]]] = {
    "Celu": (ActivationFunction.CELU, {"alpha": 1.0}),
    "Elu": (ActivationFunction.ELU, {"alpha": 1.0}),
    "HardSigmoid": (ActivationFunction.HARD_SIGMOID, {"alpha": 0.2, "beta": 0.5}),
    "LeakyRelu": (ActivationFunction.LEAKY_RELU, {"alpha": 0.01}),
    "Swish": (ActivationFunction.SWISH, {"alpha": 1.0}),
    "ThresholdedRelu": (ActivationFunction.THRESHOLDED_RELU, {"alpha": 1.0}),
}


def _parametric(function: ActivationFunction, parameters: dict[str, float]) -> Converter:
    def convert(node: Node) -> Value:
        values = [node.number(name, default) for name, default in parameters.items()]
        return node.result(Activation(function).replace(**dict(zip("ab", values, strict=False))), node.value(0))

    return convert


for _name, _op in _FUNCTIONS.items():
    operator(_name)(unary(_op))
for _name, (_which, _defaults) in _PARAMETERS.items():
    operator(_name)(_parametric(_which, _defaults))


@operator("Shrink")
def shrink(node: Node) -> Value:
    """Convert Shrink; integers are computed in float32 and truncated, as in ONNX Runtime."""
    op = Activation(ActivationFunction.SHRINK, node.number("lambd", 0.5), node.number("bias", 0.0))
    x, dtype = node.value(0), node.info(0).dtype
    if not dtype.is_integer:
        return node.result(op, x)
    return node.result(Cast(dtype), node.step(op, node.cast(x, DataType.FLOAT32)))


@operator("Selu")
def selu_with_short_constants(node: Node) -> Value:
    """Convert Selu before opset 6, whose default constants have four decimal digits."""
    return _selu(node, 1.6732, 1.0507)


@operator("Selu", since=6)
def selu(node: Node) -> Value:
    """Convert Selu, whose default constants have the precision of float32."""
    return _selu(node, 1.67326319217681884765625, 1.05070102214813232421875)


def _selu(node: Node, alpha: float, gamma: float) -> Value:
    op = Activation(ActivationFunction.SELU, node.number("alpha", alpha), node.number("gamma", gamma))
    return node.result(op, node.value(0))


@operator("Gelu", since=20)
def gelu(node: Node) -> Value:
    """Convert Gelu, either exact or with the tanh approximation (attribute approximate)."""
    approximate = node.text("approximate", "none")
    functions = {"none": ActivationFunction.GELU, "tanh": ActivationFunction.GELU_TANH}
    if approximate not in functions:
        raise ParseError(f"approximate is {approximate!r}; expected none or tanh")
    return node.result(Activation(functions[approximate]), node.value(0))


@operator("Clip")
def clip_by_attributes(node: Node) -> Value:
    """Convert Clip with its bounds as attributes (before opset 11)."""
    low = node.number("min") if node.has_attribute("min") else None
    high = node.number("max") if node.has_attribute("max") else None
    return _clipped(node, low, high)


@operator("Clip", since=11)
def clip(node: Node) -> Value:
    """Convert Clip with its bounds as operands; bounds that are constants become a bounded ReLU.

    A bound that is NaN does not bound, as in ONNX Runtime.
    """
    has_constant_bounds = all(not node.has(i) or node.known_array(i) is not None for i in (1, 2))
    if has_constant_bounds and node.info(0).dtype.is_float and node.info(0).dtype is not DataType.FLOAT64:
        return _clipped(node, *(float(node.number_of(i, "bound")) if node.has(i) else None for i in (1, 2)))
    low, high = _without_nan(node, node.optional(1), -math.inf), _without_nan(node, node.optional(2), math.inf)
    clamped_below = (
        node.value(0) if low is None else _bounded(node, Maximum(), node.value(0), low, is_last=high is None)
    )
    return clamped_below if high is None else _bounded(node, Minimum(), clamped_below, high, is_last=True)


def _without_nan(node: Node, bound: Value | None, unbounded: float) -> Value | None:
    """Return the bound, or the number `unbounded` if the bound is NaN."""
    if bound is None or not bound.known.dtype.is_float:
        return bound
    if bound.constant is not None:
        return node.scalar_like(unbounded, bound) if np.isnan(bound.constant).all() else bound
    is_nan = node.step(ElementwiseUnary(UnaryOperation.IS_NAN), bound)
    return node.step(Where(), is_nan, node.scalar_like(unbounded, bound), bound)


def _bounded(node: Node, op: Maximum | Minimum, value: Value, bound: Value, is_last: bool) -> Value:
    return (node.result if is_last else node.step)(op, value, bound)


def _clipped(node: Node, low: float | None, high: float | None) -> Value:
    x = node.value(0)
    low, high = (None if bound is None or math.isnan(bound) else bound for bound in (low, high))
    if low == 0 and high is None:
        return node.result(RELU, x)
    if low is not None and high is not None and low <= high and math.isfinite(low) and math.isfinite(high):
        return node.result(Activation(ActivationFunction.BOUNDED_RELU, a=high, b=low), x)
    if low is not None:
        x = _bounded(node, Maximum(), x, node.scalar_like(low, x), is_last=high is None)
    return x if high is None else _bounded(node, Minimum(), x, node.scalar_like(high, x), is_last=True)


@operator("PRelu")
def prelu(node: Node) -> Value:
    """Convert PRelu.

    Since opset 7 the slope broadcasts; before, it has one element per channel, or one element in all.
    """
    x, slope = node.value(0), node.value(1)
    if node.version < 7 and slope.known.num_elements != 1:
        slope = reshaped(node, slope, [-1, *[1] * (x.known.rank - 2)])
    return node.result(Prelu(), x, slope)


def _softmax(op: type[Softmax | LogSoftmax | Hardmax]) -> Converter:
    def convert(node: Node) -> Value:
        return node.result(op(axis=node.integer("axis", -1)), node.value(0))

    return convert


def _flat_softmax(op: type[Softmax | LogSoftmax | Hardmax]) -> Converter:
    """Return the converter of Softmax, LogSoftmax or Hardmax for opsets before 13, which creates layers of type `op`.

    In these opsets, all axes from the attribute axis on are flattened into one first.
    """

    def convert(node: Node) -> Value:
        x, shape = node.value(0), node.info(0).shape
        axis = checked_axis(node.integer("axis", 1), len(shape)) if len(shape) > 1 else 0
        if all(dim == 1 for dim in shape[axis + 1 :]):
            return node.result(op(axis=axis), x)
        flat_x = reshaped(node, x, [*shape[:axis], product(shape[axis:])], axis)
        return final_reshape_like(node, node.step(op(axis=-1), flat_x), x)

    return convert


for _name, _kind in {"Softmax": Softmax, "LogSoftmax": LogSoftmax, "Hardmax": Hardmax}.items():
    operator(_name)(_flat_softmax(_kind))
    operator(_name, since=13)(_softmax(_kind))


@operator("SwiGLU", since=28)
def gated_swish(node: Node) -> Value:
    """Convert a gated activation: Swish of the first operand (with the factor alpha) times the second operand."""
    gate = node.step(Activation(ActivationFunction.SWISH, node.number("alpha", 1.0)), node.value(0))
    return node.result(Multiplication(), gate, node.value(1))
