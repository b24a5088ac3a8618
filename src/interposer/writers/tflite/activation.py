"""TFLite writers for activation functions, softmax included."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Final, TypeAlias

import numpy as np

from interposer.core.types import DataType, Quantization, TensorInfo, integer_range
from interposer.ops.activation import Activation, ActivationFunction, Hardmax, LogSoftmax, Softmax
from interposer.ops.axes import normal_axis
from interposer.writers.refusals import refuse
from interposer.writers.tflite.draft import Draft
from interposer.writers.tflite.sheet import Tensor
from interposer.writers.tflite.takes import taken
from interposer.writers.tflite.tflite_layer_writers import writer

__all__ = ["check_scale", "scaled"]

F = ActivationFunction
Function: TypeAlias = Callable[[Draft, Tensor, float, float], Tensor]
_UNDER_A_NAME: Final = {
    F.SIGMOID: "LOGISTIC",
    F.RELU: "RELU",
    F.HARD_SWISH: "HARD_SWISH",
    F.ABS: "ABS",
    F.SQRT: "SQRT",
    F.SQUARE: "SQUARE",
}
_ROUNDED: Final = ("ABS", "SQRT", "SQUARE")
_PRESCRIBED: Final = {"LOGISTIC": (2.0**-8, 0, 2.0**-15), "TANH": (2.0**-7, 128, 2.0**-15)}
"""Scale and zero point of a quantized result as uint8 (int8 has 128 less), and its scale as int16."""
_BOUNDED: Final = {(6.0, 0.0): "RELU6", (1.0, 0.0): "RELU_0_TO_1", (1.0, -1.0): "RELU_N1_TO_1"}


@writer(Activation, also_quantized=True)
def activation(draft: Draft, op: Activation) -> Tensor:
    """Write Activation as one operator if TFLite has it, else as several operators."""
    x = draft.operand(0)
    kind = _kind(op)
    if op.function is F.BOUNDED_RELU and kind is not None and not taken(kind, x.info):
        kind = None
    if kind in _ROUNDED and draft.is_quantized:
        refuse(f"TFLite rounds a quantized {kind} otherwise")
    if kind in _PRESCRIBED:
        check_scale(draft, _PRESCRIBED[kind])
    if kind is not None:
        return draft.final(kind, x)
    if op.function is F.LEAKY_RELU:
        return draft.final("LEAKY_RELU", x, alpha=op.a)
    if op.function in (F.GELU, F.GELU_TANH):
        return draft.final("GELU", x, approximate=op.function is F.GELU_TANH)
    if draft.is_quantized and op.function is F.BOUNDED_RELU:
        return _bounded_by_quantized_values(draft, x, op.a, op.b)
    if draft.is_quantized:
        refuse(f"TFLite has no operator for {op.function.name} with a = {op.a:g} and b = {op.b:g}")
    return _FUNCTIONS[op.function](draft, x, op.a, op.b)


def _kind(op: Activation) -> str | None:
    if op.function is F.BOUNDED_RELU:
        return _BOUNDED.get((op.a, op.b))
    if op.function is F.TANH and (op.a, op.b) == (1.0, 1.0):
        return "TANH"
    if op.function is F.ELU and op.a == 1.0:
        return "ELU"
    return _UNDER_A_NAME.get(op.function)


def check_scale(draft: Draft, prescription: tuple[float, int, float]) -> None:
    """Refuse a quantized result whose quantization differs from the fixed one that TFLite's kernel gives.

    `prescription` has the scale and the zero point of a uint8 result (for int8, the zero point is 128 less), and the
    scale of int16.
    """
    scale, point, wide_scale = prescription
    info = draft.result
    if not draft.is_quantized:
        return
    offset = 128 if info.dtype is DataType.INT8 else 0
    prescribed_quantization = (
        Quantization(wide_scale) if info.dtype is DataType.INT16 else Quantization(scale, point - offset)
    )
    if info.quantization != prescribed_quantization:
        refuse(f"its result is {info}; TFLite only gives {prescribed_quantization}")


def scaled(draft: Draft, x: Tensor, factor: float) -> Tensor:
    """Return the tensor `x` multiplied by the number `factor`."""
    return x if factor == 1 else _binary(draft, "MUL", x, factor)


def _binary(draft: Draft, kind: str, x: Tensor, operand_or_number: Tensor | float) -> Tensor:
    operand = operand_or_number if isinstance(operand_or_number, Tensor) else draft.like(operand_or_number, x)
    return draft.node(kind, x, operand, giving=x.info)


def _unary(draft: Draft, kind: str, x: Tensor) -> Tensor:
    return draft.node(kind, x, giving=x.info)


def _linear(draft: Draft, x: Tensor, a: float, b: float) -> Tensor:
    return _binary(draft, "ADD", scaled(draft, x, a), b) if b else scaled(draft, x, a)


def _tanh(draft: Draft, x: Tensor, a: float, b: float) -> Tensor:
    return scaled(draft, _unary(draft, "TANH", scaled(draft, x, b)), a)


def _bounded(draft: Draft, x: Tensor, a: float, b: float) -> Tensor:
    """Return `x` clamped to the range from `b` to `a`; NaN stays NaN."""
    if x.dtype.is_integer:
        low, high = integer_range(x.dtype)
        a, b = math.floor(min(a, high)), math.ceil(max(b, low))
    return _binary(draft, "MINIMUM", _binary(draft, "MAXIMUM", x, b), a)


def _bounded_by_quantized_values(draft: Draft, x: Tensor, a: float, b: float) -> Tensor:
    """Return quantized `x`, rescaled to the quantization of the result, and clamped to the range from `b` to `a`."""
    info = draft.result
    if any(q is None or q.per_axis for q in (x.info.quantization, info.quantization)):
        refuse("an operand or result has no scale, or several; TFLite clamps tensors with one scale")
    if x.info.quantization != info.quantization:
        if info.dtype.bits > 16:
            refuse(f"it rescales {info.dtype}, which TFLite rounds otherwise")
        x = draft.node("QUANTIZE", x, giving=info)
    limits = integer_range(info.dtype)
    for kind, bound, limit in (("MAXIMUM", b, limits[0]), ("MINIMUM", a, limits[1])):
        number = _quantized(bound, info, limits)
        if number != limit:
            x = draft.node(kind, x, draft.constant(number, info.dtype, "bound", info.quantization), giving=info)
    return x


def _quantized(bound: float, info: TensorInfo, limits: tuple[int, int]) -> int:
    """Return a bound as a quantized value, rounded half away from zero and limited to the range of the type."""
    if not math.isfinite(bound):
        return limits[1] if bound > 0 else limits[0]
    steps = math.copysign(math.floor(abs(np.float32(bound) / np.float32(info.scale)) + 0.5), bound)
    return min(max(int(steps) + info.zero_point, limits[0]), limits[1])


def _soft_relu(draft: Draft, x: Tensor, a: float, b: float) -> Tensor:
    """Return log(1 + exp(x)) as max(0, x) + log(1 + exp(-|x|)), which does not overflow; `a` and `b` are not used."""
    exponential = _unary(draft, "EXP", _unary(draft, "NEG", _unary(draft, "ABS", x)))
    return _binary(draft, "ADD", _unary(draft, "RELU", x), _unary(draft, "LOG", _binary(draft, "ADD", exponential, 1)))


def _elu(draft: Draft, x: Tensor, a: float, b: float) -> Tensor:
    negative_part = _unary(draft, "ELU", _binary(draft, "MINIMUM", x, 0))
    return _binary(draft, "ADD", _unary(draft, "RELU", x), scaled(draft, negative_part, a))


def _selu(draft: Draft, x: Tensor, a: float, b: float) -> Tensor:
    return scaled(draft, _elu(draft, x, a, b), b)


def _celu(draft: Draft, x: Tensor, a: float, b: float) -> Tensor:
    exponential_part = _linear(draft, _unary(draft, "EXP", scaled(draft, x, 1 / a)), a, -a)
    return _binary(draft, "ADD", _unary(draft, "RELU", x), _binary(draft, "MINIMUM", exponential_part, 0))


def _softsign(draft: Draft, x: Tensor, a: float, b: float) -> Tensor:
    return _binary(draft, "DIV", x, _binary(draft, "ADD", _unary(draft, "ABS", x), 1))


def _hard_sigmoid(draft: Draft, x: Tensor, a: float, b: float) -> Tensor:
    """Return a * x + b, clamped to [0, 1], as RELU6(6 * a * x + 6 * b) / 6, which engines can fuse.

    Integers and float64 are clamped directly.
    """
    if x.dtype.is_integer or draft.result.dtype.bits > 32:
        return _bounded(draft, _linear(draft, x, a, b), 1, 0)
    return scaled(draft, _unary(draft, "RELU6", _linear(draft, x, 6 * a, 6 * b)), 1 / 6)


def _swish(draft: Draft, x: Tensor, a: float, b: float) -> Tensor:
    return _binary(draft, "MUL", x, _unary(draft, "LOGISTIC", scaled(draft, x, a)))


def _mish(draft: Draft, x: Tensor, a: float, b: float) -> Tensor:
    return _binary(draft, "MUL", x, _unary(draft, "TANH", _soft_relu(draft, x, a, b)))


def _chosen(draft: Draft, condition: Tensor, a: Tensor, b: Tensor) -> Tensor:
    return draft.node("SELECT_V2", condition, a, b, giving=draft.result)


def _compared(draft: Draft, kind: str, x: Tensor, bound: float) -> Tensor:
    return draft.node(kind, x, draft.like(bound, x), giving=TensorInfo(x.shape, "bool"))


def _thresholded_relu(draft: Draft, x: Tensor, a: float, b: float) -> Tensor:
    return _chosen(draft, _compared(draft, "GREATER", x, a), x, draft.like(0, x))


def _shrink(draft: Draft, x: Tensor, a: float, b: float) -> Tensor:
    raised_below = _chosen(draft, _compared(draft, "LESS", x, -a), _binary(draft, "ADD", x, b), draft.like(0, x))
    return _chosen(draft, _compared(draft, "GREATER", x, a), _binary(draft, "SUB", x, b), raised_below)


_FUNCTIONS: Final[dict[ActivationFunction, Function]] = {
    F.TANH: _tanh,
    F.LINEAR: _linear,
    F.BOUNDED_RELU: _bounded,
    F.SOFT_RELU: _soft_relu,
    F.ELU: _elu,
    F.SELU: _selu,
    F.CELU: _celu,
    F.SOFTSIGN: _softsign,
    F.HARD_SIGMOID: _hard_sigmoid,
    F.SWISH: _swish,
    F.MISH: _mish,
    F.THRESHOLDED_RELU: _thresholded_relu,
    F.SHRINK: _shrink,
}


@writer(Hardmax)
def hardmax(draft: Draft, op: Hardmax) -> Tensor:
    """Write Hardmax: one at the first maximum, zeros elsewhere."""
    x, axis = draft.operand(0), normal_axis(op.axis, draft.rank)
    size = draft.known(x.shape[axis], "dimension of the axis")
    shape = [dim for number, dim in enumerate(x.shape) if number != axis]
    info = TensorInfo(shape, DataType.INT32)
    position = draft.node("ARG_MAX", x, draft.ints(axis, "axis"), giving=info, output_type=DataType.INT32)
    depth, on, off = draft.ints(size, "depth"), draft.like(1, x), draft.like(0, x)
    return draft.node("ONE_HOT", position, depth, on, off, giving=x.info, axis=axis)


@writer(Softmax, also_quantized=True)
def softmax(draft: Draft, op: Softmax) -> Tensor:
    """Write Softmax along the last axis."""
    check_scale(draft, (2.0**-8, 0, 2.0**-15))
    return draft.final("SOFTMAX", draft.operand(0), beta=op.beta)


@writer(LogSoftmax, also_quantized=True)
def log_softmax(draft: Draft, op: LogSoftmax) -> Tensor:
    """Write LogSoftmax; the factor beta is multiplied into the scores first."""
    check_scale(draft, (16 * 2.0**-8, 255, 16 * 2.0**-15))
    if op.beta != 1 and draft.is_quantized:
        refuse("LOG_SOFTMAX has no factor on the scores")
    return draft.final("LOG_SOFTMAX", scaled(draft, draft.operand(0), op.beta))
