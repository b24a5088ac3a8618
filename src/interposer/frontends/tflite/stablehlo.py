"""TFLite converters for StableHLO's operators on elements and shapes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from interposer.core.types import DataType, Dim
from interposer.frontends.elementwise import (
    ABS,
    BITWISE_XOR,
    EQUAL,
    GREATER,
    GREATER_OR_EQUAL,
    LESS,
    LESS_OR_EQUAL,
    NOT_EQUAL,
    POWER,
    SIGN,
    operators_by_name,
)
from interposer.frontends.tflite.interior import concrete, dilated, padded
from interposer.frontends.tflite.node import Node
from interposer.frontends.tflite.tflite_converters import operator
from interposer.ir.graph import Value
from interposer.ops.dynamic import DynamicSlice
from interposer.ops.elementwise import Addition, Maximum, Minimum, Multiplication, Where
from interposer.ops.quantization import Bitcast, Cast
from interposer.ops.randomness import BitGenerator, RandomBits
from interposer.ops.rearrange import Concat, StridedSlice, Transpose
from interposer.ops.reshape import BroadcastTo, Reshape
from interposer.ops.scatter import DynamicUpdateSlice

__all__: list[str] = []

_UNARY: Final = operators_by_name(
    STABLEHLO_LOGISTIC="SIGMOID", STABLEHLO_TANH="TANH", STABLEHLO_ABS="ABS", STABLEHLO_COSINE="COS",
    STABLEHLO_EXPONENTIAL="EXP", STABLEHLO_FLOOR="FLOOR", STABLEHLO_LOG="LOG", STABLEHLO_NEGATE="NEG",
    STABLEHLO_RSQRT="RSQRT",
)  # fmt: skip
_BINARY: Final = operators_by_name(
    STABLEHLO_ADD="ADD", STABLEHLO_SUBTRACT="SUB", STABLEHLO_MULTIPLY="MUL", STABLEHLO_DIVIDE="DIV",
    STABLEHLO_MAXIMUM="MAXIMUM", STABLEHLO_MINIMUM="MINIMUM", STABLEHLO_POWER="POWER", STABLEHLO_REMAINDER="FMOD",
    STABLEHLO_AND="BITWISE_AND", STABLEHLO_OR="BITWISE_OR", STABLEHLO_SHIFT_LEFT="SHIFT_LEFT",
)  # fmt: skip
_OF_BOOLS: Final = operators_by_name(
    STABLEHLO_ADD="LOGICAL_OR", STABLEHLO_MAXIMUM="LOGICAL_OR", STABLEHLO_OR="LOGICAL_OR",
    STABLEHLO_MULTIPLY="LOGICAL_AND", STABLEHLO_MINIMUM="LOGICAL_AND", STABLEHLO_AND="LOGICAL_AND",
)  # fmt: skip
_DIRECTIONS: Final = (EQUAL, NOT_EQUAL, GREATER_OR_EQUAL, GREATER, LESS_OR_EQUAL, LESS)
_TOTAL_ORDER: Final = 2
_SAME_WIDTH: Final = {
    DataType.FLOAT16: DataType.INT16,
    DataType.FLOAT32: DataType.INT32,
    DataType.FLOAT64: DataType.INT64,
}
_GENERATORS: Final = {0: BitGenerator.PHILOX, 1: BitGenerator.PHILOX, 2: BitGenerator.THREEFRY}


@operator(*_UNARY)
def unary(node: Node) -> Value:
    """Convert StableHLO's elementwise operators on one tensor."""
    return node.result(_UNARY[node.kind], node.value(0))


@operator(*_BINARY)
def binary(node: Node) -> Value:
    """Convert StableHLO's elementwise operators on two tensors; on bool, sums are OR and products are AND."""
    a, b = node.value(0), node.value(1)
    if a.known.dtype is DataType.BOOL and node.kind in _OF_BOOLS:
        return node.result(_OF_BOOLS[node.kind], a, b)
    return node.result(_BINARY[node.kind], a, b)


@operator("STABLEHLO_CBRT")
def cube_root(node: Node) -> Value:
    """Convert STABLEHLO_CBRT: the sign of x times the cube root of its absolute value."""
    x = node.value(0)
    third = node.constant(np.array(1 / 3, x.known.dtype.numpy))
    magnitude = node.step(ABS, x)
    root = node.step(POWER, magnitude, third)
    return node.result(Multiplication(), node.step(SIGN, x), root)


@operator("STABLEHLO_SELECT")
def select(node: Node) -> Value:
    """Convert STABLEHLO_SELECT, whose condition may be a scalar."""
    return node.result(Where(), *node.values())


@operator("STABLEHLO_CLAMP")
def clamp(node: Node) -> Value:
    """Convert STABLEHLO_CLAMP: the inputs are the minimum, the operand and the maximum."""
    low, x, high = (node.value(index) for index in range(3))
    return node.result(Minimum(), node.step(Maximum(), x, low), high)


@operator("STABLEHLO_COMPARE", options=True)
def compare(node: Node) -> Value:
    """Convert STABLEHLO_COMPARE; in total order, floats are compared as integers with the same order."""
    direction, kind = node.options["comparison_direction"], node.options["compare_type"]
    if direction >= len(_DIRECTIONS):
        node.fail(f"the direction {direction} is not known")
    a, b = node.value(0), node.value(1)
    if kind == _TOTAL_ORDER and a.known.dtype in _SAME_WIDTH:
        a, b = _in_total_order(node, a), _in_total_order(node, b)
    return node.result(_DIRECTIONS[direction], a, b)


def _in_total_order(node: Node, x: Value) -> Value:
    """Return integers in the order -NaN, -inf, ..., -0, 0, ..., inf, NaN of floats.

    The bits of negative floats but their sign are inverted.
    """
    dtype = _SAME_WIDTH.get(x.known.dtype) or node.fail(f"{x.known.dtype} has no total order")
    bits, limits = node.step(Bitcast(dtype), x), np.iinfo(dtype.numpy)
    all_but_sign, zero = (node.constant(np.array(number, dtype.numpy)) for number in (limits.max, 0))
    is_negative = node.step(LESS, bits, zero)
    inverted = node.step(BITWISE_XOR, bits, all_but_sign)
    return node.step(Where(), is_negative, inverted, bits)


@operator("STABLEHLO_CONVERT")
def convert(node: Node) -> Value:
    """Convert STABLEHLO_CONVERT to the type of the output."""
    return node.result(Cast(node.output_info.dtype), node.value(0))


@operator("STABLEHLO_RESHAPE")
def reshape(node: Node) -> Value:
    """Convert STABLEHLO_RESHAPE, whose shape is that of the output in the file."""
    shape = node.output_info.shape
    if sum(isinstance(size, Dim) for size in shape) > 1:
        node.open_shape("more than one dimension is not known")
    return node.result(Reshape(tuple(-1 if isinstance(size, Dim) else size for size in shape)), node.value(0))


@operator("STABLEHLO_TRANSPOSE", options=True)
def transpose(node: Node) -> Value:
    """Convert STABLEHLO_TRANSPOSE; the permutation is an option."""
    return node.result(Transpose(tuple(node.options["permutation"] or ())), node.value(0))


@operator("STABLEHLO_CONCATENATE", options=True)
def concatenate(node: Node) -> Value:
    """Convert STABLEHLO_CONCATENATE along a dimension."""
    return node.result(Concat(node.options["dimension"]), *node.values())


@operator("STABLEHLO_BROADCAST_IN_DIM", options=True)
def broadcast_in_dim(node: Node) -> Value:
    """Convert STABLEHLO_BROADCAST_IN_DIM; the options name the output's dimension for each one of the input."""
    x, shape = node.value(0), concrete(node, node.output_info.shape, "the output")
    output_axes = tuple(node.options["broadcast_dimensions"] or ())
    if (
        len(output_axes) != x.known.rank
        or len({*output_axes}) != len(output_axes)
        or not {*output_axes} <= {*range(len(shape))}
    ):
        node.fail(f"the broadcast dimensions are {output_axes}; expected {x.known.rank} of the output's {len(shape)}")
    order = tuple(sorted(range(len(output_axes)), key=lambda axis: output_axes[axis]))
    x = x if order == tuple(range(len(order))) else node.step(Transpose(order), x)
    sizes = dict(zip(sorted(output_axes), concrete(node, x.known.shape, "the input"), strict=True))
    x = node.step(Reshape(tuple(sizes.get(axis, 1) for axis in range(len(shape)))), x)
    return node.result(BroadcastTo(shape), x)


@operator("STABLEHLO_SLICE", options=True)
def slice_(node: Node) -> Value:
    """Convert STABLEHLO_SLICE with its starts, limits and strides."""
    names, rank = ("start_indices", "limit_indices", "strides"), node.info(0).rank
    starts, limits, strides = (tuple(node.options[name] or ()) for name in names)
    columns = [starts, limits, strides]
    if any(len(column) != rank or min(column, default=0) < 0 for column in columns):
        node.fail(f"its range is {columns}; expected numbers of at least 0 for each of {rank} axes")
    return node.result(StridedSlice(starts, limits, strides), node.value(0)) if rank else node.value(0)


@operator("STABLEHLO_IOTA", options=True)
def iota(node: Node) -> Value:
    """Convert STABLEHLO_IOTA to consecutive numbers along a dimension, which are broadcast along the others."""
    shape, axis = concrete(node, node.output_info.shape, "the output"), node.options["iota_dimension"]
    if not 0 <= axis < len(shape):
        node.fail(f"the dimension is {axis}; expected one of {len(shape)}")
    numbers = np.arange(shape[axis]).astype(node.output_info.dtype.numpy)
    column = node.constant(numbers.reshape([-1 if number == axis else 1 for number in range(len(shape))]))
    return node.result(BroadcastTo(shape), column)


@operator("STABLEHLO_PAD", options=True)
def pad(node: Node) -> Value:
    """Convert STABLEHLO_PAD: padding before, after and between elements; negative padding removes elements."""
    x, filler = node.value(0), node.scalar(1)
    low, high, interior = (
        tuple(node.options[name] or ()) for name in ("edge_padding_low", "edge_padding_high", "interior_padding")
    )
    if {len(low), len(high), len(interior)} != {x.known.rank} or min(interior, default=0) < 0:
        node.fail(f"the padding is {low}, {high} and {interior}; expected numbers for {x.known.rank} axes")
    check_padding(node, (*low, *high, *interior))
    return padded(node, dilated(node, x, [gap + 1 for gap in interior], filler), low, high, filler)


def check_padding(node: Node, numbers: Sequence[int]) -> None:
    """Refuse the node if one of the numbers is far beyond the size of a dimension."""
    if any(abs(number) >= 1 << 31 for number in numbers):
        node.fail(f"the padding has {max(numbers, key=abs)}; at most {(1 << 31) - 1} is possible")


@operator("STABLEHLO_DYNAMIC_SLICE", options=True)
def dynamic_slice(node: Node) -> Value:
    """Convert STABLEHLO_DYNAMIC_SLICE; starts are clamped so that the slice is within the tensor."""
    x, sizes = node.value(0), tuple(node.options["slice_sizes"] or ())
    shape = concrete(node, x.known.shape, "the input")
    if len(sizes) != len(shape) or any(not 0 <= size <= dim for size, dim in zip(sizes, shape, strict=True)):
        node.fail(f"the slice sizes are {sizes} in a tensor of shape {x.known.shape}")
    if not shape:
        return x
    starts = _starts(node, 1, len(shape))
    last_starts = np.subtract(shape, sizes).astype(starts.known.dtype.numpy)
    starts = node.step(Maximum(), starts, node.constant(np.zeros_like(last_starts)))
    starts = node.step(Minimum(), starts, node.constant(last_starts))
    ends = node.step(Addition(), starts, node.constant(np.array(sizes, last_starts.dtype)))
    return node.result(DynamicSlice(tuple(range(len(shape)))), x, starts, ends)


@operator("STABLEHLO_DYNAMIC_UPDATE_SLICE")
def dynamic_update_slice(node: Node) -> Value:
    """Convert STABLEHLO_DYNAMIC_UPDATE_SLICE, whose starts are one scalar for each axis."""
    x, update = node.value(0), node.value(1)
    if not x.known.rank:
        return update
    return node.result(DynamicUpdateSlice(), x, update, _starts(node, 2, x.known.rank))


def _starts(node: Node, first: int, rank: int) -> Value:
    """Return the inputs from number `first` on, one scalar for each axis, as a vector of int32 or int64."""
    if node.num_inputs != first + rank:
        node.fail(f"it has {node.num_inputs} inputs; expected {first + rank}")
    scalars = [node.step(Reshape((1,)), node.value(first + axis)) for axis in range(rank)]
    starts = node.step(Concat(0), *scalars)
    is_index = starts.known.dtype in {DataType.INT32, DataType.INT64}
    return starts if is_index else node.step(Cast(DataType.INT64), starts)


@operator("STABLEHLO_RNG_BIT_GENERATOR", options=True)
def random_bits(node: Node) -> list[Value]:
    """Convert STABLEHLO_RNG_BIT_GENERATOR, which returns its next state and random bits."""
    algorithm = node.options["algorithm"]
    generator = _GENERATORS.get(algorithm) or node.fail(f"the algorithm {algorithm} is not known")
    if len(node.output_infos) != 2:
        node.fail(f"it has {len(node.output_infos)} outputs; expected 2")
    bits = node.output_infos[1]
    shape = concrete(node, bits.shape, "the output")
    return node.results(RandomBits(shape, generator, bits.dtype), node.value(0))
