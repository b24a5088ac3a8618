"""Growers of quantized layers: 8- and 16-bit integers with odd scales and extreme zero points, layer after layer."""

from __future__ import annotations

import math
from typing import Final

import numpy as np

from interposer.core.schema import Op
from interposer.core.types import DataType, Quantization, TensorInfo, integer_range
from interposer.ir.graph import Value
from interposer.ops import (
    Activation,
    ActivationFunction,
    Addition,
    BatchMatMul,
    BinaryOperation,
    Comparison,
    ComparisonOperation,
    Convolution2d,
    Convolution3d,
    DepthwiseConvolution2d,
    Dequantize,
    Division,
    ElementwiseBinary,
    ElementwiseUnary,
    FakeQuantization,
    FullyConnected,
    L2Normalization,
    LayerNormalization,
    LogSoftmax,
    Maximum,
    Mean,
    Minimum,
    Multiplication,
    Pooling2d,
    PoolingAlgorithm,
    Prelu,
    Quantize,
    Reduce,
    ReduceOperation,
    Requantization,
    Resize,
    RoundingMethod,
    Softmax,
    Subtraction,
    TransposeConvolution2d,
    UnaryOperation,
    Where,
)
from interposer.ops.axes import broadcast_shapes
from interposer.testing.random_networks.convolution import (
    Filter,
    convolution_filter,
    depthwise_filter,
    transpose_filter,
    volume_filter,
)
from interposer.testing.random_networks.elementwise import POSITIVE_FUNCTIONS, activation, broadcastable
from interposer.testing.random_networks.growers import grower
from interposer.testing.random_networks.growth import EIGHT_BITS, Growth, Skipped
from interposer.testing.random_networks.matrix import columns, matrices
from interposer.testing.random_networks.pooling import pooling_op, resize_op
from interposer.testing.random_networks.random_windows import image
from interposer.testing.random_networks.reduction import axes

__all__: list[str] = []

_QUANTIZED: Final = ("quantized",)
_F = ActivationFunction
_B = BinaryOperation
_U = UnaryOperation
_LARGEST_BIAS: Final = 1 << 20


def _result(growth: Growth, op: Op, *values: Value | None, reach: float, sign: int = 0) -> Value:
    """Add a layer and return its only result, which has the type of the first operand and a new quantization.

    The quantization is chosen for elements of magnitude up to `reach`. `sign` is 1 if none is negative, -1 if none is
    positive, else 0.

    Raises:
        Skipped: the operator does not accept these operands.
    """
    infos = [None if value is None else value.known for value in values]
    if hasattr(op, "requantization") and growth.draw.chance(1, 3):
        op = op.replace(requantization=Requantization.HALF_TO_EVEN)
    if op.violations(*infos):
        raise Skipped
    [info] = op.infer_infos(*infos)
    first_info = infos[0]
    assert info is not None
    assert first_info is not None
    quantization = growth.quantization(first_info.dtype, max(reach, 1e-3), sign)
    outputs = TensorInfo(info.shape, first_info.dtype, quantization)
    return growth.add(op, *values, outputs=outputs, reach=reach, positive=sign > 0)


def _constant(growth: Growth, shape: tuple[int, ...], dtype: DataType, reach: float) -> Value:
    """Return a quantized constant, or occasionally a quantized input.

    Raise `Skipped` if the shape has too many elements. The quantization is chosen for elements of magnitude up to
    `reach`, and the stored integers cover the whole type.
    """
    if math.prod(shape) > growth.room:
        raise Skipped
    info = TensorInfo(shape, dtype, growth.quantization(dtype, reach))
    if growth.draw.chance(1, 8):
        return growth.input(info, reach)
    low, high = (-128, 127) if dtype is DataType.INT8 else (0, 255) if dtype is DataType.UINT8 else (-32768, 32767)
    value = growth.constant(growth.draw.integers(shape, low, high).astype(dtype.numpy), info.quantization)
    growth.note(value, reach)
    return value


# --- layers with weights ----------------------------------------------------------------------------------------------


def _weights(growth: Growth, shape: tuple[int, ...], reach: float, unsigned: bool, axis: int | None) -> Value:
    """Return constant 8-bit weights with elements of magnitude up to about `reach`.

    They have one scale, or int8 weights may have a scale for each index along `axis`. With `unsigned`, weights with one
    scale are uint8, else int8.

    Raises:
        Skipped: the shape has too many elements.
    """
    if math.prod(shape) > growth.room:
        raise Skipped
    draw = growth.draw
    if axis is not None and shape[axis] and draw.chance(1, 2):
        scales = [_odd(growth, reach / 127) for _ in range(shape[axis])]
        quantization, dtype = Quantization(scales, axis=axis), DataType.INT8
    else:
        dtype = DataType.UINT8 if unsigned else DataType.INT8
        middle = 128 if unsigned else 0
        zero_points = (middle, middle + draw.integer(-7, 7), 0 if unsigned else -128, 255 if unsigned else 127)
        quantization = Quantization(
            _odd(growth, reach / 127), draw.weighted(zero_points, (8, 3 if unsigned else 1, 1, 1))
        )
    low = 0 if dtype is DataType.UINT8 else -128 if draw.chance(1, 2) else -127
    array = draw.integers(shape, low, low + 255 if low != -127 else 127).astype(dtype.numpy)
    return growth.constant(array, quantization)


def _odd(growth: Growth, scale: float) -> float:
    """Return a random scale between half and twice `scale`, rounded to float32."""
    return float(np.float32(scale * growth.draw.integer(65, 255) / 128))


def _bias(growth: Growth, x: Value, weights: Value, channels: int, reach: float) -> Value | None:
    """Return a constant bias of one element per channel, or None for no bias.

    Its scales are the products of the scales of `x` and of the weights; its elements have magnitudes up to about
    `reach`. It is int32, or sometimes int64 for an int16 input.
    """
    draw = growth.draw
    if draw.chance(1, 3):
        return None
    dtype = DataType.INT32
    if x.known.dtype is DataType.INT16 and draw.chance(1, 2):
        dtype = DataType.INT64
    input_quantization, weights_quantization = x.known.quantization, weights.known.quantization
    assert input_quantization is not None
    assert weights_quantization is not None
    scales = [float(np.float32(input_quantization.scale * scale)) for scale in weights_quantization.scales]
    bound = max(1, min(_LARGEST_BIAS, int(reach / min(scales))))
    array = draw.integers((channels,), -bound, bound).astype(dtype.numpy)
    return growth.constant(array, Quantization(scales, axis=0 if weights_quantization.per_axis else None))


def _weighted(growth: Growth, x: Value, drawn_filter: Filter, axis: int | None) -> Value:
    """Add the layer `drawn_filter` to the network with quantized weights and often a bias, and sometimes an activation.

    Returns the last result. Weights may have a scale for each index along `axis`; None allows a single scale only.
    """
    draw = growth.draw
    output_reach = draw.one_of((1.0, 2.0, 5.0))
    reach = 1.5 * output_reach / (growth.reach(x) * math.sqrt(drawn_filter.terms))
    weights = _weights(growth, drawn_filter.weights, reach, x.known.dtype is DataType.UINT8, axis)
    bias = _bias(growth, x, weights, drawn_filter.channels, output_reach / 2)
    output = _result(
        growth,
        drawn_filter.op,
        x,
        weights,
        bias,
        reach=max(output_reach, _mean_of_sums(growth, x, weights, drawn_filter.terms)),
    )
    return _activated(growth, output) if draw.chance(1, 4) else output


def _mean_of_sums(growth: Growth, a: Value, b: Value, terms: int) -> float:
    """Return an estimate of the magnitude of sums of `terms` products of elements of `a` and `b`.

    It matters if extreme zero points leave few elements negative, so that products do not cancel out.
    """
    return 1.5 * terms * _mean(growth, a) * _mean(growth, b)


def _mean(growth: Growth, value: Value) -> float:
    quantization = value.known.quantization
    assert quantization is not None
    lowest, highest = integer_range(value.known.dtype)
    mean = abs((lowest + highest) / 2 - quantization.zero_point) * quantization.scale
    return min(mean, growth.reach(value) / 2) if value in growth.reaches else mean


@grower(18, Convolution2d, kinds=_QUANTIZED)
def _convolution(growth: Growth, value: Value) -> None:
    x = image(growth, value, stored=True)
    _weighted(growth, x, convolution_filter(growth, x), 0)


@grower(8, DepthwiseConvolution2d, kinds=_QUANTIZED)
def _depthwise_convolution(growth: Growth, value: Value) -> None:
    x = image(growth, value, stored=True)
    _weighted(growth, x, depthwise_filter(growth, x), 3)


@grower(6, TransposeConvolution2d, kinds=_QUANTIZED)
def _transpose_convolution(growth: Growth, value: Value) -> None:
    x = image(growth, value, stored=True)
    drawn_filter = transpose_filter(growth, x)
    _weighted(growth, x, drawn_filter, 0 if drawn_filter.op.groups == 1 else None)


@grower(2, Convolution3d, kinds=_QUANTIZED)
def _convolution_of_a_volume(growth: Growth, value: Value) -> None:
    drawn_filter, x = volume_filter(growth, image(growth, value, 5, stored=True))
    _weighted(growth, x, drawn_filter, 4)


@grower(12, FullyConnected, kinds=_QUANTIZED)
def _fully_connected(growth: Growth, value: Value) -> None:
    draw, x = growth.draw, growth.stored(value)
    shape = x.known.shape
    if not shape or 0 in shape:
        raise Skipped
    keep_dims, is_transposed = draw.chance(1, 2), draw.chance(2, 3)
    depth = shape[-1] if keep_dims or draw.chance(1, 2) else math.prod(shape[1:])
    units = columns(growth, math.prod(shape) // depth, depth)
    op = FullyConnected(is_transposed, keep_dims)
    _weighted(growth, x, Filter(op, (units, depth) if is_transposed else (depth, units), units, depth), op.output_axis)


@grower(6, BatchMatMul, kinds=_QUANTIZED)
def _product(growth: Growth, value: Value) -> None:
    x = growth.stored(value)
    op, shape, depth = matrices(growth, x)
    output_reach = growth.draw.one_of((1.0, 3.0))
    second = _constant(growth, shape, x.known.dtype, 1.5 * output_reach / (growth.reach(x) * math.sqrt(depth)))
    _result(growth, op, x, second, reach=max(output_reach, _mean_of_sums(growth, x, second, depth)))


# --- arithmetic -------------------------------------------------------------------------------------------------------


def _partner(growth: Growth, value: Value) -> Value:
    """Return quantized numbers of the same type that broadcast with `value`, mostly with another quantization."""
    draw, info = growth.draw, value.known
    if draw.chance(3, 5):
        candidate = growth.another(lambda candidate: candidate is not value and _alike(growth, candidate.known, info))
        if candidate is not None:
            return candidate
    if draw.chance(1, 8):
        return value
    return _constant(growth, broadcastable(growth, tuple(info.shape)), info.dtype, draw.one_of((0.5, 1.0, 4.0)))


def _alike(growth: Growth, candidate: TensorInfo, info: TensorInfo) -> bool:
    if (
        candidate.dtype is not info.dtype
        or not candidate.is_quantized
        or candidate.quantization
        and candidate.quantization.per_axis
    ):
        return False
    shape = broadcast_shapes(candidate.shape, info.shape)
    return shape is not None and growth.fits(shape)


def _paired(growth: Growth, value: Value) -> tuple[Value, Value]:
    second = _partner(growth, value)
    return (value, second) if growth.draw.chance(1, 2) else (second, value)


_ARITHMETIC: Final = (
    Addition(),
    Addition(),
    Addition(),
    Multiplication(),
    Multiplication(),
    Subtraction(),
    Maximum(),
    Minimum(),
)
_RARE: Final = (ElementwiseBinary(_B.SQ_DIFF), Division())


@grower(16, Addition, Multiplication, Subtraction, Maximum, Minimum, kinds=_QUANTIZED)
def _arithmetic(growth: Growth, value: Value) -> None:
    op = growth.choice(_ARITHMETIC, type)
    a, b = _paired(growth, growth.stored(value))
    first_reach, second_reach = growth.reach(a), growth.reach(b)
    reach = first_reach * second_reach if isinstance(op, Multiplication) else max(first_reach, second_reach)
    is_same_quantization = a.known.quantization == b.known.quantization
    if isinstance(op, Maximum | Minimum) and is_same_quantization and growth.draw.chance(3, 4):
        growth.add(op, a, b)
        return
    _result(
        growth,
        op,
        a,
        b,
        reach=reach * (1.5 if isinstance(op, Addition | Subtraction) else 1),
        sign=_sign_of(growth, op, a, b),
    )


def _sign_of(growth: Growth, op: Op, a: Value, b: Value) -> int:
    first_sign, second_sign = growth.sign(a), growth.sign(b)
    if isinstance(op, Multiplication):
        return first_sign * second_sign
    return first_sign if first_sign == second_sign and not isinstance(op, Subtraction) else 0


@grower(2, ElementwiseBinary, Division, kinds=_QUANTIZED)
def _rare_arithmetic(growth: Growth, value: Value) -> None:
    op = growth.choice(_RARE, type)
    a, b = _paired(growth, growth.stored(value))
    sign = growth.sign(a) * growth.sign(b) if isinstance(op, Division) else 1
    _result(growth, op, a, b, reach=max(growth.reach(a), growth.reach(b)) * 2, sign=sign)


@grower(2, Comparison, Where, kinds=_QUANTIZED)
def _choice(growth: Growth, value: Value) -> None:
    a, b = _paired(growth, growth.stored(value))
    condition = growth.add(Comparison(growth.draw.one_of(tuple(ComparisonOperation))), a, b, reach=1.0)
    if a.known.quantization == b.known.quantization:
        growth.add(Where(), condition, a, b)


# --- functions --------------------------------------------------------------------------------------------------------


def _activated(growth: Growth, value: Value) -> Value:
    op = activation(growth.draw)
    if op.function in (_F.SIGMOID, _F.TANH) and op.a in (0.0, 1.0) and growth.draw.chance(2, 3):
        return growth.add(op, value, reach=1.0)
    if op.function in (_F.RELU, _F.BOUNDED_RELU) and growth.draw.chance(1, 3):
        return growth.add(op, value)
    reach = _reach_after(op, growth.reach(value))
    return _result(growth, op, value, reach=reach, sign=_sign_after(op, growth.sign(value)))


def _sign_after(op: Activation, sign: int) -> int:
    if op.function in POSITIVE_FUNCTIONS:
        return 1
    return 0 if op.function in (_F.LINEAR, _F.BOUNDED_RELU, _F.SHRINK) or op.a < 0 else sign


def _reach_after(op: Activation, reach: float) -> float:
    if op.function in (_F.SIGMOID, _F.SOFTSIGN, _F.HARD_SIGMOID):
        return 1.0
    if op.function in (_F.TANH, _F.BOUNDED_RELU):
        return max(abs(op.a), abs(op.b), 0.25)
    if op.function is _F.SQUARE:
        return reach * reach
    if op.function is _F.SQRT:
        return math.sqrt(reach)
    return max(reach * max(abs(op.a), 0.5), abs(op.b)) if op.function in (_F.LINEAR, _F.SELU) else reach


@grower(12, Activation, kinds=_QUANTIZED)
def _activation(growth: Growth, value: Value) -> None:
    _activated(growth, growth.stored(value))


@grower(4, Softmax, LogSoftmax, kinds=_QUANTIZED)
def _softmax(growth: Growth, value: Value) -> None:
    draw, x = growth.draw, growth.stored(value)
    axis = growth.axis(x)
    op_class = growth.choice((Softmax, Softmax, LogSoftmax), lambda op: op)
    growth.add(op_class(draw.one_of((1.0, 1.0, 0.5, 2.0)), axis), x, reach=1.0 if op_class is Softmax else 16.0)


@grower(3, ElementwiseUnary, Prelu, kinds=_QUANTIZED)
def _function(growth: Growth, value: Value) -> None:
    draw, x = growth.draw, growth.stored(value)
    if growth.choice((ElementwiseUnary, ElementwiseUnary, Prelu), lambda op: op) is Prelu:
        slopes = draw.one_of((tuple(x.known.shape[-1:]), (), tuple(x.known.shape[1:])))
        _result(growth, Prelu(), x, _constant(growth, slopes, x.known.dtype, 1.0), reach=growth.reach(x))
        return
    operation = draw.one_of((_U.ABS, _U.NEG, _U.SQUARE, _U.SIN, _U.EXP, _U.SIGN, _U.FLOOR, _U.ERF, _U.SQRT, _U.RSQRT))
    if operation in (_U.SQRT, _U.RSQRT):
        x = _result(growth, ElementwiseUnary(_U.ABS), x, reach=growth.reach(x), sign=1)
    reaches = {_U.SQUARE: growth.reach(x) * growth.reach(x), _U.SIN: 1.0, _U.ERF: 1.0, _U.SIGN: 1.0, _U.EXP: 8.0}
    sign = 1 if operation in (_U.ABS, _U.SQUARE, _U.EXP, _U.SQRT, _U.RSQRT) else 0
    _result(growth, ElementwiseUnary(operation), x, reach=reaches.get(operation, growth.reach(x)), sign=sign)


@grower(2, L2Normalization, LayerNormalization, kinds=_QUANTIZED)
def _normalization(growth: Growth, value: Value) -> None:
    x = growth.stored(value)
    if x.known.rank == 0:
        raise Skipped
    if growth.choice((L2Normalization, LayerNormalization), lambda op: op) is L2Normalization:
        _result(growth, L2Normalization(1e-6, axis=-1), x, reach=1.0)
        return
    _result(growth, LayerNormalization(-1, 1e-3), x, reach=3.0)


# --- changes of shape and scale ---------------------------------------------------------------------------------------


@grower(7, Pooling2d, kinds=_QUANTIZED)
def _pooling(growth: Growth, value: Value) -> None:
    x = image(growth, value, stored=True)
    op = pooling_op(growth, x)
    _perhaps_rescaled(growth, op, x, 1 if op.pool_type is PoolingAlgorithm.L2 else growth.sign(x))


@grower(5, Resize, kinds=_QUANTIZED)
def _resize(growth: Growth, value: Value) -> None:
    x = image(growth, value, stored=True)
    _perhaps_rescaled(growth, resize_op(growth, x), x, growth.sign(x))


@grower(6, Mean, Reduce, kinds=_QUANTIZED)
def _reduction(growth: Growth, value: Value) -> None:
    draw, x = growth.draw, growth.stored(value)
    reduced_axes, keep_dims = axes(growth, x.known.rank), draw.chance(1, 2)
    operation = draw.one_of((ReduceOperation.SUM, ReduceOperation.MAX, ReduceOperation.MIN, ReduceOperation.MEAN))
    op = growth.choice(
        (Mean(reduced_axes, keep_dims), Mean(reduced_axes, keep_dims), Reduce(reduced_axes, keep_dims, operation)), type
    )
    if isinstance(op, Reduce) and operation is ReduceOperation.SUM:
        _result(growth, op, x, reach=growth.reach(x) * 3)
        return
    _perhaps_rescaled(growth, op, x, growth.sign(x))


def _perhaps_rescaled(growth: Growth, op: Op, x: Value, sign: int) -> Value:
    """Add a layer and return its result, which has the operand's quantization, or occasionally a new one.

    `sign` is 1 if no element of the result is negative, -1 if none is positive, else 0.
    """
    if growth.draw.chance(2, 3):
        return growth.add(op, x)
    return _result(growth, op, x, reach=growth.reach(x) * growth.draw.one_of((0.5, 1.0)), sign=sign)


@grower(6, Quantize)
def _requantize(growth: Growth, value: Value) -> None:
    """Add a Quantize that converts a value to 8- or 16-bit integers; the value may be quantized already."""
    draw = growth.draw
    x = value if value.known.is_quantized else growth.real(value)
    dtype = draw.weighted((*EIGHT_BITS, DataType.INT16), (4, 4, 1))
    quantization = growth.quantization(dtype, growth.reach(x) * draw.one_of((0.5, 1.0)), growth.sign(x))
    op = Quantize(dtype, draw.one_of(tuple(RoundingMethod)))
    growth.add(op, x, outputs=TensorInfo(x.known.shape, dtype, quantization))


@grower(5, Dequantize)
def _dequantize(growth: Growth, value: Value) -> None:
    x = value if value.known.is_quantized else growth.stored(value)
    growth.add(Dequantize(growth.real_type), x)


@grower(2, FakeQuantization)
def _fake_quantization(growth: Growth, value: Value) -> None:
    draw, x = growth.draw, growth.real(value)
    low, high = draw.one_of(((-6.0, 6.0), (0.0, 2.5), (-1.0, 0.0), (-3.0, 5.25)))
    growth.add(FakeQuantization(low, high, draw.weighted((8, 4, 2, 16), (6, 2, 1, 1)), draw.chance(1, 3)), x, reach=6.0)


# --- layers between Dequantize and Quantize ---------------------------------------------------------------------------


@grower(6, Dequantize, Quantize, Convolution2d, FullyConnected, Activation, kinds=_QUANTIZED)
def _between_dequantize_and_quantize(growth: Growth, value: Value) -> None:
    """Add a float layer with dequantized operands and a quantized result, as in ONNX files."""
    draw = growth.draw
    stored = image(growth, value, stored=True)
    x = growth.add(Dequantize(), stored)
    add_inner = draw.one_of((_dequantized_convolution, _dequantized_activation, _dequantized_sum))
    y, reach = add_inner(growth, x)
    dtype = stored.known.dtype
    quantization = growth.quantization(dtype, reach, growth.sign(y))
    growth.add(
        Quantize(dtype, RoundingMethod.HALF_TO_EVEN),
        y,
        outputs=TensorInfo(y.known.shape, dtype, quantization),
        reach=reach,
    )


def _dequantized_convolution(growth: Growth, x: Value) -> tuple[Value, float]:
    draw = growth.draw
    drawn_filter = convolution_filter(growth, x) if draw.chance(2, 3) else depthwise_filter(growth, x)
    axis = 3 if isinstance(drawn_filter.op, DepthwiseConvolution2d) else 0
    reach = 3.0 / (growth.reach(x) * math.sqrt(drawn_filter.terms))
    weights = growth.add(Dequantize(), _weights(growth, drawn_filter.weights, reach, False, axis))
    bias = (
        growth.constant(draw.uniform((drawn_filter.channels,), -1.0, 1.0).astype(np.float32))
        if draw.chance(1, 2)
        else None
    )
    convolved = growth.add(drawn_filter.op, x, weights, bias, reach=2.0)
    if draw.chance(1, 2):
        convolved = growth.add(Activation(_F.RELU), convolved, reach=2.0, positive=True)
    return convolved, 2.0


def _dequantized_activation(growth: Growth, x: Value) -> tuple[Value, float]:
    op = activation(growth.draw)
    reach = _reach_after(op, growth.reach(x))
    return growth.add(op, x, reach=reach), reach


def _dequantized_sum(growth: Growth, x: Value) -> tuple[Value, float]:
    quantized = growth.another(
        lambda candidate: _alike(growth, candidate.known, TensorInfo(x.known.shape, growth.stored_type))
    )
    if quantized is None:
        raise Skipped
    y = growth.add(Dequantize(), quantized)
    op: Op = growth.draw.one_of((Addition(), Multiplication(), Subtraction()))
    reach = growth.reach(x) * growth.reach(y) if isinstance(op, Multiplication) else growth.reach(x) + growth.reach(y)
    return growth.add(op, x, y, reach=reach), reach
