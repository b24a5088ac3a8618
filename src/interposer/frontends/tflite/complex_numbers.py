"""TFLite converters for complex numbers, whose real and imaginary parts are along a last axis of size 2."""

from __future__ import annotations

import numpy as np

from interposer.core.types import TensorInfo
from interposer.frontends.tflite.node import Node
from interposer.frontends.tflite.reshape import expanded_shape, reshape_to, squeezed_shape
from interposer.frontends.tflite.tflite_converters import complex_operator
from interposer.ir.graph import Value
from interposer.ops.axes import normal_axis
from interposer.ops.elementwise import Addition, Multiplication, Subtraction
from interposer.ops.quantization import Cast
from interposer.ops.rearrange import Concat, Pad, Slice, StridedSlice, Tile, Transpose
from interposer.ops.reduction import Reduce, ReduceOperation
from interposer.ops.reshape import Reshape
from interposer.ops.spectral import Dft

__all__: list[str] = []


def _part(node: Node, x: Value, number: int) -> Value:
    """Return the real (0) or imaginary (1) part, with a last axis of size 1."""
    rank = x.known.rank
    return node.step(Slice((0,) * (rank - 1) + (number,), (-1,) * (rank - 1) + (1,)), x)


@complex_operator("REAL", "IMAG")
def part(node: Node) -> Value:
    """Convert REAL and IMAG, which select one part of each complex number."""
    x = node.value(0)
    column = _part(node, x, 1 if node.kind == "IMAG" else 0)
    return node.result(reshape_to(node, x.known.shape[:-1]), column)


@complex_operator("COMPLEX_ABS")
def magnitude(node: Node) -> Value:
    """Convert COMPLEX_ABS to the Euclidean norm of the two parts."""
    return node.result(Reduce((-1,), operation=ReduceOperation.L2), node.value(0))


@complex_operator("RFFT2D")
def real_fft(node: Node) -> Value:
    """Convert RFFT2D to a discrete Fourier transform along each of the two last axes."""
    lengths = node.integers_of(1, "the FFT lengths")
    x = node.value(0)
    if len(lengths) != 2 or min(lengths) < 1:
        node.fail(f"the FFT lengths are {lengths}; expected two numbers of at least 1")
    if x.known.rank < 2:
        node.fail(f"input 0 has shape {x.known.shape}; expected rank 2 or more")
    numbers = node.step(reshape_to(node, (*x.known.shape, 1)), x)
    rows = node.step(Dft(axis=-2, length=lengths[1], onesided=True), numbers)
    return node.result(Dft(axis=-3, length=lengths[0]), rows)


@complex_operator("CAST")
def cast(node: Node) -> Value:
    """Convert CAST from complex numbers, which drops the imaginary part, and CAST to them."""
    x, output = node.value(0), node.output_info
    if node.is_complex_output(0) and node.is_complex_input(0):
        return node.result(Cast(output.dtype), x)
    if node.is_complex_output(0):
        real_part = node.step(reshape_to(node, (*x.known.shape, 1)), node.step(Cast(output.dtype), x))
        return node.result(Pad(((0, 0),) * x.known.rank + ((0, 1),)), real_part)
    real_part = node.step(reshape_to(node, x.known.shape[:-1]), _part(node, x, 0))
    return node.result(Cast(output.dtype), real_part)


@complex_operator("MUL")
def multiply(node: Node) -> Value:
    """Convert MUL: (a + bi)(c + di) = (ac - bd) + (ad + bc)i."""
    a, b = (_part(node, node.value(0), number) for number in (0, 1))
    c, d = (_part(node, node.value(1), number) for number in (0, 1))

    def product(left: Value, right: Value) -> Value:
        return node.step(Multiplication(), left, right)

    real = node.step(Subtraction(), product(a, c), product(b, d))
    imaginary = node.step(Addition(), product(a, d), product(b, c))
    return node.result(Concat(-1), real, imaginary)


@complex_operator("RESHAPE")
def reshape(node: Node) -> Value:
    """Convert RESHAPE; the parts stay along the last axis."""
    shape = node.integers_of(1, "the shape") if node.optional(1) is not None else node.output_info.shape[:-1]
    return node.result(Reshape((*shape, 2)), node.value(0))


@complex_operator("EXPAND_DIMS")
def expand_dims(node: Node) -> Value:
    """Convert EXPAND_DIMS; the axis does not count the parts."""
    shape = expanded_shape(node, _without_parts(node.info(0)))
    return node.result(reshape_to(node, [*shape, 2]), node.value(0))


@complex_operator("SQUEEZE", options=True)
def squeeze(node: Node) -> Value:
    """Convert SQUEEZE; the axes do not count the parts."""
    shape = squeezed_shape(node, _without_parts(node.info(0)))
    return node.result(reshape_to(node, [*shape, 2]), node.value(0))


def _without_parts(info: TensorInfo) -> tuple[int, ...]:
    return tuple(info.shape[:-1])


@complex_operator("TRANSPOSE")
def transpose(node: Node) -> Value:
    """Convert TRANSPOSE; the axis of the parts stays the last one."""
    rank = node.info(0).rank - 1
    permutation = (normal_axis(axis, rank) for axis in node.integers_of(1, "the permutation"))
    return node.result(Transpose((*permutation, rank)), node.value(0))


@complex_operator("SLICE")
def slice_(node: Node) -> Value:
    """Convert SLICE, which keeps both parts."""
    return node.result(Slice((*node.integers_of(1, "begin"), 0), (*node.integers_of(2, "size"), 2)), node.value(0))


@complex_operator("STRIDED_SLICE", options=True)
def strided_slice(node: Node) -> Value:
    """Convert STRIDED_SLICE with a range for every axis, and keep both parts."""
    begin, end, strides = node.integers_of(1, "begin"), node.integers_of(2, "end"), node.integers_of(3, "strides")
    masks = {name: mask for name, mask in node.options.items() if name.endswith("_mask")}
    if len(begin) != node.info(0).rank - 1 or masks["ellipsis_mask"] or masks["new_axis_mask"]:
        node.fail("complex numbers can only be sliced by one range for every axis")
    if node.options["offset"]:
        end = tuple(int(number) for number in np.add(begin, end))
    return node.result(StridedSlice((*begin, 0), (*end, 2), (*strides, 1), **masks), node.value(0))


@complex_operator("TILE")
def tile(node: Node) -> Value:
    """Convert TILE, which repeats both parts together."""
    return node.result(Tile((*node.integers_of(1, "the multiples"), 1)), node.value(0))
