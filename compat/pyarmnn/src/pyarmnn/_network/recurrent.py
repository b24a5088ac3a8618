"""The constants that recurrent layers need, by the features that their descriptors enable."""

from __future__ import annotations

from collections.abc import Container
from typing import Final

from pyarmnn._descriptors import LstmDescriptor
from pyarmnn._parameters import QuantizedLstmInputParams

__all__ = ["check_lstm", "check_quantized_lstm"]

_BASIC: Final = (
    "m_InputToForgetWeights", "m_InputToCellWeights", "m_InputToOutputWeights", "m_RecurrentToForgetWeights",
    "m_RecurrentToCellWeights", "m_RecurrentToOutputWeights", "m_ForgetGateBias", "m_CellBias", "m_OutputGateBias",
)  # fmt: skip

_INPUT_GATE: Final = {
    "m_InputToInputWeights": "Input To Input Weights",
    "m_RecurrentToInputWeights": "Recurrent To Input Weights",
    "m_InputGateBias": "Input Gate Bias",
}
_LAYER_NORM: Final = {
    "m_ForgetLayerNormWeights": "Forget layer normalization weights",
    "m_CellLayerNormWeights": "Cell layer normalization weights",
    "m_OutputLayerNormWeights": "Output layer normalization weights",
}


def check_lstm(descriptor: LstmDescriptor, constants: Container[str]) -> None:
    """Raise RuntimeError if a constant is absent that an Lstm layer needs; `constants` has the names of the others."""
    for name in _BASIC:
        _check(name in constants, name.removeprefix("m_"), "in an Lstm layer")
    has_input_gate, peephole = not descriptor.m_CifgEnabled, descriptor.m_PeepholeEnabled
    for name, title in _INPUT_GATE.items() if has_input_gate else ():
        _check(name in constants, title, "when CIFG is disabled")
    if descriptor.m_ProjectionEnabled:
        _check("m_ProjectionWeights" in constants, "Projection Weights", "when projection is enabled")
    if peephole:
        if has_input_gate:
            when = "when Peephole is enabled and CIFG disabled"
            _check("m_CellToInputWeights" in constants, "Cell To Input Weights", when)
        for gate in ("Forget", "Output"):
            title = f"Cell To {gate} Weights"
            _check(f"m_CellTo{gate}Weights" in constants, title, "when Peephole is enabled")
    if descriptor.m_LayerNormEnabled:
        _check_layer_norm(has_input_gate, constants)


def _check_layer_norm(has_input_gate: bool, constants: Container[str]) -> None:
    if has_input_gate:
        when = "when layer normalization is enabled and CIFG disabled"
        _check("m_InputLayerNormWeights" in constants, "Input layer normalization weights", when)
    for name, title in _LAYER_NORM.items():
        _check(name in constants, title, "when layer normalization is enabled")


def _check(is_present: bool, title: str, when: str) -> None:
    if not is_present:
        raise RuntimeError(f"AddLstmLayer: {title} cannot be NULL {when}.")


def check_quantized_lstm(constants: Container[str]) -> None:
    """Raise RuntimeError if a constant of a QuantizedLstm layer is absent; `constants` has the names of the others."""
    if not all(name in constants for name in QuantizedLstmInputParams._fields):
        raise RuntimeError("QuantizedLstmInputParams: Can't dereference a null pointer")
