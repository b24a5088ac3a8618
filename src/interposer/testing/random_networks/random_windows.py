"""Windows that slide over images: kernel sizes, strides, dilations and padding that differ by axis and by side."""

from __future__ import annotations

from interposer.core.types import DataLayout, TensorInfo
from interposer.ir.graph import Value
from interposer.ops import Reshape
from interposer.ops.window import Window
from interposer.testing.drawing import Draw
from interposer.testing.random_networks.growth import Growth, Skipped

__all__ = ["as_rank", "image", "slid", "spread"]


def slid(draw: Draw, size: int) -> Window:
    """Return a random window whose dilated kernel fits at least once into an axis of this size after padding."""
    kernel = size if 0 < size <= 9 and draw.chance(1, 16) else draw.weighted((1, 2, 3, 4, 5, 7), (10, 5, 12, 2, 4, 1))
    stride = draw.weighted((1, 2, 3, 5), (12, 5, 2, 1))
    dilation = draw.weighted((1, 2, 3, 6), (14, 3, 2, 1))
    reach = (kernel - 1) * dilation + 1
    pad_before, pad_after = _padding(draw, reach)
    num_missing = reach - size - pad_before - pad_after
    if num_missing > 0 and draw.chance(1, 2):
        kernel, dilation, reach = max(1, min(kernel, size)), 1, max(1, min(kernel, size))
        num_missing = reach - size - pad_before - pad_after
    if num_missing > 0:
        pad_before, pad_after = (
            (pad_before, pad_after + num_missing) if draw.chance(1, 2) else (pad_before + num_missing, pad_after)
        )
    return Window(kernel, stride, dilation, pad_before, pad_after)


def _padding(draw: Draw, reach: int) -> tuple[int, int]:
    """Return the padding before and after an axis: none, equal, on one side only, or random.

    `reach` is the size of the dilated kernel. Most paddings are smaller, few are larger by up to two elements.
    """
    amount = draw.integer(1, max(1, reach - 1)) if draw.chance(15, 16) else reach + draw.below(3)
    other_amount = draw.integer(0, max(1, reach - 1))
    return draw.weighted(((0, 0), (amount, amount), (0, amount), (amount, 0), (amount, other_amount)), (8, 4, 3, 2, 2))


def spread(draw: Draw, size: int, longest: int) -> Window:
    """Return the window of a transposed convolution for an input of this size; its output size is at most `longest`.

    Raises:
        Skipped: the drawn padding or the input size makes the output empty or too large.
    """
    kernel = draw.weighted((1, 2, 3, 4, 5), (4, 5, 8, 3, 2))
    stride = draw.weighted((1, 2, 3, 5), (6, 8, 3, 1))
    dilation = draw.weighted((1, 2, 3, 7, 20), (14, 3, 2, 1, 1))
    if (size - 1) * stride + (kernel - 1) * dilation + 1 > longest:
        kernel, stride, dilation = min(kernel, 2), 1, 1
    reach = (kernel - 1) * dilation + 1
    full_size = (size - 1) * stride + reach
    pad_before, pad_after = _padding(draw, reach)
    pad_before = min(pad_before, full_size - 1)
    pad_after = min(pad_after, full_size - 1 - pad_before)
    if full_size < 1 or full_size - pad_before - pad_after > max(longest, 1):
        raise Skipped
    return Window(kernel, stride, dilation, pad_before, pad_after)


def as_rank(growth: Growth, value: Value, rank: int) -> Value:
    """Return the value reshaped to this rank: axes of size 1 are inserted, or neighbouring axes are merged."""
    sizes = list(value.known.shape)
    if len(sizes) == rank:
        return value
    while len(sizes) < rank:
        sizes.insert(growth.draw.integer(0, len(sizes)), 1)
    while len(sizes) > rank:
        axis = growth.draw.below(len(sizes) - 1)
        sizes[axis : axis + 2] = [sizes[axis] * sizes[axis + 1]]
    return growth.add(Reshape(tuple(sizes)), value)


def image(growth: Growth, value: Value, rank: int = 4, *, stored: bool = False) -> Value:
    """Return a value of this rank: `value` itself, another value, a new input, or `value` reshaped.

    It is quantized if `stored` is True, else float.
    """
    draw = growth.draw
    if value.known.rank != rank:
        existing_value = growth.another(lambda candidate: candidate.known.rank == rank) if draw.chance(3, 4) else None
        if existing_value is None and draw.chance(1, 2):
            return new_image(growth, rank, stored=stored)
        value = existing_value or as_rank(growth, value, rank)
    return growth.stored(value) if stored else growth.real(value)


def new_image(growth: Growth, rank: int, *, stored: bool = False) -> Value:
    """Add an input of this rank to the network, quantized if `stored` is True, and return its value."""
    shape = growth.image_shape() if rank == 4 else growth.shape(rank, 17, growth.room // 2)
    if not stored:
        return growth.input(TensorInfo(shape, growth.real_type))
    reach = growth.draw.one_of((1.0, 3.0, 6.0))
    return growth.input(TensorInfo(shape, growth.stored_type, growth.quantization(growth.stored_type, reach)))


def layout_for(growth: Growth) -> DataLayout:
    """Return the network's usual layout, or occasionally the other one."""
    if growth.draw.chance(3, 4):
        return growth.layout
    return DataLayout.NCHW if growth.layout is DataLayout.NHWC else DataLayout.NHWC
