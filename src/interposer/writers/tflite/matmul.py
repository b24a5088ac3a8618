"""TFLite writers for matrix products."""

from __future__ import annotations

from interposer.core.types import Dim, TensorInfo
from interposer.ops.matmul import BatchMatMul, FullyConnected
from interposer.writers.refusals import refuse
from interposer.writers.tflite.convolution import bias_of, bias_options, check_weights
from interposer.writers.tflite.draft import Draft
from interposer.writers.tflite.sheet import Tensor
from interposer.writers.tflite.tflite_layer_writers import writer

__all__: list[str] = []


@writer(FullyConnected, also_quantized=True)
def fully_connected(draft: Draft, op: FullyConnected) -> Tensor:
    """Write FullyConnected; each row of the weights belongs to one output."""
    x, weights = draft.operand(0), draft.operand(1)
    if not op.transpose_weight_matrix:
        weights = draft.transpose(weights, (1, 0))
    outputs, size = weights.shape
    if not op.keep_dims and (len(x.shape) != 2 or x.shape[1] != size):
        x = draft.reshape(x, _rows(draft, x, size))
    check_weights(x, weights)
    has_bias = draft.optional(2) is not None or weights.array is not None
    bias = bias_of(draft, x, weights, outputs) if has_bias else None
    return draft.final("FULLY_CONNECTED", x, weights, bias, keep_num_dims=op.keep_dims, **bias_options(draft, x, bias))


def _rows(draft: Draft, x: Tensor, size: int) -> tuple[int, int]:
    rows = draft.result.shape[0]
    if isinstance(size, Dim):
        refuse("the size of its weights is not known")
    return rows, size


@writer(BatchMatMul, also_quantized=True)
def batch_matmul(draft: Draft, op: BatchMatMul) -> Tensor:
    """Write BatchMatMul; vectors become matrices of one row or column."""
    if op.adjoint_x or op.adjoint_y:
        refuse("it takes adjugates of matrices")
    a, b = draft.tensors()
    a_matrix = a if len(a.shape) > 1 else draft.reshape(a, (1, *a.shape))
    b_matrix = b if len(b.shape) > 1 else draft.reshape(b, (*b.shape, 1))
    flags = {"adj_x": op.transpose_x and a_matrix is a, "adj_y": op.transpose_y and b_matrix is b}
    if a_matrix is a and b_matrix is b:
        return draft.final("BATCH_MATMUL", a, b, **flags)
    shape = [*draft.result.shape]
    if b_matrix is not b:
        shape.append(1)
    if a_matrix is not a:
        shape.insert(len(shape) - 1, 1)
    info = TensorInfo(shape, draft.result.dtype, draft.result.quantization)
    product = draft.node("BATCH_MATMUL", a_matrix, b_matrix, giving=info, **flags)
    return draft.reshape_to(product, draft.result)
