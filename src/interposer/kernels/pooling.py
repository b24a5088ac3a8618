"""Pooling kernels, over a view of the image that has the elements of each window."""

from __future__ import annotations

import numpy as np

from interposer.core.types import Array, DataType, Quantization
from interposer.kernels.accumulation import NUMBERS, float_type
from interposer.kernels.fixedpoint import clamp_to, dequantize, quantize, quantized_means, rescale
from interposer.kernels.layout import from_nhwc, to_nhwc
from interposer.kernels.places import places, visible
from interposer.kernels.pooling_rules import EIGHT_OR_SIXTEEN_BITS, floats_or_max, one_scale
from interposer.kernels.real import real
from interposer.kernels.reference import kernel
from interposer.kernels.sliding import covered
from interposer.kernels.table import KernelInfo
from interposer.ops.pooling import PaddingMethod, Pooling2d, PoolingAlgorithm
from interposer.ops.quantization import Requantization

__all__: list[str] = []

MAX, L2 = PoolingAlgorithm.MAX, PoolingAlgorithm.L2


@kernel(Pooling2d, quantized=False, dtypes=NUMBERS, when=floats_or_max)
def pooling(op: Pooling2d, x: Array, *, info: KernelInfo) -> Array:
    """Compute `Pooling2d` of unquantized tensors; sums are computed in float64 and rounded once."""
    window, dtype = _PoolWindow(op, info), info.input.dtype
    wide_type = np.uint64 if dtype is DataType.UINT64 else float_type(dtype)
    image = to_nhwc(x, op.data_layout).astype(wide_type, copy=False)
    pooled = window.largest(image) if op.pool_type is MAX else window.mean(image)
    return from_nhwc(pooled, op.data_layout)


@kernel(Pooling2d, quantized=True, dtypes=EIGHT_OR_SIXTEEN_BITS, when=one_scale)
def pooling_quantized(op: Pooling2d, x: Array, *, info: KernelInfo) -> Array:
    """Compute `Pooling2d` of quantized tensors.

    MAX and AVERAGE are computed on quantized values, as in TFLite, and L2 on float values. TFLite requires the same
    quantization of input and output. With another one, means are computed on float values, so that they are rounded
    only once. With HALF_TO_EVEN, means are exact before they are rounded.
    """
    window, image = _PoolWindow(op, info), to_nhwc(x, op.data_layout)
    input_quantization, output_quantization = (
        tensor.quantization or Quantization(1.0) for tensor in (info.input, info.output)
    )
    if op.requantization is Requantization.HALF_TO_EVEN:
        pooled = _rounded_to_even(op, window, image, info)
    elif op.pool_type is MAX:
        pooled = rescale(window.largest(image), input_quantization, output_quantization, info.output.dtype)
    elif op.pool_type is L2 or input_quantization != output_quantization:
        pooled = quantize(window.mean(dequantize(image, input_quantization)), output_quantization, info.output.dtype)
    else:
        pooled = clamp_to(window.quantized_mean(image), info.output.dtype)
    return from_nhwc(pooled, op.data_layout)


def _rounded_to_even(op: Pooling2d, window: _PoolWindow, image: Array, info: KernelInfo) -> Array:
    """Return the pooled image of quantized values; means are exact, and all results are rounded half to even."""
    if op.pool_type is PoolingAlgorithm.AVERAGE:
        return quantized_means(*window.sums(image), info.input, info.output)
    assert info.output.quantization is not None, "the tensors are quantized"
    reals = real(window.largest(image), info.input) if op.pool_type is MAX else window.mean(real(image, info.input))
    return quantize(reals, info.output.quantization, info.output.dtype, np.rint)


class _PoolWindow:
    """The window of a `Pooling2d` operator; it reduces images (N, H, W, C) of known size to (N, OH, OW, C)."""

    def __init__(self, op: Pooling2d, info: KernelInfo) -> None:
        h, w, _ = op.data_layout.axes()
        input_shape, output_shape = info.input.shape, info.output.shape
        self.op = op
        self.zero = info.input.zero_point
        row_window, column_window = op.windows(input_shape[h], input_shape[w])
        self.axes = (row_window, input_shape[h], output_shape[h]), (column_window, input_shape[w], output_shape[w])

    def over(self, image: Array, padding: float = 0) -> Array:
        """Return the cells of the window at each place, (N, OH, OW, KH, KW, C), except those never in the image.

        Cells outside of the image have the value `padding`.
        """
        (rows, _), (columns, _) = (visible(*axis) for axis in self.axes)
        return places(image, rows, columns, padding)

    def area(self, *, padding: bool) -> Array:
        """Return the number of cells of the window that are in the image at each place, (OH, OW, 1).

        With `padding`, cells that are in the padding are counted too.
        """
        rows, columns = (covered(*axis, padding=padding) for axis in self.axes)
        return np.multiply.outer(rows, columns)[..., np.newaxis]

    def largest(self, image: Array) -> Array:
        """Return the largest cell of each window, (N, OH, OW, C); the quantized zero for a window of padding."""
        maxima: Array = np.max(self.over(image, _lowest(image)), axis=(3, 4), initial=_lowest(image))
        return np.where(self.area(padding=False) > 0, maxima, image.dtype.type(self.zero))

    def mean(self, image: Array) -> Array:
        """Return the mean of each window of float values, or for L2 the root of the mean square, as (N, OH, OW, C)."""
        power = 2 if self.op.pool_type is L2 else 1
        sums = self.over(image.astype(np.float64) ** power).sum(axis=(3, 4))
        mean: Array = sums / np.maximum(self._divisors(), 1)
        return np.sqrt(mean) if power == 2 else mean

    def quantized_mean(self, image: Array) -> Array:
        """Return the mean of each window of quantized values, rounded half away from zero, as (N, OH, OW, C)."""
        counts = self._divisors()
        sums = self.sums(image)[0] + self.zero * counts
        magnitudes = (np.abs(sums) + counts // 2) // np.maximum(counts, 1)
        return np.where(counts > 0, np.sign(sums) * magnitudes, np.int64(self.zero))

    def sums(self, image: Array) -> tuple[Array, Array]:
        """Return the sum of each window's quantized values minus their zero point, (N, OH, OW, C), and the divisors."""
        return self.over(image.astype(np.int64) - self.zero).sum(axis=(3, 4)), self._divisors()

    def _divisors(self) -> Array:
        return self.area(padding=self.op.padding_method is PaddingMethod.IGNORE_VALUE)


def _lowest(image: Array) -> float:
    """Return the smallest value of the array's type, minus infinity for floats."""
    return int(np.iinfo(image.dtype).min) if image.dtype.kind in "iu" else -np.inf
