"""ONNX writers for pooling of images and volumes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import reduce
from typing import Any, Final, NamedTuple

import numpy as np

from interposer.core.types import Array, DataType, Dim
from interposer.ops.pooling import OutputShapeRounding, PaddingMethod, Pooling2d, PoolingAlgorithm
from interposer.ops.pooling3d import Pooling3d
from interposer.ops.window import Window
from interposer.writers.onnx.draft import Draft
from interposer.writers.onnx.fixedpoint import single
from interposer.writers.onnx.onnx_layer_writers import writer
from interposer.writers.onnx.onnx_window_attributes import kernel_attributes
from interposer.writers.onnx.tensor import Tensor
from interposer.writers.refusals import refuse

__all__ = ["comparable"]

MAX, AVERAGE, L2 = PoolingAlgorithm.MAX, PoolingAlgorithm.AVERAGE, PoolingAlgorithm.L2
_MOST_CELLS: Final = 1024
_GLOBAL: Final = {MAX: "GlobalMaxPool", AVERAGE: "GlobalAveragePool"}


class _Places(NamedTuple):
    """The windows of a pooling layer, and how many cells each of them covers.

    The windows' end pads are such that the layer's output size results. For each spatial axis, `image_cells` has the
    number of image cells in every window, and `counted` the number of cells that a mean divides by.
    """

    windows: Sequence[Window]
    image_cells: Sequence[Array]
    counted: Sequence[Array]

    @property
    def is_plain(self) -> bool:
        """True if every window covers cells of the image, and every pad is smaller than its window."""
        has_small_pads = all(max(w.pad_before, w.pad_after) < w.size for w in self.windows)
        return has_small_pads and all(int(counts.min(initial=1)) > 0 for counts in self.image_cells)

    def product(self, counts: Sequence[Array]) -> Array:
        """Return the product of one array per spatial axis (such as `image_cells`) for each position of the window.

        The shape is (1, 1, *output sizes), which broadcasts with the result.
        """
        array: Array = reduce(np.multiply.outer, counts)
        return array[np.newaxis, np.newaxis]


@writer(Pooling2d, Pooling3d)
def pooling(draft: Draft, op: Pooling2d | Pooling3d) -> Tensor:
    """Write pooling as MaxPool, AveragePool or a global operator; L2 pooling is the root of the mean squares.

    Windows that only cover padding, or padding that counts in means, require explicit pads and factors.
    """
    x, sizes = draft.operand(0), draft.info(0).shape[2:]
    if _is_global(op):
        return _of_all(draft, op, x)
    if any(isinstance(size, Dim) for size in sizes):
        return _of_unknown_size(draft, op, x, sizes)
    places = _places(draft, op, sizes)
    if op.pool_type is MAX:
        return _largest(draft, x, places)
    return _mean(draft, op, x, places)


def _is_global(op: Pooling2d | Pooling3d) -> bool:
    sizes = [op.pool_height, op.pool_width] + ([op.pool_depth] if isinstance(op, Pooling3d) else [])
    return not any(sizes) and op.stride_x == 0


def _of_all(draft: Draft, op: Pooling2d | Pooling3d, x: Tensor) -> Tensor:
    if op.pool_type is L2:
        return _L2(draft, x, _GLOBAL[AVERAGE], {})
    if x.dtype.is_integer:
        return draft.reduce("ReduceMax", x, range(2, draft.rank))
    return draft.node(_GLOBAL[op.pool_type], x)


def _L2(draft: Draft, x: Tensor, kind: str, attributes: dict[str, Any]) -> Tensor:  # noqa: N802 - as it is called
    wide_x = draft.cast(x, DataType.FLOAT32 if x.dtype.bits < 32 else x.dtype)
    mean = draft.node(kind, draft.node("Mul", wide_x, wide_x), **attributes)
    return draft.cast(draft.node("Sqrt", mean), x.dtype)


def _of_unknown_size(draft: Draft, op: Pooling2d | Pooling3d, x: Tensor, sizes: Sequence[int]) -> Tensor:
    windows = op.windows(*sizes)
    if op.stride_x == 0 or any(isinstance(w.size, Dim) for w in windows):
        refuse("it has windows as large as the image, whose size is not known")
    ceiling = op.output_shape_rounding is OutputShapeRounding.CEILING
    counts_padding = op.padding_method is PaddingMethod.IGNORE_VALUE and op.pool_type is not MAX
    attributes = kernel_attributes(windows) | {"ceil_mode": 1 if ceiling else None}
    if op.pool_type is MAX:
        return draft.node("MaxPool", x, **attributes)
    if counts_padding and ceiling:
        refuse("it counts padding in a mean of an image whose size is not known, in mode CEILING")
    attributes["count_include_pad"] = 1 if counts_padding else None
    return (_L2 if op.pool_type is L2 else _average)(draft, x, "AveragePool", attributes)


def _average(draft: Draft, x: Tensor, kind: str, attributes: dict[str, Any]) -> Tensor:
    return draft.node(kind, x, **attributes)


def _places(draft: Draft, op: Pooling2d | Pooling3d, sizes: Sequence[int]) -> _Places:
    counts = draft.result.shape[2:]
    windows = []
    for window, size, count in zip(op.windows(*sizes), sizes, counts, strict=True):
        fitted_window = window if op.stride_x else window._replace(stride=max(1, size + window.pad_before))
        windows.append(fitted_window._replace(pad_after=fitted_window.pad_after_for(size, count)))
    declared_windows = op.windows(*sizes)
    counts_padding = op.padding_method is PaddingMethod.IGNORE_VALUE and op.pool_type is not MAX
    image_cells = [_cells(w, n, c, 0) for w, n, c in zip(windows, sizes, counts, strict=True)]
    end_pads = [w.pad_after for w in declared_windows]
    padded_cells = [_cells(w, n, c, 1, b) for w, n, c, b in zip(windows, sizes, counts, end_pads, strict=True)]
    return _Places(windows, image_cells, padded_cells if counts_padding else image_cells)


def _cells(window: Window, size: int, count: int, padding: int, end_pad: int = 0) -> Array:
    """Return how many cells of the image each of `count` windows along an axis covers, as a vector.

    `size` is the size of the image. If `padding` is 1 instead of 0, cells of the padding before the image count too,
    and `end_pad` cells of the padding after it.
    """
    first_cells = np.arange(count) * window.stride - window.pad_before
    low, high = -padding * window.pad_before, size + padding * end_pad
    outside_cells, reached_cells = (
        np.clip(-((first_cells - limit) // window.dilation), 0, window.size) for limit in (low, high)
    )
    array: Array = reached_cells - outside_cells
    return array


def _largest(draft: Draft, x: Tensor, places: _Places) -> Tensor:
    """Return the maximum of each window in `places`; padding never counts, and a window of only padding gives 0."""
    wide_x = comparable(draft, x)
    if places.is_plain:
        return draft.cast(draft.node("MaxPool", wide_x, **kernel_attributes(places.windows)), x.dtype)
    padded = _padded(draft, wide_x, places, _least(wide_x.dtype))
    unpadded = [w._replace(pad_before=0, pad_after=0) for w in places.windows]
    maxima = draft.cast(draft.node("MaxPool", padded, **kernel_attributes(unpadded)), x.dtype)
    mask = draft.constant(places.product(places.image_cells) > 0, DataType.BOOL, "seen")
    return draft.node("Where", mask, maxima, draft.like(0, x))


def comparable(draft: Draft, x: Tensor) -> Tensor:
    """Return a tensor in a type that MaxPool can compare exactly: integers of 16 and 32 bits are cast to float64.

    Others are returned unchanged.
    """
    if x.dtype.is_integer and x.dtype.bits < 64 and x.dtype not in (DataType.INT8, DataType.UINT8):
        return draft.cast(x, DataType.FLOAT64)
    return x


def _least(dtype: DataType) -> float:
    if dtype.is_float:
        return -math.inf
    return 0 if str(dtype).startswith("uint") else -(1 << dtype.bits - 1)


def _padded(draft: Draft, x: Tensor, places: _Places, fill: float) -> Tensor:
    pads = [0, 0, *(w.pad_before for w in places.windows), 0, 0, *(w.pad_after for w in places.windows)]
    return draft.node("Pad", x, draft.ints(pads, "pads"), draft.like(fill, x)) if any(pads) else x


def _mean(draft: Draft, op: Pooling2d | Pooling3d, x: Tensor, places: _Places) -> Tensor:
    make = _L2 if op.pool_type is L2 else _average
    is_dilated = draft.opset < 19 and any(w.dilation > 1 for w in places.windows)
    if is_dilated:
        refuse(f"AveragePool has no dilations in opset {draft.opset}")
    size = math.prod(w.size for w in places.windows)
    num_counted = places.product(places.counted)
    if places.is_plain and places.counted is places.image_cells:
        return make(draft, x, "AveragePool", kernel_attributes(places.windows))
    if places.is_plain and (num_counted == size).all():
        return make(draft, x, "AveragePool", {**kernel_attributes(places.windows), "count_include_pad": 1})
    wide_x = draft.cast(x, DataType.FLOAT32 if x.dtype.bits < 32 else x.dtype)
    squares = draft.node("Mul", wide_x, wide_x) if op.pool_type is L2 else wide_x
    unpadded = [w._replace(pad_before=0, pad_after=0) for w in places.windows]
    mean = draft.node("AveragePool", _padded(draft, squares, places, 0), **kernel_attributes(unpadded))
    factor = draft.constant(np.where(num_counted > 0, size / np.maximum(num_counted, 1), 0), wide_x.dtype, "counted")
    scaled = draft.node("Mul", mean, factor)
    return draft.cast(draft.node("Sqrt", scaled) if op.pool_type is L2 else scaled, x.dtype)


@writer(Pooling2d, Pooling3d, quantized=True, computes=True)
def quantized_pooling(draft: Draft, op: Pooling2d | Pooling3d) -> Tensor:
    """Write pooling of quantized values; maxima are those of the integers, means are rounded away from zero."""
    source, target = draft.info(0).quantization, draft.result.quantization
    sizes = draft.info(0).shape[2:]
    has_known_sizes = not any(isinstance(n, Dim) for n in sizes)
    is_plain = _is_global(op) or (has_known_sizes and _places(draft, op, sizes).is_plain)
    if (
        op.pool_type is MAX
        and source == target
        and (is_plain or (not has_known_sizes and not draft.info(0).zero_point))
    ):
        return pooling(draft, op)
    if (
        isinstance(op, Pooling3d)
        or op.pool_type is not AVERAGE
        or source != target
        or not (is_plain and has_known_sizes)
    ):
        refuse("ONNX rounds a quantized pool otherwise")
    return _quantized_mean(draft, op, sizes)


def _quantized_mean(draft: Draft, op: Pooling2d | Pooling3d, sizes: Sequence[int]) -> Tensor:
    """Return the mean of the quantized values in each window, rounded half away from zero, as the layer's result.

    It is computed in float32. The layer is refused if windows have so many cells that this could give another integer,
    or if padding counts. `sizes` are the spatial sizes of the image.
    """
    single(draft.info(0))
    places = _places(draft, op, sizes)
    count = max(1, int(places.product(places.counted).max(initial=1)))
    counts_padding = (
        op.padding_method is PaddingMethod.IGNORE_VALUE and (places.product(places.image_cells) < count).any()
    )
    if counts_padding or count > _MOST_CELLS:
        refuse("ONNX rounds a quantized pool otherwise")
    floats = draft.cast(draft.operand(0), DataType.FLOAT32)
    mean = draft.node(_GLOBAL[AVERAGE], floats) if _is_global(op) else _mean(draft, op, floats, places)
    rounded_magnitude = draft.node("Add", draft.node("Abs", mean), draft.like(0.5 + 1 / (4 * count), mean))
    rounded = draft.node("Mul", draft.node("Sign", mean), draft.node("Floor", rounded_magnitude))
    return draft.cast(rounded, draft.result.dtype)
