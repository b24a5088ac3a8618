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
from interposer.frontends.onnx.quantization import along, as_type
from interposer.frontends.reshaping import reshaped
from interposer.ir.graph import Value
from interposer.ops.elementwise import Addition, Multiplication
from interposer.ops.matmul import BatchMatMul, IntegerMatMul
from interposer.ops.quantization import DynamicQuantize
from interposer.ops.rearrange import Transpose

__all__: list[str] = []


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
    a = _with_rows_first(node, node.value(0), node.flag("transBatchA"))
    b = _with_rows_first(node, node.value(1), node.flag("transBatchB"))
    turned = [node.flag(name) and value.known.rank > 1 for name, value in (("transA", a), ("transB", b))]
    alpha, scaled = node.number("alpha", 1.0), b
    if alpha != 1 and b.constant is not None:
        scaled, alpha = node.step(Multiplication(), b, node.scalar_like(alpha, b)), 1.0
    if turned == [False, False]:
        multiplied = product(node, a, scaled)
    else:
        multiplied = node.result(BatchMatMul(transpose_x=turned[0], transpose_y=turned[1]), a, scaled)
    return multiplied if alpha == 1 else node.step(Multiplication(), multiplied, node.scalar_like(alpha, multiplied))


def _with_rows_first(node: Node, value: Value, transposed: bool) -> Value:
    """Return the value with its first axis moved before its last one, if `transposed` and it has batch axes."""
    rank = value.known.rank
    if not transposed or rank < 3:
        return value
    return node.step(Transpose((*range(1, rank - 1), 0, rank - 1)), value)


@operator("FusedGemm", domain=MICROSOFT)
def fused_gemm(node: Node) -> Value:
    """Convert FusedGemm: Gemm followed by an activation function."""
    return fused_activation(node, gemm_of(node))


@operator("MatMulInteger16", domain=MICROSOFT)
def integer_matmul_of_16_bits(node: Node) -> Value:
    """Convert MatMulInteger16: the product of 16-bit integers, whose sums have 32 bits."""
    dtype = DataType.UINT32 if node.info(0).dtype is DataType.UINT16 else DataType.INT32
    a, b = (as_type(node, node.value(index), dtype) for index in (0, 1))
    return node.result(BatchMatMul(), a, b)


@operator("DynamicQuantizeMatMul", domain=MICROSOFT)
def dynamic_quantize_matmul(node: Node) -> Value:
    """Convert DynamicQuantizeMatMul: A is quantized to uint8 with the range of its values, and multiplied with B."""
    a, scale, point = node.results(DynamicQuantize(), node.value(0))
    b, b_scale, b_point, bias = node.value(1), node.value(2), node.optional(3), node.optional(4)
    return _scaled_product(node, (a, b), (point, b_point), (scale, b_scale), bias)


@operator("MatMulIntegerToFloat", domain=MICROSOFT)
def matmul_integer_to_float(node: Node) -> Value:
    """Convert MatMulIntegerToFloat: the product of integers, whose sums are multiplied with the scales of A and B."""
    tensors, scales = (node.value(0), node.value(1)), (node.value(2), node.value(3))
    _check_single(node.info(2), "a_scale")
    return _scaled_product(node, tensors, (node.optional(4), node.optional(5)), scales, node.optional(6))


def _check_single(info: TensorInfo, title: str) -> None:
    if info.rank > 1 or info.num_elements != 1:
        raise ParseError(f"its {title} has shape {info.shape}; expected one number")


def _scaled_product(
    node: Node,
    tensors: Sequence[Value],
    points: Sequence[Value | None],
    scales: Sequence[Value],
    bias: Value | None,
) -> Value:
    """Return the product of two integer tensors with these zero points, times both scales, plus the bias."""
    (a, b), (scale, b_scale), (point, b_point) = tensors, scales, points
    point = point and reshaped(node, point, [])
    sums = node.step(IntegerMatMul(), a, b, point, along(node, b_point, b, axis=-1))
    factor = node.step(Multiplication(), reshaped(node, scale, []), _by_column(node, b_scale, b))
    scaled = node.step(Multiplication(), as_type(node, sums, factor.known.dtype), factor)
    return scaled if bias is None else node.step(Addition(), scaled, bias)


def _by_column(node: Node, scale: Value, b: Value) -> Value:
    """Return the scale of `b` as one number, or as one for each column; for several matrices, columns of each."""
    if scale.known.num_elements == 1:
        return reshaped(node, scale, [])
    if scale.known.rank > 1 and scale.known.rank != b.known.rank:
        raise ParseError(f"its b_scale has shape {scale.known.shape}, but b has {b.known.shape}")
    return scale
