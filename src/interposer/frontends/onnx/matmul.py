"""ONNX converters for products, and for operators on matrices."""

from __future__ import annotations

from interposer.core.errors import ParseError
from interposer.core.types import Quantization, differ
from interposer.frontends.onnx.node import Node
from interposer.frontends.onnx.onnx_converters import operator
from interposer.frontends.onnx.quantization import along, quantization, real, requantized, with_quantization
from interposer.frontends.onnx.tensors import data_type
from interposer.frontends.reshaping import reshaped
from interposer.ir.graph import Value
from interposer.ops.einsum import Einsum
from interposer.ops.elementwise import Addition, Multiplication
from interposer.ops.matmul import BatchMatMul, FullyConnected, IntegerMatMul
from interposer.ops.matrices import Det, EyeLike, Trilu
from interposer.ops.quantization import Requantization
from interposer.ops.rearrange import Transpose

__all__ = ["gemm_of", "product", "trilu"]


@operator("MatMul")
def matmul(node: Node) -> Value:
    """Convert MatMul; the operands are usually floats, but may have any type that both share."""
    return product(node, node.value(0), node.value(1))


def product(node: Node, a: Value, b: Value, quantization: Quantization | None = None) -> Value:
    """Return the product of `a` and `b`, by a fully connected layer if `b` is a constant matrix, else by BatchMatMul.

    `quantization` is that of the result, if any.
    """
    rounding = Requantization.FIXED_POINT if quantization is None else Requantization.HALF_TO_EVEN
    if not _is_layer(a, b):
        return node.result(BatchMatMul(requantization=rounding), a, b, quantization=quantization)
    _check_rows(a, b.known.shape[0])
    op = FullyConnected(keep_dims=a.known.rank > 2, requantization=rounding)
    return node.result(op, a, b, quantization=quantization)


def _check_rows(a: Value, num_rows: int) -> None:
    """Raise `ParseError` if the last dimension of `a` differs from `num_rows`, the number of rows of `b`.

    FullyConnected itself accepts rows that span several dimensions.
    """
    if differ(a.known.shape[-1], num_rows):
        raise ParseError(f"a of shape {a.known.shape} has rows of {a.known.shape[-1]} elements, but b takes {num_rows}")


def _is_layer(a: Value, b: Value) -> bool:
    """Return True if a product can be a fully connected layer: `b` is a constant matrix and `a` has rank 2 or more.

    A matrix without rows is excluded, as the layer needs at least one element to multiply.
    """
    return b.constant is not None and b.known.rank == 2 and b.known.shape[0] != 0 and a.known.rank >= 2


@operator("MatMulInteger", since=10)
def integer_matmul(node: Node) -> Value:
    """Convert MatMulInteger; zero points of rank 1 are those of the rows of a and of the columns of b."""
    a, b = node.value(0), node.value(1)
    a_zero_points = along(node, node.optional(2), a, axis=-2)
    return node.result(IntegerMatMul(), a, b, a_zero_points, along(node, node.optional(3), b, axis=-1))


@operator("QLinearMatMul", since=10)
def quantized_matmul(node: Node) -> Value:
    """Convert QLinearMatMul.

    The product is quantized if the tensors have the scales of the node, else it is computed in float.
    """
    a, b, dtype = node.value(0), node.value(3), node.info(7).dtype
    qa, qb, qy = (
        quantization(node, i, rank, max(0, rank - axis_from_end))
        for i, rank, axis_from_end in ((1, a.known.rank, 2), (4, b.known.rank, 1), (6, 1, 1))
    )
    has_node_scales = a.known.quantization == qa and a.known.dtype is dtype and not qb.per_axis
    if has_node_scales and _is_layer(a, b):
        return product(node, a, with_quantization(node, b, qb), qy)
    return requantized(node, product(node, real(node, a, qa), real(node, b, qb)), dtype, qy)


@operator("Gemm")
def gemm(node: Node) -> Value:
    """Convert Gemm, alpha * A * B + beta * C."""
    return gemm_of(node)


def gemm_of(node: Node) -> Value:
    """Return the result of a Gemm node; the factors are multiplied into constant weights and bias."""
    alpha, beta = node.number("alpha", 1.0), node.number("beta", 1.0)
    a, b, c = node.value(0), node.value(1), node.optional(2)
    if a.known.rank != 2 or b.known.rank != 2:
        raise ParseError(f"a has shape {a.known.shape} and b {b.known.shape}; expected rank 2")
    if node.flag("transA"):
        a = node.step(Transpose((1, 0)), a)
    if alpha != 1:
        b = node.step(Multiplication(), b, node.scalar_like(alpha, b))
    if c is not None and beta != 1:
        c = node.step(Multiplication(), c, node.scalar_like(beta, c))
    op = FullyConnected(transpose_weight_matrix=node.flag("transB"))
    num_rows = b.known.shape[1 - op.output_axis]
    _check_rows(a, num_rows)
    if num_rows == 0:  # a sum of nothing, for which there is no fully connected layer
        op_without_rows = BatchMatMul(transpose_y=op.transpose_weight_matrix)
        lacks_c = c is None or beta == 0
        return (
            node.result(op_without_rows, a, b)
            if lacks_c
            else node.result(Addition(), node.step(op_without_rows, a, b), c)
        )
    if c is None or beta == 0:
        return node.result(op, a, b)
    bias = _bias(node, c, b.known.shape[op.output_axis])
    return node.result(Addition(), node.step(op, a, b), c) if bias is None else node.result(op, a, b, bias)


def _bias(node: Node, c: Value, outputs: int) -> Value | None:
    """Return `c` as a vector with `outputs` elements; None if it has other dimensions than `outputs` and 1."""
    shape = c.known.shape
    if not shape or shape[-1] != outputs or any(dim != 1 for dim in shape[:-1]):
        return None
    return c if len(shape) == 1 else reshaped(node, c, [outputs])


# --- matrices ---------------------------------------------------------------------------------------------------------


@operator("Trilu", since=14)
def trilu(node: Node) -> Value:
    """Convert Trilu; the number of the diagonal is an operand."""
    k = int(node.number_of(1, "k")) if node.has(1) else 0
    return node.result(Trilu(k, node.flag("upper", True)), node.value(0))


@operator("EyeLike", since=9)
def eye_like(node: Node) -> Value:
    """Convert EyeLike; without the attribute dtype, the result has the input's type."""
    dtype = data_type(node.integer("dtype")) if node.has_attribute("dtype") else None
    return node.result(EyeLike(node.integer("k", 0), dtype), node.value(0))


@operator("Det", since=11)
def det(node: Node) -> Value:
    """Convert Det: one determinant for every matrix."""
    return node.result(Det(), node.value(0))


@operator("Einsum", since=12)
def einsum(node: Node) -> Value:
    """Convert Einsum; the equation has the same meaning as in NumPy."""
    return node.result(Einsum(node.text("equation")), *node.values())
