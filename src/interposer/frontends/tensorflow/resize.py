"""TensorFlow converters for image resizing."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import numpy as np
from numpy.typing import NDArray

from interposer.core.errors import ParseError
from interposer.core.types import DataLayout, DataType
from interposer.frontends.elementwise import (
    FLOOR,
    GREATER,
    GREATER_OR_EQUAL,
    LESS,
    LESS_OR_EQUAL,
    LOGICAL_AND,
    LOGICAL_OR,
)
from interposer.frontends.reshaping import reshaped
from interposer.frontends.tensorflow.node import Node
from interposer.frontends.tensorflow.tensorflow_converters import operator
from interposer.ir.graph import Value
from interposer.ops.elementwise import Addition, Multiplication, Subtraction, Where
from interposer.ops.gather import Gather
from interposer.ops.grid import GridPadding, GridSample, GridSampleMode
from interposer.ops.matmul import BatchMatMul
from interposer.ops.rearrange import Concat, Slice, Transpose
from interposer.ops.resize import Resize, ResizeMethod

__all__: list[str] = []

_LARGEST: Final = 1 << 20


@operator("ResizeBilinear")
def resize_bilinear(node: Node) -> Value:
    """Convert ResizeBilinear: interpolate between the four nearest pixels, in float32."""
    x = node.value(0)
    dtype = x.known.dtype
    return _resized(node, x if dtype.is_float and dtype.itemsize == 4 else node.cast(x, DataType.FLOAT32), True)


@operator("ResizeNearestNeighbor")
def resize_nearest(node: Node) -> Value:
    """Convert ResizeNearestNeighbor."""
    return _resized(node, node.value(0), False)


def _resized(node: Node, x: Value, bilinear: bool) -> Value:
    height, width = _size(node)
    corners, centers = node.flag("align_corners", False), node.flag("half_pixel_centers", False)
    method = ResizeMethod.BILINEAR if bilinear else ResizeMethod.NEAREST_NEIGHBOR
    return node.result(Resize(width, height, method, DataLayout.NHWC, corners, centers), x)


def _size(node: Node) -> tuple[int, int]:
    size = [node.known(dimension, "size") for dimension in node.dimensions_of(1, "size")]
    if len(size) != 2 or not all(0 < dimension <= _LARGEST for dimension in size):
        raise ParseError(f"its size is {size}; expected height and width")
    return size[0], size[1]


@operator("ResizeBicubic")
def resize_bicubic(node: Node) -> Value:
    """Convert ResizeBicubic to a product with a matrix of weights along each axis."""
    centers = node.flag("half_pixel_centers", False)
    return _weighted(node, lambda size, target, corners: _cubic(size, target, corners, centers))


@operator("ResizeArea")
def resize_area(node: Node) -> Value:
    """Convert ResizeArea: each pixel is the mean of the area that it covers, a product with weights along each axis."""
    return _weighted(node, _area)


def _weighted(node: Node, weights: Callable[[int, int, bool], NDArray[np.float32]]) -> Value:
    """Return the products of an image with a matrix for each axis, which `weights` returns for the two sizes.

    The third argument of `weights` says whether the corners are aligned.
    """
    x = node.cast(node.value(0), DataType.FLOAT32)
    if x.known.rank != 4:
        raise ParseError(f"its input has the shape {x.known.shape}; expected rank 4")
    corners = node.flag("align_corners", False)
    height, width = (node.known(x.known.shape[axis], "image's size") for axis in (1, 2))
    rows, columns = (weights(size, target, corners) for size, target in zip((height, width), _size(node), strict=True))
    planes = node.step(Transpose((0, 3, 1, 2)), x)
    resized_rows = node.step(BatchMatMul(transpose_y=True), planes, node.constant(columns))
    return node.result(Transpose((0, 2, 3, 1)), node.step(BatchMatMul(), node.constant(rows), resized_rows))


def _cubic(size: int, target_size: int, corners: bool, centers: bool) -> NDArray[np.float32]:
    """Return the weights of each pixel for each pixel of the result, by Keys' cubic with TensorFlow's parameters."""
    scale = (size - 1) / (target_size - 1) if corners and target_size > 1 else size / target_size
    coordinates = (np.arange(target_size) + 0.5) * scale - 0.5 if centers else np.arange(target_size) * scale
    a = -0.5 if centers else -0.75
    first_pixels = np.floor(coordinates).astype(np.int64)
    matrix = np.zeros((target_size, size))
    weights = np.stack([_keys(coordinates - (first_pixels + k), a) for k in range(-1, 3)])
    indices = np.stack([first_pixels + k for k in range(-1, 3)])
    if centers:
        weights = np.where((indices >= 0) & (indices < size), weights, 0)
        weights = weights / weights.sum(0)
    for row, column in zip(weights, indices.clip(0, size - 1), strict=True):
        np.add.at(matrix, (np.arange(target_size), column), row)
    return matrix.astype(np.float32)


def _area(size: int, target_size: int, corners: bool) -> NDArray[np.float32]:
    """Return which part of each pixel of the result is covered by each pixel of the image; the last one is repeated."""
    scale = (size - 1) / (target_size - 1) if corners and target_size > 1 else size / target_size
    matrix = np.zeros((target_size, size))
    for pixel in range(target_size):
        start, end = pixel * scale, (pixel + 1) * scale
        cells = np.arange(int(np.floor(start)), max(int(np.ceil(end)), int(np.floor(start)) + 1))
        covered = np.minimum(cells + 1, end) - np.maximum(cells, start)
        np.add.at(matrix[pixel], cells.clip(0, size - 1), covered)
    return (matrix / (scale or 1)).astype(np.float32)


def _keys(distance: NDArray[np.float64], a: float) -> NDArray[np.float64]:
    x = np.abs(distance)
    near_weights = ((a + 2) * x - (a + 3)) * x * x + 1
    far_weights = ((a * x - 5 * a) * x + 8 * a) * x - 4 * a
    return np.where(x <= 1, near_weights, np.where(x < 2, far_weights, 0.0))


@operator("CropAndResize")
def crop_and_resize(node: Node) -> Value:
    """Convert CropAndResize: sample every box of an image at a fixed number of positions."""
    image, boxes = node.cast(node.value(0), DataType.FLOAT32), node.value(1)
    if image.known.rank != 4 or boxes.known.rank != 2:
        raise ParseError(f"its image has the shape {image.known.shape} and its boxes {boxes.known.shape}")
    height, width = node.integers_of(3, "crop_size")
    if not 0 < height <= _LARGEST or not 0 < width <= _LARGEST:
        raise ParseError(f"its crop_size is {(height, width)}")
    zeros = node.constant(np.zeros((1, height, width, 1), np.float32))
    rows = node.step(Addition(), reshaped(node, _places(node, boxes, 0, height), [-1, height, 1, 1]), zeros)
    columns = node.step(Addition(), reshaped(node, _places(node, boxes, 1, width), [-1, 1, width, 1]), zeros)
    grid = node.step(Concat(3), columns, rows)
    sampled = _sampled(node, image, grid, height, width)
    is_inside = node.step(LOGICAL_AND, *(_is_inside(node, coordinates) for coordinates in (rows, columns)))
    extrapolated = node.constant(np.array(node.number("extrapolation_value", 0.0), np.float32))
    return node.result(Where(), is_inside, sampled, extrapolated)


def _places(node: Node, boxes: Value, axis: int, count: int) -> Value:
    """Return where the samples of each box are along an axis, as [boxes, count], from -1 to 1 within the image.

    A single sample is in the middle of the box. The nearest pixels are chosen here, as a half is rounded up.
    """
    last_pixel = max(1, node.known(node.info(0).shape[1 + axis], "image's size") - 1)
    first_edges, last_edges = (node.step(Slice((0, axis + offset), (-1, 1)), boxes) for offset in (0, 2))
    if count > 1:
        steps, extent = np.arange(count, dtype=np.float64), node.step(Subtraction(), last_edges, first_edges)
        start = _times(node, first_edges, last_pixel)
        step_size = _times(node, extent, last_pixel / (count - 1))
    else:
        steps, start = np.zeros(1), _times(node, node.step(Addition(), first_edges, last_edges), 0.5 * last_pixel)
        step_size = start
    scaled = node.step(Multiplication(), step_size, node.constant(steps[np.newaxis].astype(np.float32)))
    pixels = node.step(Addition(), scaled, start)
    if node.text("method", "bilinear") == "nearest":
        pixels = _rounded(node, pixels, last_pixel)
    return node.step(Subtraction(), _times(node, pixels, 2 / last_pixel), node.scalar_like(1, pixels))


def _rounded(node: Node, pixels: Value, last: int) -> Value:
    """Return positions rounded half up, except those outside the image, from 0 to `last`."""
    rounded = node.step(FLOOR, node.step(Addition(), pixels, node.scalar_like(0.5, pixels)))
    low = node.step(LESS, pixels, node.scalar_like(0, pixels))
    high = node.step(GREATER, pixels, node.scalar_like(last, pixels))
    is_outside = node.step(LOGICAL_OR, low, high)
    return node.step(Where(), is_outside, pixels, rounded)


def _times(node: Node, tensor: Value, factor: float) -> Value:
    return node.step(Multiplication(), tensor, node.scalar_like(factor, tensor))


def _is_inside(node: Node, places: Value) -> Value:
    low = node.step(GREATER_OR_EQUAL, places, node.scalar_like(-1, places))
    high = node.step(LESS_OR_EQUAL, places, node.scalar_like(1, places))
    return node.step(LOGICAL_AND, low, high)


def _sampled(node: Node, image: Value, grid: Value, height: int, width: int) -> Value:
    """Return the samples of all boxes as [boxes, height, width, channels]; `grid` has their positions.

    The boxes of a single image are sampled as one tall image, so that it is not copied for every box.
    """
    nearest = node.text("method", "bilinear") == "nearest"
    mode = GridSampleMode.NEAREST if nearest else GridSampleMode.LINEAR
    op = GridSample(mode, GridPadding.BORDER, align_corners=True)
    planes = node.step(Transpose((0, 3, 1, 2)), image)
    channels = node.known(image.known.shape[3], "number of channels")
    if image.known.shape[0] != 1:
        planes = node.step(Gather(0), planes, node.value(2))
        return node.step(Transpose((0, 2, 3, 1)), node.step(op, planes, grid))
    samples = node.step(op, planes, reshaped(node, grid, [1, -1, width, 2]))
    return reshaped(node, node.step(Transpose((0, 2, 3, 1)), samples), [-1, height, width, channels])
