"""Which layers are discontinuous functions of their operands."""

from __future__ import annotations

from typing import Final

from interposer.ir.graph import Layer
from interposer.ops import (
    Activation,
    ActivationFunction,
    BinaryOperation,
    BoxWithNmsLimit,
    Constant,
    DetectionOutput,
    DetectionPostProcess,
    DynamicFakeQuantization,
    FakeQuantization,
    Floor,
    GenerateProposals,
    GridSample,
    GridSampleMode,
    Hardmax,
    HeatmapMaxKeypoint,
    Input,
    NonMaxSuppression,
    Output,
    RoiPooling,
    TreeEnsemble,
    UnaryOperation,
)

__all__ = ["is_discontinuous"]

_CHOICES: Final = (
    BoxWithNmsLimit,
    DetectionOutput,
    DetectionPostProcess,
    DynamicFakeQuantization,
    FakeQuantization,
    Floor,
    GenerateProposals,
    Hardmax,
    HeatmapMaxKeypoint,
    NonMaxSuppression,
    RoiPooling,
    TreeEnsemble,
)
_OPERATIONS: Final = frozenset(
    {
        UnaryOperation.CEIL,
        UnaryOperation.FLOOR,
        UnaryOperation.ROUND,
        UnaryOperation.SIGN,
        BinaryOperation.FLOOR_DIV,
        BinaryOperation.MOD,
        BinaryOperation.FMOD,
    }
)
_FUNCTIONS: Final = frozenset({ActivationFunction.THRESHOLDED_RELU, ActivationFunction.SHRINK})


def is_discontinuous(layer: Layer) -> bool:
    """Return True if a small difference of an operand can make a large difference of a result.

    Such layers round, compare, select or count. All layers whose result is not a float are among them, such as
    `Quantize`, `Comparison`, `ArgMinMax`, and a `Cast` to integers.
    """
    op = layer.op
    if isinstance(op, Constant | Input | Output):
        return False
    if isinstance(op, Activation):
        return op.function in _FUNCTIONS or _gives_integers(layer)
    if isinstance(op, GridSample):
        return op.mode is GridSampleMode.NEAREST or _gives_integers(layer)
    return isinstance(op, _CHOICES) or getattr(op, "operation", None) in _OPERATIONS or _gives_integers(layer)


def _gives_integers(layer: Layer) -> bool:
    return any(not info.dtype.is_float for info in layer.output_infos)
