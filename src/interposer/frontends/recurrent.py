"""What recurrent operators of TFLite, NNAPI and Arm NN share: operands, and the numbers of activation functions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from interposer.ir.graph import Value
from interposer.ops.lstm import Lstm
from interposer.ops.recurrent import FusedActivation

__all__ = ["FUSED_FUNCTIONS", "lstm_operands"]

FUSED_FUNCTIONS: Final = {member.value: member for member in FusedActivation}
"""The activation functions of recurrent cells by the numbers that TFLite, NNAPI and Arm NN give them."""


def lstm_operands(values: Sequence[Value | None], ignored: Sequence[str]) -> tuple[list[Value | None], dict[str, Any]]:
    """Return the operands of an LSTM, and the attributes that say which optional parts, such as peepholes, it has.

    `values` are in the order of the operands of `Lstm`. With coupled gates (CIFG), those in `ignored` are dropped.
    """
    named = dict(zip((operand.name for operand in Lstm.operands), values, strict=True))
    cifg = named["input_to_input_weights"] is None
    features = {
        "cifg_enabled": cifg,
        "peephole_enabled": named["cell_to_output_weights"] is not None,
        "projection_enabled": named["projection_weights"] is not None,
        "layer_norm_enabled": named["output_layer_norm_weights"] is not None,
    }
    return list((named | dict.fromkeys(ignored if cifg else ())).values()), features
