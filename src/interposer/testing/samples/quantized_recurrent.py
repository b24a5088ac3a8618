"""Samples of LSTMs in integers."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from interposer.core.types import DataType, Quantization
from interposer.ops import FusedActivation, QLstm, QuantizedLstm, UnidirectionalSequenceLstm
from interposer.testing.sample import Given, Sample, given, samples, weights
from interposer.testing.samples.lstm import BATCH, FEATURES, GATES, INPUTS, STEPS, UNITS, Cell, Features, operands

__all__: list[str] = []

DATA: Final = Quantization(1 / 64, 5)
INTEGERS: Final = Cell(
    DataType.INT8,
    DataType.INT16,
    DataType.INT32,
    DataType.INT8,
    DataType.INT16,
    Quantization(1 / 128),
    Quantization(1 / 32768),
    Quantization(1 / 64 / 128),
    DATA,
    Quantization(2**-11),
)


def _attributes(features: Features) -> dict[str, Any]:
    scales = {f"{gate}_intermediate_scale": 2.0**-11 for gate in GATES}
    return features.flags | scales | {"hidden_state_scale": DATA.scale, "hidden_state_zero_point": DATA.zero_point}


def _named(features: Features, shape: tuple[int, ...]) -> dict[str, Given]:
    return {"input": given(shape, DataType.INT8, DATA, low=-1.5, high=1.5)} | INTEGERS.operands(features)


@samples(QLstm)
def q_lstm() -> Iterator[Sample]:
    """Yield QLstm samples: every combination of features, and bounds."""
    for features in FEATURES:
        op = QLstm(**_attributes(features))
        yield Sample(op, operands(op, _named(features, (BATCH, INPUTS))), name=features.title)
    op = QLstm(cell_clip=0.25, projection_clip=0.25, **_attributes(FEATURES[-1]))
    yield Sample(op, operands(op, _named(FEATURES[-1], (BATCH, INPUTS))), name="bounds")


@samples(UnidirectionalSequenceLstm)
def unidirectional() -> Iterator[Sample]:
    """Yield UnidirectionalSequenceLstm samples: every combination of features, in integers."""
    for features in FEATURES:
        op = UnidirectionalSequenceLstm(activation_func=FusedActivation.TANH, **_attributes(features))
        yield Sample(op, operands(op, _named(features, (BATCH, STEPS, INPUTS))), name=f"integers-{features.title}")


@samples(QuantizedLstm)
def quantized_lstm() -> Iterator[Sample]:
    """Yield QuantizedLstm samples: layers with as many, fewer and more inputs than units."""
    data_quantization, weights_quantization = Quantization(1 / 128, 128), Quantization(1 / 128, 120)
    for inputs in (2, UNITS, 9):
        operands_by_name = {
            "input": given((BATCH, inputs), DataType.UINT8, data_quantization, low=-1, high=1),
            "cell_state_in": given((BATCH, UNITS), DataType.INT16, Quantization(2**-11)),
            "output_state_in": given((BATCH, UNITS), DataType.UINT8, data_quantization, low=-1, high=1),
        }
        for gate in GATES:
            operands_by_name[f"input_to_{gate}_weights"] = weights(
                (UNITS, inputs), DataType.UINT8, weights_quantization
            )
            operands_by_name[f"recurrent_to_{gate}_weights"] = weights(
                (UNITS, UNITS), DataType.UINT8, weights_quantization
            )
            bias = weights((UNITS,), DataType.INT32, Quantization(1 / 128 / 128))
            operands_by_name["cell_bias" if gate == "cell" else f"{gate}_gate_bias"] = bias
        yield Sample(QuantizedLstm(), operands(QuantizedLstm(), operands_by_name), name=f"{inputs}-inputs")
