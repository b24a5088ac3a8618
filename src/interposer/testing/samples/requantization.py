"""Samples of operators on quantized tensors whose results are rounded half to even, as ONNX rounds."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import islice
from typing import Final

from interposer.core.traits import Role
from interposer.ops import (
    Activation,
    Addition,
    BatchMatMul,
    Convolution2d,
    Convolution3d,
    DepthwiseConvolution2d,
    ElementwiseBinary,
    FullyConnected,
    Mean,
    Multiplication,
    Pooling2d,
    Reduce,
    Requantization,
    Subtraction,
    TransposeConvolution2d,
)
from interposer.testing.sample import Given, Sample, samples, weights
from interposer.testing.samples import activation, convolution, convolution3d, elementwise, matmul, pooling, reduction

__all__: list[str] = []

_TO_EVEN: Final = Requantization.HALF_TO_EVEN


def _to_even(source: Callable[[], Iterator[Sample]], every: int = 1) -> Iterator[Sample]:
    """Yield one of `every` samples of a source that have quantized results, rounded half to even instead.

    A bias of integers becomes one of floats in every second sample.
    """
    quantized_samples = (sample for sample in source() if sample.expected is None and _is_quantized(sample))
    for number, sample in enumerate(islice(quantized_samples, 0, None, every)):
        inputs = _with_float_bias(sample) if number % 2 else sample.inputs
        op = sample.op.replace(requantization=_TO_EVEN)
        yield replace(sample, op=op, inputs=inputs, name=f"{sample.name}-half-to-even", exact=True)


def _is_quantized(sample: Sample) -> bool:
    infos = [*(operand.info for operand in sample.inputs if operand is not None), *sample.outputs]
    return bool(sample.outputs) and all(info is not None and info.is_quantized for info in infos)


def _with_float_bias(sample: Sample) -> list[Given | None]:
    inputs = list(sample.inputs)
    for index in sample.op.inputs_of(Role.BIAS, len(inputs)):
        bias = inputs[index]
        inputs[index] = None if bias is None else weights(bias.info.shape)
    return inputs


@samples(Convolution2d, DepthwiseConvolution2d, TransposeConvolution2d)
def convolutions() -> Iterator[Sample]:
    """Yield samples of 2D convolutions."""
    yield from _to_even(convolution.quantized_types)


@samples(Convolution3d)
def volumes() -> Iterator[Sample]:
    """Yield samples of 3D convolutions."""
    yield from _to_even(convolution3d.quantized)


@samples(FullyConnected)
def fully_connected() -> Iterator[Sample]:
    """Yield FullyConnected samples."""
    yield from _to_even(matmul.quantized_fully_connected)


@samples(BatchMatMul)
def products() -> Iterator[Sample]:
    """Yield BatchMatMul samples."""
    yield from _to_even(matmul.matmul_types, every=2)


@samples(Addition, ElementwiseBinary, Multiplication, Subtraction)
def binary() -> Iterator[Sample]:
    """Yield samples of binary arithmetic."""
    yield from _to_even(elementwise.quantized_binary)


@samples(Mean, Reduce)
def reductions() -> Iterator[Sample]:
    """Yield samples of means and other reductions."""
    yield from _to_even(reduction.quantized_types, every=2)


@samples(Pooling2d)
def pools() -> Iterator[Sample]:
    """Yield Pooling2d samples."""
    yield from _to_even(pooling.rescaled)
    yield from _to_even(pooling.padding_methods)


@samples(Activation)
def activations() -> Iterator[Sample]:
    """Yield Activation samples."""
    yield from _to_even(activation.activation, every=3)
