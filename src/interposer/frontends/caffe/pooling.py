"""Caffe converters for pooling."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from interposer.core.types import Array, DataType
from interposer.frontends.caffe.caffe_converters import layer
from interposer.frontends.caffe.convolution import windows
from interposer.frontends.caffe.node import Node
from interposer.frontends.caffe.proto import Message
from interposer.frontends.caffe.schema import ENUMS
from interposer.frontends.windows import Windows
from interposer.ir.graph import Value
from interposer.ops.elementwise import BinaryOperation
from interposer.ops.pooling import OutputShapeRounding, PaddingMethod, Pooling2d, PoolingAlgorithm
from interposer.ops.quantization import Cast
from interposer.ops.rearrange import Concat, Pad, Splitter
from interposer.ops.regions import RoiPooling
from interposer.ops.windowed import MaxPoolingWithIndices

__all__ = ["first_of_planes"]

_METHODS: Final = {
    ENUMS["PoolMethod"]["MAX"]: PoolingAlgorithm.MAX,
    ENUMS["PoolMethod"]["AVE"]: PoolingAlgorithm.AVERAGE,
}
_FLOOR: Final = ENUMS["RoundMode"]["FLOOR"]


@layer("Pooling")
def pooling(node: Node) -> list[Value]:
    """Convert Pooling by maximum or average; averages include the padding, and sizes are rounded up.

    The fields ``ceil_mode`` and ``round_mode`` of forks choose the rounding. The second top of a maximum has the place
    of each maximum in its plane, as a float.
    """
    parameters = node.parameters("pooling_param")
    x, rounding = node.image(), _rounding(parameters)
    if parameters.global_pooling:
        return [node.step(Pooling2d(pool_type=_method(node, parameters.pool)), x)]
    window = _fitting(node, windows(node, parameters, 2), rounding)
    if len(node.layer.tops) == 2:
        return _with_places(node, x, window, rounding)
    pooled = node.step(_pooling(node, parameters.pool, window, rounding), x)
    return [_with_empty_windows(node, pooled, x, window) if rounding is OutputShapeRounding.CEILING else pooled]


def _pooling(node: Node, method: int, window: Windows, rounding: OutputShapeRounding) -> Pooling2d:
    return Pooling2d(
        pool_type=_method(node, method),
        **window.pooling(),
        output_shape_rounding=rounding,
        padding_method=PaddingMethod.IGNORE_VALUE,
    )


def _method(node: Node, method: int) -> PoolingAlgorithm:
    if method not in _METHODS:
        node.fail("stochastic pooling is not supported; pooling by maximum (MAX) and average (AVE) is")
    return _METHODS[method]


def _rounding(parameters: Message) -> OutputShapeRounding:
    rounds_down = not parameters.ceil_mode or parameters.round_mode == _FLOOR
    return OutputShapeRounding.FLOOR if rounds_down else OutputShapeRounding.CEILING


def _fitting(node: Node, window: Windows, rounding: OutputShapeRounding) -> Windows:
    """Return the window, cut to the padded image if it exceeds it by less than its stride, and sizes are rounded up."""
    sizes = node.shape(node.only_value)[2:]
    for size, axis_window in zip(sizes, window.along(), strict=True):
        least_excess = axis_window.stride if rounding is OutputShapeRounding.CEILING else 1
        if axis_window.size - size - 2 * axis_window.pad_before >= least_excess:
            node.fail(f"its window of {axis_window.size} exceeds the image of size {size}")
    limits = (size + 2 * pad for size, pad in zip(sizes, window.before, strict=True))
    return window._replace(kernel=tuple(map(min, window.kernel, limits)))


def _with_empty_windows(node: Node, pooled: Value, x: Value, window: Windows) -> Value:
    """Return the result of pooling with a last row or column for windows without any element.

    Without padding, Caffe computes such a window where the stride exceeds the window: with the window 1, the stride 2
    and the size 4, windows begin at 0, 2 and 4. Its maximum is the least number of float32.
    """
    if any(window.before):
        return pooled
    columns = zip(node.shape(x)[2:], window.kernel, window.strides, strict=True)
    expected = [-(-(size - kernel) // stride) + 1 for size, kernel, stride in columns]
    num_missing = [
        expected_count - count for expected_count, count in zip(expected, node.shape(pooled)[2:], strict=True)
    ]
    if not any(num_missing):
        return pooled
    if node.parameters("pooling_param").pool != ENUMS["PoolMethod"]["MAX"]:
        node.fail("its last window is outside the image, and the average of no element is not a number")
    return node.result(
        Pad(((0, 0), (0, 0), (0, num_missing[0]), (0, num_missing[1])), float(np.finfo(np.float32).min)), pooled
    )


def _with_places(node: Node, x: Value, window: Windows, rounding: OutputShapeRounding) -> list[Value]:
    if node.parameters("pooling_param").pool != ENUMS["PoolMethod"]["MAX"]:
        node.fail("only pooling by maximum has a second top")
    op = MaxPoolingWithIndices(**window.lists(), output_shape_rounding=rounding)
    values, places = node.results(op, x)
    if _with_empty_windows(node, values, x, window) is not values:
        node.fail("its last window is outside the image, and a maximum of no element has no place")
    plane_starts = node.constant(first_of_planes(node.shape(x)[:2], math.prod(node.shape(x)[2:])))
    places = node.binary(BinaryOperation.SUB, places, plane_starts)
    return [values, node.step(Cast(DataType.FLOAT32), places)]


def first_of_planes(planes: Sequence[int], size: int) -> Array:
    """Return the number of the first element of each plane of `size` elements, for the sizes of batch and channels."""
    return np.arange(math.prod(planes), dtype=np.int64).reshape(*planes, 1, 1) * size


@layer("ROIPooling")
def roi_pooling(node: Node) -> Value:
    """Convert ROIPooling of Fast R-CNN: the maxima of regions, which are the number of an image and two corners."""
    if node.num_inputs != 2 or node.value(1).known.rank < 2 or node.shape(node.value(1))[1] != 5:
        shapes = [list(node.shape(value)) for value in node.values()]
        node.fail(f"its bottoms have the shapes {shapes}; expected images, and five numbers for each region")
    parameters, (x, regions) = node.parameters("roi_pooling_param"), node.values()
    if not parameters.pooled_h or not parameters.pooled_w or parameters.spatial_scale <= 0:
        node.fail("pooled_h, pooled_w and spatial_scale must be positive")
    rows = node.reshaped(regions, (node.shape(regions)[0], 5))
    numbers, corners = node.results(Splitter(axis=1, sizes=(1, 4)), rows)
    batches = node.step(Cast(DataType.INT32), node.reshaped(numbers, (node.shape(regions)[0],)))
    stride = 1 / parameters.spatial_scale
    size: dict[str, Any] = {"output_height": parameters.pooled_h, "output_width": parameters.pooled_w}
    return node.result(RoiPooling(**size, height_stride=stride, width_stride=stride), x, corners, batches)


@layer("SPP")
def pyramid_pooling(node: Node) -> Value:
    """Convert SPP, spatial pyramid pooling: concatenate the results of pooling in 1, 4, 16, ... bins."""
    parameters, x = node.parameters("spp_param"), node.image()
    batch, *image = node.shape(x)
    levels = parameters.pyramid_height
    if not 1 <= levels <= 16 or 2 ** (levels - 1) > min(image[1:]):
        node.fail(f"pyramid_height is {levels}, and its bottom has the shape {[batch, *image]}")
    pieces = [_level(node, x, parameters.pool, 2**level) for level in range(levels)]
    return node.result(Concat(axis=1), *(node.reshaped(piece, (batch, -1)) for piece in pieces))


def _level(node: Node, x: Value, method: int, bins: int) -> Value:
    kernel = tuple(-(-size // bins) for size in node.shape(x)[2:])
    pads = tuple((k * bins - size + 1) // 2 for k, size in zip(kernel, node.shape(x)[2:], strict=True))
    return node.result(
        _pooling(node, method, Windows(kernel, kernel, (1, 1), pads, pads), OutputShapeRounding.CEILING), x
    )
