"""What recurrent operators of TFLite, NNAPI and Arm NN share: operands, and the numbers of activation functions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from interposer.frontends.node import Layers
from interposer.ir.graph import Value
from interposer.ops.lstm import Lstm
from interposer.ops.quantized_recurrent import QLstm
from interposer.ops.recurrent import FusedActivation

__all__ = ["FUSED_FUNCTIONS", "lstm_operands", "q_lstm_operands"]

FUSED_FUNCTIONS: Final = {member.value: member for member in FusedActivation}
"""The activation functions of recurrent cells by the numbers that TFLite, NNAPI and Arm NN give them."""

_GATE_BIASES: Final = frozenset({"input_gate_bias", "forget_gate_bias", "cell_bias", "output_gate_bias"})


def lstm_operands(values: Sequence[Value | None], ignored: Sequence[str]) -> tuple[list[Value | None], dict[str, Any]]:
    """Return the operands of an LSTM, and the attributes that say which optional parts, such as peepholes, it has.

    `values` are in the order of the operands of `Lstm`. With coupled gates (CIFG), those in `ignored` are dropped.
    """
    operands_by_name = dict(zip((operand.name for operand in Lstm.operands), values, strict=True))
    cifg = operands_by_name["input_to_input_weights"] is None
    features = {
        "cifg_enabled": cifg,
        "peephole_enabled": operands_by_name["cell_to_output_weights"] is not None,
        "projection_enabled": operands_by_name["projection_weights"] is not None,
        "layer_norm_enabled": operands_by_name["output_layer_norm_weights"] is not None,
    }
    return list((operands_by_name | dict.fromkeys(ignored if cifg else ())).values()), features


def q_lstm_operands(node: Layers, op: QLstm, values: Sequence[Value | None]) -> list[Value | None]:
    """Return the operands of a `QLstm` with zeros for biases that NNAPI and Arm NN leave out.

    The references of both add the biases of gates only with layer normalization.
    """
    if op.layer_norm_enabled:
        return list(values)
    operands_and_values = zip(op.operands, values, strict=True)
    return [
        _zeros_like(node, value) if declared_operand.name in _GATE_BIASES else value
        for declared_operand, value in operands_and_values
    ]


def _zeros_like(node: Layers, bias: Value | None) -> Value | None:
    if bias is None:
        return None
    shape = node.concrete(bias.known.shape, "bias")
    return node.constant(np.zeros(shape, bias.known.dtype.numpy), bias.known.quantization)
