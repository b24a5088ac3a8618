"""ONNX writers for operators that change or return shapes, and for those that create tensors from shapes."""

from __future__ import annotations

from interposer.core.types import DataType
from interposer.ops.reshape import BroadcastTo, Fill, Rank, Reshape, Shape
from interposer.writers.onnx.draft import Draft
from interposer.writers.onnx.encoding import filled
from interposer.writers.onnx.onnx_layer_writers import writer
from interposer.writers.onnx.tensor import Tensor

__all__: list[str] = []


@writer(Reshape, moves=True)
def reshape(draft: Draft, op: Reshape) -> Tensor:
    """Write Reshape; a dimension of 0 is copied, or means 0 with allowzero."""
    zeros = not op.copy_zeros and 0 in op.target_shape
    shape = draft.ints(op.target_shape, "shape")
    return draft.node("Reshape", draft.operand(0), shape, allowzero=1 if zeros else None)


@writer(BroadcastTo, moves=True)
def broadcast_to(draft: Draft, op: BroadcastTo) -> Tensor:
    """Write BroadcastTo as Expand; the shape is an operand."""
    return draft.node("Expand", draft.operand(0), draft.ints(op.shape, "shape"))


@writer(Shape, also_quantized=True)
def shape_of(draft: Draft, op: Shape) -> Tensor:
    """Write Shape; the int64 dimensions are cast to int32 if the layer's are."""
    return draft.cast(draft.node("Shape", draft.operand(0)), op.dtype)


@writer(Rank, also_quantized=True)
def rank_of(draft: Draft, op: Rank) -> Tensor:
    """Write Rank as a constant."""
    return draft.constant(draft.rank, DataType.INT32, "rank")


@writer(Fill, also_quantized=True)
def fill(draft: Draft, op: Fill) -> Tensor:
    """Write Fill as ConstantOfShape; the value is an attribute."""
    return filled(draft, draft.operand(0), op.value, draft.result)
