"""Samples of activations and softmax."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import numpy as np

from interposer.core.types import DataType, Quantization, TensorInfo
from interposer.ops import Activation, ActivationFunction, Hardmax, LogSoftmax, Softmax
from interposer.testing.sample import Sample, given, of, samples
from interposer.testing.samples.common import FLOATS, INTEGERS, QUANTIZED, SMALL_FLOATS, f32, plain

__all__: list[str] = []

PROBABILITIES: Final = {
    DataType.UINT8: Quantization(1 / 256),
    DataType.INT8: Quantization(1 / 256, -128),
    DataType.INT16: Quantization(1 / 32768),
}
PARAMETERS: Final = {
    ActivationFunction.TANH: (1.0, 1.0),
    ActivationFunction.LINEAR: (0.5, 1.0),
    ActivationFunction.BOUNDED_RELU: (3.0, -1.0),
    ActivationFunction.LEAKY_RELU: (0.1, 0.0),
    ActivationFunction.ELU: (1.0, 0.0),
    ActivationFunction.SHRINK: (1.5, 0.5),
}
OF_INTEGERS: Final = (
    ActivationFunction.RELU,
    ActivationFunction.BOUNDED_RELU,
    ActivationFunction.ABS,
    ActivationFunction.SQUARE,
)
POSITIVE: Final = frozenset({ActivationFunction.SQRT})
SHAPE: Final = (2, 3, 5)


@samples(Activation)
def activation() -> Iterator[Sample]:
    """Yield samples of every Activation function in every type, also with another output scale."""
    for function in ActivationFunction:
        op, title = Activation(function, *PARAMETERS.get(function, (1.0, 0.0))), function.name.lower()
        low = 0.0 if function in POSITIVE else -4.0
        for dtype in (*FLOATS, *SMALL_FLOATS):
            yield Sample(op, [given(SHAPE, dtype, low=low)], name=f"{title}-{dtype}")
        for dtype in INTEGERS if function in OF_INTEGERS else ():
            yield Sample(op, [plain(SHAPE, dtype, low=-11, high=11)], name=f"{title}-{dtype}")
        for dtype, quantization in QUANTIZED.items():
            operand, coarser_quantization = (
                given(SHAPE, dtype, quantization, low=low),
                Quantization(quantization.scale * 2, quantization.zero_point),
            )
            yield Sample(op, [operand], [TensorInfo(SHAPE, dtype, quantization)], f"{title}-quantized-{dtype}")
            yield Sample(op, [operand], [TensorInfo(SHAPE, dtype, coarser_quantization)], f"{title}-two-scales-{dtype}")


@samples(Activation)
def prescribed_activation() -> Iterator[Sample]:
    """Yield Activation samples whose output is not declared, so that it has the scale that TFLite prescribes."""
    for function in (ActivationFunction.SIGMOID, ActivationFunction.TANH):
        for dtype in PROBABILITIES:
            operand = given(SHAPE, dtype, QUANTIZED[dtype])
            yield Sample(Activation(function, 1.0, 1.0), [operand], name=f"{function.name.lower()}-prescribed-{dtype}")


@samples(Activation)
def activation_shapes() -> Iterator[Sample]:
    """Yield Activation samples: a scalar, an empty tensor, and a tensor of high rank."""
    for function in (ActivationFunction.RELU, ActivationFunction.SIGMOID):
        for shape in ((), (0,), (2, 0, 3), (1, 2, 1, 2, 1, 2, 1, 2)):
            label = "x".join(map(str, shape)) or "scalar"
            yield Sample(Activation(function), [given(shape)], name=f"{function.name.lower()}-shape-{label}")


@samples(Activation)
def worked_activation() -> Iterator[Sample]:
    """Yield worked Activation examples: the bounds of ReLU6, and points with known function values."""
    for function, a, b, x, expected in [
        (ActivationFunction.BOUNDED_RELU, 6.0, 0.0, [-1, 0, 3, 6, 7], [0, 0, 3, 6, 6]),
        (ActivationFunction.LEAKY_RELU, 0.25, 0.0, [-4, 0, 4], [-1, 0, 4]),
        (ActivationFunction.SIGMOID, 0.0, 0.0, [0, np.inf, -np.inf], [0.5, 1, 0]),
        (ActivationFunction.HARD_SWISH, 0.0, 0.0, [-3, 0, 1, 3, 5], [0, 0, 2 / 3, 3, 5]),
        (ActivationFunction.LINEAR, 2.0, 1.0, [-1, 0, 2], [-1, 1, 5]),
        (ActivationFunction.SOFTSIGN, 0.0, 0.0, [-1, 0, 3], [-0.5, 0, 0.75]),
        (ActivationFunction.THRESHOLDED_RELU, 1.0, 0.0, [0.5, 1, 2], [0, 0, 2]),
        (ActivationFunction.SHRINK, 1.5, 1.0, [-2, -1.5, 0, 1, 3], [-1, 0, 0, 0, 2]),
    ]:
        op, title = Activation(function, a, b), f"worked-{function.name.lower()}"
        yield Sample(op, [of(x)], name=title, expected=[f32(expected)])


@samples(Softmax, LogSoftmax)
def softmax() -> Iterator[Sample]:
    """Yield Softmax and LogSoftmax samples: every axis and type, several values of beta, and several output scales."""
    for op_class in (Softmax, LogSoftmax):
        for beta in (1.0, 2.0):
            for axis in (-1, 0, 1):
                op, name = op_class(beta, axis), f"beta{beta:g}-axis{axis}"
                for dtype in (*FLOATS, *SMALL_FLOATS):
                    yield Sample(op, [given(SHAPE, dtype)], name=f"{name}-{dtype}")
                for dtype in PROBABILITIES:
                    operand = given(SHAPE, dtype, QUANTIZED[dtype])
                    yield Sample(op, [operand], name=f"{name}-prescribed-{dtype}")
        for dtype, quantization in QUANTIZED.items():
            coarser_info = TensorInfo(SHAPE, dtype, Quantization(quantization.scale * 2, quantization.zero_point))
            yield Sample(op_class(), [given(SHAPE, dtype, quantization)], [coarser_info], f"quantized-{dtype}")
        for shape in ((5,), (1, 1), (0, 3), (2, 1, 2, 1, 3)):
            yield Sample(op_class(), [given(shape)], name=f"shape-{'x'.join(map(str, shape))}")
    scores = of([[0, 0, 0, 0], [1000, 0, 1000, -1000]])
    probabilities = [f32([[0.25] * 4, [0.5, 0, 0.5, 0]])]
    yield Sample(Softmax(), [scores], name="worked", expected=probabilities)


@samples(Hardmax)
def hardmax() -> Iterator[Sample]:
    """Yield Hardmax samples along every axis and in every type, and a row whose largest elements are equal."""
    for axis in (-1, 0, 1):
        for dtype in (*FLOATS, *SMALL_FLOATS):
            yield Sample(Hardmax(axis), [given(SHAPE, dtype)], name=f"axis{axis}-{dtype}")
        for dtype, quantization in QUANTIZED.items():
            yield Sample(Hardmax(axis), [given(SHAPE, dtype, quantization)], name=f"axis{axis}-quantized-{dtype}")
    for shape in ((5,), (1, 1), (0, 3), (2, 1, 2, 1, 3)):
        yield Sample(Hardmax(), [given(shape)], name=f"shape-{'x'.join(map(str, shape))}")
    worked = [of([[1, 3, 3, 2], [0, -1, -2, -3]])]
    yield Sample(Hardmax(), worked, name="worked", expected=[f32([[0, 1, 0, 0], [1, 0, 0, 0]])])
