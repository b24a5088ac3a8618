"""Samples of RnnSequence, GruSequence and LstmSequence."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from interposer.core.types import DataType, Quantization
from interposer.ops import ActivationFunction, GruSequence, LstmSequence, RecurrentDirection, RnnSequence
from interposer.testing.sample import Given, Sample, given, of, samples, weights
from interposer.testing.samples.common import FLOATS

__all__: list[str] = []

STEPS, BATCH, INPUTS, HIDDEN = 4, 2, 3, 5
_STATES: Final = ("hidden_state_in", "cell_state_in")
Layer = RnnSequence | GruSequence | LstmSequence
FUNCTIONS: Final = (ActivationFunction.HARD_SIGMOID, ActivationFunction.SOFTSIGN, ActivationFunction.ELU)


def _operands(op: Layer, dtype: DataType = DataType.FLOAT32, *, states: bool = True) -> dict[str, Given]:
    directions, weight_rows = op.directions, op.gates * HIDDEN
    frame = (STEPS, BATCH) if op.time_major else (BATCH, STEPS)
    state_shape = (directions, BATCH, HIDDEN) if op.time_major else (BATCH, directions, HIDDEN)
    operands_by_name = {
        "input": given((*frame, INPUTS), dtype, low=-2, high=2),
        "weights": weights((directions, weight_rows, INPUTS), dtype),
        "recurrent_weights": weights((directions, weight_rows, HIDDEN), dtype),
        "bias": weights((directions, 2 * weight_rows), dtype),
    }
    if states:
        operands_by_name["hidden_state_in"] = given(state_shape, dtype, low=-1, high=1)
    if states and isinstance(op, LstmSequence):
        operands_by_name["cell_state_in"] = given(state_shape, dtype, low=-1, high=1)
        operands_by_name["peephole_weights"] = weights((directions, 3 * HIDDEN), dtype)
    return operands_by_name


def _sample(op: Layer, named_operands: dict[str, Given], name: str) -> Sample:
    return Sample(op, [named_operands.get(declared_operand.name) for declared_operand in op.operands], name=name)


def _of_all_layers(op: Layer) -> Iterator[Sample]:
    for direction in RecurrentDirection:
        directed_op = op.replace(direction=direction)
        yield _sample(directed_op, _operands(directed_op), direction.value)
        lengths = {"sequence_lengths": of([STEPS, 2], DataType.INT32)}
        yield _sample(directed_op, _operands(directed_op) | lengths, f"{direction.value}-lengths")
    yield _sample(op, _operands(op, states=False), "stateless")
    batch_first = op.replace(time_major=False)
    yield _sample(batch_first, _operands(batch_first), "batch-first")
    with_functions = op.replace(
        activations=FUNCTIONS[: len(op.defaults)], activation_a=(0.25,) * len(op.defaults), clip=0.7
    )
    yield _sample(with_functions, _operands(with_functions), "functions")
    for dtype in FLOATS:
        yield _sample(op, _operands(op, dtype), f"{dtype}")


@samples(RnnSequence)
def rnn_sequence() -> Iterator[Sample]:
    """Yield RnnSequence samples: directions, sequence lengths, activation functions and types."""
    yield from _of_all_layers(RnnSequence())


@samples(GruSequence)
def gru_sequence() -> Iterator[Sample]:
    """Yield GruSequence samples.

    They cover directions, sequence lengths, activation functions and types, and both ways to reset.
    """
    yield from _of_all_layers(GruSequence())
    op = GruSequence(linear_before_reset=True)
    yield _sample(op, _operands(op), "linear-before-reset")


@samples(LstmSequence)
def lstm_sequence() -> Iterator[Sample]:
    """Yield LstmSequence samples: directions, sequence lengths, activation functions and types, and coupled gates."""
    yield from _of_all_layers(LstmSequence())
    op = LstmSequence(input_forget=True)
    yield _sample(op, _operands(op), "coupled")
    yield from _with_dynamic_quantization()


def _with_dynamic_quantization() -> Iterator[Sample]:
    """Yield LSTMs whose states are quantized: with weights of floats and of 8 bits, and with all operands."""
    for direction in (RecurrentDirection.FORWARD, RecurrentDirection.REVERSE):
        op = LstmSequence(direction=direction, dynamic_quantization=True)
        lengths = {"sequence_lengths": of([STEPS, 2], DataType.INT32)}
        yield _sample(op, _operands(op) | lengths, f"dynamic-{direction.value}")
        for dtype in (DataType.INT8, DataType.UINT8):
            for name, quantization in _quantizations(dtype).items():
                operands = _operands(op, states=False)
                states = {state: given((1, BATCH, HIDDEN), low=-1, high=1) for state in _STATES}
                for matrix, columns in (("weights", INPUTS), ("recurrent_weights", HIDDEN)):
                    operands[matrix] = weights((1, op.gates * HIDDEN, columns), dtype, quantization)
                yield _sample(op, operands | states, f"dynamic-{direction.value}-{dtype}-{name}")


def _quantizations(dtype: DataType) -> dict[str, Quantization]:
    zero_point, rows = (0 if dtype is DataType.INT8 else 120), LstmSequence.gates * HIDDEN
    scales = [0.002 + 0.0002 * row for row in range(rows)]
    by_row = Quantization(scales, [zero_point + row % 3 for row in range(rows)], 1)
    return {"one-scale": Quantization(0.004, zero_point), "rows": by_row}
