"""Which layers only move elements, so that their results are as exact as their operands."""

from __future__ import annotations

from typing import Final

from interposer.ir.graph import Layer
from interposer.schema import Op

__all__ = ["only_moves"]

_FAMILIES: Final = frozenset({"blocks", "containers", "control", "gather", "rearrange", "reshape", "selection"})
_OPERATORS: Final = frozenset(
    {
        "DynamicBroadcastTo", "DynamicPad", "DynamicReshape", "DynamicSlice", "DynamicTile", "DynamicUpdateSlice",
        "EyeLike", "MatrixDiag", "MatrixSetDiag", "OneHot", "ReverseSequence", "TensorScatter", "Trilu",
    }
)  # fmt: skip


def only_moves(layer: Layer) -> bool:
    """True if a layer's results are elements of its operands, moved or repeated, but not computed."""
    op: Op = layer.op
    if op.family not in _FAMILIES and op.op_name() not in _OPERATORS:
        return False
    kinds = {info.quantization for info in (*layer.input_infos, *layer.output_infos) if info and info.is_quantized}
    return len(kinds) < 2  # elements of several quantizations are rescaled
