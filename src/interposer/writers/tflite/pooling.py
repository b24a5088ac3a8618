"""TFLite writers for pooling."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import numpy as np

from interposer.core.types import Array, Dim, TensorInfo, integer_range
from interposer.ops.pooling import PaddingMethod, Pooling2d, PoolingAlgorithm
from interposer.ops.window import Window
from interposer.writers.refusals import refuse
from interposer.writers.tflite.draft import Draft
from interposer.writers.tflite.sheet import Tensor
from interposer.writers.tflite.tflite_layer_writers import writer
from interposer.writers.tflite.tflite_window_options import SAME, VALID, Sliding, options, padded, sliding

__all__: list[str] = []

AVERAGE, MAX, L2 = PoolingAlgorithm.AVERAGE, PoolingAlgorithm.MAX, PoolingAlgorithm.L2
_KINDS: Final = {AVERAGE: "AVERAGE_POOL_2D", MAX: "MAX_POOL_2D", L2: "L2_POOL_2D"}


class _Places(NamedTuple):
    """The windows of a pooling layer along height and width, and the cells that each position of them covers.

    `image_cells` is the number of image cells and `counted` the number of cells that a mean divides by, both of shape
    (OH, OW, 1).
    """

    windows: tuple[Window, ...]
    image_cells: Array
    counted: Array

    @property
    def size(self) -> int:
        """The number of cells of a window."""
        return math.prod(window.size for window in self.windows)


@writer(Pooling2d, also_quantized=True)
def pooling(draft: Draft, op: Pooling2d) -> Tensor:
    """Write pooling; padding other than SAME becomes a PAD before it: the lowest number for maxima, else zeros."""
    if op.dilation_x > 1 or op.dilation_y > 1:
        refuse("it has dilations, which pooling of TFLite has not")
    if draft.info(0).quantization != draft.result.quantization:
        refuse("the scales of input and result differ")
    x, info = draft.operand(0), draft.result
    sizes, counts = x.shape[1:3], info.shape[1:3]
    if any(isinstance(size, Dim) for size in (*sizes, *counts)):
        return _of_unknown_size(draft, op, x, info)
    places = _places(op, sizes, counts)
    return _largest(draft, x, info, places) if op.pool_type is MAX else _mean(draft, op, x, info, places)


def _of_unknown_size(draft: Draft, op: Pooling2d, x: Tensor, info: TensorInfo) -> Tensor:
    windows = op.windows(*x.shape[1:3])
    padding = sliding(windows, x.shape[1:3], info.shape[1:3])
    pads = any(window.pad_before or window.pad_after for window in windows)
    if op.stride_x == 0 or any(isinstance(window.size, Dim) for window in windows):
        refuse("it has windows as large as the image, whose size is not known")
    if pads and op.pool_type is not MAX and (padding.adds or op.padding_method is PaddingMethod.IGNORE_VALUE):
        refuse("it has padding that SAME does not mean, on an image whose size is not known")
    return _node(draft, op.pool_type, padded(draft, x, padding, _lowest(x.info)), info, windows, padding)


def _places(op: Pooling2d, sizes: Sequence[int], counts: Sequence[int]) -> _Places:
    windows = tuple(
        window if op.stride_x else window._replace(stride=max(1, size + window.pad_before + window.pad_after))
        for window, size in zip(op.windows(*sizes), sizes, strict=True)
    )
    counts_padding = op.padding_method is PaddingMethod.IGNORE_VALUE and op.pool_type is not MAX
    image_counts, padded_counts = (
        np.multiply.outer(*(_cells(*axis, padding) for axis in zip(windows, sizes, counts, strict=True)))[..., None]
        for padding in (0, 1)
    )
    return _Places(windows, image_counts, padded_counts if counts_padding else image_counts)


def _cells(window: Window, size: int, count: int, padding: int) -> Array:
    """Return how many cells of the image each of `count` windows along an axis covers, as a vector.

    `size` is the size of the image. If `padding` is 1 instead of 0, the window's padding counts too.
    """
    first_cells = np.arange(count) * window.stride - window.pad_before
    low, high = -padding * window.pad_before, size + padding * window.pad_after
    cell_counts: Array = np.clip(high - first_cells, 0, window.size) - np.clip(low - first_cells, 0, window.size)
    return cell_counts


def _largest(draft: Draft, x: Tensor, info: TensorInfo, places: _Places) -> Tensor:
    if not places.image_cells.all():
        refuse("some of its windows see nothing but padding")
    padding = sliding(places.windows, x.shape[1:3], info.shape[1:3])
    return _node(draft, MAX, padded(draft, x, padding, _lowest(x.info)), info, places.windows, padding)


def _lowest(info: TensorInfo) -> float:
    return integer_range(info.dtype)[0] if info.dtype.is_integer else -math.inf


def _mean(draft: Draft, op: Pooling2d, x: Tensor, info: TensorInfo, places: _Places) -> Tensor:
    """Return average or L2 pooling of `x`, with the info `info`.

    If TFLite divides by other numbers of cells than the layer (`places.counted`), the mean is multiplied by their
    ratio. Quantized layers are refused in this case, as they would be rounded twice.
    """
    padding = sliding(places.windows, x.shape[1:3], info.shape[1:3])
    if not padding.adds and np.array_equal(places.counted, places.image_cells):
        return _node(draft, op.pool_type, x, info, places.windows, padding)
    if padding.padding == SAME:
        padding = _explicit(places.windows, x.shape[1:3], info.shape[1:3])
    mean = _node(draft, op.pool_type, padded(draft, x, padding), info, places.windows, padding)
    if (places.counted == places.size).all():
        return mean
    if info.is_quantized:
        refuse("its means count other cells than TFLite's, which would round them twice")
    factor = np.where(places.counted > 0, places.size / np.maximum(places.counted, 1), 0)
    factors = draft.constant(np.sqrt(factor) if op.pool_type is L2 else factor, x.dtype, "counted")
    return draft.node("MUL", mean, factors, giving=info)


def _explicit(windows: Sequence[Window], sizes: Sequence[int], counts: Sequence[int]) -> Sliding:
    pads = [
        (window.pad_before, window.pad_after_for(size, count))
        for window, size, count in zip(windows, sizes, counts, strict=True)
    ]
    return Sliding(VALID, tuple(pads))


def _node(
    draft: Draft, pool: PoolingAlgorithm, x: Tensor, info: TensorInfo, windows: Sequence[Window], padding: Sliding
) -> Tensor:
    fields: dict[str, Any] = options(windows, padding, dilations=False)
    height, width = (window.size for window in windows)
    return draft.node(_KINDS[pool], x, giving=info, filter_height=height, filter_width=width, **fields)
