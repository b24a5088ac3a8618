"""Arm NN writers for matrix products."""

from __future__ import annotations

import math

import numpy as np

from interposer.core.types import DataType, TensorInfo
from interposer.ops.matmul import BatchMatMul, FullyConnected
from interposer.writers.armnn.armnn_layer_writers import writer
from interposer.writers.armnn.convolution import bias_of, with_weights
from interposer.writers.armnn.draft import Draft
from interposer.writers.armnn.sheet import Tensor
from interposer.writers.armnn.types import dimensions
from interposer.writers.refusals import refuse

__all__: list[str] = []


@writer(FullyConnected)
def fully_connected(draft: Draft, op: FullyConnected) -> Tensor:
    """Write FullyConnected; weights that are computed need a release that reads them as inputs."""
    x, weights = draft.operand(0), draft.operand(1)
    bias = bias_of(draft, 2, x.info, weights.info)
    return _rows(draft, x, weights, bias, is_transposed=op.transpose_weight_matrix)


def _rows(draft: Draft, x: Tensor, weights: Tensor, bias: Tensor | None, *, is_transposed: bool) -> Tensor:
    """Write the product of the rows of `x`, with any number of dimensions before them, and a matrix of weights."""
    size, outputs = dimensions(weights.info)[:: -1 if is_transposed else 1]
    shape = dimensions(x.info)
    rows = math.prod(shape) // size
    if len(shape) not in (2, 4) or shape[0] != rows:
        x = draft.reshape(x, (rows, size))
    fields = {"biasEnabled": bias is not None, "transposeWeightsMatrix": is_transposed}
    if dimensions(draft.result) == (rows, outputs):
        return with_weights(draft, "FullyConnected", x, weights, bias, fields)
    info = TensorInfo((rows, outputs), draft.result.dtype, draft.result.quantization)
    return draft.reshape(with_weights(draft, "FullyConnected", x, weights, bias, fields, info), (), final=True)


@writer(BatchMatMul)
def batch_matmul(draft: Draft, op: BatchMatMul) -> Tensor:
    """Write BatchMatMul; a product with a constant matrix is a FullyConnected layer, which all releases read."""
    a, b = draft.operand(0), draft.operand(1)
    is_plain = not (op.transpose_x or op.adjoint_x or op.adjoint_y or b.dtype is DataType.INT16)
    if b.array is not None and b.info.rank == 2 and is_plain and not draft.release.prefers("22.11"):
        return _rows(draft, a, b, None, is_transposed=op.transpose_y)
    if any(info is not None and info.quantization is not None and info.quantization.per_axis for info in draft.infos):
        refuse("an operand has several scales")
    fields = {"transposeX": op.transpose_x, "transposeY": op.transpose_y}
    fields |= {"adjointX": op.adjoint_x, "adjointY": op.adjoint_y}
    a_matrix = draft.reshape(a, (1, *dimensions(a.info))) if draft.info(0).rank == 1 else a
    b_matrix = draft.reshape(b, (*dimensions(b.info), 1)) if draft.info(1).rank == 1 else b
    shape = _product_shape(op, dimensions(a_matrix.info), dimensions(b_matrix.info))
    if shape == dimensions(draft.result):
        return draft.final("BatchMatMul", a_matrix, b_matrix, descriptor=fields)
    info = TensorInfo(shape, draft.result.dtype, draft.result.quantization)
    return draft.reshape(draft.node("BatchMatMul", a_matrix, b_matrix, giving=info, descriptor=fields), (), final=True)


def _product_shape(op: BatchMatMul, a: tuple[int, ...], b: tuple[int, ...]) -> tuple[int, ...]:
    rows = a[-1] if op.transpose_x or op.adjoint_x else a[-2]
    columns = b[-2] if op.transpose_y or op.adjoint_y else b[-1]
    return (*np.broadcast_shapes(a[:-2], b[:-2]), rows, columns)
