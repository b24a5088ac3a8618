"""Samples of simple recurrent layers and of SVDF."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from interposer.core.types import DataType, Quantization, TensorInfo
from interposer.ops import (
    ActivationRounding,
    BidirectionalSequenceRnn,
    FusedActivation,
    Rnn,
    Svdf,
    UnidirectionalSequenceRnn,
)
from interposer.testing.sample import Given, Sample, given, samples, weights
from interposer.testing.samples.common import FLOATS

__all__: list[str] = []

BATCH, STEPS, INPUTS, UNITS = 2, 4, 3, 5
HYBRID: Final = Quantization(1 / 128)
ROUNDINGS: Final = (ActivationRounding.SYMMETRIC, ActivationRounding.ASYMMETRIC)


def _cell(dtype: DataType, units: int = UNITS, inputs: int = INPUTS) -> list[Given]:
    """Return the operands of a simple recurrent layer: weights, recurrent weights, bias and state."""
    shapes = [(units, inputs), (units, units), (units,)]
    return [*(weights(shape, dtype) for shape in shapes), given((BATCH, units), dtype, low=-1, high=1)]


@samples(Rnn)
def rnn() -> Iterator[Sample]:
    """Yield Rnn samples: every activation function and type, an absent state, and 8-bit weights."""
    for function in FusedActivation:
        x = given((BATCH, INPUTS), low=-1, high=1)
        yield Sample(Rnn(activation_func=function), [x, *_cell(DataType.FLOAT32)], name=function.name.lower())
    for dtype in FLOATS:
        yield Sample(Rnn(), [given((BATCH, INPUTS), dtype), *_cell(dtype)], name=f"{dtype}")
    x, [_, _, bias, state] = given((BATCH, INPUTS)), _cell(DataType.FLOAT32)
    matrices = [weights((UNITS, count), DataType.INT8, HYBRID) for count in (INPUTS, UNITS)]
    yield Sample(Rnn(), [x, *matrices, bias], name="stateless-hybrid")
    yield Sample(Rnn(), [x, *matrices, bias, state], name="hybrid")
    for rounding in ROUNDINGS:
        op = Rnn(activation_rounding=rounding)
        yield Sample(op, [x, *matrices, bias, state], name=f"hybrid-{rounding.value}")


@samples(UnidirectionalSequenceRnn)
def unidirectional() -> Iterator[Sample]:
    """Yield UnidirectionalSequenceRnn samples: both orders of the first two axes, in every type."""
    for time_major in (False, True):
        shape = (STEPS, BATCH, INPUTS) if time_major else (BATCH, STEPS, INPUTS)
        op = UnidirectionalSequenceRnn(time_major=time_major)
        for dtype in FLOATS:
            name = f"{'time' if time_major else 'batch'}-first-{dtype}"
            yield Sample(op, [given(shape, dtype), *_cell(dtype)], name=name)


@samples(BidirectionalSequenceRnn)
def bidirectional() -> Iterator[Sample]:
    """Yield BidirectionalSequenceRnn samples: separate and merged outputs, with each use of an auxiliary input."""
    x, aux = given((BATCH, STEPS, INPUTS)), given((BATCH, STEPS, 7))
    forward, backward = _cell(DataType.FLOAT32), _cell(DataType.FLOAT32, 4)
    parallel = _cell(DataType.FLOAT32, 4, inputs=7)
    aux_weights = [weights((UNITS, 7)), weights((4, 7))]
    for merge in (False, True):
        op = BidirectionalSequenceRnn(merge_outputs=merge)
        title = "merged" if merge else "apart"
        yield Sample(op, [x, *forward, *backward], name=title)
        yield Sample(op, [x, *forward, *backward, aux, *aux_weights], name=f"{title}-crossed")
        yield Sample(op, [x, *forward, *parallel, aux], name=f"{title}-parallel")
    x = given((STEPS, BATCH, INPUTS))
    yield Sample(BidirectionalSequenceRnn(time_major=True), [x, *forward, *backward], name="time-first")
    for dtype in FLOATS:
        operands = [given((BATCH, STEPS, INPUTS), dtype), *_cell(dtype), *_cell(dtype, 4)]
        yield Sample(BidirectionalSequenceRnn(), operands, name=f"{dtype}")


@samples(Svdf)
def svdf() -> Iterator[Sample]:
    """Yield Svdf samples: several ranks and activation functions, every type, and the integer form of TFLite."""
    for rank in (1, 2):
        op = Svdf(rank=rank, activation_func=FusedActivation.RELU if rank == 1 else FusedActivation.NONE)
        for dtype in FLOATS:
            matrices = [weights((4, INPUTS), dtype), weights((4, 6), dtype), weights((4 // rank,), dtype)]
            operands = [given((BATCH, INPUTS), dtype), *matrices]
            yield Sample(op, operands, name=f"rank-{rank}-{dtype}")
            yield Sample(op, [*operands, given((BATCH, 24), dtype)], name=f"rank-{rank}-state-{dtype}")
        yield _integers(op)
    for rounding in ROUNDINGS:
        matrices = [weights((4, count), DataType.INT8, HYBRID) for count in (INPUTS, 6)]
        rounded_svdf = Svdf(activation_rounding=rounding)
        yield Sample(rounded_svdf, [given((BATCH, INPUTS)), *matrices, None], name=f"hybrid-{rounding.value}")


def _integers(op: Svdf) -> Sample:
    input_quantization, state_quantization = Quantization(1 / 32, -3), Quantization(1 / 4096)
    operands = [
        given((BATCH, INPUTS), DataType.INT8, input_quantization),
        weights((4, INPUTS), DataType.INT8, Quantization(1 / 128)),
        weights((4, 6), DataType.INT16, Quantization(1 / 32768)),
        weights((4 // op.rank,), DataType.INT32, Quantization(1 / 4096 / 32768)),
        given((BATCH, 24), DataType.INT16, state_quantization),
    ]
    outputs = [
        TensorInfo((BATCH, 24), DataType.INT16, state_quantization),
        TensorInfo((BATCH, 4 // op.rank), DataType.INT8, Quantization(1 / 16, 5)),
    ]
    return Sample(op, operands, outputs, f"rank-{op.rank}-integers")
