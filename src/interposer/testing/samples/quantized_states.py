"""Samples of recurrent layers in 8 bits: each step uses the states as they are stored, rounded and clamped."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

from interposer.core.schema import Op
from interposer.core.traits import Role
from interposer.core.types import DataType, Quantization, TensorInfo
from interposer.ops import (
    BidirectionalSequenceLstm,
    BidirectionalSequenceRnn,
    GruSequence,
    Lstm,
    LstmSequence,
    Rnn,
    RnnSequence,
    UnidirectionalSequenceRnn,
)
from interposer.testing.sample import Given, Sample, samples
from interposer.testing.samples import lstm, recurrent, recurrent_sequence

__all__: list[str] = []

DATA: Final = Quantization(1 / 32, -3)
STATE: Final = Quantization(1 / 64, 5)
SOURCES: Final[dict[type[Op], Callable[[], Iterator[Sample]]]] = {
    BidirectionalSequenceLstm: lstm.bidirectional,
    BidirectionalSequenceRnn: recurrent.bidirectional,
    GruSequence: recurrent_sequence.gru_sequence,
    Lstm: lstm.lstm,
    LstmSequence: recurrent_sequence.lstm_sequence,
    Rnn: recurrent.rnn,
    RnnSequence: recurrent_sequence.rnn_sequence,
    UnidirectionalSequenceRnn: recurrent.unidirectional,
}
"""The generators of float samples, the first of which is quantized."""


@samples(*SOURCES)
def in_eight_bits() -> Iterator[Sample]:
    """Yield a sample with an int8 input, int8 states and results, and float weights for each recurrent operator."""
    for source in SOURCES.values():
        float_sample = next(sample for sample in source() if _is_float32(sample))
        inputs = [_quantized(float_sample.op, index, operand) for index, operand in enumerate(float_sample.inputs)]
        infos = [None if operand is None else operand.info for operand in inputs]
        results = [
            info and info.with_quantization(STATE if info.dtype is DataType.INT8 else None)
            for info in float_sample.op.infer_infos(*infos)
        ]
        yield Sample(float_sample.op, inputs, results, "int8")


def _is_float32(sample: Sample) -> bool:
    return all(operand is None or operand.info.dtype is DataType.FLOAT32 for operand in sample.inputs)


def _quantized(op: Op, index: int, operand: Given | None) -> Given | None:
    declared_operand = op.operands[index]
    if operand is None or declared_operand.role is not Role.DATA:
        return operand
    is_state = declared_operand.name.endswith("state_in")
    return Given(TensorInfo(operand.info.shape, DataType.INT8, STATE if is_state else DATA), low=-1.0, high=1.0)
