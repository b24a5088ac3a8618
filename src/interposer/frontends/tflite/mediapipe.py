"""TFLite converters for custom operators of MediaPipe, whose options are structures in C."""

from __future__ import annotations

import struct
from typing import Final

import numpy as np

from interposer.core.types import Array, DataLayout, DataType
from interposer.frontends.elementwise import FLOOR_DIV, MOD
from interposer.frontends.tflite.interior import concrete
from interposer.frontends.tflite.node import Node
from interposer.frontends.tflite.tflite_converters import operator
from interposer.ir.graph import Value
from interposer.ops.convolution import TransposeConvolution2d
from interposer.ops.elementwise import Addition, Multiplication, Subtraction
from interposer.ops.quantization import Cast
from interposer.ops.rearrange import Transpose
from interposer.ops.window import Window
from interposer.ops.windowed import MaxPoolingWithIndices, MaxUnpooling

__all__: list[str] = []

_SAME: Final = 1
_VALID: Final = 2
_TO_NCHW: Final = Transpose((0, 3, 1, 2))
_TO_NHWC: Final = Transpose((0, 2, 3, 1))


def _numbers(node: Node, count: int) -> tuple[int, ...]:
    """Return the first numbers of the operator's options, a structure of integers of 32 bits.

    The first one is the padding scheme, and the next ones are strides and sizes.
    """
    if len(node.raw_options) < 4 * count:
        node.fail(f"its options have {len(node.raw_options)} bytes; expected at least {4 * count}")
    padding, *sizes = all_numbers = struct.unpack_from(f"<{count}i", node.raw_options)
    if padding not in {_SAME, _VALID} or not all(1 <= number <= 1 << 16 for number in sizes):
        node.fail(
            f"its options are {all_numbers}; expected padding {_SAME} (SAME) or {_VALID} (VALID), and sizes from 1"
        )
    return all_numbers


@operator("Convolution2DTransposeBias", custom=True)
def transpose_convolution_with_bias(node: Node) -> Value:
    """Convert Convolution2DTransposeBias, a transposed convolution whose output shape follows from its padding."""
    padding, stride_x, stride_y = _numbers(node, 3)
    x, weights, bias = node.value(0, rank=4), node.value(1, rank=4), node.value(2, rank=1)
    _, height, width, _ = concrete(node, x.known.shape, "the input")
    vertical_pads, horizontal_pads = (0, 0), (0, 0)
    if padding == _SAME:
        vertical_pads = _excess(height, weights.known.shape[1], stride_y)
        horizontal_pads = _excess(width, weights.known.shape[2], stride_x)
    op = TransposeConvolution2d(
        stride_x=stride_x,
        stride_y=stride_y,
        pad_top=vertical_pads[0],
        pad_bottom=vertical_pads[1],
        pad_left=horizontal_pads[0],
        pad_right=horizontal_pads[1],
        data_layout=DataLayout.NHWC,
    )
    return node.result(op, x, weights, bias)


def _excess(size: int, window: int, stride: int) -> tuple[int, int]:
    """Return the pads before and after an axis of `size` elements with padding SAME."""
    excess = max(0, window - (size - 1) % stride - 1)
    return excess // 2, excess - excess // 2


@operator("MaxPoolingWithArgmax2D", custom=True)
def max_pooling_with_places(node: Node) -> list[Value]:
    """Convert MaxPoolingWithArgmax2D.

    The second result has the place of each maximum in its window, as a float that is 0.1 above the number of the cell.
    """
    x = node.value(0, rank=4)
    vertical, horizontal = _windows(node, concrete(node, x.known.shape, "the input")[1:3])
    op = MaxPoolingWithIndices(
        window_shape=(vertical.size, horizontal.size),
        strides=(vertical.stride, horizontal.stride),
        pad_list=((vertical.pad_before, vertical.pad_after), (horizontal.pad_before, horizontal.pad_after)),
    )
    maxima, indices = node.steps(op, node.step(_TO_NCHW, x))
    height, width = x.known.shape[1:3]
    row = node.step(MOD, node.step(FLOOR_DIV, indices, _number(node, width)), _number(node, height))
    column = node.step(MOD, indices, _number(node, width))
    row = node.step(Subtraction(), row, node.constant(_origins(vertical, maxima.known.shape[2])[:, None]))
    column = node.step(Subtraction(), column, node.constant(_origins(horizontal, maxima.known.shape[3])))
    cell = node.step(Addition(), node.step(Multiplication(), row, _number(node, horizontal.size)), column)
    place = node.step(Addition(), node.step(Cast(DataType.FLOAT32), cell), node.constant(np.array(0.1, np.float32)))
    return [node.output(0, _TO_NHWC, maxima), node.output(1, _TO_NHWC, place)]


@operator("MaxUnpooling2D", custom=True)
def max_unpooling(node: Node) -> Value:
    """Convert MaxUnpooling2D, which writes elements to the places that MaxPoolingWithArgmax2D returned."""
    x, places = node.value(0, rank=4), node.value(1, rank=4)
    batch, height, width, channels = concrete(node, x.known.shape, "the input")
    _, _, _, size_x, size_y, _ = _numbers_of_window(node)
    sizes = height * size_y, width * size_x
    vertical, horizontal = _windows(node, sizes)
    cell = node.step(Cast(DataType.INT64), node.step(_TO_NCHW, places))
    row = node.step(FLOOR_DIV, cell, _number(node, horizontal.size))
    row = node.step(Addition(), row, node.constant(_origins(vertical, height)[:, None]))
    column = node.step(MOD, cell, _number(node, horizontal.size))
    column = node.step(Addition(), column, node.constant(_origins(horizontal, width)))
    planes = np.arange(batch * channels, dtype=np.int64).reshape(batch, channels, 1, 1) * (sizes[0] * sizes[1])
    index = node.step(Addition(), node.step(Multiplication(), row, _number(node, sizes[1])), column)
    index = node.step(Addition(), index, node.constant(planes))
    image = node.step(MaxUnpooling(sizes), node.step(_TO_NCHW, x), index)
    return node.result(_TO_NHWC, image)


def _numbers_of_window(node: Node) -> tuple[int, ...]:
    """Return padding, strides, sizes and fused activation, in the order of the operator's options."""
    numbers = _numbers(node, 5)
    [activation] = struct.unpack_from("<i", node.raw_options, 20) if len(node.raw_options) >= 24 else [0]
    if activation:
        node.fail(f"the fused activation {activation} is not supported")
    return (*numbers, activation)


def _windows(node: Node, sizes: tuple[int, ...]) -> tuple[Window, Window]:
    """Return the sliding windows along height and width of an image with these `sizes`."""
    padding, stride_x, stride_y, size_x, size_y, _ = _numbers_of_window(node)
    windows = []
    for size, window, stride in ((sizes[0], size_y, stride_y), (sizes[1], size_x, stride_x)):
        unpadded_window = Window(window, stride, 1, 0, 0)
        pads = unpadded_window.same_pads(size) if padding == _SAME else (0, 0)
        assert pads is not None  # the sizes are known
        windows.append(Window(window, stride, 1, *pads))
    return windows[0], windows[1]


def _origins(window: Window, count: int) -> Array:
    """Return the positions of the first cells of `count` windows along an axis; padding comes before 0."""
    return np.arange(count, dtype=np.int64) * window.stride - window.pad_before


def _number(node: Node, number: int) -> Value:
    return node.constant(np.array(number, np.int64))
