"""Operators whose results are exact by specification, so that no tolerance applies.

Operators that move elements must reproduce each of them bit by bit. Operators that select elements return one of them
unchanged, except that a zero may have either sign, as -0.0 and 0.0 are equal. For quantized tensors, both rules hold
if all tensors have the same quantization, since nothing is rescaled then. Hardmax marks the selected element by a 1
among zeros.
"""

from __future__ import annotations

from interposer.core.traits import Trait
from interposer.core.types import Quantization
from interposer.ir.graph import Layer
from interposer.testing.tolerances import Tolerances

__all__ = ["has_one_quantization", "suited"]


def suited(tolerances: Tolerances, layer: Layer) -> Tolerances:
    """Return the tolerances for a layer's results: `tolerances`, or none if its results are exact by specification."""
    if not has_one_quantization(layer):
        return tolerances
    traits = layer.op.traits
    if Trait.MOVES in traits:
        return tolerances.exact(bits=True)
    return tolerances.exact(bits=False) if traits & (Trait.CHOOSES | Trait.EXACT) else tolerances


def has_one_quantization(layer: Layer) -> bool:
    """Return True if all quantized tensors of a layer have the same quantization, so that nothing is rescaled."""
    infos = [info for info in (*layer.input_infos, *layer.output_infos) if info is not None and info.is_tensor]
    quantizations: set[Quantization | None] = {info.quantization for info in infos if info.is_quantized}
    return len(quantizations) <= 1
