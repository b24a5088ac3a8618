"""Which layers are discontinuous functions of their operands."""

from __future__ import annotations

from interposer.core.traits import Trait
from interposer.ir.graph import Layer
from interposer.ops import Constant, Input, Output

__all__ = ["is_discontinuous"]


def is_discontinuous(layer: Layer) -> bool:
    """Return True if a small difference of an operand can make a large difference of a result.

    Such layers round, compare, select or count. All layers whose result is not a float are among them, such as
    `Quantize`, `Comparison`, `ArgMinMax`, and a `Cast` to integers.
    """
    if isinstance(layer.op, Constant | Input | Output):
        return False
    return Trait.DISCONTINUOUS in layer.op.traits or any(not info.dtype.is_float for info in layer.output_infos)
