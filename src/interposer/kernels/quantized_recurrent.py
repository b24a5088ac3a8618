"""Kernels of the single steps of an LSTM in integers, bit for bit as TFLite's reference computes them."""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from interposer.core.types import Array, DataType, Quantization
from interposer.kernels.fixedpoint import multiply_by_quantized_multiplier, quantize_multiplier, rounding_divide_by_pot
from interposer.kernels.gates16 import high_mul, saturate, sigmoid, tanh
from interposer.kernels.integer_lstm import (
    INTEGER_RULES,
    INTEGER_TYPES,
    IntegerLstm,
    exact_product,
    exponent,
)
from interposer.kernels.reference import kernel
from interposer.kernels.table import KernelInfo
from interposer.ops.quantized_recurrent import QLstm, QuantizedLstm

__all__: list[str] = []


@kernel(QLstm, dtypes=INTEGER_TYPES, when=INTEGER_RULES)
def q_lstm(op: QLstm, *arrays: Array, info: KernelInfo) -> tuple[Array, Array, Array]:
    """Compute `QLstm`, one step of an LSTM in integers; return output state, cell state and output."""
    lstm = IntegerLstm.of(op, arrays, info, (op.cell_clip, op.projection_clip))
    output, cell_state = lstm.step(arrays[0], arrays[1], arrays[2].astype(np.int64))
    return output, cell_state, output


# --- QuantizedLstm ----------------------------------------------------------------------------------------------------

_UINT8: Final = frozenset({DataType.UINT8})
_QUANTIZED_TYPES: Final = {
    **{declared.name: _UINT8 for declared in (*QuantizedLstm.operands, *QuantizedLstm.results)},
    **{declared.name: frozenset({DataType.INT32}) for declared in QuantizedLstm.operands if declared.rank == 1},
    **dict.fromkeys(("cell_state_in", "cell_state_out"), frozenset({DataType.INT16})),
}
_DATA_QUANTIZATION: Final = Quantization(1 / 128, 128)


def _data_as_prescribed(op: QuantizedLstm, info: KernelInfo) -> str | None:
    for name, tensor in (("input", info.at(0)), ("output_state_in", info.at(2)), ("output", info.outputs[1])):
        if tensor.quantization != _DATA_QUANTIZATION:
            return f"{name} is {tensor}; takes {_DATA_QUANTIZATION}"
    return None


def _weights_alike(op: QuantizedLstm, info: KernelInfo) -> str | None:
    first_quantization = info.at(3).quantization
    for name, tensor in zip(info.names, info.inputs, strict=True):
        if tensor is not None and name.endswith("weights"):
            quantization = tensor.quantization
            if quantization is None or quantization.per_axis or quantization != first_quantization:
                return f"{name} is {tensor}; takes weights that all have one quantization"
    return None


def _cells_as_prescribed(op: QuantizedLstm, info: KernelInfo) -> str | None:
    for name, tensor in (("cell_state_in", info.at(1)), ("cell_state_out", info.outputs[0])):
        if tensor.zero_point or exponent(tensor) != -11:
            return f"{name} is {tensor}; takes scale 2**-11 and zero point 0"
    return None


@kernel(QuantizedLstm, dtypes=_QUANTIZED_TYPES, when=(_data_as_prescribed, _weights_alike, _cells_as_prescribed))
def quantized_lstm(op: QuantizedLstm, *arrays: Array, info: KernelInfo) -> tuple[Array, Array]:
    """Compute `QuantizedLstm`; return the cell state and the output.

    The cell state has 4 integer bits, and its tanh uses 3 of them.
    """
    x = np.concatenate([arrays[0], arrays[2]], axis=-1).astype(np.int64) - 128
    sums = [_gate_sum(x, arrays, info, gate) for gate in range(4)]
    input_gate, forget_gate, candidate, output_gate = (
        sigmoid(sums[0]),
        sigmoid(sums[1]),
        tanh(sums[2], 3),
        sigmoid(sums[3]),
    )
    cell = saturate(
        rounding_divide_by_pot(high_mul(input_gate, candidate), 4) + high_mul(forget_gate, arrays[1].astype(np.int64))
    )
    output = rounding_divide_by_pot(high_mul(output_gate, tanh(saturate(cell << 1), 3)), 8)
    return cell, np.clip(output, -128, 127) + 128


def _gate_sum(x: Array, arrays: tuple[Array, ...], info: KernelInfo, gate: int) -> NDArray[np.int64]:
    """Return the argument of a gate's function with 12 fractional bits.

    `gate` is 0 for the input gate, 1 forget, 2 cell, 3 output. `x` is the concatenation of input and previous output,
    minus their zero point, and `arrays` are all operands of the operator.
    """
    weights = np.concatenate([arrays[7 + gate], arrays[3 + gate]], axis=-1).astype(np.int64)
    sums = exact_product(x, weights - info.at(3).zero_point) + arrays[11 + gate]
    scale = np.float32(info.input.scale) * np.float32(info.at(3).scale)
    return saturate(multiply_by_quantized_multiplier(sums, quantize_multiplier(4096 * float(scale))))
