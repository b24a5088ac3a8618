"""Arm NN writers for activations and softmax."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Final

from interposer.core.types import TensorInfo
from interposer.formats.armnn.schema import ACTIVATIONS
from interposer.ops.activation import Activation, ActivationFunction, LogSoftmax, Softmax
from interposer.ops.axes import normal_axis
from interposer.writers.armnn.armnn_layer_writers import writer
from interposer.writers.armnn.draft import Draft
from interposer.writers.armnn.sheet import Tensor
from interposer.writers.armnn.types import dimensions
from interposer.writers.armnn.views import origins
from interposer.writers.refusals import refuse

__all__: list[str] = []

F = ActivationFunction
_NUMBERS: Final = {ActivationFunction[name]: number for number, name in enumerate(ACTIVATIONS) if name != "SOFT_RELU"}
"""The numbers of the functions in files. All releases of Arm NN read SOFT_RELU as a sigmoid, so that it has none."""
_GELU_SINCE: Final = "23.11"
_AXIS_SINCE: Final = "22.05"
"""The first release for which the axis of a softmax is written; files for older ones have a transpose instead."""


@writer(Activation)
def activation(draft: Draft, op: Activation) -> Tensor:
    """Write Activation; functions that Arm NN lacks are composed of others, if the tensors are not quantized."""
    x = draft.operand(0)
    if op.function is F.GELU:
        draft.need(_GELU_SINCE, "the activation GELU")
    if op.function in _NUMBERS:
        return draft.activation(_NUMBERS[op.function], x, op.a, op.b)
    composed = _COMPOSED.get(op.function)
    if composed is None or draft.is_quantized:
        suffix = " of quantized tensors" if draft.is_quantized else ""
        refuse(f"Arm NN has no activation {op.function.name}{suffix}")
    return composed(draft, op, x, draft.result)


def _function(draft: Draft, function: F, x: Tensor, a: float = 0.0, b: float = 0.0) -> Tensor:
    return draft.activation(_NUMBERS[function], x, a, b, giving=draft.result)


def _hard_sigmoid(draft: Draft, op: Activation, x: Tensor, _: TensorInfo) -> Tensor:
    return draft.activation(_NUMBERS[F.BOUNDED_RELU], _function(draft, F.LINEAR, x, op.a, op.b), 1.0, 0.0)


def _swish(draft: Draft, op: Activation, x: Tensor, info: TensorInfo) -> Tensor:
    scaled = x if op.a == 1 else _function(draft, F.LINEAR, x, op.a)
    return draft.final("Multiplication", x, _function(draft, F.SIGMOID, scaled))


def _soft_relu(draft: Draft, _: Activation, x: Tensor, info: TensorInfo) -> Tensor:
    return draft.activation(_NUMBERS[F.LINEAR], _minus_soft_relu(draft, x, info), -1.0)


def _minus_soft_relu(draft: Draft, x: Tensor, info: TensorInfo) -> Tensor:
    """Return -log(1 + exp(x)) = -log(1 + exp(-|x|)) - max(x, 0), whose terms stay finite or have the right infinity.

    The first term is the second column of the log-softmax of a matrix with the columns -|x| and 0.
    """
    shape = dimensions(info)
    count = math.prod(shape)
    single_info, pair_info = (TensorInfo((count, columns), info.dtype) for columns in (1, 2))
    column = draft.reshape(x, (count, 1))
    magnitude = draft.activation(_NUMBERS[F.ABS], column, giving=single_info)
    negative = draft.activation(_NUMBERS[F.LINEAR], magnitude, -1.0, 0.0, giving=single_info)
    zeros = draft.activation(_NUMBERS[F.BOUNDED_RELU], column, 0.0, 0.0, giving=single_info)
    joined = draft.node("Concat", negative, zeros, giving=pair_info, descriptor=origins(1, [(count, 1)] * 2))
    logs = draft.node("LogSoftmax", joined, giving=pair_info, descriptor={"beta": 1.0, "axis": -1})
    second_logs = draft.node("Slice", logs, giving=single_info, descriptor={"begin": (0, 1), "size": (count, 1)})
    positive = draft.activation(_NUMBERS[F.RELU], column, giving=single_info)
    return draft.reshape(draft.node("Subtraction", second_logs, positive, giving=single_info), shape)


def _mish(draft: Draft, _: Activation, x: Tensor, info: TensorInfo) -> Tensor:
    tanh = _function(draft, F.TANH, _minus_soft_relu(draft, x, info), -1.0, 1.0)
    return draft.final("Multiplication", x, tanh)


def _softsign(draft: Draft, _: Activation, x: Tensor, info: TensorInfo) -> Tensor:
    magnitude = _function(draft, F.ABS, x)
    return draft.final("Division", x, _function(draft, F.LINEAR, magnitude, 1.0, 1.0))


def _selu(draft: Draft, op: Activation, x: Tensor, info: TensorInfo) -> Tensor:
    return draft.activation(_NUMBERS[F.LINEAR], _function(draft, F.ELU, x, op.a), op.b)


def _celu(draft: Draft, op: Activation, x: Tensor, info: TensorInfo) -> Tensor:
    if op.a < 0:
        refuse(f"Arm NN has no activation CELU whose parameter is {op.a:g}")
    divided = _function(draft, F.ELU, _function(draft, F.LINEAR, x, 1 / op.a), 1.0)
    return draft.activation(_NUMBERS[F.LINEAR], divided, op.a)


def _gelu_tanh(draft: Draft, _: Activation, x: Tensor, info: TensorInfo) -> Tensor:
    """Write x / 2 * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 * x**3)))."""
    cube = draft.node("Multiplication", _function(draft, F.SQUARE, x), x, giving=info)
    tanh_argument = draft.node("Addition", x, _function(draft, F.LINEAR, cube, 0.044715), giving=info)
    tanh = _function(draft, F.TANH, tanh_argument, 1.0, math.sqrt(2 / math.pi))
    return draft.final("Multiplication", _function(draft, F.LINEAR, x, 0.5), _function(draft, F.LINEAR, tanh, 1.0, 1.0))


_COMPOSED: Final[dict[F, Callable[[Draft, Activation, Tensor, TensorInfo], Tensor]]] = {
    F.HARD_SIGMOID: _hard_sigmoid,
    F.SWISH: _swish,
    F.SOFT_RELU: _soft_relu,
    F.MISH: _mish,
    F.SOFTSIGN: _softsign,
    F.SELU: _selu,
    F.CELU: _celu,
    F.GELU_TANH: _gelu_tanh,
}


@writer(Softmax, LogSoftmax)
def softmax(draft: Draft, op: Softmax | LogSoftmax) -> Tensor:
    """Write a softmax; older releases do not store the axis of Softmax, so that it is moved to the end."""
    x, kind = draft.operand(0), type(op).__name__
    rank = len(dimensions(x.info))
    axis = normal_axis(op.axis, rank)
    if axis == rank - 1 or kind == "LogSoftmax" or draft.release.prefers(_AXIS_SINCE):
        descriptor = {"beta": op.beta, "axis": axis if axis < rank - 1 else -1}
        return draft.final(kind, x, descriptor=descriptor)
    permutation = [*(number for number in range(rank) if number != axis), axis]
    axis_last = draft.transpose(x, permutation)
    info = TensorInfo(axis_last.shape, draft.result.dtype, draft.result.quantization)
    scores = draft.node(kind, axis_last, giving=info, descriptor={"beta": op.beta})
    return draft.transpose(scores, sorted(range(rank), key=permutation.__getitem__), final=True)
