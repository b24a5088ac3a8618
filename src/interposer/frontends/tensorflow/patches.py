"""TensorFlow converters for windows that no other operator expresses: patches, dilation, and places of maxima."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from typing import Final

import numpy as np

from interposer.core.errors import ParseError
from interposer.core.types import Array, DataLayout, DataType
from interposer.frontends.tensorflow.node import Node
from interposer.frontends.tensorflow.tensorflow_converters import operator
from interposer.frontends.tensorflow.tensorflow_windows import sliding, spatial_sizes, window_size
from interposer.frontends.windows import Windows
from interposer.ir.graph import Value
from interposer.ops.elementwise import Addition, BinaryOperation, ElementwiseBinary, Maximum, Multiplication
from interposer.ops.quantization import Cast
from interposer.ops.rearrange import Concat, Pad, StridedSlice, Transpose
from interposer.ops.windowed import MaxPoolingWithIndices

__all__: list[str] = []

_MOST_CELLS: Final = 4096
"""The largest number of elements of a window, each of which becomes a layer."""
_TO_PLANES: Final = (0, 3, 1, 2)
_TO_CHANNELS: Final = (0, 2, 3, 1)


@operator("ExtractImagePatches")
def extract_image_patches(node: Node) -> Value:
    """Convert ExtractImagePatches: the elements of each window, beside each other in the channels."""
    windows = _windows(node, window_size(node, node.integers("ksizes"), DataLayout.NHWC), node.integers("rates"))
    return node.result(Concat(3), *_cells(node, node.value(0), windows, 0.0))


@operator("Dilation2D")
def dilation(node: Node) -> Value:
    """Convert Dilation2D: the maximum of each window after the addition of a filter for each channel."""
    x, weights = node.value(0), node.array(1, "filter")
    if weights.ndim != 3 or not x.known.dtype.is_float:
        raise ParseError(f"its filter has the shape {list(weights.shape)} and its input the type {x.known.dtype}")
    windows = _windows(node, weights.shape[:2], node.integers("rates"))
    cells = _cells(node, x, windows, float(np.finfo(x.known.dtype.numpy).min))
    sums = [
        node.step(Addition(), cell, node.constant(row))
        for cell, row in zip(cells, weights.reshape(-1, weights.shape[2]), strict=True)
    ]
    result = sums[0]
    for other in sums[1:]:
        result = node.step(Maximum(), result, other)
    return result


def _windows(node: Node, kernel: Sequence[int], rates: Sequence[int]) -> Windows:
    """Return windows whose dilations are the attribute rates; a padding SAME depends on them."""
    if len(rates) != 4 or rates[0] != 1 or rates[3] != 1 or not all(rate >= 1 for rate in rates):
        raise ParseError(f"its rates are {list(rates)}; expected one for height and width, and 1 for the others")
    spread = [(size - 1) * rate + 1 for size, rate in zip(kernel, rates[1:3], strict=True)]
    image = spatial_sizes(node, node.value(0), DataLayout.NHWC)
    windows = sliding(node, image, spread, DataLayout.NHWC)
    if not 0 < kernel[0] * kernel[1] <= _MOST_CELLS:
        node.unsupported(f"its window has {kernel[0] * kernel[1]:,} elements; at most {_MOST_CELLS:,} are supported")
    return windows._replace(kernel=tuple(kernel), dilations=tuple(rates[1:3]))


def _cells(node: Node, x: Value, windows: Windows, border: float) -> list[Value]:
    """Return for each element of the window the elements of the padded image that are there, row by row."""
    height, width = (node.known(size, "image's size") for size in x.known.shape[1:3])
    pads = ((0, 0), *zip(windows.before, windows.after, strict=True), (0, 0))
    padded = node.step(Pad(pads, border), x) if any(map(any, pads)) else x
    places = [window.places(size) for window, size in zip(windows.along(), (height, width), strict=True)]
    if min(places) < 1:
        raise ParseError(f"its window of {list(windows.kernel)} does not fit into its input of {[height, width]}")
    spans = [(place - 1) * stride + 1 for place, stride in zip(places, windows.strides, strict=True)]
    result = []
    for row, column in product(*map(range, windows.kernel)):
        begin = (0, row * windows.dilations[0], column * windows.dilations[1], 0)
        end = (0, begin[1] + spans[0], begin[2] + spans[1], 0)
        op = StridedSlice(begin, end, (1, *windows.strides, 1), begin_mask=0b1001, end_mask=0b1001)
        result.append(node.step(op, padded))
    return result


@operator("MaxPoolWithArgmax", outputs=("output", "argmax"))
def max_pool_with_argmax(node: Node) -> list[Value]:
    """Convert MaxPoolWithArgmax; the places are those in the image, or in the batch, with the channels last."""
    x = node.value(0)
    kernel = window_size(node, node.integers("ksize"), DataLayout.NHWC)
    windows = sliding(node, spatial_sizes(node, x, DataLayout.NHWC), kernel, DataLayout.NHWC)
    height, width, channels = (node.known(size, "image's size") for size in x.known.shape[1:])
    planes = node.step(Transpose(_TO_PLANES), x)
    maxima, places = node.steps(MaxPoolingWithIndices(**windows.lists()), planes)
    batch = height * width * channels
    in_plane = _modulo(node, places, height * width)
    number = _modulo(node, _divided(node, places, height * width), channels)
    result = _sum(node, _scaled(node, in_plane, channels), number)
    if node.flag("include_batch_in_index", False):
        result = _sum(node, result, _scaled(node, _divided(node, places, batch), batch))
    dtype = node.dtype("Targmax", DataType.INT64)
    moved = [node.result(Transpose(_TO_CHANNELS), maxima), node.step(Transpose(_TO_CHANNELS), result)]
    return [moved[0], moved[1] if dtype is DataType.INT64 else node.step(Cast(dtype), moved[1])]


def _number(node: Node, number: int) -> Value:
    array: Array = np.array(number, np.int64)
    return node.constant(array)


def _modulo(node: Node, value: Value, by: int) -> Value:
    return node.step(ElementwiseBinary(BinaryOperation.MOD), value, _number(node, by))


def _divided(node: Node, value: Value, by: int) -> Value:
    return node.step(ElementwiseBinary(BinaryOperation.FLOOR_DIV), value, _number(node, by))


def _scaled(node: Node, value: Value, by: int) -> Value:
    return node.step(Multiplication(), value, _number(node, by))


def _sum(node: Node, value: Value, other: Value) -> Value:
    return node.step(Addition(), value, other)
