"""Growers of groups of layers that optimizers and backends fuse or rewrite, some of them with a small deviation.

Other layers may read the values inside of a group as well; a fusion must detect that.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

import numpy as np

from interposer.core.schema import Op
from interposer.core.types import DataLayout, DataType, TensorInfo
from interposer.ir.graph import Value
from interposer.ops import (
    Activation,
    ActivationFunction,
    Addition,
    BinaryOperation,
    BroadcastTo,
    Cast,
    Concat,
    Convolution2d,
    DepthwiseConvolution2d,
    Dequantize,
    Division,
    ElementwiseBinary,
    ElementwiseUnary,
    Maximum,
    Mean,
    Minimum,
    Multiplication,
    Pad,
    Pooling2d,
    PoolingAlgorithm,
    Quantize,
    Reshape,
    Softmax,
    Splitter,
    Subtraction,
    Transpose,
    UnaryOperation,
)
from interposer.testing.random_networks.arrays import as_type
from interposer.testing.random_networks.convolution import (
    convolution_filter,
    depthwise_filter,
    finished,
    pointwise_filter,
)
from interposer.testing.random_networks.elementwise import activated, activation
from interposer.testing.random_networks.growers import grower
from interposer.testing.random_networks.growth import Growth, Skipped
from interposer.testing.random_networks.pooling import pooling_op
from interposer.testing.random_networks.random_windows import image

__all__: list[str] = []

_FLOAT: Final = ("float",)
_F = ActivationFunction
_MOVES: Final = {DataLayout.NHWC: (0, 3, 1, 2), DataLayout.NCHW: (0, 2, 3, 1)}
"""The permutation that converts an image from each layout to the other one."""


def _number(growth: Growth, element: float, like: Value) -> Value:
    """Return a constant with a single element of the type of `like`: a scalar, or a tensor whose sizes are all 1."""
    shape = growth.draw.one_of(((), (1,), (1,) * like.known.rank))
    return growth.constant(as_type(np.full(shape, element), like.known.dtype))


def _near(growth: Growth, factor: float) -> float:
    """Return `factor`, or in one of six cases another one, which rewrites of the formula must notice."""
    return factor if growth.draw.chance(5, 6) else factor * 1.5


def _either(growth: Growth, op: Op, a: Value, b: Value, reach: float) -> Value:
    """Add a commutative operator with the operands `a` and `b` in random order; return its result.

    `reach` is an estimate of the largest magnitude in the result.
    """
    return growth.add(op, *((a, b) if growth.draw.chance(1, 2) else (b, a)), reach=reach)


# --- functions that are written with others ---------------------------------------------------------------------------


@grower(3, Activation, Multiplication, kinds=_FLOAT)
def _swish(growth: Growth, value: Value) -> None:
    """Add the product of x and its sigmoid, or of x and the bounded ReLU of x + 3, divided by 6."""
    x = growth.real(value)
    if growth.draw.chance(1, 2):
        gate = growth.add(Activation(_F.SIGMOID), x, reach=1.0, positive=True)
    else:
        shifted = _either(growth, Addition(), x, _number(growth, _near(growth, 3.0), x), growth.reach(x) + 3)
        bounded = growth.add(Activation(_F.BOUNDED_RELU, 6.0, 0.0), shifted, reach=6.0, positive=True)
        gate = _either(growth, Multiplication(), bounded, _number(growth, _near(growth, 1 / 6), x), 1.0)
    _either(growth, Multiplication(), x, gate, growth.reach(x))


@grower(2, ElementwiseUnary, Multiplication, Addition, kinds=_FLOAT)
def _gelu(growth: Growth, value: Value) -> None:
    """Add a GELU written with ERF, in one of the orders in which exporters multiply."""
    x, reach = growth.real(value), growth.reach(value)
    if growth.draw.chance(1, 2):
        scaled = growth.add(Division(), x, _number(growth, _near(growth, 1.4142135), x), reach=reach)
    else:
        scaled = _either(growth, Multiplication(), x, _number(growth, _near(growth, 0.70710677), x), reach)
    erf = growth.add(ElementwiseUnary(UnaryOperation.ERF), scaled, reach=1.0)
    shifted = _either(growth, Addition(), erf, _number(growth, _near(growth, 1.0), x), 2.0)
    if growth.draw.chance(1, 2):
        halved = _either(growth, Multiplication(), x, _number(growth, _near(growth, 0.5), x), reach)
        _either(growth, Multiplication(), halved, shifted, reach)
    else:
        product = _either(growth, Multiplication(), x, shifted, reach * 2)
        _either(growth, Multiplication(), product, _number(growth, _near(growth, 0.5), x), reach)


@grower(2, Mean, Subtraction, Division, Multiplication, Addition, kinds=_FLOAT)
def _layer_normalization(growth: Growth, value: Value) -> None:
    """Add a layer normalization written as means, a difference, a square root and a quotient."""
    draw, x = growth.draw, growth.real(value)
    if x.known.rank < 2 or x.known.shape[-1] < 2:
        raise Skipped
    mean = growth.add(Mean((-1,), True), x)
    difference = growth.add(Subtraction(), x, mean)
    reach = growth.reach(x) * growth.reach(x)
    if draw.chance(1, 2):
        square = growth.add(Multiplication(), difference, difference, reach=reach, positive=True)
    else:
        two = _number(growth, 2.0, x)
        square = growth.add(
            ElementwiseBinary(BinaryOperation.POWER),
            difference,
            two,
            reach=reach,
            positive=True,
        )
    variance = growth.add(Mean((-1,), True), square)
    deviation = growth.add(
        ElementwiseUnary(UnaryOperation.SQRT), _either(growth, Addition(), variance, _number(growth, 1e-3, x), 4.0)
    )
    normalized = growth.add(Division(), difference, deviation, reach=3.0)
    size, dtype = x.known.shape[-1:], x.known.dtype
    scaled = _either(growth, Multiplication(), normalized, growth.weights(size, 1.0, dtype), 3.0)
    _either(growth, Addition(), scaled, growth.weights(size, 1.0, dtype), 4.0)


@grower(3, Maximum, Minimum, Activation, kinds=_FLOAT)
def _clamps(growth: Growth, value: Value) -> None:
    """Add two or three consecutive Maximum, Minimum or ReLU layers with bounds that may contradict each other."""
    draw, x = growth.draw, growth.real(value)
    for _ in range(draw.integer(2, 3)):
        bound = draw.one_of((-2.0, -1.0, 0.0, 1.0, 6.0))
        op_class = draw.one_of((Maximum, Minimum, Activation))
        if op_class is Activation:
            functions = (Activation(_F.RELU), Activation(_F.BOUNDED_RELU, max(bound, 0.5), -1.0))
            x = growth.add(draw.one_of(functions), x)
        else:
            x = _either(growth, op_class(), x, _number(growth, bound, x), growth.reach(x))


# --- groups around convolutions ---------------------------------------------------------------------------------------


@grower(4, Convolution2d, DepthwiseConvolution2d, kinds=_FLOAT)
def _inverted_residual(growth: Growth, value: Value) -> None:
    """Add pointwise convolutions before and after a depthwise one, with activations and often a residual connection."""
    draw, x = growth.draw, image(growth, value)
    layout, function = draw.one_of(tuple(_MOVES)), activation(draw)
    expanded = activated(growth, finished(growth, x, pointwise_filter(growth, x, layout), plain=True), function)
    filtered = finished(growth, expanded, depthwise_filter(growth, expanded, layout), plain=True)
    filtered = activated(growth, filtered, function) if draw.chance(2, 3) else filtered
    channels = x.known.shape[layout.axes().channels] if draw.chance(2, 3) else None
    projected = finished(growth, filtered, pointwise_filter(growth, filtered, layout, channels), plain=True)
    if projected.known == x.known:
        projected = _either(growth, Addition(), projected, x, growth.reach(projected) + growth.reach(x))
    if draw.chance(1, 3):
        activated(growth, projected)


@grower(3, Pooling2d, Convolution2d, Multiplication, kinds=_FLOAT)
def _squeeze_and_excite(growth: Growth, value: Value) -> None:
    """Add a gate for every channel: a function of the channel's mean, multiplied with the image."""
    draw, x = growth.draw, image(growth, value)
    layout = draw.one_of(tuple(_MOVES))
    h, w, c = layout.axes()
    if draw.chance(1, 2):
        mean = growth.add(Mean((h, w), True), x)
    else:
        mean = growth.add(Pooling2d(PoolingAlgorithm.AVERAGE, data_layout=layout), x)
    hidden = finished(growth, mean, pointwise_filter(growth, mean, layout), plain=True)
    hidden = growth.add(Activation(_F.RELU), hidden, positive=True)
    gate = finished(growth, hidden, pointwise_filter(growth, hidden, layout, x.known.shape[c]), plain=True)
    gate = growth.add(draw.one_of((Activation(_F.SIGMOID), Activation(_F.HARD_SIGMOID, 0.2, 0.5))), gate, reach=1.0)
    _either(growth, Multiplication(), x, gate, growth.reach(x))


@grower(3, Multiplication, Addition, Convolution2d, kinds=_FLOAT)
def _scale_and_shift(growth: Growth, value: Value) -> None:
    """Add a product and a sum with one number per channel, after a convolution or any image."""
    draw, x = growth.draw, image(growth, value)
    layout = draw.one_of(tuple(_MOVES))
    if draw.chance(2, 3):
        filter_ = convolution_filter(growth, x)
        x, layout = finished(growth, x, filter_, plain=True), filter_.op.data_layout
    channels = x.known.shape[layout.axes().channels]
    shape = (channels,) if layout.channels_last else (channels, 1, 1)
    shape = (1, *shape) if draw.chance(1, 3) and not layout.channels_last else shape
    for op in ((Multiplication(), Addition()), (Addition(), Multiplication()), (Addition(),))[draw.below(3)]:
        x = _either(growth, op, x, growth.weights(shape, 1.0, x.known.dtype), growth.reach(x) + 1)
    if draw.chance(1, 2):
        activated(growth, x)


@grower(3, Pad, Convolution2d, Pooling2d, kinds=_FLOAT)
def _padded_window(growth: Growth, value: Value) -> None:
    """Add a Pad before a convolution or a pooling, which may absorb it if the pad value matches."""
    draw, x = growth.draw, image(growth, value)
    layout = draw.one_of(tuple(_MOVES))
    h, w, c = layout.axes()
    paddings = [(0, 0)] * 4
    for axis in (h, w):
        paddings[axis] = (draw.integer(0, 2), draw.integer(0, 2))
    if draw.chance(1, 10):
        paddings[c] = (0, 1)
    x = growth.add(Pad(tuple(paddings), draw.weighted((0.0, 1.0, -100.0), (5, 1, 1))), x)
    if draw.chance(1, 3):
        growth.add(pooling_op(growth, x, layout), x)
    elif draw.chance(2, 3):
        finished(growth, x, convolution_filter(growth, x, layout))
    else:
        finished(growth, x, depthwise_filter(growth, x, layout))


# --- moves that undo each other ---------------------------------------------------------------------------------------


@grower(4, Transpose)
def _between_transposes(growth: Growth, value: Value) -> None:
    """Add a layer between two Transposes that often cancel out, as converters of layouts leave them."""
    draw, x = growth.draw, value
    rank = x.known.rank
    order = draw.one_of(tuple(_MOVES.values())) if rank == 4 and draw.chance(3, 4) else draw.order(rank)
    x = growth.add(Transpose(order), x)
    x = _inner(growth, x)
    second_order = tuple(order.index(axis) for axis in range(rank)) if draw.chance(3, 4) else draw.order(rank)
    growth.add(Transpose(second_order), x)


def _inner(growth: Growth, x: Value) -> Value:
    """Add an activation or an addition, which preserves the shape, and return its result.

    Sometimes return `x` itself.
    """
    draw = growth.draw
    if draw.chance(1, 5):
        return x
    x = growth.stored(x) if growth.kind == "quantized" else growth.real(x)
    variant = draw.below(4) if not x.known.is_quantized else 0
    if variant == 0:
        return growth.add(draw.one_of((Activation(_F.RELU), Activation(_F.BOUNDED_RELU, 1.0, -1.0))), x)
    if variant == 1:
        return activated(growth, x)
    if variant == 2:
        shape = [size if draw.chance(1, 2) else 1 for size in x.known.shape]
        return _either(growth, Addition(), x, growth.weights(shape, 1.0, x.known.dtype), growth.reach(x) + 1)
    same_info = growth.another(lambda candidate: candidate.known == x.known and candidate is not x)
    return _either(growth, Addition(), x, same_info or x, growth.reach(x) * 2)


@grower(3, Reshape, Transpose)
def _shuffle(growth: Growth, value: Value) -> None:
    """Add a Reshape, a Transpose and a Reshape: a channel shuffle, or pixels that become channels."""
    draw, shape = growth.draw, tuple(value.known.shape)
    axis = draw.below(len(shape)) if shape else 0
    divisors = [size for size in range(2, 9) if shape and shape[axis] and shape[axis] % size == 0]
    if not divisors or len(shape) > 5:
        raise Skipped
    size = draw.one_of(divisors)
    split_shape = (*shape[:axis], size, shape[axis] // size, *shape[axis + 1 :])
    order = list(range(len(split_shape)))
    order[axis], order[axis + 1] = order[axis + 1], order[axis]
    transposed = growth.add(Transpose(tuple(order)), growth.add(Reshape(split_shape), value))
    growth.add(Reshape(shape), transposed)


@grower(3, Splitter, Concat)
def _branches(growth: Growth, value: Value) -> None:
    """Split a value, add layers to some of the pieces, and concatenate the pieces, sometimes in another order."""
    draw, x = growth.draw, value
    axis = growth.axis(x)
    size = x.known.shape[axis]
    if size < 2 or (x.known.quantization is not None and x.known.quantization.per_axis):
        raise Skipped
    first_size = draw.integer(1, size - 1)
    growth.add(Splitter(axis, (first_size, size - first_size)), x)
    branches: list[Value] = list(growth.values[-2:])
    if x.known.dtype is growth.real_type:
        branches = [activated(growth, branch) if draw.chance(1, 2) else branch for branch in branches]
    branches = [branches[index] for index in draw.order(2)]
    growth.add(Concat(axis), *branches, outputs=_joint(branches, axis))


def _joint(branches: Sequence[Value], axis: int) -> TensorInfo:
    shape = list(branches[0].known.shape)
    shape[axis] = sum(branch.known.shape[axis] for branch in branches)
    return branches[0].known.with_constant(None).with_shape(shape)


@grower(2, Activation, Addition)
def _twins(growth: Growth, value: Value) -> None:
    """Add the same layer twice, on the same operands, and a layer that reads both results."""
    x = growth.real(value)
    op: Op = growth.draw.one_of((Activation(_F.TANH, 1.0, 1.0), activation(growth.draw), Softmax(axis=0)))
    if isinstance(op, Activation):
        first, second = (activated(growth, x, op) for _ in range(2))
    else:
        first, second = (growth.add(op, x, reach=1.0) for _ in range(2))
    growth.add(Addition(), first, second, reach=growth.reach(first) * 2)


@grower(2, Cast, Reshape)
def _chain_of_conversions(growth: Growth, value: Value) -> None:
    """Add casts to a type and back, or consecutive reshapes."""
    draw, x = growth.draw, growth.real(value)
    if draw.chance(1, 2):
        other_type = draw.one_of((DataType.FLOAT16, DataType.BFLOAT16, DataType.FLOAT64))
        growth.add(Cast(x.known.dtype), growth.add(Cast(other_type), x))
        return
    shape = tuple(x.known.shape)
    for target in ((-1,) if math.prod(shape) else shape, (1, *shape), shape):
        x = growth.add(Reshape(target), x)


@grower(2, BroadcastTo, Addition, Multiplication, kinds=_FLOAT)
def _broadcast_before_arithmetic(growth: Growth, value: Value) -> None:
    """Add a BroadcastTo of a value or a constant before arithmetic that would broadcast it anyway."""
    draw, x = growth.draw, growth.real(value)
    shape = tuple(x.known.shape)
    source_shape = tuple(size if draw.chance(1, 2) else 1 for size in shape)
    broadcast = growth.add(BroadcastTo(shape), growth.weights(source_shape, 1.0, x.known.dtype))
    _either(growth, draw.one_of((Addition(), Multiplication())), x, broadcast, growth.reach(x) + 1)


@grower(3, Quantize, Dequantize, kinds=("quantized",))
def _there_and_back(growth: Growth, value: Value) -> None:
    """Add Dequantize and Quantize around a layer that moves elements, sometimes with another quantization after it."""
    draw, x = growth.draw, growth.stored(value)
    info = x.known
    real = growth.add(Dequantize(), x)
    if info.rank and draw.chance(2, 3):
        real = growth.add(draw.one_of((Transpose(draw.order(info.rank)), Reshape((1, *info.shape)))), real)
    quantization = (
        info.quantization if draw.chance(1, 2) else growth.quantization(info.dtype, growth.reach(x), growth.sign(x))
    )
    growth.add(Quantize(info.dtype), real, outputs=TensorInfo(real.known.shape, info.dtype, quantization))
