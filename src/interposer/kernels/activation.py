"""Kernels of the activation functions and of softmax."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Final, TypeAlias

import numpy as np

from interposer.core.types import FLOATS, Array, DataType, Quantization, TensorInfo
from interposer.kernels.elementwise import erfc
from interposer.kernels.fixedpoint import clamp_to, quantize
from interposer.kernels.lookup import all_integers, look_up
from interposer.kernels.quantized_arithmetic import one_scale_of_few_bits
from interposer.kernels.quantized_functions import (
    absolute,
    hard_swish,
    interpolated,
    leaky_relu,
    quantized_bounds,
    relu,
    sigmoid16,
    tabulated,
    tanh16,
)
from interposer.kernels.quantized_softmax import log_softmax8, softmax8, softmax16
from interposer.kernels.real import all_quantized, precisely, real, store
from interposer.kernels.reference import kernel
from interposer.kernels.table import KernelInfo
from interposer.ops.activation import Activation, ActivationFunction, Hardmax, LogSoftmax, Softmax
from interposer.ops.quantization import Requantization

__all__ = ["FUNCTIONS"]

Function: TypeAlias = Callable[[Array, float, float], Array]
_exp: Final = precisely(np.exp)
_expm1: Final = precisely(np.expm1)
_tanh: Final = precisely(np.tanh)
_softplus: Final = precisely(lambda x: np.logaddexp(x, 0))


def _gelu_tanh(x: Array) -> Array:
    """Compute GELU_TANH, x * (1 + tanh(y)) / 2, as x / (1 + exp(-2 * y)), which is precise for large negative x."""
    return np.asarray(x / (1 + _exp(-2 * math.sqrt(2 / math.pi) * (x + 0.044715 * (x * x * x)))))


FUNCTIONS: Final[dict[ActivationFunction, Function]] = {
    ActivationFunction.SIGMOID: lambda x, a, b: 1 / (1 + _exp(-x)),
    ActivationFunction.TANH: lambda x, a, b: a * _tanh(b * x),
    ActivationFunction.LINEAR: lambda x, a, b: a * x + b,
    ActivationFunction.RELU: lambda x, a, b: np.maximum(x, 0),
    ActivationFunction.BOUNDED_RELU: lambda x, a, b: np.clip(x, b, a),
    ActivationFunction.SOFT_RELU: lambda x, a, b: _softplus(x),
    ActivationFunction.LEAKY_RELU: lambda x, a, b: np.where(x > 0, x, a * x),
    ActivationFunction.ABS: lambda x, a, b: np.abs(x),
    ActivationFunction.SQRT: lambda x, a, b: np.sqrt(x),
    ActivationFunction.SQUARE: lambda x, a, b: np.square(x),
    ActivationFunction.ELU: lambda x, a, b: np.where(x >= 0, x, a * _expm1(x)),
    ActivationFunction.HARD_SWISH: lambda x, a, b: np.where(x >= 3, x, x * np.clip(x + 3, 0, 6) / 6),
    ActivationFunction.GELU: lambda x, a, b: x * (0.5 * erfc(-x / math.sqrt(2))),
    ActivationFunction.GELU_TANH: lambda x, a, b: _gelu_tanh(x),
    ActivationFunction.SELU: lambda x, a, b: b * np.where(x > 0, x, a * _expm1(x)),
    ActivationFunction.CELU: lambda x, a, b: np.maximum(x, 0) + np.minimum(a * _expm1(x / a), 0),
    ActivationFunction.SOFTSIGN: lambda x, a, b: x / (1 + np.abs(x)),
    ActivationFunction.HARD_SIGMOID: lambda x, a, b: np.clip(a * x + b, 0, 1),
    ActivationFunction.SWISH: lambda x, a, b: x / (1 + _exp(-a * x)),
    ActivationFunction.MISH: lambda x, a, b: x * _tanh(_softplus(x)),
    ActivationFunction.THRESHOLDED_RELU: lambda x, a, b: np.where(x > a, x, 0),
    ActivationFunction.SHRINK: lambda x, a, b: np.where(x > a, x - b, np.where(x < -a, x + b, 0)),
}
_CLAMPS: Final = frozenset({ActivationFunction.RELU, ActivationFunction.BOUNDED_RELU})
_GELUS: Final = frozenset({ActivationFunction.GELU, ActivationFunction.GELU_TANH})
_OF_INTEGERS: Final = _CLAMPS | {ActivationFunction.ABS, ActivationFunction.SQUARE}


def _bounds(op: Activation) -> tuple[float, float]:
    return (0.0, math.inf) if op.function is ActivationFunction.RELU else (op.b, op.a)


def _computes(op: Activation, info: KernelInfo) -> str | None:
    dtype = info.input.dtype
    if dtype in FLOATS or (dtype.is_integer and dtype.bits >= 8 and op.function in _OF_INTEGERS):
        return None
    return f"{op.function.name} of {dtype} is not defined"


@kernel(Activation, quantized=False, when=(all_quantized, _computes))
def activation(op: Activation, x: Array, *, info: KernelInfo, out: Array) -> None:
    """Compute `Activation` on floats; narrow floats are rounded once at the end, and clamps write directly to `out`."""
    lacks_infinity = info.input.dtype in FLOATS and info.input.dtype.bits == 8
    if op.function in _CLAMPS and not lacks_infinity:
        np.clip(x, *_limits(*_bounds(op), info.input), out=out)
    else:
        np.copyto(out, FUNCTIONS[op.function](real(x, info.input), op.a, op.b), casting="unsafe")


def _limits(low: float, high: float, info: TensorInfo) -> tuple[Array, Array]:
    """Return the bounds of a clamp as two scalars of the tensor's type; for integers, rounded inwards."""
    dtype = info.dtype.numpy
    if info.dtype.is_integer:
        limits = np.iinfo(dtype)
        low, high = math.ceil(max(low, limits.min)), math.floor(min(high, limits.max))
    return np.asarray(low, dtype), np.asarray(high, dtype)


def _clamps_quantized(op: Activation, info: KernelInfo) -> str | None:
    if op.function not in _CLAMPS:
        return f"{op.function.name} is not a clamp"
    if op.requantization is Requantization.HALF_TO_EVEN:
        return "its bounds are rounded half to even"
    quantization = info.input.quantization
    is_same = quantization is not None and not quantization.per_axis and quantization == info.output.quantization
    return None if is_same else "takes tensors of one quantization"


@kernel(Activation, quantized=True, when=(all_quantized, _clamps_quantized))
def clamp(op: Activation, x: Array, *, info: KernelInfo, out: Array) -> None:
    """Compute RELU and BOUNDED_RELU if input and output have equal quantizations: clamp to the quantized bounds."""
    low, high = quantized_bounds(*_bounds(op), info.output)
    np.clip(x, x.dtype.type(low), x.dtype.type(high), out=out)


def _quantized_results(op: Activation, x: Array, input: TensorInfo, output: TensorInfo) -> Array:
    """Return results for the quantized values `x`, quantized like `output`, but not clamped to its type.

    They are computed by TFLite's integer rule for the activation, or in float32 if TFLite has no rule, and for
    HALF_TO_EVEN.
    """
    if op.requantization is Requantization.HALF_TO_EVEN and output.quantization is not None:
        reals = FUNCTIONS[op.function](real(x, input), op.a, op.b)
        return quantize(reals, output.quantization, output.dtype, np.rint)
    is_int16 = input.dtype is DataType.INT16
    gives_q15 = is_int16 and input.zero_point == 0 and output.quantization == Quantization(2.0**-15)
    match op.function:
        case ActivationFunction.RELU | ActivationFunction.BOUNDED_RELU:
            return relu(x, input, output, *_bounds(op))
        case ActivationFunction.LEAKY_RELU:
            return leaky_relu(x, input, output, op.a)
        case ActivationFunction.ABS:
            return absolute(x, input, output)
        case ActivationFunction.HARD_SWISH if not is_int16 and input.scale < 128 * output.scale:
            return hard_swish(x, input, output)
        case ActivationFunction.SIGMOID if gives_q15:
            return sigmoid16(x, input, output)
        case ActivationFunction.TANH if gives_q15 and op.a == op.b == 1:
            return tanh16(x, input, output)
    interpolates = is_int16 and op.function in _GELUS and input.zero_point == output.zero_point == 0
    evaluate = interpolated if interpolates else tabulated
    return evaluate(lambda reals: FUNCTIONS[op.function](reals, op.a, op.b), x, input, output)


@kernel(Activation, quantized=True, when=(all_quantized, one_scale_of_few_bits))
def activation_by_table(op: Activation, x: Array, *, out: Array, prepared: Array) -> None:
    """Compute quantized activations of 8- and 16-bit tensors; `prepared` is a table of the results for all values."""
    look_up(prepared, x, out)


@kernel.prepare(activation_by_table)
@np.errstate(all="ignore")
def _activation_table(op: Activation, info: KernelInfo) -> Array:
    integers = all_integers(info.input.dtype)
    return clamp_to(_quantized_results(op, integers, info.input, info.output), info.output.dtype)


@kernel(Activation, quantized=True, when=all_quantized)
def activation_of_reals(op: Activation, x: Array, *, info: KernelInfo, out: Array) -> None:
    """Compute `Activation` on dequantized values, for per-axis scales or more than 16 bits."""
    store(FUNCTIONS[op.function](real(x, info.input), op.a, op.b), info.output, out, op.requantization)


# --- softmax ----------------------------------------------------------------------------------------------------------


def _softmax(x: Array, axis: int, beta: float) -> Array:
    """Compute softmax of `x * beta`; the greatest score is subtracted first, so that no exponential overflows."""
    exps = np.exp(_minus_greatest(x, axis, beta))
    probabilities: Array = exps / exps.sum(axis=axis, keepdims=True)
    return probabilities


def _log_softmax(x: Array, axis: int, beta: float) -> Array:
    shifted = _minus_greatest(x, axis, beta)
    logarithms: Array = shifted - np.log(np.exp(shifted).sum(axis=axis, keepdims=True))
    return logarithms


def _minus_greatest(x: Array, axis: int, beta: float) -> Array:
    """Return the scores `x * beta` minus the greatest of them along the axis, so that none is above 0.

    If `beta` is negative, the least element of `x` has the greatest score.
    """
    greatest = x.max(axis=axis, keepdims=True) if beta >= 0 else x.min(axis=axis, keepdims=True)
    shifted: Array = (x - greatest) * beta
    return shifted


def _is_float(op: Softmax | LogSoftmax | Hardmax, info: KernelInfo) -> str | None:
    return None if info.quantized or info.input.dtype in FLOATS else f"input is {info.input.dtype}; takes floats"


@kernel(Softmax, LogSoftmax, when=(all_quantized, _is_float))
def softmax(op: Softmax | LogSoftmax, x: Array, *, info: KernelInfo, out: Array) -> None:
    """Compute `Softmax` or `LogSoftmax`, in integers if TFLite has a rule for the quantization, else in float32."""
    rule = _integer_rule(op, info)
    if x.size == 0:
        return
    if rule is None:
        function = _softmax if isinstance(op, Softmax) else _log_softmax
        store(function(real(x, info.input), op.axis, op.beta), info.output, out)
    else:
        scaled = rule(np.moveaxis(x, op.axis, -1), info.input, info.output, op.beta)
        out[...] = np.moveaxis(clamp_to(scaled, info.output.dtype), -1, op.axis)


_INTEGER_RULES: Final = {
    (Softmax, DataType.INT8): softmax8,
    (Softmax, DataType.UINT8): softmax8,
    (Softmax, DataType.INT16): softmax16,
    (LogSoftmax, DataType.INT8): log_softmax8,
    (LogSoftmax, DataType.UINT8): log_softmax8,
}


def _integer_rule(op: Softmax | LogSoftmax, info: KernelInfo) -> Callable[..., Array] | None:
    """Return TFLite's integer function for the operator, such as `softmax8`, or None if there is none.

    There is none if the output does not have the quantization that TFLite prescribes. The function is called with the
    quantized values (the softmax axis last), the infos of input and output, and the operator's beta.
    """
    quantization = info.input.quantization
    if quantization is None or quantization.per_axis or op.infer(info.input).quantization != info.output.quantization:
        return None
    return _INTEGER_RULES.get((type(op), info.input.dtype))


@kernel(Hardmax, when=(all_quantized, _is_float))
def hardmax(op: Hardmax, x: Array, *, info: KernelInfo, out: Array) -> None:
    """Compute `Hardmax`; quantized values are compared directly, as quantization preserves their order."""
    if x.size == 0:
        return
    greatest_indices = np.argmax(real(x, info.input), axis=op.axis, keepdims=True)
    one_hot = np.zeros(x.shape, np.float32)
    np.put_along_axis(one_hot, greatest_indices, 1, op.axis)
    store(one_hot, info.output, out)
