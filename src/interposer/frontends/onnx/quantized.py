"""ONNX converters for ONNX Runtime's own operators on quantized tensors, which its tools write.

Each operator becomes dequantize, compute, quantize. The optimizer turns this pattern into a quantized layer.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

import numpy as np

from interposer.core.errors import ParseError
from interposer.core.schema import Op
from interposer.core.types import DataType, Quantization, TensorShape, differ
from interposer.frontends.axes import checked_axes, checked_axis
from interposer.frontends.elementwise import SIGMOID
from interposer.frontends.onnx.contrib_convolution import first, last
from interposer.frontends.onnx.node import Node
from interposer.frontends.onnx.onnx_converters import operator
from interposer.frontends.onnx.onnx_windows import windows_along
from interposer.frontends.onnx.operator_names import NHWC
from interposer.frontends.onnx.pooling import pooled
from interposer.frontends.onnx.quantization import (
    dequantize_linear,
    quantization,
    quantize_linear,
    real,
    requantized,
)
from interposer.frontends.onnx.shaping import product
from interposer.frontends.reshaping import final_reshape_like, reshaped
from interposer.ir.graph import Value
from interposer.ops.activation import Activation, ActivationFunction, Softmax
from interposer.ops.elementwise import Addition, Multiplication, Where
from interposer.ops.matmul import FullyConnected
from interposer.ops.pooling import PaddingMethod, PoolingAlgorithm
from interposer.ops.rearrange import Concat, Transpose
from interposer.ops.reduction import Mean

__all__: list[str] = []

DOMAIN: Final = "com.microsoft"

operator("QuantizeLinear", domain=DOMAIN)(quantize_linear)
operator("DequantizeLinear", domain=DOMAIN)(dequantize_linear)


def _dequantized_operand(node: Node, index: int) -> Value:
    """Return operand `index` dequantized to float; its scale and zero point are the next two operands."""
    stored = node.value(index)
    return real(node, stored, quantization(node, index + 1, stored.known.rank))


def _quantized_result(node: Node, floats: Value, index: int) -> Value:
    """Return a float result quantized as the node's own result, with the scale in operand `index`.

    The next operand is the zero point, whose type is that of the result; without it the result has the type of operand
    0.
    """
    dtype = node.info(index + 1).dtype if node.has(index + 1) else node.info(0).dtype
    return requantized(node, floats, dtype, quantization(node, index, 1, 0))


def _unary_converter(make: Callable[[Node], Op]) -> Callable[[Node], Value]:
    def convert(node: Node) -> Value:
        return _quantized_result(node, node.step(make(node), _dequantized_operand(node, 0)), 3)

    return convert


def _binary_converter(op: Op) -> Callable[[Node], Value]:
    def convert(node: Node) -> Value:
        return _quantized_result(node, node.step(op, _dequantized_operand(node, 0), _dequantized_operand(node, 3)), 6)

    return convert


def _leaky(node: Node) -> Op:
    return Activation(ActivationFunction.LEAKY_RELU, node.number("alpha", 0.01))


def _mean(node: Node) -> Op:
    axes = node.integers("axes", range(node.info(0).rank))
    return Mean(checked_axes(axes, node.info(0).rank), keep_dims=node.flag("keepdims", True))


for _name, _op in {"QLinearAdd": Addition(), "QLinearMul": Multiplication()}.items():
    operator(_name, domain=DOMAIN)(_binary_converter(_op))
for _name, _make in {
    "QLinearLeakyRelu": _leaky,
    "QLinearReduceMean": _mean,
    "QLinearSigmoid": lambda node: SIGMOID,
}.items():
    operator(_name, domain=DOMAIN)(_unary_converter(_make))


@operator("QLinearSoftmax", domain=DOMAIN)
def quantized_softmax(node: Node) -> Value:
    """Convert QLinearSoftmax; with an opset before 13, all axes from the attribute axis on are one."""
    x, shape, rank = _dequantized_operand(node, 0), node.info(0).shape, node.info(0).rank
    axis = checked_axis(node.integer("axis", -1), rank)
    if node.integer("opset") >= 13 or axis == rank - 1:
        return _quantized_result(node, node.step(Softmax(axis=axis), x), 3)
    flat_x = reshaped(node, x, [*shape[:axis], product(shape[axis:])], axis)
    return _quantized_result(node, final_reshape_like(node, node.step(Softmax(axis=-1), flat_x), x), 3)


@operator("QLinearWhere", domain=DOMAIN)
def quantized_where(node: Node) -> Value:
    """Convert QLinearWhere: elements of two quantized tensors, by a condition."""
    selected = node.step(Where(), node.value(0), _dequantized_operand(node, 1), _dequantized_operand(node, 4))
    return requantized(node, selected, node.info(8).dtype, quantization(node, 7, 1, 0))


@operator("QLinearGlobalAveragePool", domain=DOMAIN)
def quantized_global_average_pool(node: Node) -> Value:
    """Convert QLinearGlobalAveragePool: the mean of each channel; channels may be the last axis."""
    rank = node.info(0).rank
    axes = range(1, rank - 1) if node.flag("channels_last") else range(2, rank)
    return _quantized_result(node, node.step(Mean(tuple(axes), keep_dims=True), _dequantized_operand(node, 0)), 3)


@operator("QLinearAveragePool", domain=DOMAIN)
@operator("QLinearAveragePool", domain=NHWC)
def quantized_average_pool(node: Node) -> Value:
    """Convert QLinearAveragePool, by default with channels before the spatial axes."""
    channels_last, x = node.flag("channels_last"), _dequantized_operand(node, 0)
    padding = PaddingMethod.IGNORE_VALUE if node.flag("count_include_pad") else PaddingMethod.EXCLUDE
    images = first(node, x) if channels_last else x
    if node.flag("count_include_pad") and node.flag("ceil_mode"):
        node = _padded_to_windows(node, images.known.shape[2:])
    pooled_images = pooled(node, images, PoolingAlgorithm.AVERAGE, padding)
    return _quantized_result(node, last(node, pooled_images) if channels_last else pooled_images, 3)


def _padded_to_windows(node: Node, image: Sequence[int]) -> Node:
    """Return a pooling node that has padding wherever a last window exceeds the padded image.

    ONNX Runtime counts these elements of the window too.
    """
    sizes = node.concrete(TensorShape(image), "image")
    node_windows = windows_along(node, node.integers("kernel_shape"), sizes)
    windows_and_sizes = list(zip(node_windows.along(), sizes, strict=True))
    if not all(window.size and window.stride for window, _ in windows_and_sizes):
        return node
    pads_after = [
        max(window.pad_after, window.pad_after_for(n, window.places_rounded_up(n))) for window, n in windows_and_sizes
    ]
    pads = [*node_windows.before, *pads_after]
    return node.rewritten(range(node.num_inputs), {"pads": pads}, without=("pads", "auto_pad", "ceil_mode"))


@operator("QLinearConcat", domain=DOMAIN)
def quantized_concat(node: Node) -> Value:
    """Convert QLinearConcat; the result's scale and zero point are the first operands."""
    if node.num_inputs < 5 or node.num_inputs % 3 != 2:
        raise ParseError(f"it has {node.num_inputs} inputs; expected two, and three more for each tensor")
    tensors = [_dequantized_operand(node, index) for index in range(2, node.num_inputs, 3)]
    merged = node.step(Concat(checked_axis(node.integer("axis"), tensors[0].known.rank)), *tensors)
    return requantized(node, merged, node.info(1).dtype, quantization(node, 0, 1, 0))


@operator("QGemm", domain=DOMAIN)
def quantized_gemm(node: Node) -> Value:
    """Convert QGemm, alpha * A * B + C.

    C has the scale of the product; without a scale for the result, the result is float.
    """
    a_shape, transposes_b = node.info(0).shape, node.flag("transB")
    if len(a_shape) != 2 or node.info(3).rank != 2:
        raise ParseError(f"a has shape {a_shape} and b {node.info(3).shape}; expected rank 2")
    qa, qb = quantization(node, 1, 2), quantization(node, 4, 2, 0 if transposes_b else 1)
    a, b, alpha = real(node, node.value(0), qa), real(node, node.value(3), qb), node.number("alpha", 1.0)
    a = node.step(Transpose((1, 0)), a) if node.flag("transA") else a
    b = b if alpha == 1 else node.step(Multiplication(), b, node.scalar_like(alpha, b))
    op = FullyConnected(transpose_weight_matrix=transposes_b)
    output = _with_bias(node, op, (a, b), [alpha * qa.scale * scale for scale in qb.scales])
    return _quantized_result(node, output, 7) if node.has(7) else output


def _with_bias(node: Node, op: FullyConnected, operands: tuple[Value, Value], scales: list[float]) -> Value:
    """Return the product of two matrices, and the bias of QGemm, whose int32 numbers have these scales."""
    if not node.has(6):
        return node.result(op, *operands)
    stored_bias, per_column = node.value(6), len(scales) > 1
    shape = stored_bias.known.shape
    if per_column and not differ(shape[-1] if shape else 1, 1):
        factors = node.constant(np.array(scales, np.float32))
        bias = node.step(Multiplication(), node.cast(stored_bias, DataType.FLOAT32), factors)
    else:
        bias = real(node, stored_bias, Quantization(scales, 0, stored_bias.known.rank - 1 if per_column else None))
    if len(shape) == 1 and not differ(shape[0], operands[1].known.shape[op.output_axis]):
        return node.result(op, *operands, bias)
    return node.result(Addition(), node.step(op, *operands), bias)
