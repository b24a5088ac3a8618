"""ONNX writers for operators that write elements to computed positions."""

from __future__ import annotations

from typing import Final

import numpy as np

from interposer.core.types import DataType, TensorInfo
from interposer.ops.scatter import DynamicUpdateSlice, ScatterElements, ScatterFunction, ScatterNd, TensorScatter
from interposer.writers.onnx.draft import Draft
from interposer.writers.onnx.encoding import filled
from interposer.writers.onnx.onnx_layer_writers import writer
from interposer.writers.onnx.tensor import Tensor
from interposer.writers.refusals import refuse

__all__: list[str] = []

F = ScatterFunction
_REDUCTIONS: Final = {F.UPDATE: None, F.ADD: "add", F.SUB: "add", F.MUL: "mul", F.MAX: "max", F.MIN: "min"}
_SINCE: Final = {F.UPDATE: 13, F.ADD: 16, F.SUB: 16, F.MUL: 16, F.MAX: 18, F.MIN: 18}


def _updates(draft: Draft, function: ScatterFunction) -> Tensor:
    """Return the operand with the updates, negated for a subtraction, which is written as an addition.

    The layer is refused if the opset cannot combine updates with elements in this way.
    """
    if draft.opset < _SINCE[function]:
        refuse(f"opset {draft.opset} does not combine updates with {function.name}")
    updates = draft.operand(2)
    return draft.node("Sub", draft.like(0, updates), updates) if function is F.SUB else updates


@writer(ScatterNd)
def scatter_nd(draft: Draft, op: ScatterNd) -> Tensor:
    """Write ScatterNd; with a shape instead of data, the data is a tensor of zeros."""
    updates = _updates(draft, op.function)
    if draft.info(1).shape[-1] == 0:
        refuse("its tuples of indices are empty")
    base = draft.operand(0) if op.input_enabled else filled(draft, draft.operand(0), 0.0, _zeros(draft))
    return draft.node("ScatterND", base, draft.operand(1), updates, reduction=_REDUCTIONS[op.function])


def _zeros(draft: Draft) -> TensorInfo:
    """Return the info of the zeros that updates are written into: their type, and the result's quantization."""
    output_info = draft.result
    return output_info if draft.operand(2).dtype is output_info.dtype else TensorInfo((), draft.operand(2).dtype)


@writer(ScatterElements)
def scatter_elements(draft: Draft, op: ScatterElements) -> Tensor:
    """Write ScatterElements as the operator of this name."""
    updates, reduction = _updates(draft, op.function), _REDUCTIONS[op.function]
    return draft.node("ScatterElements", draft.operand(0), draft.operand(1), updates, axis=op.axis, reduction=reduction)


@writer(ScatterNd, ScatterElements, quantized=True)
def quantized_scatter(draft: Draft, op: ScatterNd | ScatterElements) -> Tensor:
    """Write ScatterNd and ScatterElements of quantized values that replace elements, or take the maximum or minimum.

    The integers are moved and compared. The layer is refused if the tensors' quantization differs, or for other
    functions.
    """
    on_zeros = isinstance(op, ScatterNd) and not op.input_enabled
    tensors = [*([] if on_zeros else [draft.info(0)]), draft.info(2), draft.result]
    if op.function not in (F.UPDATE, F.MAX, F.MIN) or len({tensor.quantization for tensor in tensors}) > 1:
        refuse("it computes with the float values that integers stand for")
    return scatter_nd(draft, op) if isinstance(op, ScatterNd) else scatter_elements(draft, op)


@writer(TensorScatter, moves=True)
def tensor_scatter(draft: Draft, op: TensorScatter) -> Tensor:
    """Write TensorScatter as the operator of this name."""
    mode = "circular" if op.circular else None
    return draft.node("TensorScatter", *(draft.optional(i) for i in range(3)), axis=op.axis, mode=mode)


@writer(DynamicUpdateSlice, moves=True)
def dynamic_update_slice(draft: Draft, op: DynamicUpdateSlice) -> Tensor:
    """Write DynamicUpdateSlice as ScatterND: each element's index tuple is its position plus the start."""
    x, update, start = draft.tensors()
    shape, update_shape = draft.shape(0), draft.shape(1)
    last_start = draft.ints([n - u for n, u in zip(shape, update_shape, strict=True)])
    clamped_start = draft.node("Max", draft.node("Min", draft.cast(start, DataType.INT64), last_start), draft.ints(0))
    positions = draft.ints(np.moveaxis(np.indices(update_shape), 0, -1), "places")  # type: ignore[arg-type]
    return draft.node("ScatterND", x, draft.node("Add", positions, clamped_start), update)
