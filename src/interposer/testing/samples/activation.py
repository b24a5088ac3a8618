"""Samples of activations and softmax."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import numpy as np

from interposer.ops import Activation, ActivationFunction, LogSoftmax, Softmax
from interposer.testing.sample import Sample, given, of, samples
from interposer.types import DataType, Quantization, TensorInfo

__all__: list[str] = []

FLOATS: Final = (DataType.FLOAT32, DataType.FLOAT16, DataType.BFLOAT16, DataType.FLOAT64)
QUANTIZED: Final = {
    DataType.UINT8: Quantization(1 / 32, 128),
    DataType.INT8: Quantization(1 / 32, -3),
    DataType.INT16: Quantization(1 / 4096),
}
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
}
POSITIVE: Final = frozenset({ActivationFunction.SQRT})
SHAPE: Final = (2, 3, 5)


@samples(Activation)
def activation() -> Iterator[Sample]:
    """Every function in every type, and with a result of another scale."""
    for function in ActivationFunction:
        op = Activation(function, *PARAMETERS.get(function, (1.0, 0.0)))
        low = 0.0 if function in POSITIVE else -4.0
        for dtype in FLOATS:
            yield Sample(op, [given(SHAPE, dtype, low=low)], name=f"{function.name.lower()}-{dtype}")
        for dtype, q in QUANTIZED.items():
            info = TensorInfo(SHAPE, dtype, q)
            yield Sample(op, [given(SHAPE, dtype, q, low=low)], [info], f"{function.name.lower()}-{dtype}")


@samples(Activation)
def worked_activation() -> Iterator[Sample]:
    """The corners of a bounded ReLU, which is ReLU6 here."""
    relu6 = Activation(ActivationFunction.BOUNDED_RELU, 6.0, 0.0)
    yield Sample(relu6, [of([-1, 0, 3, 6, 7])], name="worked-relu6", expected=[np.array([0, 0, 3, 6, 6], np.float32)])


@samples(Softmax, LogSoftmax)
def softmax() -> Iterator[Sample]:
    """Along the last axis and another one, sharpened and not."""
    for op in (Softmax(), Softmax(beta=2.0), Softmax(axis=1), LogSoftmax(), LogSoftmax(axis=0)):
        name = f"beta{op.beta:g}-axis{op.axis}"
        for dtype in FLOATS:
            yield Sample(op, [given(SHAPE, dtype)], name=f"{name}-{dtype}")
    for dtype, q in PROBABILITIES.items():
        info = TensorInfo(SHAPE, dtype, q)
        yield Sample(Softmax(), [given(SHAPE, dtype, QUANTIZED[dtype])], [info], f"{dtype}")
