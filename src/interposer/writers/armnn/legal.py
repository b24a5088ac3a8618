"""The rewrites that turn a graph into one whose layers Arm NN can express, such as normalizations as arithmetic."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

from interposer.core.types import DataType
from interposer.ir.graph import Layer
from interposer.rewriting.pattern import Replacement, Rewrite
from interposer.writers.legalization import Legalization
from interposer.writers.normalizations import (
    decompose_layer_normalization,
    decompose_mean_variance_normalization,
    decompose_rms_normalization,
)
from interposer.writers.requantization import requantize_in_fixed_point

__all__ = ["legalize"]


def _in_float32(rule: Rewrite) -> Rewrite:
    """Return a rewrite like `rule` of float32 layers only: Arm NN would round every step to a narrower type."""

    def rewritten(op: Any, layer: Layer) -> Replacement:
        return rule.function(op, layer) if layer.output.known.dtype is DataType.FLOAT32 else None

    return replace(rule, function=rewritten)


legalize: Final = Legalization(
    [
        _in_float32(decompose_layer_normalization),
        _in_float32(decompose_mean_variance_normalization),
        _in_float32(decompose_rms_normalization),
        requantize_in_fixed_point,
    ],
    sinks=None,
)
