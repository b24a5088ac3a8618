"""ONNX writers for quantized layers in integer arithmetic, rounded like in the reference kernels."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from interposer.core.types import DataType, Quantization, TensorInfo, integer_range
from interposer.ops.activation import Activation, ActivationFunction
from interposer.ops.convolution import Convolution2d, DepthwiseConvolution2d
from interposer.ops.elementwise import (
    Addition,
    BinaryOperation,
    Division,
    ElementwiseBinary,
    Maximum,
    Minimum,
    Multiplication,
    Prelu,
    Subtraction,
)
from interposer.ops.matmul import BatchMatMul, FullyConnected
from interposer.ops.rearrange import Concat, Stack
from interposer.ops.reduction import Mean, Reduce, ReduceOperation, reduced_axes
from interposer.writers.onnx.convolution import convolved
from interposer.writers.onnx.draft import Draft
from interposer.writers.onnx.fixedpoint import (
    Factor,
    factor_of,
    offset,
    quantized_bound,
    rescaled,
    rounded_away,
    scale32,
    single,
    stored,
    times,
)
from interposer.writers.onnx.matmul import rows_of, turned
from interposer.writers.onnx.onnx_layer_writers import writer
from interposer.writers.onnx.reduction import reduction
from interposer.writers.onnx.tensor import Tensor
from interposer.writers.refusals import refuse

__all__: list[str] = []

_BYTES: Final = (DataType.INT8, DataType.UINT8)

# --- sums of products -------------------------------------------------------------------------------------------------


def _ratio(draft: Draft, weights: TensorInfo, *, in_single: bool) -> NDArray[np.float64]:
    """Return the factor for sums of products: scale of input times scale of weights, divided by the result's scale.

    It is one number, or one per channel. With `in_single`, the product of the scales is rounded to float32, as some
    kernels of TFLite do.
    """
    q = weights.quantization or Quantization(1.0)
    scales = np.asarray(q.scales if q.per_axis else q.scale, np.float32)
    products = np.multiply(scales, scale32(draft.info(0)), dtype=np.float32 if in_single else np.float64)
    return products.astype(np.float64) / float(scale32(draft.result))


def _check_bytes(draft: Draft) -> None:
    single(draft.info(0), *_BYTES)
    single(draft.result, *_BYTES)
    if draft.info(1).dtype not in _BYTES or draft.info(1).quantization is None:
        refuse("ONNX multiplies stored integers of 8 bits only")


def _zero_points(draft: Draft) -> tuple[Tensor, Tensor | None]:
    """Return the zero point of the input and that of the weights as constants.

    The weights' zero points are a scalar if they are equal, one per channel if not, and None if all are 0.
    """
    x, q = draft.info(0), draft.info(1).quantization
    points = set(q.zero_points) if q else {0}
    weights = q and any(points) and draft.constant(
        q.zero_point if len(points) == 1 else q.zero_points, draft.info(1).dtype, "weights/zero_point"
    )  # fmt: skip
    return draft.constant(x.zero_point, x.dtype, "zero_point"), weights or None


@writer(Convolution2d, DepthwiseConvolution2d, quantized=True, computes=True)
def quantized_convolution(draft: Draft, op: Convolution2d | DepthwiseConvolution2d) -> Tensor:
    """Write a quantized convolution: ConvInteger, then the sums are rescaled per channel in fixed-point arithmetic."""
    _check_bytes(draft)
    ratio = _ratio(draft, draft.info(1), in_single=draft.info(1).dtype is DataType.UINT8)
    products = convolved(draft, op, "ConvInteger", *_zero_points(draft))
    sums = (
        products
        if draft.optional(2) is None
        else draft.node("Add", products, draft.reshape(draft.operand(2), [-1, 1, 1]))
    )
    factors = ratio.reshape(-1, 1, 1) if ratio.ndim else ratio
    return rescaled(draft, draft.cast(sums, DataType.INT64), factors, draft.result)


@writer(FullyConnected, quantized=True, computes=True)
def quantized_fully_connected(draft: Draft, op: FullyConnected) -> Tensor:
    """Write a quantized FullyConnected: MatMulInteger, the bias, then rescaling in float64, ties away from zero."""
    _check_bytes(draft)
    weights = draft.operand(1) if not op.transpose_weight_matrix else draft.transpose(draft.operand(1), (1, 0))
    rows = draft.operand(0) if op.keep_dims else rows_of(draft, op)
    sums = draft.node("MatMulInteger", rows, weights, *_zero_points(draft))
    if draft.optional(2) is not None:
        sums = draft.node("Add", sums, draft.operand(2))
    wide_sums = draft.cast(sums, DataType.FLOAT64)
    scaled = draft.node(
        "Mul", wide_sums, draft.constant(_ratio(draft, draft.info(1), in_single=False), DataType.FLOAT64)
    )
    return stored(draft, draft.cast(rounded_away(draft, scaled), DataType.INT64), draft.result)


@writer(BatchMatMul, quantized=True, computes=True)
def quantized_batch_matmul(draft: Draft, op: BatchMatMul) -> Tensor:
    """Write a quantized BatchMatMul: MatMulInteger, then the sums are rescaled in fixed-point arithmetic."""
    _check_bytes(draft)
    single(draft.info(1), *_BYTES)
    if op.adjoint_x or op.adjoint_y:
        refuse("ONNX has no adjugates of matrices")
    a, b = turned(draft, 0, turn=op.transpose_x), turned(draft, 1, turn=op.transpose_y)
    sums = draft.node("MatMulInteger", a, b, *_zero_points(draft))
    ratio = _ratio(draft, draft.info(1), in_single=True)
    return rescaled(draft, draft.cast(sums, DataType.INT64), ratio, draft.result)


# --- elements ---------------------------------------------------------------------------------------------------------

B, F = BinaryOperation, ActivationFunction
Rule: TypeAlias = Callable[[Draft, Tensor, Tensor], Tensor]


def _on_common_scale(
    draft: Draft, a: Tensor, b: Tensor, left_shift: int, sign: int = 1
) -> tuple[Tensor, Tensor, float]:
    """Return both operands as integers without zero point at the scale ``common / 2**left_shift``, and `common`.

    `common` is twice the larger scale of the operands. With `sign` -1, the second operand is negated.
    """
    scales = [float(scale32(draft.info(index))) for index in (0, 1)]
    common_scale = 2 * max(scales)
    shifted_operands = [
        draft.node("Mul", offset(draft, operand, draft.info(index)), draft.ints(1 << left_shift))
        for index, operand in enumerate((a, b))
    ]
    factors = [factor_of(scale / common_scale) for scale in scales]
    factors[1] = Factor(factors[1].multiplier * sign, factors[1].shift)
    rescaled_a, rescaled_b = (
        times(draft, operand, factor) for operand, factor in zip(shifted_operands, factors, strict=True)
    )
    return rescaled_a, rescaled_b, common_scale


def _add(draft: Draft, a: Tensor, b: Tensor, sign: int = 1) -> Tensor:
    left_shift = 15 if draft.info(0).dtype is DataType.INT16 else 20
    rescaled_a, rescaled_b, common_scale = _on_common_scale(draft, a, b, left_shift, sign)
    factor = common_scale / (2.0**left_shift * float(scale32(draft.result)))
    return rescaled(draft, draft.node("Add", rescaled_a, rescaled_b), factor, draft.result)


def _sub(draft: Draft, a: Tensor, b: Tensor) -> Tensor:
    return _add(draft, a, b, sign=-1)


def _mul(draft: Draft, a: Tensor, b: Tensor) -> Tensor:
    factor = scale32(draft.info(0)) * scale32(draft.info(1)) / scale32(draft.result)
    product = draft.node("Mul", offset(draft, a, draft.info(0)), offset(draft, b, draft.info(1)))
    return rescaled(draft, product, factor, draft.result)


def _sq_diff(draft: Draft, a: Tensor, b: Tensor) -> Tensor:
    if draft.info(0).dtype is DataType.INT16:
        refuse("ONNX rounds quantized results otherwise")
    rescaled_a, rescaled_b, common_scale = _on_common_scale(draft, a, b, 7)
    difference = draft.node("Sub", rescaled_a, rescaled_b)
    factor = common_scale**2 / (2.0**14 * float(scale32(draft.result)))
    return rescaled(draft, draft.node("Mul", difference, difference), factor, draft.result)


def _chosen(kind: str) -> Rule:
    def choose(draft: Draft, a: Tensor, b: Tensor) -> Tensor:
        if len({info.quantization for info in (draft.info(0), draft.info(1), draft.result)}) > 1:
            refuse("the scales of its tensors differ")
        return draft.node(kind, a, b)

    return choose


_BINARY: Final[dict[BinaryOperation, Rule]] = {
    B.ADD: _add,
    B.SUB: _sub,
    B.MUL: _mul,
    B.SQ_DIFF: _sq_diff,
    B.MAXIMUM: _chosen("Max"),
    B.MINIMUM: _chosen("Min"),
}


@writer(
    ElementwiseBinary, Addition, Division, Maximum, Minimum, Multiplication, Subtraction, quantized=True, computes=True
)
def quantized_binary(draft: Draft, op: ElementwiseBinary) -> Tensor:
    """Write a quantized elementwise operator by its rule in `_BINARY`; refuse operators without a rule."""
    rule = _BINARY.get(op.operation)
    for info in (draft.info(0), draft.info(1), draft.result):
        single(info)
    if rule is None:
        refuse(f"ONNX rounds a quantized {op.operation.name} otherwise")
    return rule(draft, draft.operand(0), draft.operand(1))


@writer(Prelu, quantized=True, computes=True)
def quantized_prelu(draft: Draft, op: Prelu) -> Tensor:
    """Write a quantized Prelu in integer arithmetic.

    Elements of 0 and more are rescaled by one factor, products of negative elements with the slope by another one.
    """
    x, slope, output_info = draft.info(0), draft.info(1), draft.result
    for info in (x, slope, output_info):
        single(info)
    centered = offset(draft, draft.operand(0), x)
    product = draft.node("Mul", centered, offset(draft, draft.operand(1), slope))
    positive = times(draft, centered, factor_of(scale32(x) / scale32(output_info)))
    negative = times(draft, product, factor_of(scale32(x) * scale32(slope) / scale32(output_info)))
    is_positive = draft.node("GreaterOrEqual", centered, draft.ints(0))
    return stored(draft, draft.node("Where", is_positive, positive, negative), output_info)


@writer(Activation, quantized=True, computes=True)
def quantized_activation(draft: Draft, op: Activation) -> Tensor:
    """Write quantized activations: clamping, and piecewise linear functions."""
    x, output_info = draft.info(0), draft.result
    if op.function in (F.RELU, F.BOUNDED_RELU):
        return _clamped(draft, op)
    single(x)
    single(output_info)
    ratio = scale32(x) / scale32(output_info)
    if op.function is F.ABS:
        return rescaled(draft, draft.node("Abs", offset(draft, draft.operand(0), x)), ratio, output_info)
    if op.function is F.LEAKY_RELU and op.a > 0:
        centered = offset(draft, draft.operand(0), x)
        negative = times(draft, centered, factor_of(scale32(x) * np.float32(op.a) / scale32(output_info)))
        is_positive = draft.node("GreaterOrEqual", centered, draft.ints(0))
        return stored(
            draft, draft.node("Where", is_positive, times(draft, centered, factor_of(ratio)), negative), output_info
        )
    return refuse(f"ONNX rounds a quantized {op.function.name} otherwise")


def _clamped(draft: Draft, op: Activation) -> Tensor:
    """Write a quantized ReLU or BoundedReLU as Clip with quantized bounds; rescale first if the scales differ."""
    x, output_info = draft.info(0), draft.result
    low, high = (0.0, math.inf) if op.function is F.RELU else (op.b, op.a)
    if output_info.quantization is None or output_info.quantization.per_axis or output_info.dtype.bits < 8:
        refuse("ONNX rounds quantized results otherwise")
    lowest, highest = integer_range(output_info.dtype)
    bounds = quantized_bound(low, output_info, lowest), quantized_bound(high, output_info, highest)
    if x.quantization == output_info.quantization and x.dtype is output_info.dtype:
        return draft.clip(draft.operand(0), *bounds)
    single(x)
    single(output_info)
    steps = times(draft, offset(draft, draft.operand(0), x), factor_of(scale32(x) / scale32(output_info)))
    return stored(draft, steps, output_info, bounds)


# --- elements together ------------------------------------------------------------------------------------------------


@writer(Mean, Reduce, quantized=True, computes=True)
def quantized_reduction(draft: Draft, op: Mean | Reduce) -> Tensor:
    """Write a quantized reduction: rescaled sums, divided by the count for means; maxima are those of integers."""
    operation = op.operation if isinstance(op, Reduce) else ReduceOperation.MEAN
    x, output_info = draft.info(0), draft.result
    if operation in (ReduceOperation.MAX, ReduceOperation.MIN) and x.quantization == output_info.quantization:
        return reduction(draft, op)
    single(x)
    single(output_info)
    axes = reduced_axes(op.axis, draft.rank)
    if operation not in (ReduceOperation.MEAN, ReduceOperation.SUM) or not axes:
        refuse(f"ONNX rounds a quantized {operation.name} otherwise")
    count = math.prod(draft.known(x.shape[axis], f"dimension of axis {axis}") for axis in axes)
    factor = factor_of(float(scale32(x)) / float(scale32(output_info)))
    if count == 0:
        refuse("there is nothing to reduce")
    if operation is ReduceOperation.MEAN:
        factor = _divided(factor, count)
    elif x.dtype is not DataType.UINT8:
        sums = draft.reduce("ReduceSum", draft.cast(draft.operand(0), DataType.INT64), axes, keep=op.keep_dims)
        return _sum_in_float(draft, sums, x, output_info, count)
    sums = draft.reduce("ReduceSum", offset(draft, draft.operand(0), x), axes, keep=op.keep_dims)
    return stored(draft, times(draft, sums, factor), output_info)


def _sum_in_float(draft: Draft, sums: Tensor, x: TensorInfo, output_info: TensorInfo, count: int) -> Tensor:
    """Rescale sums of `count` quantized values, their zero points included, in float32."""
    input_quantization, output_quantization = _one_scale([x, output_info])
    factor = np.float32(input_quantization.scale) / np.float32(output_quantization.scale)
    bias = np.float32(-input_quantization.zero_point) * factor * np.float32(count)
    real = draft.cast(sums, DataType.FLOAT32)
    scaled = draft.node("Add", draft.node("Mul", real, draft.like(float(factor), real)), draft.like(float(bias), real))
    rounded = rounded_away(draft, draft.cast(scaled, DataType.FLOAT64))
    return stored(draft, draft.cast(rounded, DataType.INT64), output_info)


def _divided(factor: Factor, count: int) -> Factor:
    """Return the factor divided by a count; the multiplier gets more bits first, which retains precision."""
    bits = min(count.bit_length() - 1, 31 + int(factor.shift))
    return Factor(np.asarray((int(factor.multiplier) << bits) // count), np.asarray(factor.shift - bits))


@writer(Concat, Stack, quantized=True, computes=True)
def quantized_concat(draft: Draft, op: Concat | Stack) -> Tensor:
    """Write a quantized Concat or Stack; operands of other scales are rescaled in float32."""
    output_info = draft.result
    parts = [_brought(draft, tensor, draft.info(index), output_info) for index, tensor in enumerate(draft.tensors())]
    if isinstance(op, Concat):
        return draft.node("Concat", *parts, axis=op.axis)
    axis = op.axis % (draft.rank + 1)
    return draft.concat([draft.unsqueeze(part, [axis]) for part in parts], axis)


def _brought(draft: Draft, x: Tensor, input_info: TensorInfo, output_info: TensorInfo) -> Tensor:
    if input_info.quantization == output_info.quantization:
        return x
    input_quantization, output_quantization = _one_scale([input_info, output_info])
    if output_info.dtype.bits > 32:
        refuse("ONNX rounds quantized results otherwise")
    scale = np.float32(input_quantization.scale) * (np.float32(1) / np.float32(output_quantization.scale))
    bias = -np.float32(input_quantization.zero_point) * scale
    real = draft.cast(x, DataType.FLOAT32)
    scaled = draft.node("Add", draft.node("Mul", real, draft.like(float(scale), real)), draft.like(float(bias), real))
    rounded = rounded_away(draft, draft.cast(scaled, DataType.FLOAT64))
    return stored(draft, draft.cast(rounded, DataType.INT64), output_info)


def _one_scale(infos: Sequence[TensorInfo]) -> list[Quantization]:
    values: list[Any] = [info.quantization for info in infos]
    if any(q is None or q.per_axis for q in values):
        refuse("ONNX rounds quantized results otherwise")
    return values
