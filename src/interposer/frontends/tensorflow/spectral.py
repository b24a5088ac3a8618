"""TensorFlow converters for Fourier transforms, and for the complex numbers that they give."""

from __future__ import annotations

import numpy as np

from interposer.core.errors import ParseError
from interposer.frontends.reshaping import reshaped
from interposer.frontends.tensorflow.node import Node
from interposer.frontends.tensorflow.results import Complex, Result
from interposer.frontends.tensorflow.tensorflow_converters import operator
from interposer.ir.graph import Value
from interposer.ops.gather import Gather
from interposer.ops.reduction import Reduce, ReduceOperation
from interposer.ops.spectral import Dft

__all__: list[str] = []

_LONGEST = 1 << 24


@operator("RFFT")
def transform(node: Node) -> Result:
    """Convert RFFT: the Fourier transform of real signals along the last axis, cut or filled up with zeros."""
    x, length = node.value(0), node.integer_of(1, "fft_length")
    if not 1 <= length <= _LONGEST or x.known.rank < 1:
        raise ParseError(f"its fft_length is {length} and its input has the shape {x.known.shape}")
    signal = reshaped(node, x, [*x.known.shape, 1], x.known.rank)
    return Complex(node.result(Dft(axis=-2, length=length, onesided=True), signal))


@operator("ComplexAbs")
def magnitude(node: Node) -> Value:
    """Convert ComplexAbs: the absolute values of complex numbers."""
    return node.result(Reduce((-1,), operation=ReduceOperation.L2), _parts(node))


@operator("Real", "Imag")
def part(node: Node) -> Value:
    """Convert Real and Imag: the real or the imaginary part of complex numbers."""
    index = node.constant(np.array(int(node.kind == "Imag")))
    return node.result(Gather(-1), _parts(node), index)


def _parts(node: Node) -> Value:
    operand = node.inputs[0] if node.inputs else None
    if not isinstance(operand, Complex):
        node.unsupported("its input is not the result of a Fourier transform")
    return operand.parts
