"""Operators whose results are exact by specification, so that no tolerance applies.

Operators that move elements must reproduce each of them bit by bit. Operators that select elements return one of them
unchanged, except that a zero may have either sign, as -0.0 and 0.0 are equal. For quantized tensors, both rules hold
if all tensors have the same quantization, since nothing is rescaled then. Hardmax marks the selected element by a 1
among zeros.
"""

from __future__ import annotations

from typing import Final

from interposer import ops
from interposer.core.schema import Op
from interposer.core.types import Quantization
from interposer.ir.graph import Layer
from interposer.ops import Activation, ActivationFunction, Pooling2d, PoolingAlgorithm, Reduce, ReduceOperation
from interposer.testing.tolerances import Tolerances

__all__ = ["suited"]

_MOVING: Final[tuple[type[Op], ...]] = (
    ops.BatchToSpaceNd, ops.BroadcastTo, ops.ChannelShuffle, ops.Compress, ops.Concat, ops.DepthToSpace,
    ops.DynamicBroadcastTo, ops.DynamicPad, ops.DynamicReshape, ops.DynamicSlice, ops.DynamicTile,
    ops.DynamicUpdateSlice, ops.EmbeddingLookup, ops.Gather, ops.GatherElements, ops.GatherNd, ops.HashtableLookup,
    ops.MatrixDiag, ops.MatrixSetDiag, ops.MaxUnpooling, ops.MemCopy, ops.Pad, ops.Permute, ops.Reshape,
    ops.ReverseSequence, ops.ReverseV2, ops.Slice, ops.SpaceToBatchNd, ops.SpaceToDepth, ops.Splitter, ops.Stack,
    ops.StridedSlice, ops.Tile, ops.Transpose, ops.Trilu, ops.Where,
)  # fmt: skip
_CHOOSING: Final[tuple[type[Op], ...]] = (
    ops.ArgMinMax, ops.DynamicTopK, ops.Hardmax, ops.Maximum, ops.MaxPoolingWithIndices, ops.Minimum, ops.TopK,
)  # fmt: skip


def suited(tolerances: Tolerances, layer: Layer) -> Tolerances:
    """Return the tolerances for a layer's results: `tolerances`, or none if its results are exact by specification."""
    if not _one_quantization(layer):
        return tolerances
    if isinstance(layer.op, _MOVING):
        return tolerances.exact(bits=True)
    return tolerances.exact(bits=False) if _chooses(layer.op) else tolerances


def _one_quantization(layer: Layer) -> bool:
    infos = [info for info in (*layer.input_infos, *layer.output_infos) if info is not None and info.is_tensor]
    quantizations: set[Quantization | None] = {info.quantization for info in infos if info.is_quantized}
    return len(quantizations) <= 1


def _chooses(op: Op) -> bool:
    if isinstance(op, Pooling2d):
        return op.pool_type is PoolingAlgorithm.MAX
    if isinstance(op, Reduce):
        return op.operation in (ReduceOperation.MIN, ReduceOperation.MAX)
    if isinstance(op, Activation):
        return op.function in (ActivationFunction.RELU, ActivationFunction.ABS)
    return isinstance(op, _CHOOSING)
