"""Kernels of windows that slide along any number of axes, one cell of the window after the other."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from itertools import product
from typing import TypeAlias

import numpy as np

from interposer.core.types import FLOATS, Array
from interposer.kernels.elementwise import NUMBERS
from interposer.kernels.encoding import encoded
from interposer.kernels.operand_values import check_range
from interposer.kernels.places import visible
from interposer.kernels.real import all_quantized, real, store
from interposer.kernels.reference import kernel
from interposer.kernels.sliding import cell_slices, slide
from interposer.kernels.table import KernelInfo
from interposer.ops.window import Window
from interposer.ops.windowed import Col2Im, LpPooling, MaxPoolingWithIndices, MaxUnpooling

__all__: list[str] = []

Index: TypeAlias = tuple[slice, ...]


def _cells(
    windows: Sequence[Window], sizes: Sequence[int], counts: Sequence[int]
) -> Iterator[tuple[tuple[int, ...], Index, Index]]:
    """Yield the cells of a window along the spatial axes of a tensor (N, C, ...), one at a time, each as three tuples.

    These are the cell's index, and two indices as slices: the places (window positions) at which the cell is in the
    tensor, and the cell's positions in the tensor there. `sizes` are those of the axes, and `counts` the numbers of
    places.
    """
    leading_slices = (slice(None),) * 2
    axis_parameters = list(zip(windows, sizes, counts, strict=True))
    cell_ranges = [visible(*parameters)[1] for parameters in axis_parameters]
    for cell in product(*(range(cell_range.start, cell_range.stop) for cell_range in cell_ranges)):
        slices = [
            cell_slices(window, cell_index, size, count)
            for (window, size, count), cell_index in zip(axis_parameters, cell, strict=True)
        ]
        yield (
            cell,
            (*leading_slices, *(places for places, _ in slices)),
            (*leading_slices, *(positions for _, positions in slices)),
        )


def _same_quantization(op: MaxPoolingWithIndices, info: KernelInfo) -> str | None:
    is_same = info.input.quantization == info.output.quantization
    return None if is_same else "takes tensors of one quantization"


@kernel(MaxPoolingWithIndices, dtypes=NUMBERS, when=_same_quantization)
def max_pooling_with_indices(
    op: MaxPoolingWithIndices, x: Array, *, info: KernelInfo, out: tuple[Array, Array]
) -> None:
    """Compute `MaxPoolingWithIndices` into two arrays, the maxima and their indices.

    The first of several equal cells is used, and quantized values are compared directly.
    """
    values, indices = out
    values[...], indices[...] = encoded(0.0, info.output), -1
    element_indices = _numbers(x.shape, op.column_major)
    for _, places, positions in _cells(op.windows(), x.shape[2:], values.shape[2:]):
        best, best_indices, candidates = values[places], indices[places], x[positions]
        is_better = (best_indices < 0) | (candidates > best)
        best[is_better], best_indices[is_better] = candidates[is_better], element_indices[positions][is_better]


def _numbers(shape: Sequence[int], column_major: bool) -> Array:
    flat_indices = np.arange(math.prod(shape))
    if not column_major:
        return flat_indices.reshape(shape)
    axes = range(2, len(shape))
    return flat_indices.reshape(*shape[:2], *shape[:1:-1]).transpose(0, 1, *reversed(axes))


def _of_reals(op: LpPooling, info: KernelInfo) -> str | None:
    is_supported = info.quantized or info.input.dtype in FLOATS
    return None if is_supported else f"input is {info.input.dtype}; takes floats and quantized tensors"


@kernel(LpPooling, when=(all_quantized, _of_reals))
def lp_pooling(op: LpPooling, x: Array, *, info: KernelInfo, out: Array) -> None:
    """Compute `LpPooling`; the sums are computed one axis after the other."""
    powers = np.abs(real(x, info.input).astype(np.float64)) ** op.p
    for axis, window in enumerate(op.windows(), start=2):
        powers = slide(powers, axis, window, out.shape[axis], np.add, 0)
    store(powers ** (1 / op.p), info.output, out)


@kernel(MaxUnpooling)
def max_unpooling(op: MaxUnpooling, x: Array, indices: Array, *, info: KernelInfo, out: Array) -> None:
    """Compute `MaxUnpooling`; `indices` are positions in the flat output tensor."""
    check_range("indices", indices, 0, out.size - 1)
    out[...] = encoded(0.0, info.output)
    out.flat[indices.ravel()] = x.ravel()


@kernel(Col2Im, dtypes=NUMBERS, when=all_quantized)
def col2im(op: Col2Im, x: Array, *, info: KernelInfo, out: Array) -> None:
    """Compute `Col2Im`: add the row of each window cell to the image, at all places of the window."""
    values, counts = real(x, info.input), op.places()
    image = np.zeros(out.shape, values.dtype)
    if values.size:
        rows = values.reshape(*out.shape[:2], math.prod(op.window_shape), *counts)
        for cell, places, positions in _cells(op.windows(), out.shape[2:], counts):
            image[positions] += rows[:, :, np.ravel_multi_index(cell, op.window_shape)][places]
    store(image, info.output, out)
