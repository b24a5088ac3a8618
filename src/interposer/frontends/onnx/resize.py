"""ONNX converters for resizing: by `Resize` if it is equivalent, else by selection or interpolation per axis."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial, reduce
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from interposer.core.errors import ParseError
from interposer.core.types import DataType, Dim
from interposer.frontends.axes import checked_axes
from interposer.frontends.elementwise import ADD, MUL
from interposer.frontends.onnx.node import Node
from interposer.frontends.onnx.onnx_converters import operator
from interposer.ir.graph import Value
from interposer.kernels.resize import nearest_pixels
from interposer.ops.elementwise import Where
from interposer.ops.gather import Gather
from interposer.ops.matmul import BatchMatMul
from interposer.ops.quantization import Cast
from interposer.ops.rearrange import Transpose
from interposer.ops.resize import Resize, ResizeMethod

__all__: list[str] = []

Floats = NDArray[np.float64]
_TRUNCATED: Final = (DataType.INT8, DataType.UINT8)
"""The integers between which pixels may be sampled linearly; the results are truncated, as in ONNX Runtime."""
_IMAGE_AXES: Final = 2
_MOST_WEIGHTS: Final = 1 << 24
_LARGEST_SCALE: Final = 2**31
_FLOAT32_STEP: Final = 2.0**-23
_HALF: Final = 0.5
_FLAGS: Final = ((False, False), (True, False), (False, True))
_COORDINATES: Final = frozenset({
    "align_corners", "asymmetric", "half_pixel", "half_pixel_symmetric", "pytorch_half_pixel", "tf_crop_and_resize",
    "tf_half_pixel_for_nn",
})  # fmt: skip


class _Style(NamedTuple):
    """How a Resize node samples: its mode, coordinate transformation, rounding and cubic coefficient, as in ONNX.

    `nearest_mode` is None before opset 11: coordinates are rounded up along an axis that shrinks, otherwise down, as in
    ONNX Runtime.
    """

    mode: str
    coordinates: str
    nearest_mode: str | None = None
    cubic: float = -0.75
    exclude_outside: bool = False
    antialias: bool = False

    @property
    def crops(self) -> bool:
        """True for tf_crop_and_resize: a part of the input is resized, which may reach beyond the input."""
        return self.coordinates == "tf_crop_and_resize"


class _Axis(NamedTuple):
    """An axis that is resized from `size` to `target` elements; `number` is its position in the tensor.

    `scale` is the ratio of the sizes, or the factor that the node gives. `part` is the range of the input that is
    resized, as fractions of its size.
    """

    number: int
    size: int
    target: int
    scale: float
    part: tuple[float, float] = (0.0, 1.0)

    @property
    def scaled_size(self) -> float:
        """The product of size and scale, which has a fraction if the result is smaller: 2.4 for a target of 2."""
        product = self.size * self.scale
        return self.target if math.isclose(product, self.target, rel_tol=_FLOAT32_STEP) else product

    @property
    def changes(self) -> bool:
        """True unless the result along this axis equals the input, as it does if neither has elements."""
        if self.size == self.target == 0:
            return False
        return self.scale != 1 or self.size != self.target or self.part != (0.0, 1.0)


# --- what the versions of the operator say ----------------------------------------------------------------------------


@operator("Upsample")
def upsample_by_two_factors(node: Node) -> Value:
    """Convert Upsample of opset 1, with factors for height and width."""
    scales = [1.0, 1.0, node.number("height_scale"), node.number("width_scale")]
    return _resized(node, scales, _old_style(node))


@operator("Upsample", since=7)
def upsample_by_attribute(node: Node) -> Value:
    """Convert Upsample of opset 7, with one factor per axis as an attribute."""
    return _resized(node, node.numbers("scales"), _old_style(node))


@operator("Upsample", since=9)
@operator("Resize", since=10)
def resize_by_operand(node: Node) -> Value:
    """Convert operators with the factors as an operand: Upsample of opset 9 and Resize of opset 10."""
    return _resized(node, node.array(1, "scales").reshape(-1).tolist(), _old_style(node))


def _old_style(node: Node) -> _Style:
    return _Style(_mode(node), "asymmetric")


def _mode(node: Node) -> str:
    mode = node.text("mode", "nearest")
    if mode not in {"nearest", "linear", "bilinear", "cubic"}:
        raise ParseError(f"its mode is {mode!r}; expected nearest, linear or cubic")
    return "linear" if mode == "bilinear" else mode


@operator("Resize", since=11)
def resize(node: Node) -> Value:
    """Convert Resize since opset 11, with factors or sizes and several coordinate transformations."""
    style = _Style(
        _mode(node),
        node.text("coordinate_transformation_mode", "half_pixel"),
        node.text("nearest_mode", "round_prefer_floor"),
        node.number("cubic_coeff_a", -0.75),
        node.flag("exclude_outside"),
        node.flag("antialias"),
    )
    if style.coordinates not in _COORDINATES:
        node.unsupported(f"its coordinate_transformation_mode is {style.coordinates!r}")
    rank = node.info(0).rank
    axis_numbers = checked_axes(node.integers("axes", range(rank)), rank)
    if node.has(2) and node.array(2, "scales").size:
        scale_by_axis = dict(zip(axis_numbers, node.array(2, "scales").reshape(-1).tolist(), strict=False))
        axes = _axes_by_scales(node, [scale_by_axis.get(axis, 1.0) for axis in range(rank)])
    else:
        axes = _axes_by_sizes(node, axis_numbers)
    return _applied(node, _cropped(node, axes, axis_numbers) if style.crops else axes, style)


def _cropped(node: Node, axes: Sequence[_Axis], axis_numbers: Sequence[int]) -> list[_Axis]:
    """Return the axes that are resized or cropped, each with its range from the operand roi.

    `axes` are the axes whose size changes, and `axis_numbers` the axes that roi covers: it lists a start for each, then
    an end for each, as fractions of the input's size.
    """
    bounds = node.array(1, "roi").reshape(-1).tolist()
    if len(bounds) != 2 * len(axis_numbers):
        raise ParseError(
            f"its roi has {len(bounds)} numbers; expected {2 * len(axis_numbers)}, a start and an end for each axis"
        )
    axis_by_number, cropped_axes = {axis.number: axis for axis in axes}, []
    for number, start, end in zip(axis_numbers, bounds, bounds[len(axis_numbers) :], strict=False):
        if number in axis_by_number or (start, end) != (0, 1):
            size = node.known(node.info(0).shape[number], f"input's dimension along axis {number}")
            axis = axis_by_number.get(number, _Axis(number, size, size, 1.0))
            cropped_axes.append(axis._replace(part=(start, end)))
    return cropped_axes


def _axes_by_sizes(node: Node, axis_numbers: Sequence[int]) -> list[_Axis]:
    shape, sizes = node.info(0).shape, node.dimensions_of(3, "sizes")
    if len(sizes) != len(axis_numbers):
        raise ParseError(f"it has {len(sizes)} sizes for {len(axis_numbers)} axes")
    changed_axes = [(axis, size) for axis, size in zip(axis_numbers, sizes, strict=True) if size is not shape[axis]]
    for axis, size in changed_axes:
        if isinstance(size, Dim) or isinstance(shape[axis], Dim):
            node.open_shape(f"its dimensions along axis {axis} are not known")
    policy = node.text("keep_aspect_ratio_policy", "stretch")
    if policy == "stretch":
        return [_Axis(axis, shape[axis], size, size / max(1, shape[axis])) for axis, size in changed_axes]
    choose = {"not_larger": min, "not_smaller": max}.get(policy)
    if choose is None:
        raise ParseError(f"its keep_aspect_ratio_policy is {policy!r}")
    scale = choose(size / max(1, shape[axis]) for axis, size in zip(axis_numbers, sizes, strict=True))
    return [_Axis(axis, shape[axis], math.floor(scale * shape[axis] + 0.5), scale) for axis in axis_numbers]


def _resized(node: Node, scales: Sequence[float], style: _Style) -> Value:
    return _applied(node, _axes_by_scales(node, scales), style)


def _axes_by_scales(node: Node, scales: Sequence[float]) -> list[_Axis]:
    shape = node.info(0).shape
    invalid_scales = [scale for scale in scales if not 0 < scale < _LARGEST_SCALE]
    if len(scales) != len(shape) or invalid_scales:
        message = f"its scales are {list(scales)}; expected {len(shape)} positive numbers, the input's rank"
        if invalid_scales:
            node.out_of_range(message, invalid_scales[0], (0, _LARGEST_SCALE))
        raise ParseError(message)
    axes = []
    for axis, scale in enumerate(scales):
        if scale != 1:
            size = node.known(shape[axis], f"input's dimension along axis {axis}")
            axes.append(_Axis(axis, size, _scaled_size(size, scale), scale))
    return axes


def _scaled_size(size: int, scale: float) -> int:
    """Return the size of the result along an axis.

    The product is rounded to float32 before it is truncated, as in ONNX Runtime: 14 times float32 11 / 14 is 11.
    """
    return math.floor(np.float32(size) * np.float32(scale))


# --- what they become -------------------------------------------------------------------------------------------------


def _applied(node: Node, axes: Sequence[_Axis], style: _Style) -> Value:
    axes = [axis for axis in axes if axis.changes]
    if not axes:
        return node.value(0)
    _check_sizes(node, axes)
    if any(axis.target == 0 for axis in axes):
        style = _Style("nearest", "asymmetric")  # the result has no elements
    if style.antialias and style.mode == "nearest":
        node.unsupported("it smooths (antialias) in mode nearest")
    if style.mode != "nearest" and not node.info(0).dtype.is_float:
        return _truncated(node, axes, style)
    op = _same_operator(node, axes, style)
    if op is not None:
        return node.result(op, node.value(0))
    is_outside = _outside(node, axes) if style.crops else None
    *other_axes, last_axis = axes
    resized = node.value(0)
    for axis in other_axes:
        resized = _resized_along(node, resized, axis, style, node.step)
    resized = _resized_along(node, resized, last_axis, style, node.result if is_outside is None else node.step)
    if is_outside is None:
        return resized
    extrapolated = node.scalar_like(node.number("extrapolation_value", 0.0), resized)
    return node.result(Where(), node.constant(is_outside), extrapolated, resized)


def _check_sizes(node: Node, axes: Sequence[_Axis]) -> None:
    for axis in axes:
        if axis.target < 0:
            message = f"it makes {axis.target} out of {axis.size} along axis {axis.number}; expected 0 or more"
            node.out_of_range(message, axis.target, (0, None))
        if axis.size < 1 or axis.size * axis.target > _MOST_WEIGHTS:
            node.unsupported(f"it makes {axis.target} out of {axis.size} along axis {axis.number}")


def _truncated(node: Node, axes: Sequence[_Axis], style: _Style) -> Value:
    """Return an image of integers of 8 bits resized along its last two axes, and truncated.

    The four products with pixels are added in float32 in the order of ONNX Runtime, whose sums are truncated too.
    """
    shape, dtype = node.info(0).shape, node.info(0).dtype
    rank = len(shape)
    is_of_images = rank >= _IMAGE_AXES and all(axis.number >= rank - _IMAGE_AXES for axis in axes)
    if dtype not in _TRUNCATED or style.mode != "linear" or style.antialias or style.crops or not is_of_images:
        node.unsupported(f"it mixes elements of type {dtype}")
    by_number = {axis.number: axis for axis in axes}
    rows, columns = (
        _neighbours(by_number.get(number) or _Axis(number, size, size, 1.0), style)
        for number, size in ((number, node.known(shape[number], "size")) for number in (rank - 2, rank - 1))
    )
    pixels, terms = node.cast(node.value(0), DataType.FLOAT32), []
    for row_indices, row_weights in rows:
        in_rows = node.step(Gather(rank - 2), pixels, node.constant(row_indices))
        for column_indices, column_weights in columns:
            weights = node.constant(row_weights[:, None] * column_weights)
            terms.append(node.step(MUL, node.step(Gather(rank - 1), in_rows, node.constant(column_indices)), weights))
    return node.result(Cast(dtype), reduce(partial(node.step, ADD), terms))


def _neighbours(axis: _Axis, style: _Style) -> list[tuple[NDArray[np.int64], NDArray[np.float32]]]:
    """Return for each result pixel along an axis the two pixels between which it is, and their weights, in float32."""
    number = np.float32
    clipped = np.clip(_input_coordinates(axis, style.coordinates, number), number(0), number(axis.size - 1))
    lower = clipped.astype(np.int64)
    upper = np.minimum(lower + 1, axis.size - 1)
    fractions = [np.abs(clipped - index.astype(number)) for index in (upper, lower)]
    weights = [np.where(lower == upper, number(0.5), fraction) for fraction in fractions]
    return list(zip((lower, upper), weights, strict=True))


def _outside(node: Node, axes: Sequence[_Axis]) -> NDArray[np.bool_] | None:
    """Return a broadcastable mask of the result's pixels that are outside of the input; None if there are none."""
    is_outside = np.zeros((1,) * node.info(0).rank, bool)
    for axis in axes:
        coordinates = _input_coordinates(axis, "tf_crop_and_resize")
        is_beyond = (coordinates < 0) | (coordinates > axis.size - 1)
        is_outside = is_outside | np.expand_dims(is_beyond, [i for i in range(is_outside.ndim) if i != axis.number])
    return is_outside if is_outside.any() else None


def _same_operator(node: Node, axes: Sequence[_Axis], style: _Style) -> Resize | None:
    """Return a `Resize` operator that samples exactly as the node asks, or None if none of its modes does.

    It is for images (rank 4) of which only height and width are resized.
    """
    shape = node.info(0).shape
    if len(shape) != 4 or style.mode == "cubic" or style.crops:
        return None
    targets = {axis.number: axis.target for axis in axes}
    height, width = (targets.get(i, shape[i]) for i in (2, 3))
    if any(axis.number < 2 for axis in axes) or isinstance(height, Dim) or isinstance(width, Dim):
        return None
    if 0 in (height, width):
        return None
    method = ResizeMethod.NEAREST_NEIGHBOR if style.mode == "nearest" else ResizeMethod.BILINEAR
    for align, half in _FLAGS:
        op = Resize(width, height, method, align_corners=align, half_pixel_centers=half)
        if all(_agrees(op, axis, style) for axis in axes):
            return op
    return None


def _agrees(op: Resize, axis: _Axis, style: _Style) -> bool:
    if style.mode == "nearest":
        return np.array_equal(nearest_pixels(op, axis.size, axis.target), _nearest_indices(axis, style))
    if style.exclude_outside or (style.antialias and axis.scale < 1):
        return False
    mode = "align_corners" if op.align_corners else "half_pixel" if op.half_pixel_centers else "asymmetric"
    exact_axis = axis._replace(scale=axis.target / axis.size)
    expected_coordinates, sampled_coordinates = (
        np.clip(_input_coordinates(resized_axis, transformation), 0, axis.size - 1)
        for resized_axis, transformation in ((axis, style.coordinates), (exact_axis, mode))
    )
    return bool(np.allclose(expected_coordinates, sampled_coordinates, rtol=0, atol=1e-6 * axis.size))


def _resized_along(node: Node, value: Value, axis: _Axis, style: _Style, make: Callable[..., Value]) -> Value:
    if style.mode == "nearest":
        return make(Gather(axis.number), value, node.constant(_nearest_indices(axis, style)))
    rank = value.known.rank
    weights = _weights(axis, style).astype(value.known.dtype.numpy)
    if axis.number == rank - 1:
        return make(BatchMatMul(transpose_y=True), value, node.constant(weights))
    if axis.number == rank - 2:
        return make(BatchMatMul(), node.constant(weights), value)
    permutation = list(range(rank))
    permutation[axis.number], permutation[-1] = permutation[-1], permutation[axis.number]
    swap = Transpose(tuple(permutation))
    interpolated = node.step(BatchMatMul(transpose_y=True), node.step(swap, value), node.constant(weights))
    return make(swap, interpolated)


# --- where pixels come from -------------------------------------------------------------------------------------------


def _input_coordinates(axis: _Axis, coordinates: str, dtype: type[np.floating[Any]] = np.float64) -> NDArray[Any]:
    """Return the input coordinate of each result pixel along an axis, in pixels, computed in `dtype`.

    `coordinates` is the attribute coordinate_transformation_mode.
    """
    pixels: NDArray[Any] = np.arange(axis.target, dtype=dtype)
    size, target, scale = map(dtype, (axis.size, axis.target, axis.scale))
    scaled_size = dtype(axis.scaled_size)
    if coordinates == "align_corners":
        return np.divide(pixels * (size - 1), scaled_size - 1) if scaled_size != 1 else pixels * 0
    if coordinates == "asymmetric":
        from_corner: NDArray[Any] = pixels / scale
        return from_corner
    if coordinates == "tf_crop_and_resize":
        start, end = axis.part
        fraction = pixels / (target - 1) if axis.target > 1 else pixels + 0.5
        return (start + fraction * (end - start)) * (size - 1)
    if coordinates == "tf_half_pixel_for_nn":  # a part of opsets 11 and 12, which exporters write into later ones too
        return (pixels + 0.5) / scale
    if coordinates == "pytorch_half_pixel" and axis.target == 1:
        return pixels - 0.5
    centers = (pixels + 0.5) / scale - 0.5
    return centers + size / 2 * (1 - target / scaled_size) if coordinates == "half_pixel_symmetric" else centers


def _nearest_indices(axis: _Axis, style: _Style) -> NDArray[np.int64]:
    """Return the input pixel of each result pixel along an axis; coordinates are float32, as in ONNX Runtime."""
    coordinates = _input_coordinates(axis, style.coordinates, np.float32)
    lower = np.floor(coordinates)
    rounded_positions = {
        None: np.ceil(coordinates) if axis.scale < 1 else lower,
        "round_prefer_floor": lower + (coordinates - lower > _HALF),
        "round_prefer_ceil": lower + (coordinates - lower >= _HALF),
        "floor": lower,
        "ceil": np.ceil(coordinates),
    }
    if style.nearest_mode not in rounded_positions:
        raise ParseError(f"its nearest_mode is {style.nearest_mode!r}")
    positions: NDArray[np.float64] = rounded_positions[style.nearest_mode]
    return positions.clip(0, axis.size - 1).astype(np.int64)


def _weights(axis: _Axis, style: _Style) -> Floats:
    """Return the interpolation weights along an axis as a matrix: a row per result pixel, a column per input pixel.

    Beyond the edge, the edge pixel repeats, unless `style` excludes what is outside.
    """
    coordinates = _input_coordinates(axis, style.coordinates)
    left_neighbours = np.ceil(coordinates) - 1
    scale = min(1.0, axis.scale) if style.antialias else 1.0
    first_offset = math.floor(-(1 if style.mode == "linear" else 2) / scale) + 1
    offsets = np.arange(first_offset, 2 - first_offset)
    distances = np.abs(offsets - (coordinates - left_neighbours)[:, None]) * scale
    contributions = np.maximum(1 - distances, 0) if style.mode == "linear" else _cubic(distances, style.cubic)
    neighbours = left_neighbours[:, None].astype(np.int64) + offsets
    if style.exclude_outside:
        contributions = np.where((neighbours < 0) | (neighbours >= axis.size), 0, contributions)
    if style.exclude_outside or scale < 1:
        contributions = contributions / contributions.sum(axis=1, keepdims=True)
    weights = np.zeros((axis.target, axis.size))
    np.add.at(weights, (np.arange(axis.target)[:, None], np.clip(neighbours, 0, axis.size - 1)), contributions)
    return weights


def _cubic(distance: Floats, a: float) -> Floats:
    """Return the weights of Keys' cubic convolution for distances in pixels; `a` is the coefficient of the kernel."""
    near_weights = ((a + 2) * distance - (a + 3)) * distance**2 + 1
    far_weights = ((distance - 5) * distance + 8) * distance * a - 4 * a
    return np.where(distance <= 1, near_weights, np.where(distance < 2, far_weights, 0))
