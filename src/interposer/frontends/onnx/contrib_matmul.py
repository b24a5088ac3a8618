"""ONNX converters for ONNX Runtime's own matrix products, except those with weights of few bits."""

from __future__ import annotations

from collections.abc import Sequence

from interposer.core.errors import ParseError
from interposer.core.types import DataType, TensorInfo
from interposer.frontends.onnx.contrib_activation import fused_activation
from interposer.frontends.onnx.matmul import gemm_of, product
from interposer.frontends.onnx.node import Node
from interposer.frontends.onnx.onnx_converters import operator
from interposer.frontends.onnx.operator_names import MICROSOFT
from interposer.frontends.onnx.quantization import along
from interposer.frontends.reshaping import reshaped
from interposer.ir.graph import Value
from interposer.ops.elementwise import Addition, Multiplication
from interposer.ops.matmul import BatchMatMul, IntegerMatMul
from interposer.ops.quantization import DynamicQuantize
from interposer.ops.rearrange import Transpose

__all__ = ["scaled_product"]


@operator("FusedMatMul", domain=MICROSOFT)
@operator("TransposeMatMul", domain=MICROSOFT)
def fused_matmul(node: Node) -> Value:
    """Convert FusedMatMul: alpha times the product of two tensors, whose axes may be transposed."""
    return _fused(node)


@operator("FusedMatMulActivation", domain=MICROSOFT)
def fused_matmul_activation(node: Node) -> Value:
    """Convert FusedMatMulActivation: FusedMatMul followed by an activation function."""
    return fused_activation(node, _fused(node))


def _fused(node: Node) -> Value:
    a = _with_batch_first(node, node.value(0), node.flag("transBatchA"))
    b = _with_batch_first(node, node.value(1), node.flag("transBatchB"))
    transposes = [node.flag(name) and operand.known.rank > 1 for name, operand in (("transA", a), ("transB", b))]
    alpha, scaled_b = node.number("alpha", 1.0), b
    if alpha != 1 and b.constant is not None:
        scaled_b, alpha = node.step(Multiplication(), b, node.scalar_like(alpha, b)), 1.0
    if transposes == [False, False]:
        product_of_operands = product(node, a, scaled_b)
    else:
        product_of_operands = node.result(
            BatchMatMul(transpose_x=transposes[0], transpose_y=transposes[1]), a, scaled_b
        )
    return (
        product_of_operands
        if alpha == 1
        else node.step(Multiplication(), product_of_operands, node.scalar_like(alpha, product_of_operands))
    )


def _with_batch_first(node: Node, tensor: Value, has_rows_first: bool) -> Value:
    """Return a tensor of rank 3 or more with its first axis moved before the last one, if `has_rows_first`."""
    rank = tensor.known.rank
    if not has_rows_first or rank < 3:
        return tensor
    return node.step(Transpose((*range(1, rank - 1), 0, rank - 1)), tensor)


@operator("FusedGemm", domain=MICROSOFT)
def fused_gemm(node: Node) -> Value:
    """Convert FusedGemm: Gemm followed by an activation function."""
    return fused_activation(node, gemm_of(node))


@operator("MatMulInteger16", domain=MICROSOFT)
def integer_matmul_of_16_bits(node: Node) -> Value:
    """Convert MatMulInteger16: the product of 16-bit integers, whose sums have 32 bits."""
    dtype = DataType.UINT32 if node.info(0).dtype is DataType.UINT16 else DataType.INT32
    a, b = (node.cast(node.value(index), dtype) for index in (0, 1))
    return node.result(BatchMatMul(), a, b)


@operator("DynamicQuantizeMatMul", domain=MICROSOFT)
def dynamic_quantize_matmul(node: Node) -> Value:
    """Convert DynamicQuantizeMatMul: A is quantized to uint8 with the range of its values, and multiplied with B."""
    a, scale, zero_point = node.results(DynamicQuantize(), node.value(0))
    b, b_scale, b_zero_point, bias = node.value(1), node.value(2), node.optional(3), node.optional(4)
    return scaled_product(node, (a, b), (zero_point, b_zero_point), (scale, b_scale), bias)


@operator("MatMulIntegerToFloat", domain=MICROSOFT)
def matmul_integer_to_float(node: Node) -> Value:
    """Convert MatMulIntegerToFloat: the product of integers, whose sums are multiplied with the scales of A and B."""
    matrices, scales = (node.value(0), node.value(1)), (node.value(2), node.value(3))
    _check_single(node.info(2), "a_scale")
    return scaled_product(node, matrices, (node.optional(4), node.optional(5)), scales, node.optional(6))


def _check_single(info: TensorInfo, title: str) -> None:
    if info.rank > 1 or info.num_elements != 1:
        raise ParseError(f"its {title} has shape {info.shape}; expected one number")


def scaled_product(
    node: Node,
    tensors: Sequence[Value],
    zero_points: Sequence[Value | None],
    scales: Sequence[Value],
    bias: Value | None,
) -> Value:
    """Return the product of two integer tensors with these zero points, times both scales, plus the bias if any."""
    (a, b), (a_scale, b_scale), (a_zero_point, b_zero_point) = tensors, scales, zero_points
    a_zero_point = a_zero_point and reshaped(node, a_zero_point, [])
    sums = node.step(IntegerMatMul(), a, b, a_zero_point, along(node, b_zero_point, b, axis=-1))
    product_scale = node.step(Multiplication(), reshaped(node, a_scale, []), _by_column(node, b_scale, b))
    product = node.step(Multiplication(), node.cast(sums, product_scale.known.dtype), product_scale)
    return product if bias is None else node.step(Addition(), product, bias)


def _by_column(node: Node, scale: Value, b: Value) -> Value:
    """Return the scale of `b` as a scalar if it is one number, else unchanged: one number for each column of a matrix.

    `ParseError` is raised for a scale of several dimensions whose rank differs from that of `b`.
    """
    if scale.known.num_elements == 1:
        return reshaped(node, scale, [])
    if scale.known.rank > 1 and scale.known.rank != b.known.rank:
        raise ParseError(f"its b_scale has shape {scale.known.shape}, but b has {b.known.shape}")
    return scale
