"""ONNX writers for matrix products."""

from __future__ import annotations

import math

from interposer.core.types import DataType
from interposer.ops.matmul import BatchMatMul, FullyConnected
from interposer.writers.onnx.draft import Draft
from interposer.writers.onnx.onnx_layer_writers import writer
from interposer.writers.onnx.tensor import Tensor
from interposer.writers.refusals import refuse

__all__ = ["rows_of", "turned"]


@writer(FullyConnected)
def fully_connected(draft: Draft, op: FullyConnected) -> Tensor:
    """Write FullyConnected: Gemm for an input of rank 2, else MatMul and Add."""
    weights, bias = draft.operand(1), draft.optional(2)
    if op.keep_dims and draft.rank != 2:
        turned = draft.transpose(weights, (1, 0)) if op.transpose_weight_matrix else weights
        product = draft.node("MatMul", draft.operand(0), turned)
        return product if bias is None else draft.node("Add", product, draft.cast(bias, product.dtype))
    return draft.node("Gemm", rows_of(draft, op), weights, bias, transB=1 if op.transpose_weight_matrix else None)


def rows_of(draft: Draft, op: FullyConnected) -> Tensor:
    """Return the input reshaped to rows with as many elements as the weights expect."""
    size = draft.known(draft.info(1).shape[1 - op.output_axis], "dimension of the weights")
    shape = draft.info(0).shape
    if len(shape) == 2 and shape[1] == size:
        return draft.operand(0)
    rows = -1 if draft.info(0).num_elements else math.prod(draft.results[0].shape[:-1])
    return draft.reshape(draft.operand(0), [rows, size])


@writer(BatchMatMul)
def batch_matmul(draft: Draft, op: BatchMatMul) -> Tensor:
    """Write BatchMatMul; transposed operands are transposed first."""
    if op.adjoint_x or op.adjoint_y:
        refuse("ONNX has no adjugates of matrices")
    a = turned(draft, 0, turn=op.transpose_x)
    b = turned(draft, 1, turn=op.transpose_y)
    return draft.node("MatMul", a, draft.cast(b, a.dtype) if a.dtype is DataType.FLOAT32 else b)


def turned(draft: Draft, index: int, *, turn: bool) -> Tensor:
    """Return an operand, with its matrices transposed if `turn` is set."""
    rank = draft.info(index).rank
    if not turn or rank < 2:
        return draft.operand(index)
    return draft.transpose(draft.operand(index), (*range(rank - 2), rank - 1, rank - 2))
