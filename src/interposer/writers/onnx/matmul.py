"""ONNX writers for matrix products."""

from __future__ import annotations

import math

from interposer.core.types import DataType, TensorInfo
from interposer.ops.matmul import BatchMatMul, FullyConnected, IntegerMatMul
from interposer.writers.onnx.draft import Draft
from interposer.writers.onnx.onnx_layer_writers import writer
from interposer.writers.onnx.tensor import Tensor
from interposer.writers.refusals import refuse

__all__ = ["rows_of", "turned", "zero_point"]


@writer(FullyConnected)
def fully_connected(draft: Draft, op: FullyConnected) -> Tensor:
    """Write FullyConnected: Gemm for an input of rank 2, else MatMul and Add."""
    weights, bias = draft.operand(1), draft.optional(2)
    if op.keep_dims and draft.rank != 2:
        transposed_weights = draft.transpose(weights, (1, 0)) if op.transpose_weight_matrix else weights
        product = draft.node("MatMul", draft.operand(0), transposed_weights)
        return product if bias is None else draft.node("Add", product, draft.cast(bias, product.dtype))
    return draft.node("Gemm", rows_of(draft, op), weights, bias, transB=1 if op.transpose_weight_matrix else None)


def rows_of(draft: Draft, op: FullyConnected) -> Tensor:
    """Return the input of the layer as a matrix, whose rows have as many elements as the weights expect."""
    size = draft.known(draft.info(1).shape[1 - op.output_axis], "dimension of the weights")
    shape = draft.info(0).shape
    if len(shape) == 2 and shape[1] == size:
        return draft.operand(0)
    rows = -1 if draft.info(0).num_elements else math.prod(draft.result.shape[:-1])
    return draft.reshape(draft.operand(0), [rows, size])


@writer(BatchMatMul)
def batch_matmul(draft: Draft, op: BatchMatMul) -> Tensor:
    """Write BatchMatMul as MatMul; operands that the layer transposes get a Transpose first, adjoints are refused."""
    if op.adjoint_x or op.adjoint_y:
        refuse("ONNX has no adjugates of matrices")
    a = turned(draft, 0, turn=op.transpose_x)
    b = turned(draft, 1, turn=op.transpose_y)
    return draft.node("MatMul", a, draft.cast(b, a.dtype) if a.dtype is DataType.FLOAT32 else b)


@writer(IntegerMatMul, also_quantized=True)
def integer_matmul(draft: Draft, op: IntegerMatMul) -> Tensor:
    """Write IntegerMatMul as MatMulInteger."""
    points = zero_point(draft, 2, draft.info(0)), zero_point(draft, 3, draft.info(1), from_end=1)
    return draft.node("MatMulInteger", draft.operand(0), draft.operand(1), *points)


def zero_point(draft: Draft, index: int, info: TensorInfo, *, from_end: int | None = None) -> Tensor | None:
    """Return the zero points in operand `index` of the layer, or None if it is absent; `info` is what they belong to.

    The result is a scalar, or a vector with one zero point for each index along the axis `from_end` of the operand,
    which is counted from the last (1). Any other number of zero points is refused.
    """
    if draft.optional(index) is None:
        return None
    points = draft.info(index)
    if points.dtype is not info.dtype:
        refuse("a zero point has another type than its operand")
    if points.num_elements == 1:
        return draft.reshape(draft.operand(index), [])
    if from_end is None or points.rank < from_end or points.shape[-from_end] != points.num_elements:
        refuse("ONNX has one zero point, or one for each output")
    return draft.reshape(draft.operand(index), [-1])


def turned(draft: Draft, index: int, *, turn: bool) -> Tensor:
    """Return operand `index`, with the last two axes exchanged if `turn` is set."""
    rank = draft.info(index).rank
    if not turn or rank < 2:
        return draft.operand(index)
    return draft.transpose(draft.operand(index), (*range(rank - 2), rank - 1, rank - 2))
