"""TensorFlow converters for blocks and patches of images: what no other operator expresses is composed."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from typing import Final

import numpy as np

from interposer.core.errors import ParseError
from interposer.core.types import Array, DataLayout, DataType
from interposer.frontends.elementwise import FLOOR_DIV, MOD
from interposer.frontends.tensorflow.node import Node
from interposer.frontends.tensorflow.tensorflow_converters import operator
from interposer.frontends.tensorflow.tensorflow_windows import layout_of, sliding, spatial_sizes, window_size
from interposer.frontends.windows import Windows
from interposer.ir.graph import Value
from interposer.ops.blocks import BatchToSpaceNd, DepthToSpace, SpaceToBatchNd, SpaceToDepth
from interposer.ops.elementwise import Addition, Maximum, Multiplication
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
        node.step(Addition(), cell, node.constant(filter_row))
        for cell, filter_row in zip(cells, weights.reshape(-1, weights.shape[2]), strict=True)
    ]
    maximum = sums[0]
    for shifted in sums[1:]:
        maximum = node.step(Maximum(), maximum, shifted)
    return maximum


def _windows(node: Node, kernel: Sequence[int], rates: Sequence[int]) -> Windows:
    """Return windows whose dilations are the attribute rates; a padding SAME depends on them."""
    if len(rates) != 4 or rates[0] != 1 or rates[3] != 1 or not all(rate >= 1 for rate in rates):
        raise ParseError(f"its rates are {list(rates)}; expected one for height and width, and 1 for the others")
    dilated_sizes = [(size - 1) * rate + 1 for size, rate in zip(kernel, rates[1:3], strict=True)]
    image = spatial_sizes(node, node.value(0), DataLayout.NHWC)
    windows = sliding(node, image, dilated_sizes, DataLayout.NHWC)
    if not 0 < kernel[0] * kernel[1] <= _MOST_CELLS:
        node.unsupported(f"its window has {kernel[0] * kernel[1]:,} elements; at most {_MOST_CELLS:,} are supported")
    return windows._replace(kernel=tuple(kernel), dilations=tuple(rates[1:3]))


def _cells(node: Node, x: Value, windows: Windows, border: float) -> list[Value]:
    """Return for each element of the window the elements of the padded image that are there, row by row."""
    height, width = (node.known(size, "image's size") for size in x.known.shape[1:3])
    pads = ((0, 0), *zip(windows.before, windows.after, strict=True), (0, 0))
    padded_x = node.step(Pad(pads, border), x) if any(map(any, pads)) else x
    counts = [window.places(size) for window, size in zip(windows.along(), (height, width), strict=True)]
    if min(counts) < 1:
        raise ParseError(f"its window of {list(windows.kernel)} does not fit into its input of {[height, width]}")
    spans = [(count - 1) * stride + 1 for count, stride in zip(counts, windows.strides, strict=True)]
    cells = []
    for row, column in product(*map(range, windows.kernel)):
        begin = (0, row * windows.dilations[0], column * windows.dilations[1], 0)
        end = (0, begin[1] + spans[0], begin[2] + spans[1], 0)
        op = StridedSlice(begin, end, (1, *windows.strides, 1), begin_mask=0b1001, end_mask=0b1001)
        cells.append(node.step(op, padded_x))
    return cells


@operator("MaxPoolWithArgmax", outputs=("output", "argmax"))
def max_pool_with_argmax(node: Node) -> list[Value]:
    """Convert MaxPoolWithArgmax; the places are those in the image, or in the batch, with the channels last."""
    x = node.value(0)
    kernel = window_size(node, node.integers("ksize"), DataLayout.NHWC)
    windows = sliding(node, spatial_sizes(node, x, DataLayout.NHWC), kernel, DataLayout.NHWC)
    height, width, channels = (node.known(size, "image's size") for size in x.known.shape[1:])
    planes = node.step(Transpose(_TO_PLANES), x)
    maxima, plane_indices = node.steps(MaxPoolingWithIndices(**windows.lists()), planes)
    image_size = height * width * channels
    in_plane = _modulo(node, plane_indices, height * width)
    channel = _modulo(node, _divided(node, plane_indices, height * width), channels)
    indices = _sum(node, _scaled(node, in_plane, channels), channel)
    if node.flag("include_batch_in_index", False):
        indices = _sum(node, indices, _scaled(node, _divided(node, plane_indices, image_size), image_size))
    dtype = node.dtype("Targmax", DataType.INT64)
    channels_last_results = [node.result(Transpose(_TO_CHANNELS), maxima), node.step(Transpose(_TO_CHANNELS), indices)]
    return [
        channels_last_results[0],
        channels_last_results[1] if dtype is DataType.INT64 else node.step(Cast(dtype), channels_last_results[1]),
    ]


def _number(node: Node, number: int) -> Value:
    array: Array = np.array(number, np.int64)
    return node.constant(array)


def _modulo(node: Node, dividend: Value, divisor: int) -> Value:
    return node.step(MOD, dividend, _number(node, divisor))


def _divided(node: Node, dividend: Value, divisor: int) -> Value:
    return node.step(FLOOR_DIV, dividend, _number(node, divisor))


def _scaled(node: Node, tensor: Value, factor: int) -> Value:
    return node.step(Multiplication(), tensor, _number(node, factor))


def _sum(node: Node, a: Value, b: Value) -> Value:
    return node.step(Addition(), a, b)


# --- blocks -----------------------------------------------------------------------------------------------------------


NHWC = DataLayout.NHWC


@operator("SpaceToBatchND")
def space_to_batch_nd(node: Node) -> Value:
    """Convert SpaceToBatchND; block shape and paddings are operands."""
    op = SpaceToBatchNd(node.integers_of(1, "block shape"), node.pairs_of(2, "paddings"), NHWC)
    return node.result(op, node.value(0))


@operator("BatchToSpaceND")
def batch_to_space_nd(node: Node) -> Value:
    """Convert BatchToSpaceND; block shape and crops are operands."""
    op = BatchToSpaceNd(node.integers_of(1, "block shape"), node.pairs_of(2, "crops"), NHWC)
    return node.result(op, node.value(0))


@operator("SpaceToBatch")
def space_to_batch(node: Node) -> Value:
    """Convert SpaceToBatch with square blocks."""
    block = node.integer("block_size")
    return node.result(SpaceToBatchNd((block, block), node.pairs_of(1, "paddings"), NHWC), node.value(0))


@operator("BatchToSpace")
def batch_to_space(node: Node) -> Value:
    """Convert BatchToSpace with square blocks."""
    block = node.integer("block_size")
    return node.result(BatchToSpaceNd((block, block), node.pairs_of(1, "crops"), NHWC), node.value(0))


@operator("SpaceToDepth")
def space_to_depth(node: Node) -> Value:
    """Convert SpaceToDepth with square blocks."""
    return node.result(SpaceToDepth(node.integer("block_size"), layout_of(node)), node.value(0))


@operator("DepthToSpace")
def depth_to_space(node: Node) -> Value:
    """Convert DepthToSpace with square blocks."""
    return node.result(DepthToSpace(node.integer("block_size"), layout_of(node)), node.value(0))
